"""Clocks of their own: who acts at a moment, and when each lane acts next.

Every lane knows its next `moment`, in epochs of the fleet or in seconds (`Clock.pace`), and the run goes from the
earliest moment of all lanes to the next. So the queue of events is part of the state, a row for each lane, and mail
under way lies in the inboxes: a checkpoint has both. Lanes at the same moment and the same point of their streams act
as one piece of the stack; a fleet whose agents have one speed and one start goes in lock-step by itself.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.agents.clock import due
from shoal.data.tasks import JOINT, Lane
from shoal.rng import key
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.sharing.contract import Sharing

# What lanes that act at a moment can be at: an initial task that is only met, the end of an epoch, and the beginning of
# one.
SHORT, AFTER, BEFORE = "short", "after", "before"


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
    """What clocks keep beside tasks and epochs: the next `moment` of each lane, and whether it `rests` until another
    task comes; the `seconds` that have passed for it and the bytes that it has `sent`; and until when each of its links
    is `busy`, in the order of `World.receivers`."""
    clock, lanes = world.fleet.clock, world.lanes
    found = {}
    if clock.own:
        # Joint agents learn before the time begins.
        begins = [first_of(world.fleet, lane) if lane.agent != JOINT else 0.0 for lane in lanes]
        begun = torch.tensor(begins, dtype=torch.float64)
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


def acting(settings: Settings, clock: Mapping[str, Tensor], now: float, phase: str) -> list[int]:
    """The rows of lanes that act at a moment."""
    if phase == SHORT and (settings.tasks.common or settings.tasks.initial == 1):
        return []
    moment, rests, task, epoch = (clock[name].numpy() for name in ("moment", "rests", "task", "epoch"))
    here = np.flatnonzero((moment == now) & ~rests)
    short = task[here] < settings.tasks.initial - 1
    done = epoch[here]
    found: list[int] = here[short if phase == SHORT else ~short & within(done, settings, phase)].tolist()
    return found


def within(done: np.ndarray, settings: Settings, phase: str) -> np.ndarray:
    """Is it the end of an epoch, or the beginning of one, after so many [n] of a task? bool [n]."""
    return done > 0 if phase == AFTER else done < settings.learner.epochs


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


def turned(world: "World", stack: "Stack", row: int, now: float) -> float:
    """When the next task of a lane whose task has ended comes; never, where its stream has."""
    task = int(stack.clock["task"][row]) + 1
    if task >= int(world.ends[row]) or bool(stack.gone[row]):
        return inf
    return max(now, float(world.arrivals[row, task]))


def together(rows: Sequence[int], clock: Mapping[str, Tensor]) -> dict[tuple[int, int], list[int]]:
    """Some rows by the task and epoch that they are at."""
    tasks, epochs = clock["task"].numpy(), clock["epoch"].numpy()
    found: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        found.setdefault((int(tasks[row]), int(epochs[row])), []).append(row)
    return dict(sorted(found.items()))
