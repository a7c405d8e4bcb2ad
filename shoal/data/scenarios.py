"""Scenarios: which classes each lane meets, when, and on which images. A scenario is a function that makes streams."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from shoal.data.bank import Bank, View
from shoal.data.draws import Choose, Lot, Random, lots, source_of
from shoal.data.tasks import JOINT, Lane, Stream, Task
from shoal.data.views import permuted, rotated
from shoal.doors import Table
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks

# The stream of every lane; that of a seed's joint agent is its common start alone.
Scenario = Callable[[Bank, Settings, Sequence[Lane]], tuple[Stream, ...]]


def streams(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The stream of every lane, by the scenario that the settings name; all as long as `tasks.count`, with nothing at
    the end of those that have fewer tasks."""
    tasks = settings.tasks
    found = SCENARIOS.find(tasks.scenario)(bank, settings, lanes)
    for lane, stream in zip(lanes, found, strict=True):
        fits(bank, tasks, lane, stream)
    made = (headed(bank, tasks, blurred(tasks, lane, stream)) for lane, stream in zip(lanes, found, strict=True))
    return tuple(
        stream if lane.agent == JOINT else stream.padded(tasks.count) for lane, stream in zip(lanes, made, strict=True)
    )


def even(tasks: Tasks) -> bool:
    """Have all tasks the same number of training images?"""
    return isinstance(tasks.train, int) and getattr(SCENARIOS.find(tasks.scenario), "even", False)


def fits(bank: Bank, tasks: Tasks, lane: Lane, stream: Stream) -> None:
    """Raise if a stream is not as the settings say."""
    who = "the common start" if lane.agent == JOINT else f"agent {lane.agent}"
    if len(stream) > tasks.count:
        raise SettingsError(
            f"{who} of seed {lane.seed} has {len(stream)} tasks in `{bank.name}`, tasks.count is {tasks.count}; say "
            f"tasks.count={len(stream)} or more"
        )
    if lane.agent != JOINT and len(stream) < tasks.initial:
        raise SettingsError(
            f"{who} of seed {lane.seed} has {len(stream)} tasks in `{bank.name}`, and tasks.initial = {tasks.initial} "
            f"are learned together at the start; say tasks.initial={max(1, len(stream))}"
        )
    if bank.targets is not None and tasks.classes != 1:
        raise SettingsError(
            f"`{bank.name}` has numbers to predict and no classes, tasks.classes is {tasks.classes}; say "
            "tasks.classes=1"
        )
    for at, task in enumerate(stream):
        if len(task.classes) > tasks.classes:
            raise SettingsError(
                f"task {at + 1} of {who} of seed {lane.seed} has {len(task.classes)} classes in `{bank.name}`, "
                f"tasks.classes is {tasks.classes}; say tasks.classes={len(task.classes)} or more"
            )
        for name, rows in (("training", task.train), ("validation", task.validation), ("test", task.test)):
            if not len(rows):
                raise SettingsError(
                    f"task {at + 1} of {who} of seed {lane.seed} has no {name} rows in `{bank.name}`; join it with "
                    "another task, leave it out, or give it more rows"
                )


def headed(bank: Bank, tasks: Tasks, stream: Stream) -> Stream:
    """The stream with one head for all classes of the data, if heads grow."""
    if tasks.heads != "grow":
        return stream
    return Stream(tuple(replace(task, outputs=tuple(range(len(bank.classes)))) for task in stream))


def blurred(tasks: Tasks, lane: Lane, stream: Stream) -> Stream:
    """The stream without sharp boundaries: a share of every task's training images is dealt anew among all of them."""
    if not tasks.blur or lane.agent == JOINT:
        return stream
    rng = key(*lane, "blur")
    places = [rng.permutation(len(task.train))[: round(tasks.blur * len(task.train))] for task in stream]
    loose = rng.permutation(np.concatenate([task.train[at] for task, at in zip(stream, places, strict=True)]))
    made, first = [], 0
    for task, at in zip(stream, places, strict=True):
        train = task.train.copy()
        train[at] = loose[first : first + len(at)]
        first += len(at)
        made.append(replace(task, train=train))
    return Stream(tuple(made))


# Scenarios that say which classes a task has


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


def overlapping(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """Each task of an agent has, with a chance of `tasks.overlap`, the classes that all agents have at that time, and
    else classes that no other agent has."""
    tasks, agents = settings.tasks, settings.agents
    if tasks.overlap < 1 and len(bank.classes) < agents * tasks.classes:
        raise SettingsError(
            f"with tasks.overlap = {tasks.overlap:g} every agent has classes of its own: {agents} agents x "
            f"tasks.classes = {tasks.classes} need {agents * tasks.classes}, `{bank.name}` has {len(bank.classes)}; "
            f"take {len(bank.classes) // tasks.classes} agents or fewer, or tasks.overlap = 1"
        )

    def choose(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
        whole = tasks.model_copy(update={"replacement": True})
        shared = drawn(ids, whole, lane, key(lane.seed, "overlap", bank.name))
        if tasks.overlap == 1 or lane.agent == JOINT:  # what all begin with is nobody's own
            return shared
        private = np.array_split(key(lane.seed, "private", bank.name).permutation(ids), agents)[lane.agent]
        mine = drawn(private, whole, lane, rng)
        luck = key(*lane, "overlap", bank.name).random(tasks.count)
        return [both if one < tasks.overlap else own for both, own, one in zip(shared, mine, luck, strict=True)]

    return by_classes(choose)(bank, settings, lanes)


overlapping.even = True  # type: ignore[attr-defined]


# Scenarios that say which rows an agent has

# The rows of every agent, from all training rows of a source and their labels.
Deal = Callable[[np.ndarray, np.ndarray, Settings, np.random.Generator], list[np.ndarray]]


def by_rows(deal: Deal, least: int = 2) -> Scenario:
    """The scenario in which every training row belongs to one agent, as it is dealt, and its tasks are made of the
    classes that it has, in random order; of numbers to predict, of equal parts of its rows. Agents have different
    numbers of tasks and rows. Every agent must have `least` classes."""

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
                    f"agent {lane.agent} of seed {lane.seed} has {len(mine)} training rows of `{bank.name}`, with "
                    f"{len(ids)} classes that have two of them and a test row, and {least} are needed; give it more "
                    "rows or test rows (where nothing says which, a fifth is held out), or use fewer agents"
                )
            groups = grouped(ids, tasks)
            return Stream(tuple(task_of(bank, mine[np.isin(bank.labels[mine], one)], one, source) for one in groups))

        return tuple(stream(lane) for lane in lanes)

    make.__doc__ = deal.__doc__
    return make


def private(tasks: Tasks) -> None:
    """Raise if agents that have rows of their own are to have a common start."""
    if tasks.common:
        raise SettingsError(f"with tasks.scenario = {tasks.scenario!r} tasks are agents' own; say tasks.common=false")


def usable(bank: Bank, rows: np.ndarray, source: int) -> np.ndarray:
    """The classes of some training rows of a source that can be learned, validated and tested."""
    found, counts = np.unique(bank.labels[rows], return_counts=True)
    return found[(counts > 1) & np.isin(found, bank.labels[(bank.source == source) & bank.test])]


def grouped(ids: np.ndarray, tasks: Tasks) -> list[tuple[int, ...]]:
    """Classes in groups of `tasks.classes` at most, about equal. One that would be alone is told apart from one that
    was there before, unless one head grows."""
    parts = np.array_split(ids, -(-len(ids) // tasks.classes))
    found = [tuple(int(c) for c in part) for part in parts][: tasks.count]
    if len(found) > 1 and len(found[-1]) == 1 and tasks.heads != "grow":
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


def dirichlet(rows: np.ndarray, labels: np.ndarray, settings: Settings, rng: np.random.Generator) -> list[np.ndarray]:
    """Of every class each agent gets a share drawn from Dirichlet(`tasks.alpha`): small is uneven."""
    parts: list[list[np.ndarray]] = [[] for _ in range(settings.agents)]
    for one in np.unique(labels):
        mine = rng.permutation(rows[labels == one])
        shares = rng.dirichlet(np.full(settings.agents, settings.tasks.alpha))
        for part, some in zip(parts, np.split(mine, (shares.cumsum()[:-1] * len(mine)).astype(int)), strict=True):
            part.append(some)
    return [np.concatenate(part) for part in parts]


def shards(rows: np.ndarray, labels: np.ndarray, settings: Settings, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows in the order of their labels are cut into `tasks.shards` pieces per agent and dealt: few classes for each
    (McMahan et al. 2017)."""
    shuffled = rng.permutation(len(rows))
    ordered = rows[shuffled][np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(ordered, settings.agents * settings.tasks.shards)
    hands = rng.permutation(len(pieces)).reshape(settings.agents, settings.tasks.shards)
    return [np.concatenate([pieces[at] for at in hand]) for hand in hands]


# Scenarios that the data itself says


def given(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The tasks that the data names: `task` says to which task of its agent a row belongs."""
    if bank.task is None:
        raise SettingsError(
            f"`{bank.name}` does not say which task a row belongs to; name its column (task=...), or use another "
            "tasks.scenario"
        )
    groups = bank.task
    return natural(bank, settings, lanes, lambda rows: [rows[groups[rows] == one] for one in np.unique(groups[rows])])


def timed(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """An agent's rows in the order of time, cut into tasks: into `tasks.count` equal parts, where a period begins, or
    where a label comes that the task has no room for."""
    if bank.time is None:
        raise SettingsError(
            f"`{bank.name}` does not say when a row was taken; name its column (time=...), or use another "
            "tasks.scenario"
        )
    tasks, time, labels = settings.tasks, bank.time, bank.labels

    def cut(rows: np.ndarray) -> list[np.ndarray]:
        rows = rows[np.argsort(time[rows], kind="stable")]
        if tasks.cut == "count":
            return np.array_split(rows, tasks.count)
        if tasks.cut == "label":
            return by_label(rows, labels[rows], tasks.classes)
        since = np.floor((time[rows] - time[rows].min()) / tasks.period)
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
            train = rows[~bank.test[rows]]
            rng = key(lane.seed, "deal", bank.sources[source], at)
            mine = evenly(train, bank.labels[train], share, rng)[lane.agent // sources]
            classes = tuple(int(one) for one in np.unique(bank.labels[rows]))
            task = task_of(bank, key(*lane, "split", at).permutation(mine), classes, source)
            made.append(replace(task, test=rows[bank.test[rows]]))
        return Stream(tuple(made))

    return tuple(stream(lane) for lane in lanes)


# Scenarios in which tasks look different


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
    make.even = True  # type: ignore[attr-defined]
    return make


def seen(bank: Bank, settings: Settings) -> Bank:
    """The bank as agents see it: with the views of the scenario, if it has some."""
    view = getattr(SCENARIOS.find(settings.tasks.scenario), "view", None)
    return bank if view is None or bank.view is not None else replace(bank, view=view(bank, settings.tasks))


BUILT_IN: dict[str, Scenario | str] = {
    "drawn": by_classes(drawn),
    "split": by_classes(in_order),
    "overlap": overlapping,
    "dirichlet": by_rows(dirichlet),
    "shards": by_rows(shards),
    "own": by_rows(evenly, least=1),
    "given": given,
    "time": timed,
    "permuted": viewed(permuted, "The same classes in every task, with the pixels or columns in another order."),
    "rotated": viewed(rotated, "The same classes in every task, turned by `tasks.angle` degrees more."),
}
SCENARIOS: Table[Scenario] = Table("scenario", BUILT_IN, "shoal.scenarios", callable)
