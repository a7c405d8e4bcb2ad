"""Scenarios that say which rows an agent has: dealt, or as the data itself says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from shoal.data.bank import Bank
from shoal.data.draws import Scenario, private, source_of
from shoal.data.sites import named
from shoal.data.tasks import Lane, Stream, Task
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks
from shoal.units import plural

# The rows of every agent, from all training rows of a source and their labels.
Deal = Callable[[np.ndarray, np.ndarray, Settings, np.random.Generator], list[np.ndarray]]

DEALT = ("own", "dirichlet", "shards", "given", "time")  # scenarios in which a training row belongs to one agent


def by_rows(deal: Deal, least: int = 2) -> Scenario:
    """The scenario in which every training row belongs to one agent, as it is dealt, and its tasks are made of the
    classes that it has, in random order; of numbers to predict, and where a task has room for all classes of the data,
    of equal parts of its rows. Agents have different numbers of tasks and rows. Every agent must have `least`
    classes."""

    def make(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        tasks, agents, sources = settings.tasks, settings.agents, len(bank.sources)
        private(tasks)
        dealt: dict[tuple[int, int], list[np.ndarray]] = {}

        def stream(lane: Lane) -> Stream:
            source = source_of(bank, lane)
            if (lane.seed, source) not in dealt:
                rows = np.flatnonzero((bank.source == source) & ~bank.test)
                share = settings.model_copy(update={"agents": len(range(source, agents, sources))})
                rng = key(lane.seed, "deal", bank.sources[source])
                dealt[lane.seed, source] = deal(rows, bank.labels[rows], share, rng)
            mine = key(*lane, "order").permutation(dealt[lane.seed, source][lane.agent // sources])
            if bank.targets is not None:
                parts = np.array_split(mine, max(1, min(tasks.count, len(mine) // 2)))
                return Stream(tuple(task_of(bank, part, (0,), source) for part in parts))
            ids = key(*lane, "classes").permutation(usable(bank, mine, source))
            if len(ids) < least:
                raise SettingsError(
                    f"{named(bank.sources, lane.agent)} of seed {lane.seed} has {plural(len(mine), 'training row')} of "
                    f"`{bank.name}`, with {len(ids)} classes that have two of them and a test row, and {least} are "
                    "needed; give it more rows or test rows (where nothing says which, a fifth is held out), leave its "
                    "rows out, or use fewer agents"
                )
            mine = mine[np.isin(bank.labels[mine], ids)]
            if whole(bank, tasks):
                every = tuple(sorted(int(one) for one in ids))
                return Stream(tuple(task_of(bank, part, every, source) for part in parts_of(bank, mine, tasks.count)))
            groups = grouped(ids, tasks)
            return Stream(tuple(task_of(bank, mine[np.isin(bank.labels[mine], one)], one, source) for one in groups))

        return tuple(stream(lane) for lane in lanes)

    make.__doc__ = deal.__doc__
    return make


def usable(bank: Bank, rows: np.ndarray, source: int) -> np.ndarray:
    """The classes of some training rows of a source that can be learned, validated and tested."""
    found, counts = np.unique(bank.labels[rows], return_counts=True)
    return found[(counts > 1) & np.isin(found, bank.labels[(bank.source == source) & bank.test])]


def whole(bank: Bank, tasks: Tasks) -> bool:
    """Has a task room for all classes of the data? Then later tasks have other rows, and not other classes."""
    return bank.targets is None and tasks.classes >= len(bank.classes)


def parts_of(bank: Bank, rows: np.ndarray, count: int) -> list[np.ndarray]:
    """So many parts of shuffled rows, each with as many of every class; fewer, where a class has not two for each."""
    ordered = rows[np.argsort(bank.labels[rows], kind="stable")]
    rarest = int(np.unique(bank.labels[rows], return_counts=True)[1].min())
    parts = max(1, min(count, rarest // 2))
    return [ordered[at::parts] for at in range(parts)]


def grouped(ids: np.ndarray, tasks: Tasks) -> list[tuple[int, ...]]:
    """Classes in groups of `tasks.classes` at most, about equal. One that would be alone is told apart from one that
    was there before, unless one head has all classes."""
    from shoal.data.scenarios import by_name  # which looks into the table

    parts = np.array_split(ids, -(-len(ids) // tasks.classes))
    found = [tuple(int(c) for c in part) for part in parts][: tasks.count]
    if len(found) > 1 and len(found[-1]) == 1 and not by_name(tasks):
        found[-1] += found[0][:1]
    return found


def task_of(bank: Bank, rows: np.ndarray, classes: tuple[int, ...], source: int) -> Task:
    """A task of some shuffled training rows: of every class a fifth, and one at least, is for validation; where every
    class has a single row, one of them."""
    held = []
    for one in classes:
        same = rows[bank.labels[rows] == one]
        held.append(same[: max(1, len(same) // 5)] if len(same) > 1 else same[:0])
    validation = np.concatenate(held)
    if not len(validation) and len(rows) > 1:
        validation = rows[:1]
    test = np.flatnonzero((bank.source == source) & bank.test & np.isin(bank.labels, classes))
    return Task(classes, rows[~np.isin(rows, validation)], validation, test)


def evenly(rows: np.ndarray, labels: np.ndarray, settings: Settings, rng: np.random.Generator) -> list[np.ndarray]:
    """An agent's own rows, its classes in groups of `tasks.classes`; agents of one source share its rows evenly."""
    shuffled = rng.permutation(len(rows))
    ordered = rows[shuffled][np.argsort(labels[shuffled], kind="stable")]
    return [ordered[agent :: settings.agents] for agent in range(settings.agents)]


class Dirichlet(Tasks):
    """Of every class each agent gets a share drawn from Dirichlet(`tasks.alpha`): small is uneven."""

    alpha: PositiveFloat = Field(0.5, description="how evenly the images of a class are dealt to agents")

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        def deal(rows: np.ndarray, labels: np.ndarray, share: Settings, rng: np.random.Generator) -> list[np.ndarray]:
            parts: list[list[np.ndarray]] = [[] for _ in range(share.agents)]
            for one in np.unique(labels):
                mine = rng.permutation(rows[labels == one])
                shares = rng.dirichlet(np.full(share.agents, self.alpha))
                cuts = (shares.cumsum()[:-1] * len(mine)).astype(int)
                for part, some in zip(parts, np.split(mine, cuts), strict=True):
                    part.append(some)
            return [np.concatenate(part) for part in parts]

        return by_rows(deal)(bank, settings, lanes)


class Shards(Tasks):
    """Rows in the order of their labels are cut into `tasks.shards` pieces per agent and dealt: few classes for each
    (McMahan et al. 2017)."""

    shards: PositiveInt = Field(2, description="pieces of the sorted training images that an agent gets")

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        def deal(rows: np.ndarray, labels: np.ndarray, share: Settings, rng: np.random.Generator) -> list[np.ndarray]:
            shuffled = rng.permutation(len(rows))
            ordered = rows[shuffled][np.argsort(labels[shuffled], kind="stable")]
            pieces = np.array_split(ordered, share.agents * self.shards)
            hands = rng.permutation(len(pieces)).reshape(share.agents, self.shards)
            return [np.concatenate([pieces[at] for at in hand]) for hand in hands]

        return by_rows(deal)(bank, settings, lanes)


def given(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The tasks that the data names: `task` says to which task of its agent a row belongs."""
    if bank.task is None:
        raise SettingsError(
            f"`{bank.name}` does not say which task a row belongs to; name its column (task=...), or use another "
            "tasks.scenario"
        )
    groups = bank.task
    return natural(bank, settings, lanes, lambda rows: [rows[groups[rows] == one] for one in np.unique(groups[rows])])


class Timed(Tasks):
    """An agent's rows in the order of time, cut into tasks: into `tasks.count` equal parts, where a period begins, or
    where a label comes that the task has no room for."""

    cut: Literal["count", "period", "label"] = Field(
        "count",
        description="where a task ends in the order of time: after an equal part, with a period, or before a label for "
        "which it has no room",
    )
    period: PositiveFloat = Field(
        86400.0, description="how long a task lasts, in the unit of time of the data (cut = period)"
    )

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        if bank.time is None:
            raise SettingsError(
                f"`{bank.name}` does not say when a row was taken; name its column (time=...), or use another "
                "tasks.scenario"
            )
        time, labels = bank.time, bank.labels

        def cut(rows: np.ndarray) -> list[np.ndarray]:
            rows = rows[np.argsort(time[rows], kind="stable")]
            if self.cut == "count":
                return np.array_split(rows, self.count)
            if self.cut == "label":
                return by_label(rows, labels[rows], self.classes)
            since = np.floor((time[rows] - time[rows].min()) / self.period)
            return [rows[since == one] for one in np.unique(since)]

        return natural(bank, settings, lanes, cut)


def by_label(rows: np.ndarray, labels: np.ndarray, most: int) -> list[np.ndarray]:
    """Rows in their order, cut where a label comes after `most` others."""
    parts: list[list[int]] = [[]]
    there: set[int] = set()
    for row, label in zip(rows, labels, strict=True):
        if label not in there and len(there) == most:
            parts.append([])
            there = set()
        there.add(int(label))
        parts[-1].append(int(row))
    return [np.array(part, np.int64) for part in parts]


def natural(
    bank: Bank, settings: Settings, lanes: Sequence[Lane], cut: Callable[[np.ndarray], list[np.ndarray]]
) -> tuple[Stream, ...]:
    """The streams of rows as they come, cut into tasks; of the rows of a task some are for testing, as the data says,
    and of the others of every class a fifth for validation. Agents of one source share the training rows of its tasks
    evenly."""
    private(settings.tasks)
    agents, sources = settings.agents, len(bank.sources)

    def stream(lane: Lane) -> Stream:
        source = source_of(bank, lane)
        share = settings.model_copy(update={"agents": len(range(source, agents, sources))})
        made = []
        for at, rows in enumerate(cut(np.flatnonzero(bank.source == source))):
            made.append(piece_of(bank, rows, lane, at, share, lane.agent // sources))
        return Stream(tuple(made))

    return tuple(stream(lane) for lane in lanes)


def piece_of(bank: Bank, rows: np.ndarray, lane: Lane, at: int, share: Settings, hand: int) -> Task:
    """A lane's task number `at` of rows of its source, of which it gets one of the even shares of `share.agents`."""
    source = source_of(bank, lane)
    train = rows[~bank.test[rows]]
    rng = key(lane.seed, "deal", bank.sources[source], at)
    mine = evenly(train, bank.labels[train], share, rng)[hand]
    classes = tuple(int(one) for one in np.unique(bank.labels[rows]))
    task = task_of(bank, key(*lane, "split", at).permutation(mine), classes, source)
    return replace(task, test=rows[bank.test[rows]])
