"""Mail, its price, and the ledger: what agents send each other, and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from shoal.data.tasks import Lane

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


class Use(NamedTuple):
    """What a directed edge has carried."""

    last: int = -1  # when, in epochs since the first task; -1: never
    carried: int = 0  # floats, then
    total: int = 0  # floats, in all


UNUSED = Use()


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS. `mode` is its place in the settings.

    All stacks of a fleet write to one ledger. It knows what every directed edge (sender, receiver) has carried.
    """

    blocks: list[np.ndarray] = field(default_factory=list)
    uses: dict[tuple[Lane, Lane], Use] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: np.ndarray, epochs: int) -> "Ledger":
        """The ledger that has these rows, of a run with so many epochs per task."""
        if not len(rows):
            return cls()
        column = {name: rows[:, at] for at, name in enumerate(COLUMNS)}
        crossed = ~np.isin(column["verdict"], (AT_REST, OVER_BUDGET))
        ends = [column[name][crossed] for name in ("seed", "sender", "receiver")]
        agents = 1 + max(int(column["sender"].max()), int(column["receiver"].max()))
        # One number for each edge: a run can have a million rows, and sorting rows takes seconds.
        edges, first, edge = np.unique(
            (ends[0] * agents + ends[1]) * agents + ends[2], return_index=True, return_inverse=True
        )
        floats = column["floats"][crossed]
        now = (column["task"] * epochs + column["epoch"])[crossed]
        last = np.full(len(edges), -1)
        np.maximum.at(last, edge, now)
        carried, total = np.zeros((2, len(edges)), np.int64)
        np.add.at(total, edge, floats)
        np.add.at(carried, edge, np.where(now == last[edge], floats, 0))
        there = zip(*(end[first].tolist() for end in ends), strict=True)
        names = ((Lane(seed, sender), Lane(seed, receiver)) for seed, sender, receiver in there)
        found = zip(last.tolist(), carried.tolist(), total.tolist(), strict=True)
        return cls([rows], {name: Use(*use) for name, use in zip(names, found, strict=True)})

    def use(self, sender: Lane, receiver: Lane) -> Use:
        """What an edge has carried so far."""
        return self.uses.get((sender, receiver), UNUSED)

    def carry(self, mail: Mail, now: int) -> None:
        """Note that a message crosses its edge."""
        last, carried, total = self.use(mail.sender, mail.receiver)
        here = mail.floats + (carried if last == now else 0)
        self.uses[mail.sender, mail.receiver] = Use(now, here, total + mail.floats)

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
