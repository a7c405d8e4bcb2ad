"""What most nets have in common. A net says what it does otherwise."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.models import heads
from shoal.models.blocks import Block
from shoal.models.chains import Layer
from shoal.models.contract import Usage
from shoal.models.params import Params


class Plain:
    """A net that keeps nothing beside its parameters, and is used as it is."""

    agnostic: bool = False
    rates: tuple[float, ...] = ()
    layers: tuple[Layer, ...] = ()
    axis: int = 0
    xavier: bool = False

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        return {}

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        return {}

    def trimmed(self, params: Params, usage: Usage, task: int | None) -> tuple[Params, Usage]:
        return params, usage

    def composed(self, params: Params, usage: Usage, task: int) -> tuple[Params, Usage]:
        return params, usage


class Headed(Plain):
    """A plain net with affine heads."""

    heads: ClassVar[tuple[str, ...]] = heads.NAMES

    @property
    def features(self) -> Callable[..., Tensor]:
        raise NotImplementedError

    def logits(self, params: Params, x: Tensor, task: int | Tensor, training: bool = False, **usage: object) -> Tensor:
        """Logits [B, K] of one agent for images x of one task, or of tasks task[B]."""
        return heads.read(params, self.features(params, x, task, training, **usage), task)


def of_block(name: str) -> Any:
    """What a net is because its block is."""
    return property(attrgetter(f"block.{name}"))


class Stacked(Headed):
    """A net of layers of one kind of block, which tells how to run it."""

    block: Block
    depth: int

    read, seeded, engine = of_block("features"), of_block("seeded"), of_block("engine")
    why, bound, chunk, least = of_block("why"), of_block("bound"), of_block("chunk"), of_block("least")
    encode, encoded, axis = of_block("encode"), of_block("encoded"), of_block("axis")

    @property
    def work(self) -> int:
        return self.block.work(self.depth)

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return self.block.shapes(1, batch, self.depth)


def each_own(read: Callable[[int], Tensor], tasks: int, task: Tensor) -> Tensor:
    """Every one of so many tasks reads all images, [B, F], and of each image its own task's is taken."""
    found: Tensor = torch.take_along_dim(torch.stack([read(one) for one in range(tasks)], 1), task[:, None, None], 1)
    return found.squeeze(1)
