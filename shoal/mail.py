"""Mail, its price, and the ledger: what agents send each other, and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from shoal.tasks import Lane

KINDS = ("question", "answer", "images", "model", "modules")
# What became of a message. All but the first were refused: the edge's rhythm or the budget kept it from leaving, or its
# receiver did not accept what had arrived (and been paid for).
VERDICTS = ("accepted", "edge at rest", "over budget", "not finite", "wrong shape", "out of range")
ACCEPTED, AT_REST, OVER_BUDGET, NOT_FINITE, WRONG_SHAPE, OUT_OF_RANGE = range(len(VERDICTS))


@dataclass(frozen=True, eq=False)
class Mail:
    """A message on a directed edge. What it says is in `payload` and nowhere else."""

    sender: Lane
    receiver: Lane
    kind: str
    payload: Mapping[str, Tensor]
    items: int  # images, classes or modules
    paper: int  # floats by the paper's rule (protocol 5): pixels and weights alone, and every answer as if it were full

    @cached_property
    def floats(self) -> int:
        """How many numbers it carries, whatever they mean: a pixel, a weight, a label."""
        return sum(tensor.numel() for tensor in self.payload.values())

    @cached_property
    def bytes(self) -> int:
        """The length of the message as it would go over a wire."""
        return wire(tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in sorted(self.payload.items())))


def by_receiver(mails: Iterable[Mail]) -> dict[Lane, list[Mail]]:
    """Everybody's mail, in the order of posting."""
    boxes: dict[Lane, list[Mail]] = {}
    for mail in mails:
        boxes.setdefault(mail.receiver, []).append(mail)
    return boxes


@cache
def wire(layout: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> int:
    """The length of a payload as a safetensors file, which depends on names, types and shapes alone."""
    return len(save({name: torch.zeros(shape, dtype=dtype) for name, dtype, shape in layout}))


class Expected(NamedTuple):
    """What a receiver expects of a tensor in a message."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]  # None: any length, the same for all tensors of the message
    below: int | None = None  # whole numbers must lie in 0..below-1


def fault(payload: Mapping[str, Tensor], expected: Mapping[str, Expected]) -> int:
    """The verdict of a receiver on what has arrived."""
    if payload.keys() != expected.keys():
        return WRONG_SHAPE
    free = set()
    for name, want in expected.items():
        tensor = payload[name]
        if tensor.dtype != want.dtype or tensor.ndim != len(want.shape):
            return WRONG_SHAPE
        for size, length in zip(tensor.shape, want.shape, strict=True):
            if length is None:
                free.add(size)
            elif size != length:
                return WRONG_SHAPE
    if len(free) > 1:
        return WRONG_SHAPE
    for name, want in expected.items():
        tensor = payload[name]
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return NOT_FINITE
        if want.below is not None and tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < want.below:
            return OUT_OF_RANGE
    return ACCEPTED


COLUMNS = (
    "seed", "task", "epoch", "sender", "receiver", "mode", "kind", "items", "floats", "bytes", "paper", "verdict",
)  # fmt: skip


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS. `mode` is its place in the settings."""

    blocks: list[np.ndarray] = field(default_factory=list)

    @property
    def rows(self) -> np.ndarray:
        """All rows in one block."""
        if len(self.blocks) != 1:
            self.blocks = [np.concatenate(self.blocks) if self.blocks else np.zeros((0, len(COLUMNS)), np.int64)]
        return self.blocks[0]

    def write(self, rows: Sequence[tuple[int, ...]]) -> None:
        if rows:
            self.blocks.append(np.array(rows, np.int64))

    def column(self, name: str) -> np.ndarray:
        found: np.ndarray = self.rows[:, COLUMNS.index(name)]
        return found

    def __len__(self) -> int:
        return len(self.rows)
