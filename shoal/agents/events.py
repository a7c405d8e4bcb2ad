"""The clock: who acts at a moment, which modes do, and when each lane acts next.

The run goes from the earliest moment of all lanes to the next. Where lanes have clocks of their own, the next `moment`
of each is part of the state, in epochs of the fleet or in seconds (`Clock.pace`), and mail under way lies in the
inboxes: a checkpoint has both. Elsewhere all lanes act at every moment: that is lock-step, and the moment is the number
of epochs since the first task. Lanes at the same moment and the same point of their streams act as one piece of the
stack.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import JOINT, Lane
from shoal.rng import key
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.sharing.contract import Sharing


def due(settings: Settings, task: int, epoch: int, ended: bool = False) -> "list[Sharing]":
    """The modes that act when `epoch` epochs of a task are done: those `after` them, then those `before` the next.

    Training is cut at every multiple of any mode's period, and at the end. A mode `before` acts ahead of the chunks
    that end at a multiple of its own period, or, if that is the task, at its start (docs/protocol.md, section 6).
    `ended` leaves out what belongs to the next task.
    """
    epochs = settings.learner.epochs
    modes = [one for one in settings.sharing if task >= one.first(settings.tasks.initial)]
    periods = {one.mode: epochs if one.every == "task" else one.every for one in modes}
    after = [one for one in modes if one.when == "after" and epoch and epoch % periods[one.mode] == 0]
    if ended or epoch >= epochs:
        return after
    starts = epoch == 0 or any(epoch % period == 0 for period in periods.values())
    end = min([epochs, *((epoch // period + 1) * period for period in periods.values())])

    def ahead(one: "Sharing") -> bool:
        return epoch == 0 if one.every == "task" else starts and end % periods[one.mode] == 0

    return after + [one for one in modes if one.when == "before" and ahead(one)]


# What lanes that act at a moment can be at: an initial task that is only met, the end of an epoch, and the beginning of
# one.
SHORT, AFTER, BEFORE = "short", "after", "before"
Point = tuple[int, int]  # of a stream: a task, and how many of its epochs are done
Rows = Sequence[int]


def arrivals(settings: Settings, lane: Lane) -> np.ndarray:
    """When each task of a lane comes: float64 [T]. Initial tasks are learned together, so that they come together; with
    a common start they are there before the time begins. Where all wait for each other, a task begins with an epoch."""
    clock, tasks = settings.clock, settings.tasks
    begin = clock.of("starts", lane.agent) if isinstance(clock.starts, tuple) else clock.starts * lane.agent
    first = tasks.initial if tasks.common else tasks.initial - 1  # the first that an agent learns by itself
    times = np.zeros(tasks.count)
    if clock.arrivals == "poisson":
        gaps = key(*lane, "arrivals").exponential(clock.gap, tasks.count)
        times[first + 1 :] = gaps[first + 1 :].cumsum()
    elif isinstance(clock.arrivals, tuple):
        listed = clock.arrivals
        own = listed[lane.agent % len(listed)] if isinstance(listed[0], tuple) else listed
        times[:] = own
        times[: tasks.initial] = 0 if tasks.common else times[tasks.initial - 1]
    found = begin + times
    return found if clock.pace == "asynchronous" else np.ceil(found)


def first_of(settings: Settings, lane: Lane) -> float:
    """When a lane begins: before that, nobody can reach it."""
    first = settings.tasks.initial if settings.tasks.common else 0
    times = arrivals(settings, lane)
    return float(times[min(first, len(times) - 1)])


def init(world: "World") -> dict[str, Tensor]:
    """What clocks keep beside tasks and epochs: the next `moment` of each lane that has a clock of its own, and whether
    it `rests` until another task comes; the `seconds` that have passed for it and the bytes that it has `sent`; and
    until when each of its links is `busy`, in the order of `World.receivers`."""
    clock, lanes = world.fleet.clock, world.lanes
    found = {}
    joint = lanes[0].agent == JOINT  # joint agents learn in lock-step, before the time begins
    begins = [0.0 if joint else first_of(world.fleet, lane) for lane in lanes]
    begun = torch.tensor(begins, dtype=torch.float64)
    if clock.own and not joint:
        tasks = world.fleet.tasks
        over = tasks.common and tasks.initial >= tasks.count  # all is learned in the common start
        found["moment"] = torch.full_like(begun, inf) if over else begun
        found["rests"] = torch.zeros(len(lanes), dtype=torch.bool)
    if clock.counts:
        seconds = begun if clock.pace == "asynchronous" else torch.zeros(len(lanes), dtype=torch.float64)
        found["seconds"] = seconds.clone()
        found["sent"] = torch.zeros(len(lanes), dtype=torch.int64)
    if clock.pace == "asynchronous" and any(edge.bandwidth for edge in world.edges.values()):
        degree = max(map(len, world.receivers.values()))
        found["busy"] = torch.zeros(len(lanes), degree, dtype=torch.float64)
    return found


def own(clock: Mapping[str, Tensor]) -> bool:
    """Have lanes clocks of their own?"""
    return "moment" in clock


def moments(settings: Settings, clock: Mapping[str, Tensor]) -> np.ndarray:
    """When each lane acts next; never, if its stream is learned: float64 [L]."""
    if own(clock):
        found: np.ndarray = clock["moment"].numpy()
        return found
    task, epoch = clock["task"].numpy(), clock["epoch"].numpy()
    return np.where(task < settings.tasks.count, task * settings.learner.epochs + epoch, inf)


def acting(settings: Settings, clock: Mapping[str, Tensor], now: float, phase: str) -> Rows:
    """The rows of lanes that act at a moment."""
    here = moments(settings, clock) == now
    if own(clock):
        here &= ~clock["rests"].numpy()
    fit = within(clock["task"].numpy(), clock["epoch"].numpy(), settings, phase)
    found: list[int] = np.flatnonzero(here & fit).tolist()
    return found


def within(task: np.ndarray, done: np.ndarray, settings: Settings, phase: str) -> np.ndarray:
    """Which points of streams belong to a phase: bool [n]."""
    short = task < settings.tasks.initial - 1
    if phase == SHORT:
        return short
    fit: np.ndarray = ~short & (done > 0 if phase == AFTER else done < settings.learner.epochs)
    return fit


def phased(settings: Settings, point: Point, phase: str) -> bool:
    """Does a point of a stream belong to a phase?"""
    task, done = np.array(point)[:, None]
    return bool(within(task, done, settings, phase)[0])


def turning(settings: Settings, clock: Mapping[str, Tensor], now: float) -> Rows:
    """The rows of lanes that have learned a task at a moment, or have rested until then."""
    there = (moments(settings, clock) == now) & (clock["epoch"].numpy() == settings.learner.epochs)
    found: list[int] = np.flatnonzero(there).tolist()
    return found


def turn(world: "World", stack: "Stack", rows: Rows, now: float, waits: Mapping[Lane, float]) -> None:
    """Let lanes that have learned a task go on to the next if it is there, and else rest until it comes; who waits for
    answers until later rests as long."""
    clock = stack.clock
    if not own(clock):  # who has no task any more goes along with the others
        stack.task, stack.epoch = stack.task + 1, 0
        return
    for row in rows:
        comes = arrival(world, stack, row, now)
        clock["rests"][row] = comes > now
        if comes > now:
            clock["moment"][row] = max(comes, waits.get(stack.lanes[row], comes))
        else:
            clock["moment"][row] = now
            clock["task"][row] += 1
            clock["epoch"][row] = 0


def arrival(world: "World", stack: "Stack", row: int, now: float) -> float:
    """When the next task of a lane whose task has ended comes; never, where its stream has."""
    task = int(stack.clock["task"][row]) + 1
    if task >= int(world.ends[row]) or bool(stack.gone[row]):
        return inf
    return max(now, float(world.arrivals[row, task]))


def quiet(settings: Settings, task: int, epoch: int) -> bool:
    """Does nothing come between two epochs of a task, so that a lane that goes on by its own clock can learn the second
    right after the first? Where agents ask each other, any moment can bring a question."""
    if epoch >= settings.learner.epochs or any(mode.both_ways for mode in settings.sharing):
        return False
    return not due(settings, task, epoch)


def is_due(settings: Settings, mode: "Sharing", task: int, epoch: int, phase: str) -> bool:
    """Does a mode act for lanes at such a point of their streams?"""
    when = "after" if phase == AFTER else "before"
    return mode.when == when and mode in due(settings, task, epoch, ended=phase == AFTER)


def together(rows: Rows, clock: Mapping[str, Tensor]) -> dict[Point, Rows]:
    """Some rows by the point of their streams that they are at."""
    tasks, epochs = clock["task"].numpy(), clock["epoch"].numpy()
    if rows and not own(clock):
        return {(int(tasks[0]), int(epochs[0])): rows}
    found: dict[Point, list[int]] = {}
    for row in rows:
        found.setdefault((int(tasks[row]), int(epochs[row])), []).append(row)
    return {point: found[point] for point in sorted(found)}
