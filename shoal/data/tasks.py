"""Tasks and streams: which classes each lane meets, when, and on which images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Tasks

TRAIN_SHARE = 0.8  # of an agent's shuffled pool; the rest is its validation pool


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


def draw(bank: Bank, tasks: Tasks, lane: Lane, first: int = 0) -> Stream:
    """One agent's own stream from task `first` on: its own split of the training images, its own classes (protocol 1).

    Agent i of a bank with several sources meets source i mod their number only. "64 per class" is not stratified: the
    first 128 images of the shuffled pool that belong to the task's classes, as in the paper's code.
    """
    source = max(lane.agent, 0) % len(bank.sources)
    mine = bank.source == source
    shuffled = key(*lane, "split").permutation(np.flatnonzero(mine & ~bank.test))
    cut = int(TRAIN_SHARE * len(shuffled))
    held = {"train": shuffled[:cut], "validation": shuffled[cut:], "test": np.flatnonzero(mine & bank.test)}
    labels = {name: bank.labels[rows] for name, rows in held.items()}

    def members(name: str, classes: tuple[int, ...], each: int | None) -> np.ndarray:
        rows: np.ndarray = held[name][np.isin(labels[name], classes)]
        if each is None:
            return rows
        want = each * len(classes)
        if len(rows) < want:
            who = "the common start" if lane.agent == JOINT else f"agent {lane.agent}"
            raise SettingsError(
                f"tasks.{name} = {each} per class asks for {want} images of classes {classes}, but {who} "
                f"of seed {lane.seed} has {len(rows)} of them in its {name} pool of `{bank.name}`; ask for fewer"
            )
        return rows[:want]

    every = draw_classes(np.unique(bank.labels[mine]), tasks, key(*lane, "classes"))
    return Stream(
        tuple(
            Task(
                classes,
                train=members("train", classes, tasks.train),
                validation=members("validation", classes, None if tasks.validation == "all" else tasks.validation),
                test=members("test", classes, None),
            )
            for classes in every[first:]
        )
    )


def draw_classes(ids: np.ndarray, tasks: Tasks, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """The classes of each task: independent draws, or (without replacement) one permutation cut into groups."""
    need = tasks.classes if tasks.replacement else tasks.classes * tasks.count
    if need > len(ids):
        rule = "" if tasks.replacement else f" x tasks.count = {tasks.count} without replacement"
        less = "classes" if tasks.replacement else "tasks or classes, or set tasks.replacement = true"
        raise SettingsError(
            f"tasks.classes = {tasks.classes}{rule} needs {need} classes, the data has {len(ids)}; ask for fewer {less}"
        )
    if tasks.replacement:
        drawn = [rng.choice(ids, tasks.classes, replace=False) for _ in range(tasks.count)]
    else:
        drawn = np.split(rng.permutation(ids)[:need], tasks.count)
    return [tuple(int(c) for c in group) for group in drawn]


def common_start(bank: Bank, tasks: Tasks, seed: int) -> Stream:
    """The initial tasks that replace those of every agent of a seed (protocol 1).

    With several sources, initial task i is agent i's own, so that the sources mix (protocol 1).
    """
    if len(bank.sources) == 1:
        return draw(bank, tasks, Lane(seed, JOINT))[: tasks.initial]
    return Stream(tuple(draw(bank, tasks, Lane(seed, i), first=i)[0] for i in range(tasks.initial)))


def streams(bank: Bank, tasks: Tasks, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The stream of every lane; the joint agent's is the common start alone."""
    starts = {seed: common_start(bank, tasks, seed) for seed in {lane.seed for lane in lanes}} if tasks.common else {}

    def stream(lane: Lane) -> Stream:
        if lane.agent == JOINT:
            return starts[lane.seed]
        if not tasks.common:
            return draw(bank, tasks, lane)
        return Stream(starts[lane.seed].tasks + draw(bank, tasks, lane, first=tasks.initial).tasks)

    return tuple(stream(lane) for lane in lanes)
