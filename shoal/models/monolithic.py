"""Monolithic nets: one module after the other, the same for all tasks, and a head per task
(docs/protocol.md, section 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from shoal.models import heads
from shoal.models.base import Stacked
from shoal.models.cnn import Conv
from shoal.models.contract import Masks, Which
from shoal.models.mlp import Linear
from shoal.models.params import MODULE, Params, whole


@dataclass(frozen=True)
class Monolithic(Stacked):
    """A plain feed-forward net. Module k is the layer at depth k."""

    block: Linear | Conv
    depth: int
    tasks: int
    classes: int
    pieced: ClassVar[tuple[str, ...]] = MODULE
    agnostic = True  # all heads read the same features

    @property
    def body(self) -> Mapping[str, int]:
        return dict.fromkeys(MODULE, self.depth)

    @property
    def numbers(self) -> int:
        return self.depth * self.block.numbers + heads.numbers(self.tasks, self.classes, self.read)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """One agent's initial parameters; the first axis of each counts units (modules, tasks)."""
        weight, bias = self.block.start(rng, self.depth)
        return {
            "module.weight": weight,
            "module.bias": bias,
            **heads.start(rng, self.tasks, self.classes, self.block.features),
        }

    def features(self, params: Params, x: Tensor, task: Which, training: bool = False, masks: Masks = None) -> Tensor:
        """What the head reads, [B, F]; the same for all tasks."""
        # Chunks rather than slices: going back, their gradients are joined once instead of added up as zeros.
        weights, biases = whole(params["module.weight"]).split(1), whole(params["module.bias"]).split(1)
        h = self.block.enter(x)
        for k in range(self.depth):
            outputs = self.block.run(weights[k], biases[k], h)
            h = self.block.total(outputs if masks is None else outputs * masks[k])
        return self.block.leave(h)
