"""Members: stacks behind a handle. The one loop speaks to handles; where the stacks are is their affair.

`Here` (shoal/fleet/here.py) has its stacks in this process. `workers` are handles on stacks elsewhere, in processes or
Ray actors, each of which runs a `Here` of its own: the same verbs, the same mail, the same ledger, the same bits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shoal.agents.lanes import joint_lanes
from shoal.agents.stack import Stack, joined
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import StaffError, UserError
from shoal.fleet import delivery
from shoal.fleet.here import Here
from shoal.fleet.standing import Standing
from shoal.letters.ledger import Ledger

if TYPE_CHECKING:
    from shoal.fleet.workers import Workers

LOSSES = 3  # so often may workers end before a run gets further


class LostError(UserError):
    """A worker has ended in the middle of its work; the message says which, and how."""


class Member(Protocol):
    """Stacks, here or behind a handle (shoal/fleet/workers.py)."""

    lanes: frozenset[Lane]


@dataclass
class Crew:
    """All members of a run, and what is not theirs: the ledger, and the order of senders in the fleet."""

    whole: tuple[World, ...]
    members: Sequence[Member]
    ledger: Ledger
    joint: bool  # do joint agents still learn for all?
    told: Standing | None = None  # where all lanes stand, as far as members have told
    workers: "Workers | None" = None  # where members are elsewhere
    dealt: tuple[tuple[frozenset[Lane], ...], np.ndarray] = field(default=((), np.zeros(0, np.int64)))  # `homes`
    losses: Counter[tuple[int, int]] = field(default_factory=Counter)  # how often it began again, by task and epoch

    @property
    def homes(self) -> np.ndarray:
        """Which member has each lane, by its place in the fleet: int64 [peers]."""
        lanes = tuple(member.lanes for member in self.members)
        if self.dealt[0] != lanes:
            home = {lane: at for at, mine in enumerate(lanes) for lane in mine}
            self.dealt = lanes, np.array([home.get(lane, -1) for lane in self.whole[0].peers], np.int64)
        return self.dealt[1]

    def restart(self, stacks: Sequence[Stack] | None) -> None:
        """Let workers, new ones where some have ended, go on from some stacks, or begin."""
        assert self.workers is not None
        self.joint, self.told = joint(self.whole, stacks), None
        self.ledger = Ledger() if stacks is None else stacks[0].ledger.copy()
        self.workers.restart(stacks, self.ledger)
        self.members = self.workers.members

    def recover(self, loss: LostError, stacks: Sequence[Stack] | None) -> None:
        """Go on from some stacks after a worker has ended, but not if that has come to nothing several times."""
        assert self.workers is not None
        clock, tries = (stacks[0].task, stacks[0].epoch) if stacks else (0, 0), 0
        self.losses[clock] += 1  # once, though several may have ended together
        while True:
            if self.losses[clock] >= LOSSES or tries > len(self.workers.deals):
                raise StaffError(
                    f"{loss}, and {LOSSES} times in all since task {clock[0] + 1}, epoch {clock[1]}; what was saved is "
                    "whole: see that workers have enough memory, or take fewer, then start the run again to go on from "
                    "there"
                )
            try:
                self.restart(stacks)
            except LostError as another:
                loss, tries = another, tries + 1
            else:
                return

    def every(self, verb: str, *arguments: Any) -> list[Any]:
        """What all members make of a verb."""
        if self.workers is None:
            return [getattr(member, verb)(*arguments) for member in self.members]
        for member in self.workers.members:
            member.tell(verb, *arguments)
        return [member.told() for member in self.workers.members]

    deliver = delivery.deliver

    @property
    def standing(self) -> Standing:
        """Where all lanes stand."""
        assert self.told is not None
        return self.told

    def heed(self, told: Sequence[Standing]) -> bool:
        """Note where all lanes stand. Do any go on?"""
        self.told = Standing.of(told)
        return self.told.going > 0

    def spread(self) -> None:
        """Let every agent go on as a copy of its joint agent."""
        self.heed(self.every("spread"))
        self.joint = False

    def lanes(self, whole: World) -> tuple[Lane, ...]:
        """The lanes of a kind that learn now: all, or their joint agents."""
        return joint_lanes(whole.lanes) if self.joint else whole.lanes

    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of all members, one for each kind of agents, as if they were here."""
        found = self.every("stacks")
        if self.workers is None:
            here: tuple[Stack, ...] = found[0]
            return here
        kinds: list[list[Stack]] = [[] for _ in self.whole]
        for member, stacks in zip(self.members, found, strict=True):
            there = [parts for one, parts in zip(self.whole, kinds, strict=True) if member.lanes & set(one.lanes)]
            for parts, stack in zip(there, stacks, strict=True):
                parts.append(stack)
        made = tuple(joined(parts, self.lanes(one)) for one, parts in zip(self.whole, kinds, strict=True))
        for stack in made:
            stack.ledger = self.ledger
        return made


def crew_of(whole: Sequence[World], stacks: Sequence[Stack]) -> Crew:
    """Stacks that are here, of all lanes."""
    here = Here(whole, stacks)
    return Crew(tuple(whole), [here], here.ledger, joint=False)


def joint(whole: Sequence[World], stacks: Sequence[Stack] | None) -> bool:
    """Do joint agents learn for all where a run goes on from some stacks, or begins?"""
    return whole[0].fleet.tasks.common and (stacks is None or stacks[0].lanes != whole[0].lanes)


@contextmanager
def mustered(whole: Sequence[World], stacks: Sequence[Stack] | None) -> Iterator[Crew]:
    """The members of a fleet, as `machine.members` says; processes and actors end with the run."""
    where = whole[0].fleet.machine.members
    if where == "here":
        here = Here(whole, stacks)
        yield Crew(tuple(whole), [here], here.ledger, joint(whole, stacks))
        return
    if where == "ray":
        from shoal.fleet.actors import started
    else:
        from shoal.fleet.processes import started
    with started(whole) as workers:
        crew = Crew(tuple(whole), [], Ledger(), joint=False, workers=workers)
        try:
            crew.restart(stacks)
        except LostError as loss:  # as it began
            crew.recover(loss, stacks)
        yield crew
