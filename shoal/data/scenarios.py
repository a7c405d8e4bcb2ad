"""Scenarios: which classes each lane meets, when, and on which images. A scenario is a function that makes
streams, or a class of `Tasks` with settings of its own and a method `streams`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np

from shoal.data.bank import Bank
from shoal.data.by_classes import Overlap, Parity, Rotated, Split, by_classes, drawn, viewed
from shoal.data.by_rows import Dirichlet, Shards, Timed, by_rows, evenly, given
from shoal.data.draws import Scenario
from shoal.data.drift import Drift
from shoal.data.labelled import labelled
from shoal.data.sites import named
from shoal.data.tasks import JOINT, Lane, Stream, Task
from shoal.data.views import permuted
from shoal.doors import Table
from shoal.errors import SettingsError
from shoal.own_code import is_ours, running
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks


class Scene:
    """The scenario of a class of `Tasks` with settings of its own: its method `streams`. What else it says of itself
    (`even`, `places`, `view`) is the class's."""

    even, places = False, False

    def __init__(self, kind: type[Tasks]) -> None:
        self.settings = kind
        self.__doc__, self.__name__, self.__qualname__ = kind.__doc__, kind.__name__, kind.__qualname__
        self.__module__ = kind.__module__
        for name in ("even", "places", "view"):
            if hasattr(kind, name):
                setattr(self, name, getattr(kind, name))

    def __call__(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        own: Any = settings.tasks
        found: tuple[Stream, ...] = own.streams(bank, settings, lanes)
        return found


def own_settings(thing: Any) -> bool:
    """Is something a class of tasks, with settings of its own?"""
    return isinstance(thing, type) and issubclass(thing, Tasks)


def kind_of(name: str) -> type[Tasks]:
    """The class that checks what is said of tasks by a scenario."""
    kind: type[Tasks] = getattr(SCENARIOS.find(name), "settings", Tasks)
    return kind


def streams(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """The stream of every lane, by the scenario that the settings name; all as long as `tasks.count`, with nothing at
    the end of those that have fewer tasks."""
    tasks = settings.tasks
    found = dealt(SCENARIOS.find(tasks.scenario), bank, settings, lanes)
    found = labelled(bank, tasks, lanes, found)
    for lane, stream in zip(lanes, found, strict=True):
        fits(bank, tasks, lane, stream)
    if tasks.heads == "one" and not by_name(tasks):
        for seed in {lane.seed for lane in lanes}:
            one_meaning(bank, tasks, [stream for lane, stream in zip(lanes, found, strict=True) if lane.seed == seed])
    made = (headed(bank, tasks, blurred(tasks, lane, stream)) for lane, stream in zip(lanes, found, strict=True))
    return tuple(
        stream if lane.agent == JOINT else stream.padded(tasks.count) for lane, stream in zip(lanes, made, strict=True)
    )


def dealt(scenario: Scenario, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
    """What a scenario makes for some lanes: a stream each, of tasks whose classes and rows the data has."""
    with running(scenario, f"the scenario `{settings.tasks.scenario}`"):
        with kept_as_it_is(bank) if not is_ours(scenario) else nullcontext():
            found = scenario(bank, settings, lanes)
        if not isinstance(found, Sequence) or not all(isinstance(stream, Stream) for stream in found):
            raise TypeError(f"it returns {found!r:.100}, and a stream for every lane is needed")
        if len(found) != len(lanes):
            raise ValueError(f"it returns {len(found)} streams for {len(lanes)} lanes")
        for lane, stream in zip(lanes, found, strict=True) if not is_ours(scenario) else ():
            for task in stream:
                there(bank, lane, task)
    return tuple(found)


@contextmanager
def kept_as_it_is(bank: Bank) -> Iterator[None]:
    """Inside, nobody can write into the data."""
    arrays = [one for one in (getattr(bank, field.name) for field in fields(bank)) if isinstance(one, np.ndarray)]
    before = [one.flags.writeable for one in arrays]
    try:
        for one in arrays:
            one.flags.writeable = False
        yield
    finally:
        for one, was in zip(arrays, before, strict=True):
            one.flags.writeable = was


def there(bank: Bank, lane: Lane, task: Task) -> None:
    """Raise if a stranger's task has rows or classes that the data has not."""
    who = f"{named(bank.sources, lane.agent)} of seed {lane.seed}"
    if not isinstance(task, Task):
        raise TypeError(f"{who} has {task!r:.100} in its stream, and tasks are needed")
    if wrong := [one for one in task.classes if one not in range(len(bank.classes))]:
        raise ValueError(f"{who} has a task of class {wrong[0]!r}, and the data has 0 to {len(bank.classes) - 1}")
    for name in ("train", "validation", "test"):
        rows = getattr(task, name)
        if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"`{name}` of a task of {who} is {rows!r:.100}, and an array of row numbers is needed")
        if len(rows) and (rows.min() < 0 or (bank.view is None and rows.max() >= len(bank))):
            raise ValueError(f"`{name}` of a task of {who} has a row beyond the {len(bank)} of the data")
        if bank.targets is None and not np.isin(bank.labels[bank.base(rows)], task.classes).all():
            raise ValueError(f"`{name}` of a task of {who} has a row of a class that the task has not")


def even(tasks: Tasks) -> bool:
    """Have all tasks the same number of training images?"""
    return (
        isinstance(tasks.train, int) and tasks.labelled == 1 and getattr(SCENARIOS.find(tasks.scenario), "even", False)
    )


def by_name(tasks: Tasks) -> bool:
    """Do the outputs of a head stand for the classes of the data, whatever the task? Those of a head that grows do, and
    those of one head for all tasks, unless the scenario has `places`: then output i is the class at place i of a task,
    the same outputs for other inputs."""
    places = getattr(SCENARIOS.find(tasks.scenario), "places", False)
    return tasks.heads == "grow" or (tasks.heads == "one" and not places)


def one_meaning(bank: Bank, tasks: Tasks, found: Sequence[Stream]) -> None:
    """Raise if a class would be one output in one task of a seed and another in another."""
    stands: dict[int, int] = {}
    for stream in found:
        for task in stream:
            for place, one in enumerate(task.classes):
                if stands.setdefault(one, place) != place:
                    raise SettingsError(
                        f'with tasks.heads = "one" and tasks.scenario = {tasks.scenario!r} an output is a place in a '
                        f"task, and the class {bank.classes[one]} of `{bank.name}` has place {stands[one] + 1} in one "
                        f"task and {place + 1} in another; take tasks and classes that fit, or a scenario in which "
                        "an output is a class"
                    )


def fits(bank: Bank, tasks: Tasks, lane: Lane, stream: Stream) -> None:
    """Raise if a stream is not as the settings say."""
    who = "the common start" if lane.agent == JOINT else named(bank.sources, lane.agent)
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
    """The stream with one head for all classes of the data, if outputs stand for them."""
    if not by_name(tasks):
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


def seen(bank: Bank, settings: Settings) -> Bank:
    """The bank as agents see it: with the views of the scenario, if it has some."""
    view = getattr(SCENARIOS.find(settings.tasks.scenario), "view", None)
    return bank if view is None or bank.view is not None else replace(bank, view=view(bank, settings.tasks))


BUILT_IN: dict[str, Scenario | str] = {
    "drawn": by_classes(drawn),
    "split": Scene(Split),
    "parity": Scene(Parity),
    "overlap": Scene(Overlap),
    "dirichlet": Scene(Dirichlet),
    "shards": Scene(Shards),
    "own": by_rows(evenly, least=1),
    "given": given,
    "time": Scene(Timed),
    "permuted": viewed(
        permuted,
        "The same classes in every task, with pixels or columns in another order, the same for all agents and seeds.",
    ),
    "rotated": Scene(Rotated),
    "drift": Scene(Drift),
}
SCENARIOS: Table[Scenario] = Table(
    "scenario",
    BUILT_IN,
    "shoal.scenarios",
    lambda entry: callable(entry) and not own_settings(entry),
    make=lambda thing: Scene(thing) if own_settings(thing) and hasattr(thing, "streams") else thing,
)
