"""How long a run will take, told by timing its first steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from shoal.agents.engine import THREADS, kept_memory
from shoal.agents.evaluate import accuracy
from shoal.agents.memory import remember
from shoal.agents.stack import Stack, grid, start
from shoal.agents.world import World
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.run import one_thread
from shoal.fleet.size import EXCHANGE, bounded, each, exchanges
from shoal.learners.contract import Learner
from shoal.network import edges

LANES = 32  # that are timed, at most: all others are as many times more
STEPS = 4  # that are timed of an epoch,
WHOLE = 0.2  # unless all of it takes no more seconds than so
ENDED = 2000  # rows of a task, at most, at whose end a learner is timed
# Seconds of a run, a task, an epoch, an exchange and a link beside what is timed.
RUN, TASK, EPOCH, MEETING, EDGE = 0.8, 0.2, 5e-3, 2e-2, 3e-5


def pace(fleet: Sequence[World]) -> float:
    """Seconds that a run takes, about: learning and testing by the clock, messages by a guess."""
    settings = fleet[0].fleet
    links = bounded(edges.count(settings.network, settings.agents) * settings.seeds)
    beside = RUN + settings.tasks.count * (TASK + EPOCH * settings.learner.epochs)
    beside += exchanges(settings) * (MEETING + links * EXCHANGE) + links * EDGE
    with one_thread(), kept_memory():
        return sum(map(of_kind, fleet)) + beside


def of_kind(world: World) -> float:
    """Seconds that agents of a kind learn and are tested."""
    tasks, epochs, lanes = world.settings.tasks, world.settings.learner.epochs, len(world.lanes)
    few = world.piece(range(min(lanes, LANES)))
    times = lanes / len(few.lanes)
    later = tasks.count - tasks.initial
    first = world.fleet.seeds if tasks.common else lanes  # with a common start one agent of each seed learns for all
    seconds = epochs * epoch(few, 0) * first / len(few.lanes)
    if later > 0:
        seconds += later * epochs * epoch(few, tasks.initial + later // 2) * times
    tests = len(grid(epochs)) * tasks.count * (tasks.count + 1) / 2
    return seconds + (tests * test(few) + tasks.count * ending(few)) * times


def epoch(world: World, task: int) -> float:
    """Seconds of an epoch of a task, of all lanes."""
    stack = at(world, task)
    some = stepping(world, STEPS)
    timed(lambda: learn_epoch([(some, stack)], 0))  # what is made only once is made now
    taken = timed(lambda: learn_epoch([(some, stack)], 0)) / STEPS
    learner = world.settings.learner
    rows = each(world.settings, world.bank)["train"] + (task * learner.memory if learner.method != "none" else 0)
    steps = learner.steps(0) or -(-rows // min(learner.batch, rows))
    steps *= world.settings.tasks.initial if task == 0 else 1
    if steps * taken > WHOLE:
        return steps * taken
    return timed(lambda: learn_epoch([(world, stack)], 0))


def at(world: World, task: int) -> Stack:
    """Agents that come to a task with weights that have learned nothing."""
    stack = start(world)
    for past in range(task):
        remember(world, stack, past)
    stack.task = task
    if task:
        world.settings.learner.begin(world, stack)
    return stack


def stepping(world: World, steps: int) -> World:
    """The same world with an epoch of so many steps."""
    learner = world.settings.learner.model_copy(update={"iterations": steps, "epochs": 1})
    return replace(world, settings=world.settings.model_copy(update={"learner": learner}))


def test(world: World) -> float:
    """Seconds in which all lanes are tested on one task: one of them is timed."""
    one = world.piece([0])
    stack = at(one, 0)
    return timed(lambda: accuracy(one, stack, "test", [0])) * side_by_side(world)


def ending(world: World) -> float:
    """Seconds that a learner takes at the end of a task, for all lanes: one of them is timed."""
    learner, rows = world.settings.learner, each(world.settings, world.bank)["train"]
    if type(learner).end is Learner.end:
        return 0.0
    if rows > ENDED:
        return epoch(world, 0)
    one = world.piece([0])
    stacks = [at(one, 0) for _ in range(2)]
    taken = [timed(partial(learner.end, one, stack)) for stack in stacks]  # what is made only once is made first
    return taken[-1] * side_by_side(world)


def side_by_side(world: World) -> float:
    """How many times as long as one lane all take that are not stacked."""
    return len(world.lanes) / min(world.settings.machine.threads or THREADS, len(world.lanes))


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
