"""The laws of scenarios."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from shoal import data
from shoal.agents.worlds import world
from shoal.contracts.fleets import TASKS, difference, listed, settings_of
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.data import Bank
from shoal.data.draws import Scenario
from shoal.data.scenarios import SCENARIOS, streams
from shoal.data.tasks import Lane, Stream
from shoal.errors import UserError
from shoal.fleet.run import simulate
from shoal.settings.groups import Settings

LANES = (Lane(0, 0), Lane(0, 1), Lane(0, 2), Lane(1, 0))
SPLITS = ("train", "validation", "test")


@cache
def sites() -> Bank:
    """Made-up rows [N, 6] of 4 classes at three sites, each with its task and the time when it was taken."""
    rng = np.random.default_rng(0)
    count = 3 * 3 * 4 * 20
    at = np.arange(count)
    labels = at % 4
    return Bank(
        "sites", (3 * np.eye(4, 6)[labels] + rng.normal(size=(count, 6))).astype(np.float32), labels,
        source=at // (count // 3), test=at // 4 % 5 == 4, peak=1, classes=tuple("abcd"), sources=("x", "y", "z"),
        task=at // (count // 9) % 3, time=at.astype(float), scale="standard",
    )  # fmt: skip


@contextmanager
def laws(scenario: str | Scenario, bank: Bank | None = None) -> Iterator[list[Law]]:
    """The laws of a scenario, on a bank, or on what it can be made of: the digits, or rows of sites with tasks and
    times."""
    with listed(SCENARIOS, scenario) as name, finishes(f"`{name}`"):
        yield laws_of(LAWS, Case(name, bank or bank_of(name)))


def settings_for(name: str, **changes: Any) -> Settings:
    return settings_of("mlp", agents=3, seeds=2, tasks={**TASKS, "scenario": name}, **changes)


def bank_of(name: str) -> Bank:
    """The first bank that a scenario can be made of."""
    try:
        streams(data.load("digits"), settings_for(name), LANES)
    except UserError:
        return sites()
    return data.load("digits")


@dataclass
class Case:
    """A scenario under test."""

    name: str
    bank: Bank

    @cached_property
    def settings(self) -> Settings:
        return settings_for(self.name)

    @cached_property
    def streams(self) -> dict[Lane, Stream]:
        return self.of(LANES)

    def of(self, lanes: tuple[Lane, ...]) -> dict[Lane, Stream]:
        found = SCENARIOS.find(self.name)(self.bank, self.settings, lanes)
        law(len(found) == len(lanes), f"`{self.name}` makes {len(found)} streams where {len(lanes)} lanes are")
        return dict(zip(lanes, found, strict=True))

    def tasks(self) -> Iterator[tuple[str, Any]]:
        for lane, stream in self.streams.items():
            for at, task in enumerate(stream):
                yield f"`{self.name}`: task {at + 1} of agent {lane.agent} of seed {lane.seed}", task


def same(one: Stream, other: Stream) -> bool:
    return len(one) == len(other) and all(
        mine.classes == theirs.classes
        and all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in SPLITS)
        for mine, theirs in zip(one, other, strict=True)
    )


def the_same_settings_are_the_same_streams(case: Case) -> None:
    again = case.of(LANES)
    alike = all(same(stream, again[lane]) for lane, stream in case.streams.items())
    law(alike, f"`{case.name}` makes other streams of the same settings; draw from `shoal.rng.key` alone")


def a_stream_does_not_depend_on_which_lanes_are_there(case: Case) -> None:
    for lane in LANES[1:]:
        alone = case.of((lane,))[lane]
        law(same(alone, case.streams[lane]), f"`{case.name}`: agent {lane.agent} has another stream if it is alone")


def streams_have_the_right_length(case: Case) -> None:
    for lane, stream in case.streams.items():
        most = case.settings.tasks.count
        law(1 <= len(stream) <= most, f"`{case.name}`: agent {lane.agent} has {len(stream)} tasks; 1 to {most} can be")


def training_validation_and_test_rows_are_apart(case: Case) -> None:
    for what, task in case.tasks():
        for name in SPLITS:
            law(len(getattr(task, name)) > 0, f"{what} has no {name} rows")
        rows = {name: set(case.bank.base(getattr(task, name)).tolist()) for name in SPLITS}
        for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
            both = rows[one] & rows[other]
            law(not both, f"{what} has row {min(both, default=0)} of `{case.bank.name}` in {one} and in {other}")
        if bool(case.bank.test.any()):
            wrong = [row for name in SPLITS[:2] for row in rows[name] if case.bank.test[row]]
            law(not wrong, f"{what} trains or validates on row {wrong[:1]}, which is for testing")


def rows_are_of_the_classes_of_their_task(case: Case) -> None:
    known = range(len(case.bank.classes))
    for what, task in case.tasks():
        law(set(task.classes) <= set(known), f"{what} has classes {task.classes} where there are {len(known)}")
        law(len(set(task.classes)) == len(task.classes), f"{what} has a class twice in {task.classes}")
        for name in SPLITS:
            rows = getattr(task, name)
            inside = bool((rows >= 0).all()) and bool((case.bank.base(rows) < len(case.bank)).all())
            law(inside, f"{what}: {name} rows are rows of `{case.bank.name}`")
            local = task.labels(case.bank, rows)
            law(bool((local >= 0).all()), f"{what}: {name} rows are of its classes {task.classes}, some are of others")


def a_fleet_learns_on_it(case: Case) -> None:
    made = world(settings_for(case.name, learner={"epochs": 3}), case.bank, LANES[:2])
    one, two = simulate(made), simulate(made)
    name = difference(one, two)
    law(not name, f"`{case.name}`: the same seed is the same run, but `{name}` differs")
    law(bool((one.accuracy >= 0).any()), f"`{case.name}`: tasks are tested")


LAWS: tuple[Callable[[Case], None], ...] = (
    the_same_settings_are_the_same_streams,
    a_stream_does_not_depend_on_which_lanes_are_there,
    streams_have_the_right_length,
    training_validation_and_test_rows_are_apart,
    rows_are_of_the_classes_of_their_task,
    a_fleet_learns_on_it,
)
