"""Tasks and streams: what a lane meets, and when. `scenarios` makes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from shoal.data.bank import Bank

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Lane(NamedTuple):
    """One agent of one seed. The joint agent that learns a common start is agent -1."""

    seed: int
    agent: int


def lanes_of(settings: "Settings") -> tuple[Lane, ...]:
    """All agents of all seeds; the agents of a seed are neighbours in the stack."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    return tuple(Lane(seed, agent) for seed in seeds for agent in range(settings.agents))


JOINT = -1
NAMED = "given"  # the scenario of data that names its tasks, of which more may come later


NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Task:
    """A classification problem: its classes (global ids) and its images (bank rows).

    `outputs` are the classes that the outputs of its head stand for, in their order: its own, or those of all tasks
    where one head grows. A class's place there is its local label.
    """

    classes: tuple[int, ...]
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    outputs: tuple[int, ...] = ()
    unlabelled: np.ndarray = field(default_factory=lambda: NO_ROWS)  # more rows to train on, without a label

    def __post_init__(self) -> None:
        if not self.outputs:
            object.__setattr__(self, "outputs", self.classes)

    def labels(self, bank: Bank, rows: np.ndarray) -> np.ndarray:
        """Local labels of bank rows: the place of their class among the outputs."""
        local = np.full(len(bank.classes), -1, np.int64)
        local[list(self.outputs)] = np.arange(len(self.outputs))
        labels: np.ndarray = local[bank.labels[bank.base(rows)]]
        return labels


NOTHING = Task((), NO_ROWS, NO_ROWS, NO_ROWS)  # stands where the stream of a lane has ended and others go on


@dataclass(frozen=True, eq=False)
class Stream(Sequence[Task]):
    """A lane's tasks, in the order it meets them. Where others have more, nothing comes after them."""

    tasks: tuple[Task, ...]

    @overload
    def __getitem__(self, at: int) -> Task: ...
    @overload
    def __getitem__(self, at: slice) -> "Stream": ...
    def __getitem__(self, at: int | slice) -> "Task | Stream":
        return Stream(self.tasks[at]) if isinstance(at, slice) else self.tasks[at]

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def end(self) -> int:
        """How many tasks there are before the stream ends."""
        return sum(task is not NOTHING for task in self.tasks)

    def padded(self, count: int) -> "Stream":
        """The stream with nothing behind it, as long as others are."""
        return Stream((*self.tasks, *[NOTHING] * (count - len(self.tasks))))

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)
