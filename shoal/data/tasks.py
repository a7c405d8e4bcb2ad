"""Tasks and streams: what a lane meets, and when. `scenarios` makes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from shoal.data.bank import Bank


class Lane(NamedTuple):
    """One agent of one seed. The joint agent that learns a common start is agent -1."""

    seed: int
    agent: int


JOINT = -1


@dataclass(frozen=True, eq=False)
class Task:
    """A classification problem: its classes (global ids; position is the local label) and its images (bank rows)."""

    classes: tuple[int, ...]
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def labels(self, bank: Bank, rows: np.ndarray) -> np.ndarray:
        """Local labels of bank rows: the position of their class in the order of the draw."""
        local = np.full(len(bank.classes), -1, np.int64)
        local[list(self.classes)] = np.arange(len(self.classes))
        labels: np.ndarray = local[bank.labels[rows]]
        return labels


@dataclass(frozen=True, eq=False)
class Stream(Sequence[Task]):
    """A lane's tasks, in the order it meets them."""

    tasks: tuple[Task, ...]

    @overload
    def __getitem__(self, at: int) -> Task: ...
    @overload
    def __getitem__(self, at: slice) -> "Stream": ...
    def __getitem__(self, at: int | slice) -> "Task | Stream":
        return Stream(self.tasks[at]) if isinstance(at, slice) else self.tasks[at]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)
