"""How long a run will take, told by timing its first steps."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from shoal.agents.engine import THREADS, kept_memory
from shoal.agents.evaluate import accuracy, others
from shoal.agents.memory import remember
from shoal.agents.stack import Stack, grid, start
from shoal.agents.world import World
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.run import one_thread
from shoal.fleet.size import EXCHANGE, bounded, each, exchanges, size
from shoal.learners.contract import Learner
from shoal.learners.modular import Growth
from shoal.network import edges

LANES = 32  # that are timed, at most: all others are as many times more
TESTED = 8  # and tested
STEPS = 4  # that are timed of an epoch,
WHOLE = 0.2  # unless all of it takes no more seconds than so
CLOCK = time.perf_counter
LONG = 0.1  # seconds after which a thing is not looked at once more
TWICE = 2  # after modules are adapted, and at the end
ENDED = 2000  # rows of a task, at most, at whose end a learner is timed
# Seconds of a run, an agent, a task, an epoch, an exchange, a link and a byte of a checkpoint beside what is timed.
RUN, AGENT, TASK, EPOCH, MEETING, EDGE, BYTE = 0.3, 2e-3, 0.03, 5e-4, 5e-3, 3e-5, 3e-9


def pace(fleet: Sequence[World]) -> float:
    """Seconds that a run takes, about: learning and testing by the clock, messages and files by a guess."""
    settings, parts = fleet[0].fleet, size(fleet[0].fleet, fleet[0].bank).parts
    beside = RUN + settings.tasks.count * (TASK + EPOCH * settings.learner.epochs)
    beside += len(fleet[0].peers) * AGENT + (settings.tasks.count + 1) * (parts["nets"] + parts["memories"]) * BYTE
    if settings.sharing:
        links = bounded(edges.count(settings.network, settings.agents) * settings.seeds)
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
    points = len(grid(epochs))
    past = TWICE if isinstance(world.settings.learner, Growth) else points  # what has not moved is not tested again
    tests = points * tasks.initial * first / lanes + later * points + past * sum(range(tasks.initial, tasks.count))
    return seconds + (tests * test(few) + tasks.count * ending(few) + asking(few)) * times


def epoch(world: World, task: int) -> float:
    """Seconds of an epoch of a task, of all lanes."""
    stack = at(world, task)
    some = stepping(world, STEPS)
    learn_epoch([(some, stack)], 0)  # what is made only once is made now
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
    """Seconds in which all lanes are tested on one task: one of them is timed, or several if that takes no time."""
    one = world.piece([0])
    stack = at(one, 0)
    taken = timed(lambda: accuracy(one, stack, "test", [0]))
    if taken > WHOLE:
        return taken * side_by_side(world)
    some = world.piece(range(min(len(world.lanes), TESTED)))  # what is made only once has been made
    stack = at(some, 0)
    return timed(lambda: accuracy(some, stack, "test", [0])) * len(world.lanes) / len(some.lanes)


def ending(world: World) -> float:
    """Seconds that a learner takes at the end of a task, for all lanes: one of them is timed."""
    learner, rows = world.settings.learner, each(world.settings, world.bank)["train"]
    if type(learner).end is Learner.end:
        return 0.0
    if rows > ENDED:
        return epoch(world, 0)
    one = world.piece([0])
    stacks = [at(one, 0) for _ in range(2)]
    taken = [timed(partial(learner.end, one, stack), 1) for stack in stacks]  # what is made only once is made first
    return taken[-1] * side_by_side(world)


def asking(world: World) -> float:
    """Seconds in which all lanes are asked, at the end, about the tasks of others: one after the other."""
    among = replace(world, fleet=world.settings, peers=world.lanes)
    return timed(lambda: others([(among, at(among, 0))]))


def side_by_side(world: World) -> float:
    """How many times as long as one lane all take that are not stacked."""
    return len(world.lanes) / min(world.settings.machine.threads or THREADS, len(world.lanes))


def timed(work: Callable[[], object], looks: int = 3) -> float:
    """Seconds that some work takes: the least of a few looks, as whatever else the machine does can lengthen one; what
    takes long is looked at once."""
    found: list[float] = []
    while len(found) < looks and sum(found) < LONG:
        begun = CLOCK()
        work()
        found.append(CLOCK() - begun)
    return min(found)
