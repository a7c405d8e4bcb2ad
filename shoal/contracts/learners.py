"""The laws of learners."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.agents import received
from shoal.agents.stack import PARAMS, Stack
from shoal.agents.world import World
from shoal.contracts.fleets import (
    SHARED,
    Run,
    difference,
    engines_agree,
    fleet,
    learns_of_others,
    ran,
    saved,
    settings_of,
)
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.data.scenarios import by_name
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.contract import Learner
from shoal.learners.table import LEARNERS
from shoal.models.table import MODELS

TASKS: dict[str, Any] = {"count": 4, "classes": 3, "initial": 2, "train": 10, "validation": 5}
LANES = (Lane(0, 0), Lane(0, 1), Lane(0, 2))


@contextmanager
def laws(learner: str | type[Learner] | Learner, model: str | None = None) -> Iterator[list[Law]]:
    """The laws of a learner."""
    said = said_of(learner)
    what = f"`{said['method']}`"
    with finishes(what):
        yield laws_of(LAWS, Case(what, said, model or model_of(said)))


def said_of(learner: str | type[Learner] | Learner) -> dict[str, Any]:
    """What names a learner in settings, with its own settings or its example."""
    if isinstance(learner, Learner):
        return {**{name: getattr(learner, name) for name in learner.model_fields_set}, "method": learner.door}
    kind = LEARNERS.find(learner) if isinstance(learner, str) else learner
    method = kind.model_fields["method"].default
    return {**kind.example, "method": learner if isinstance(learner, str) else LEARNERS.door(method, kind)}


def model_of(said: dict[str, Any]) -> str:
    """The first model that a learner can teach."""
    for model in MODELS:
        try:
            settings_of(model, learner=said, tasks=heads_of(said))
        except SettingsError as error:
            why = error
        else:
            return model
    raise why


def heads_of(said: dict[str, Any]) -> dict[str, Any]:
    """The first kind of heads that a learner makes sense with."""
    return {"heads": LEARNERS.find(said["method"]).serves[0]}


@dataclass
class Case:
    """A learner under test, with the runs that several laws ask for."""

    what: str
    said: dict[str, Any]
    model: str

    def raw(self, **changes: Any) -> dict[str, Any]:
        learner = {"epochs": 5, "batch": 8, "memory": 6, **self.said, **changes.pop("learner", {})}
        tasks = {**TASKS, **heads_of(self.said), **changes.pop("tasks", {})}
        return {"agents": 3, "tasks": tasks, "learner": learner, **changes}

    def small(self, lanes: tuple[Lane, ...] = LANES, **changes: Any) -> World:
        return fleet(self.model, lanes, **self.raw(**changes))

    @cached_property
    def run(self) -> Run:
        """A small fleet, at its end."""
        return ran(self.small())

    def same(self, one: Stack, other: Stack, sentence: str) -> None:
        name = difference(one, other)
        law(not name, f"{self.what}: {sentence}, but `{name}` differs")


# The laws


def it_learns_something(case: Case) -> None:
    """A task is learned to more than 55 % of what lies between a guess and no mistake, all tasks together to a quarter
    of it: 70 % and 50 % of three classes. Where one head has all classes, a guess is among all of them."""
    more: dict[str, Any] = {"net": {"width": 32, "dropout": 0.1}, "tasks": {"train": 30, "count": 3}}
    world = case.small(learner={"epochs": 20, "batch": 16, "rate": 5e-3}, **more)
    last = simulate(world).accuracy[:, -1, -1]
    now, all_tasks = float(last[:, -1].mean()), float(last.mean())
    every = [{one for task in stream for one in task.classes} for stream in world.streams]
    count = max(map(len, every)) if by_name(world.settings.tasks) else world.settings.tasks.classes
    easy, hard = (1 / count + share * (1 - 1 / count) for share in (0.55, 0.25))
    law(now > easy, f"{case.what}: after 20 epochs a task is learned, but its accuracy is {now:.0%} of {count} classes")
    law(all_tasks > hard, f"{case.what}: not all is forgotten, but at the end all tasks together have {all_tasks:.0%}")


def the_same_seed_is_the_same_run(case: Case) -> None:
    again = simulate(case.small())
    case.same(again, case.run.stack, "the same seed is the same run, bit for bit (draw from `shoal.rng.key` alone)")


def a_lane_does_not_depend_on_its_neighbours(case: Case) -> None:
    lane = LANES[1]
    sentence = "an agent learns alone what it learns beside others"
    case.same(simulate(case.small((lane,))), case.run.rows([lane]), sentence)


def the_number_of_threads_changes_nothing(case: Case) -> None:
    """As many lanes as make two pieces of a stack; what is written to a piece is in the stack."""
    least = case.run.world.model.least
    lanes = tuple(Lane(seed, agent) for seed in range(max(1, least)) for agent in range(2))
    few: dict[str, Any] = {"learner": {"epochs": 2}, "tasks": {"count": 3}, "agents": 2, "seeds": max(1, least)}
    one, two = (case.small(lanes, **few, machine={"threads": threads}) for threads in (1, 2))
    law(len(two.pieces) == 2, f"{case.what}: two threads have two pieces of the stack")
    case.same(simulate(one), simulate(two), "in pieces of a stack, side by side, agents learn as in one")


def stopped_and_resumed_it_ends_the_same(case: Case) -> None:
    run = case.run
    for state in run.states[1::3]:
        sentence = f"stopped at task {state.task}, epoch {state.epoch}, saved and resumed it ends where it would have"
        (stack,) = saved([run.world], [state])
        case.same(simulate(run.world, stack), run.stack, sentence)


def loop_and_vmap_agree(case: Case) -> None:
    engines_agree(case.what, case.run, case.model, (PARAMS,), **case.raw())


def it_learns_with_what_others_send(case: Case) -> None:
    learns_of_others(case.what, case.small, case.run.stack)


def what_is_sent_for_finished_tasks_is_learned_from(case: Case) -> None:
    """Rows that others send for tasks that are finished change what agents learn, or the learner says before the run
    that they will not."""
    try:
        world = case.small(sharing=[SHARED[0]])
    except SettingsError:  # a learner may say that a mode is not for it
        return
    run = ran(world)
    last = next(state for state in run.states if state.task == world.settings.tasks.count - 1)
    sent, unsent = (saved([world], [last])[0] for _ in range(2))
    fill = unsent.of(received.OWNER)["fill"]
    law(bool(fill[:, :-1].any()), f"{case.what}: nothing was sent for finished tasks, so there is nothing to test")
    fill[:, :-1] = 0
    name = difference(simulate(world, sent), simulate(world, unsent), lambda name: not name.startswith(f"{PARAMS}/"))
    warned = world.settings.learner.unused(world.settings.sharing)
    law(
        bool(name) != bool(warned),
        f"{case.what}: rows of finished tasks change what is learned, or `unused` says that they do not",
    )


LAWS: tuple[Callable[[Case], None], ...] = (
    the_same_seed_is_the_same_run,
    a_lane_does_not_depend_on_its_neighbours,
    the_number_of_threads_changes_nothing,
    stopped_and_resumed_it_ends_the_same,
    loop_and_vmap_agree,
    it_learns_with_what_others_send,
    what_is_sent_for_finished_tasks_is_learned_from,
    it_learns_something,  # takes longest
)
