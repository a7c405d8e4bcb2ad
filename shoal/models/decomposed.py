"""Nets whose weights are put together for every task: of a base, a part of its own and parts of others (FedWeIT; Yoon
et al. 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.models import heads
from shoal.models.base import Stacked, each_own
from shoal.models.contract import Masks, Usage, Which
from shoal.models.mlp import Linear
from shoal.models.params import Params, floats, unit, whole

BASE, SCALE, PART, ATTEND, BIAS = "base", "scale", "part", "attend", "bias"
WHOLE = "whole"  # the weights of one task, put together
LAST, OTHERS = "last", "others"  # kept: the part of one's task before, and those that neighbours have sent
PEERS = 16  # of so many neighbours at most parts are attended to


@dataclass(frozen=True)
class Decomposed(Stacked):
    """The weights of a task t are base * sigmoid(scale^t) + part^t + sum_j attend_j^t * (a part that stays as it is).

    A scale is a unit's own, attention a layer's; the parts that stay are that of the agent's task before, and those
    that neighbours have sent. All but the base is a task's own.
    """

    block: Linear
    depth: int
    tasks: int
    classes: int
    attended: int  # how many parts of other tasks there can be
    pieced: ClassVar[tuple[str, ...]] = (SCALE, PART, ATTEND, BIAS)

    @property
    def body(self) -> Mapping[str, int]:
        return {BASE: self.depth}

    @property
    def numbers(self) -> int:
        width = self.block.width
        own = self.tasks * self.depth * (width**2 + 2 * width + self.attended)
        return self.depth * width**2 + own + heads.numbers(self.tasks, self.classes, self.read)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """Parts begin as a third of the base."""
        width, size = self.block.width, (self.tasks, self.depth)
        base, bias = self.block.start(rng, self.depth)
        return {
            BASE: base,
            SCALE: floats(rng.normal(0, width**-0.5, (*size, width))),
            PART: (base / 3).expand(self.tasks, *base.shape).clone(),
            ATTEND: floats(rng.normal(0, self.attended**-0.5, (*size, self.attended))),
            BIAS: bias.expand(self.tasks, *bias.shape).clone(),
            **heads.start(rng, self.tasks, self.classes, self.read),
        }

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        return {LAST: torch.zeros(self.depth, self.block.width, self.block.width)}

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        return {name: kept[name] for name in (LAST, OTHERS) if name in kept}

    def composed(self, params: Params, usage: Usage, task: int) -> tuple[Params, Usage]:
        """The weights are put together but once."""
        rest = {name: one for name, one in usage.items() if name not in (LAST, OTHERS)}
        return {**params, WHOLE: self.weights(params, task, usage.get(LAST), usage.get(OTHERS))}, rest

    def weights(self, params: Params, task: int, last: Tensor | None, others: Tensor | None) -> Tensor:
        """The weights of one task, [depth, H, H]."""
        share = unit(params[ATTEND], task)[..., None, None]
        found = whole(params[BASE]) * unit(params[SCALE], task).sigmoid()[..., None] + unit(params[PART], task)
        # One after the other: what has not come adds nothing, in every bit.
        for at, part in enumerate([*([] if last is None else [last]), *([] if others is None else others)]):
            found = found + share[:, at] * part
        return found

    def features(
        self,
        params: Params,
        x: Tensor,
        task: Which,
        training: bool = False,
        masks: Masks = None,
        last: Tensor | None = None,
        others: Tensor | None = None,
    ) -> Tensor:
        """What the head reads, [B, F]."""
        if isinstance(task, Tensor):
            return each_own(lambda one: self.features(params, x, one, training, masks, last, others), self.tasks, task)
        made, h = params.get(WHOLE), x.T
        weights = self.weights(params, task, last, others) if made is None else whole(made)
        bias = unit(params[BIAS], task)
        for k in range(self.depth):
            h = torch.relu(weights[k] @ h + bias[k][:, None])
            h = h if masks is None else h * masks[k][0]
        return h.T
