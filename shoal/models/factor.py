"""Linear and logistic predictors in a dictionary: theta = L s, the atoms L for all tasks, a code s for each.

Where numbers are predicted, every number has a code; of two classes the second one has, of more each one against the
rest. All of it is in double precision, and fitted in closed form (shoal/learners/ella.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.models.base import Plain
from shoal.models.params import Params, whole

DICTIONARY, CODES = "dictionary", "codes"


@dataclass(frozen=True)
class Factor(Plain):
    """What an agent predicts with: atoms [shared + own, D], of which agents may agree on the shared ones, and codes."""

    inputs: int  # D: the numbers of a row, and a constant
    shared: int
    own: int
    tasks: int
    outputs: int
    numeric: bool
    peak: int
    heads: ClassVar[tuple[str, ...]] = (CODES,)
    pieced: ClassVar[tuple[str, ...]] = ()
    seeded: ClassVar[bool] = False
    engine: ClassVar[str] = "loop"
    why: ClassVar[str] = "nothing of it is trained by steps"
    bound: ClassVar[str] = ""
    chunk: ClassVar[int] = 4096
    least: ClassVar[int] = 2

    @property
    def body(self) -> Mapping[str, int]:
        return {DICTIONARY: self.shared}

    @property
    def read(self) -> int:
        return self.shared + self.own

    @property
    def coded(self) -> int:
        """How many codes a task has."""
        return 1 if self.outputs == 2 and not self.numeric else self.outputs

    @property
    def numbers(self) -> int:
        return self.read * (self.inputs + self.tasks * self.coded)

    @property
    def work(self) -> int:
        return self.inputs * self.read

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        atoms = torch.from_numpy(rng.normal(size=(self.read, self.inputs)))
        return {DICTIONARY: atoms, CODES: torch.zeros(self.tasks, self.coded, self.read, dtype=torch.float64)}

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        return torch.from_numpy(images)

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor."""
        return x

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return []

    def rows(self, x: Tensor) -> Tensor:
        """Inputs as predictors read them, [B, D]: in double precision, with a one at the end."""
        flat = x.flatten(1).double() / self.peak
        return torch.cat([flat, torch.ones_like(flat[:, :1])], 1)

    def features(self, params: Params, x: Tensor, task: int | Tensor, training: bool = False) -> Tensor:
        """How much of each atom is in an input, [B, k]."""
        found: Tensor = self.rows(x) @ whole(params[DICTIONARY]).T
        return found

    def logits(self, params: Params, x: Tensor, task: int | Tensor, training: bool = False) -> Tensor:
        """Logits, or numbers, [B, K] of inputs of one task, or of tasks task[B]."""
        codes = whole(params[CODES])[task]
        read = self.features(params, x, task)
        said = read @ codes.T if codes.ndim == 2 else (read[:, None] * codes).sum(2)
        if self.coded < self.outputs:  # of two classes, the first has the logit zero
            said = torch.cat([torch.zeros_like(said), said], 1)
        return said.float()
