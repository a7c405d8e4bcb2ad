"""FedFish without a server: averaging that spares what matters to oneself."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.learners.step import Tensors
from shoal.sharing.federated import Federated
from shoal.sharing.mode import Present, Received


class FedFish(Federated):
    """Averaging that spares what matters to oneself (Le et al. 2024): w <- F w + (1 - F) mean. F stays one's own.

    *Source:* Le et al. 2024.

    *Formula:* w ← F w + (1 − F) m, m the average of fedavg, F in 0..1 from one's own Fisher diagonal: the rank of each
    entry in its tensor over the largest rank (`norm = "rank"`), or its share of the largest (`"max"`).

    *Price:* that of fedavg.

    *Changed:* the paper's softmax over all weights makes F about 0 and the mode FedAvg; protocol `paper` does so (`norm
    = "softmax"`).
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedfish"] = "fedfish"
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per row, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="rows that fisher = sample looks at")
    norm: Literal["rank", "max", "softmax"] = Field(
        "rank", description="F in 0..1 by rank in its tensor, by its tensor's largest, or softmax over all (inert)"
    )
    temperature: PositiveFloat = Field(0.01, description="of the softmax")

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Between one's own weights and the mean over oneself and what has arrived."""
        mean = self.combined(agent, letters)
        if mean:
            matters = {name: one[None] for name, one in agent.matters(self.fisher, self.samples).items()}
            kept = normalised(matters, self.norm, self.temperature)
            agent.become({name: between(share[0], agent.weights[name], mean[name]) for name, share in kept.items()})


def between(share: Tensor, own: Tensor, mean: Tensor) -> Tensor:
    """A share of one's own weights and the rest of the mean. Where both are the same, so is what lies between them:
    rounding must not move it."""
    return torch.where(own == mean, mean, share * own + (1 - share) * mean)


def normalised(matters: Tensors, rule: str, temperature: float) -> Tensors:
    """How much of its own weights each lane keeps, in 0..1, by how much they matter, [L, units, ...]."""
    if rule == "softmax":
        flat = torch.cat([tensor.flatten(1) for tensor in matters.values()], 1)
        parts = (flat / temperature).softmax(1).split([tensor[0].numel() for tensor in matters.values()], 1)
        return {name: part.reshape(tensor.shape) for part, (name, tensor) in zip(parts, matters.items(), strict=True)}
    found = {}
    for name, tensor in matters.items():
        rows = tensor.flatten(2)  # a module's weights are a tensor of their own
        if rule == "max":
            share = rows / rows.max(2, keepdim=True).values.clamp(min=torch.finfo(rows.dtype).tiny)
        else:
            share = ranks(rows) / max(1, rows.shape[2] - 1)
        found[name] = share.view_as(tensor)
    return found


def ranks(rows: Tensor) -> Tensor:
    """The rank of each number along the last axis, int64 from 0 on; equal ones have the lowest of theirs."""
    values = rows.cpu().numpy()
    order = values.argsort(-1)  # quicker than torch's sort
    placed = np.take_along_axis(values, order, -1)
    first = np.ones(values.shape, bool)
    first[..., 1:] = placed[..., 1:] != placed[..., :-1]
    place = np.maximum.accumulate(np.where(first, np.arange(values.shape[-1]), 0), -1)
    found = np.empty(values.shape, np.int64)
    np.put_along_axis(found, order, place, -1)
    return torch.from_numpy(found).to(rows.device)
