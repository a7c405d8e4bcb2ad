"""Scenarios: which classes each lane meets, when, and on which images. A scenario is a function that makes streams."""

from collections.abc import Callable, Sequence

import numpy as np

from shoal.data.bank import Bank
from shoal.data.draws import Choose, Lot, Random, lots, source_of
from shoal.data.tasks import JOINT, Lane, Stream, Task
from shoal.doors import Table
from shoal.errors import SettingsError
from shoal.settings.groups import Settings, Tasks

# The stream of every lane; that of a seed's joint agent is its common start alone.
Scenario = Callable[[Bank, Settings, Sequence[Lane]], tuple[Stream, ...]]


def streams(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The stream of every lane, by the scenario that the settings name."""
    return SCENARIOS.find(settings.tasks.scenario)(bank, settings, lanes)


def by_classes(choose: Choose) -> Scenario:
    """The scenario in which a lane meets the classes that are chosen for it, on its own split of the images."""

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

    return Stream(
        tuple(
            Task(
                classes,
                train=members("train", classes, tasks.train),
                validation=members("validation", classes, None if tasks.validation == "all" else tasks.validation),
                test=members("test", classes, None),
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


def in_order(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
    """Classes in their order, the same for all agents: the first few, the next few and, if they may come back, from
    the first again."""
    enough(ids, tasks)
    every = np.resize(ids, tasks.count * tasks.classes).reshape(tasks.count, tasks.classes)
    return [tuple(int(c) for c in group) for group in every]


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


BUILT_IN: dict[str, Scenario | str] = {"drawn": by_classes(drawn), "split": by_classes(in_order)}
SCENARIOS: Table[Scenario] = Table("scenario", BUILT_IN, "shoal.scenarios", callable)
