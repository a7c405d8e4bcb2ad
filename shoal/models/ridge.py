"""Linear predictors of rows, or of a rectified random projection of them, whose weights are solved for and never
trained by steps (shoal/learners/analytic.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.errors import SettingsError
from shoal.models import heads
from shoal.models.base import Headed
from shoal.models.contract import Encode
from shoal.models.mlp import PIECE, projection
from shoal.models.params import Params

if TYPE_CHECKING:
    from shoal.data import Bank
    from shoal.models.nets import RidgeNet


@dataclass(frozen=True)
class Ridge(Headed):
    """Heads that read the numbers of a row, or relu(P x + b) with P and b drawn once for all agents of a seed."""

    inputs: int
    projections: int  # 0: rows are read as they are
    tasks: int
    outputs: int
    pieced: ClassVar[tuple[str, ...]] = ()
    engine: ClassVar[str] = "loop"
    why: ClassVar[str] = "nothing of it is trained by steps"
    bound: ClassVar[str] = ""
    chunk: ClassVar[int] = 4096
    least: ClassVar[int] = 1

    @property
    def body(self) -> Mapping[str, int]:
        """Nothing is averaged: sums of what was seen say more (shoal/sharing/statistics.py)."""
        return {}

    @property
    def read(self) -> int:
        return self.projections or self.inputs

    @property
    def seeded(self) -> bool:
        return self.projections > 0

    @property
    def numbers(self) -> int:
        return heads.numbers(self.tasks, self.outputs, self.read)

    @property
    def work(self) -> int:
        return self.inputs * max(1, self.projections)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        return heads.start(rng, self.tasks, self.outputs, self.read)

    @property
    def encode(self) -> Encode:
        """Rows as heads read them, [N, F]."""
        return self.pieces

    def pieces(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        flat = torch.from_numpy(images).reshape(len(images), self.inputs)
        # All pieces have the same size: how a product is summed depends on it, and a row must not on its neighbours.
        full = F.pad(flat, (0, 0, 0, -len(flat) % PIECE)) if self.projections else flat
        return torch.cat([self.encoded(piece, peak, seed) for piece in full.split(PIECE)])[: len(flat)]

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor [B, ...] as it is."""
        flat = x.flatten(1).float() / peak
        if not self.projections:
            return flat
        weight, bias = projection(self.inputs, self.projections, seed)
        return torch.relu(torch.addmm(bias, flat, weight.T))

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return []

    def features(
        self, params: Params, x: Tensor, task: int | Tensor, training: bool = False, **usage: object
    ) -> Tensor:
        """What heads read, [B, F]: all of it was computed when rows were encoded."""
        return x


def ridge(net: "RidgeNet", bank: "Bank", tasks: int, outputs: int) -> Ridge:
    """The predictors that settings describe, for the rows of a bank."""
    if net.projections and bank.scale == "standard":
        raise SettingsError(
            f"net.projections = {net.projections} needs rows that all agents read alike, and agents scale the rows of "
            f'`{bank.name}` each for itself; give the data scale = "none", or say net.projections=0'
        )
    return Ridge(prod(bank.images.shape[1:]), net.projections, tasks, outputs)
