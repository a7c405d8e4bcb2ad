"""Where lanes stand between two moments: who goes on, when any of them acts next, and where they are then."""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np

from shoal.agents import events
from shoal.agents.ends import End
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.fleet.health import ends


class Standing(NamedTuple):
    """Where lanes stand, all of a run or those of one member."""

    ended: tuple[End, ...]  # those that have diverged,
    going: int  # and how many go on
    moment: float  # at which one of them acts next
    points: frozenset[events.Point]  # of the streams of those that act then, and do not only wait for a task
    turns: bool  # has any of them learned a task then?
    behind: events.Point  # where the last of all is,
    ahead: events.Point  # and the first

    @classmethod
    def of(cls, parts: Iterable["Standing"]) -> "Standing":
        """Where the lanes of several members stand."""
        every = list(parts)
        moment = min(one.moment for one in every)
        now = [one for one in every if one.moment == moment]
        return cls(
            tuple(sorted({end for one in every for end in one.ended})),
            sum(one.going for one in every),
            moment,
            frozenset(point for one in now for point in one.points),
            any(one.turns for one in now),
            min(one.behind for one in every),
            max(one.ahead for one in every),
        )


def standing(world: World, stack: Stack) -> Standing:
    """Where the lanes of a stack stand."""
    ended, settings, clock = ends(stack), world.settings, stack.clock
    moments = events.moments(settings, clock)
    now = float(moments.min())
    points = events.together(np.flatnonzero(moments == now).tolist(), clock) if now < inf else {}
    rests = clock["rests"].numpy() if events.own(clock) else np.zeros(len(moments), bool)
    over = settings.tasks.count, 0
    every = {over} if np.isinf(moments).any() else set()
    every |= events.together(np.flatnonzero(~np.isinf(moments)).tolist(), clock).keys()
    return Standing(
        tuple(ended),
        len(stack.lanes) - len(ended),
        now,
        frozenset(point for point, rows in points.items() if not rests[list(rows)].all()),
        any(epoch == settings.learner.epochs for _, epoch in points),
        min(every),
        max(every),
    )
