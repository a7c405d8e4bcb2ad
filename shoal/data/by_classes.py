"""Scenarios that say which classes a task has, on rows that agents draw; and those in which tasks look different."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from shoal.data.bank import Bank, View
from shoal.data.draws import Choose, Lot, Random, Scenario, lots, private, source_of
from shoal.data.sites import named
from shoal.data.tasks import JOINT, Lane, Stream, Task
from shoal.data.views import rotated
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks


def by_classes(choose: Choose) -> Scenario:
    """The scenario in which a lane meets the classes that are chosen for it, on its own split of the images. What it is
    called and what is said of it is that of the choice."""

    def make(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        tasks, lot = settings.tasks, lots(bank, settings, choose)
        seeds = {lane.seed for lane in lanes}
        starts = {seed: common_start(bank, tasks, seed, lot) for seed in seeds} if tasks.common else {}

        def stream(lane: Lane) -> Stream:
            if lane.agent == JOINT:
                return starts[lane.seed]
            if not tasks.common:
                return own(bank, tasks, lane, lot(lane))
            return Stream(starts[lane.seed].tasks + own(bank, tasks, lane, lot(lane), first=tasks.initial).tasks)

        return tuple(stream(lane) for lane in lanes)

    make.__doc__ = choose.__doc__
    make.even = True  # type: ignore[attr-defined]
    return make


def common_start(bank: Bank, tasks: Tasks, seed: int, lot: Callable[[Lane], Lot]) -> Stream:
    """The initial tasks that replace those of every agent of a seed (docs/protocol.md, section 1).

    With several sources, initial task i is agent i's own, so that the sources mix.
    """
    if len(bank.sources) == 1:
        joint = Lane(seed, JOINT)
        return own(bank, tasks, joint, lot(joint))[: tasks.initial]
    firsts = [Lane(seed, agent) for agent in range(tasks.initial)]
    return Stream(tuple(own(bank, tasks, lane, lot(lane), first=lane.agent)[0] for lane in firsts))


def own(bank: Bank, tasks: Tasks, lane: Lane, lot: Lot, first: int = 0) -> Stream:
    """One agent's own stream from task `first` on, of what it has drawn (docs/protocol.md, section 1).

    "64 per class" is not stratified: the first 128 images of the shuffled pool that belong to the task's classes, as in
    the paper's code.
    """
    test = np.flatnonzero((bank.source == source_of(bank, lane)) & bank.test)
    held = {"train": lot.train, "validation": lot.validation, "test": test}
    labels = {name: bank.labels[rows] for name, rows in held.items()}

    def members(name: str, classes: tuple[int, ...], each: int | str) -> np.ndarray:
        wanted = np.zeros(len(bank.classes), bool)
        wanted[list(classes)] = True
        rows: np.ndarray = held[name][wanted[labels[name]]]
        if isinstance(each, str):
            return rows
        want = each * len(classes)
        if len(rows) < want:
            who = "the common start" if lane.agent == JOINT else named(bank.sources, lane.agent)
            raise SettingsError(
                f"tasks.{name} = {each} per class asks for {want} rows of classes {classes}, but {who} "
                f"of seed {lane.seed} has {len(rows)} of them in its {name} pool of `{bank.name}`; ask for fewer"
            )
        return rows[:want]

    return Stream(
        tuple(
            Task(
                classes,
                train=members("train", classes, tasks.train),
                validation=members("validation", classes, tasks.validation),
                test=members("test", classes, "all"),
            )
            for classes in lot.classes[first:]
        )
    )


def drawn(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
    """Classes at random: independent draws, or (without replacement) one permutation cut into groups."""
    need = enough(ids, tasks)
    if tasks.replacement:
        found = [rng.choice(ids, tasks.classes, replace=False) for _ in range(tasks.count)]
    else:
        found = np.split(rng.permutation(ids)[:need], tasks.count)
    return [tuple(int(c) for c in group) for group in found]


def enough(ids: np.ndarray, tasks: Tasks) -> int:
    """How many classes are needed at least, if the data has them."""
    need = tasks.classes if tasks.replacement else tasks.classes * tasks.count
    if need > len(ids):
        rule = "" if tasks.replacement else f" x tasks.count = {tasks.count} without replacement"
        less = "classes" if tasks.replacement else "tasks or classes, or set tasks.replacement = true"
        raise SettingsError(
            f"tasks.classes = {tasks.classes}{rule} needs {need} classes, the data has {len(ids)}; ask for fewer {less}"
        )
    return need


class Split(Tasks):
    """Classes in their order, the same for all agents: the first few, the next few and, if they may come back, from
    the first again."""

    even: ClassVar[bool] = True
    shuffled: bool = Field(
        False, description="are the classes taken in an order that the seed draws, and not in that of the data?"
    )

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        def choose(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
            enough(ids, tasks)
            if self.shuffled:
                ids = key(lane.seed, "order of classes", bank.name).permutation(ids)
            every = np.resize(ids, tasks.count * tasks.classes).reshape(tasks.count, tasks.classes)
            return [tuple(int(c) for c in group) for group in every]

        return by_classes(choose)(bank, settings, lanes)


class Parity(Split):
    """As `split`, and where there is one head for all tasks it says which of a task's classes it is: of two digits, the
    first or the second one, which is the even or the odd one if they are in order."""

    places: ClassVar[bool] = True


class Overlap(Tasks):
    """Each task of an agent has, with a chance of `tasks.overlap`, the classes that all agents have at that time, and
    else classes that no other agent has."""

    even: ClassVar[bool] = True
    overlap: float = Field(
        1.0,
        ge=0,
        le=1,
        description="how often a task has the classes that all agents have at that time, and not the agent's own",
    )

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        agents = settings.agents
        if self.overlap < 1 and len(bank.classes) < agents * self.classes:
            raise SettingsError(
                f"with tasks.overlap = {self.overlap:g} every agent has classes of its own: {agents} agents x "
                f"tasks.classes = {self.classes} need {agents * self.classes}, `{bank.name}` has {len(bank.classes)}; "
                f"take {len(bank.classes) // self.classes} agents or fewer, or tasks.overlap = 1"
            )

        def choose(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
            whole = tasks.model_copy(update={"replacement": True})
            shared = drawn(ids, whole, lane, key(lane.seed, "overlap", bank.name))
            if self.overlap == 1 or lane.agent == JOINT:  # what all begin with is nobody's own
                return shared
            private = np.array_split(key(lane.seed, "private", bank.name).permutation(ids), agents)[lane.agent]
            mine = drawn(private, whole, lane, rng)
            luck = key(*lane, "overlap", bank.name).random(tasks.count)
            return [both if one < self.overlap else own for both, own, one in zip(shared, mine, luck, strict=True)]

        return by_classes(choose)(bank, settings, lanes)


def viewed(view: Callable[[Bank, Tasks], View], doc: str) -> Scenario:
    """The scenario in which every task has the same classes, the first `tasks.classes` of the data, and each is seen in
    another way; the first as it is. Task t of all agents is seen by view t."""

    def make(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        private(settings.tasks)
        view(bank, settings.tasks)  # says what cannot be seen in this way

        def choose(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
            enough(ids, tasks.model_copy(update={"replacement": True}))
            return [tuple(int(c) for c in ids[: tasks.classes])] * tasks.count

        def seen(task: Task, at: int) -> Task:
            rows = {name: at * len(bank) + getattr(task, name) for name in ("train", "validation", "test")}
            return replace(task, **rows)

        plain = by_classes(choose)(bank, settings, lanes)
        return tuple(Stream(tuple(seen(task, at) for at, task in enumerate(stream))) for stream in plain)

    make.__doc__ = doc
    make.view = view  # type: ignore[attr-defined]
    make.places = True  # type: ignore[attr-defined]
    make.even = True  # type: ignore[attr-defined]
    return make


class Rotated(Tasks):
    """The same classes in every task, turned by `tasks.angle` degrees more."""

    even: ClassVar[bool] = True
    places: ClassVar[bool] = True
    angle: float = Field(30.0, description="degrees by which images are turned from task to task")

    @staticmethod
    def view(bank: Bank, tasks: Any) -> View:
        """How a bank is seen."""
        return rotated(bank, tasks.angle)

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        return viewed(self.view, "")(bank, settings, lanes)
