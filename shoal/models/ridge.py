"""Linear predictors of rows, or of a rectified random projection of them, whose weights are solved for and never
trained by steps (shoal/learners/analytic.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.models import heads
from shoal.models.base import Headed
from shoal.models.contract import Which
from shoal.models.mlp import by_pieces, projection
from shoal.models.params import Params


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

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        """Rows as heads read them, [N, F]."""
        return by_pieces(torch.from_numpy(images), lambda piece: self.encoded(piece, peak, seed))

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor [B, ...] as it is."""
        flat = x.flatten(1).float() / peak
        if not self.projections:
            return flat
        weight, bias = projection(self.inputs, self.projections, seed)
        return torch.relu(torch.addmm(bias, flat, weight.T))

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return []

    def features(self, params: Params, x: Tensor, task: Which, training: bool = False, **usage: object) -> Tensor:
        """What heads read, [B, F]: all of it was computed when rows were encoded."""
        return x
