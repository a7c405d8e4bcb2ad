"""Nets on a frozen backbone: all agents have the same random weights, and a task adds a mask of them, or biases.

The backbone is the same for all agents and seeds; what the net reads of an image (the projection) is a seed's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.models import heads
from shoal.models.base import Stacked, each_own
from shoal.models.contract import Masks, Which
from shoal.models.mlp import Linear
from shoal.models.params import Params, floats, unit, whole
from shoal.rng import key

SCORES, MIX, BIAS = "scores", "mix", "bias"


@lru_cache(maxsize=8)
def backbone(depth: int, width: int) -> Tensor:
    """The weights that nobody trains, [depth, H, H]: sign(N(0, 1)) sqrt(2 / H) (Wortsman et al. 2020)."""
    signs = np.sign(key(0, "backbone", depth, width).normal(size=(depth, width, width)))
    with torch.inference_mode(False):  # whoever asks first
        return floats(signs * (2 / width) ** 0.5)


@dataclass(frozen=True)
class Frozen(Stacked):
    """What a task adds to the backbone is its own and no other's: nothing is forgotten. `masked`: scores S for every
    weight, of which those below zero switch it off; else biases, behind layers that keep the length of what they pass
    on."""

    block: Linear
    depth: int
    tasks: int
    classes: int
    masked: bool

    @property
    def body(self) -> Mapping[str, int]:
        """Nothing that trains is the same task's in all agents."""
        return {}

    @property
    def own(self) -> tuple[str, ...]:
        """The tensors whose units are tasks, beside the heads."""
        return (SCORES, MIX) if self.masked else (BIAS,)

    @property
    def pieced(self) -> tuple[str, ...]:
        return self.own

    @property
    def numbers(self) -> int:
        width = self.block.width
        each = self.depth * (width**2 + self.tasks) if self.masked else self.depth * width
        return self.tasks * each + heads.numbers(self.tasks, self.classes, self.read)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        width, size = self.block.width, (self.tasks, self.depth)
        own = {BIAS: torch.zeros(*size, width)}
        if self.masked:
            scores = floats(rng.uniform(-(width**-0.5), width**-0.5, (*size, width, width)))
            own = {SCORES: scores, MIX: torch.zeros(*size, self.tasks)}
        return own | heads.start(rng, self.tasks, self.classes, self.read)

    def features(
        self,
        params: Params,
        x: Tensor,
        task: Which,
        training: bool = False,
        masks: Masks = None,
        mixing: Tensor | None = None,
    ) -> Tensor:
        """What the head reads, [B, F]. Where `mixing` is given, the scores of a task are those that it combines."""
        if isinstance(task, Tensor):
            return each_own(lambda one: self.features(params, x, one, training, masks, mixing), self.tasks, task)
        weights, h = backbone(self.depth, self.block.width).to(x.device), x.T
        bias = None
        if self.masked:
            scores = unit(params[SCORES], task) if mixing is None else combined(params, task)
            weights = weights * binary(scores)
        else:
            bias = unit(params[BIAS], task)
        for k in range(self.depth):
            h = torch.relu(weights[k] @ h if bias is None else weights[k] @ h + bias[k][:, None])
            if bias is not None:
                h = F.normalize(h, dim=0) * self.block.width**0.5
            h = h if masks is None else h * masks[k][0]
        return h.T


def binary(scores: Tensor) -> Tensor:
    """One where a score is at least zero and zero elsewhere; gradients go straight through."""
    hard = (scores >= 0).float()
    return hard + scores - scores.detach()


def combined(params: Params, task: int) -> Tensor:
    """The scores of a task and of all before it, weighed for each layer by a softmax, [depth, H, H]."""
    scores, share = whole(params[SCORES])[: task + 1], unit(params[MIX], task)[:, : task + 1].softmax(1)
    found: Tensor = torch.einsum("dt,tdhi->dhi", share, scores)
    return found
