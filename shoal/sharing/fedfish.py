"""FedFish without a server: averaging that spares what matters to oneself."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.learners.fisher import fisher, snapshot
from shoal.learners.step import Tensors
from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.sharing.arrived import combined
from shoal.sharing.body import write_all
from shoal.sharing.federated import Federated

AT_ONCE = 256  # lanes whose weights are mixed at once


class FedFish(Federated):
    """Averaging that spares what matters to oneself (Le et al. 2024): w <- F w + (1 - F) mean. F stays one's own."""

    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedfish"] = "fedfish"
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per image, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="images that fisher = sample looks at")
    norm: Literal["rank", "max", "softmax"] = Field(
        "rank", description="F in 0..1 by rank in its tensor, by its tensor's largest, or softmax over all (inert)"
    )
    temperature: PositiveFloat = Field(0.01, description="of the softmax")

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Between one's own weights and the mean over oneself and what has arrived."""
        matters = fisher(post.world, post.stack, self.fisher, self.samples) if answers else {}
        own = snapshot(post.world, post.stack)
        every, means_ = combined(post, questions, answers)
        for some in torch.arange(len(every)).split(AT_ONCE):
            rows, values = every[some], {}
            kept = normalised({name: one[rows] for name, one in matters.items()}, self.norm, self.temperature)
            for name, share in kept.items():
                mine, mean = own[name][rows], means_[name][some]
                # Where both are the same, so is what lies between them: rounding must not move it.
                values[name] = torch.where(mine == mean, mean, share * mine + (1 - share) * mean)
            write_all(post.stack, rows, values)


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
