"""Monolithic nets: one module after the other, the same for all tasks, and a head per task (protocol 2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from shoal.models import heads
from shoal.models.cnn import Conv
from shoal.models.mlp import Linear
from shoal.models.params import Params, whole


@dataclass(frozen=True)
class Monolithic:
    """A plain feed-forward net. Module k is the layer at depth k."""

    block: Linear | Conv
    depth: int
    tasks: int
    classes: int

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """One agent's initial parameters; the first axis of each counts units (modules, tasks)."""
        weight, bias = self.block.start(rng, self.depth)
        return {
            "module.weight": weight,
            "module.bias": bias,
            **heads.start(rng, self.tasks, self.classes, self.block.features),
        }

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks, one per depth."""
        return self.block.shapes(1, batch, self.depth)

    def logits(self, params: Params, x: Tensor, task: int | Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Logits [B, K] of one agent for images x of one task, or of tasks task[B]."""
        return heads.read(params, self.features(params, x, task, masks), task)

    def features(self, params: Params, x: Tensor, task: int | Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """What the head reads, [B, F]; the same for all tasks."""
        # Chunks rather than slices: going back, their gradients are joined once instead of added up as zeros.
        weights, biases = whole(params["module.weight"]).split(1), whole(params["module.bias"]).split(1)
        h = self.block.enter(x)
        for k in range(self.depth):
            outputs = self.block.run(weights[k], biases[k], h)
            h = self.block.total(outputs if masks is None else outputs * masks[k])
        return self.block.leave(h)
