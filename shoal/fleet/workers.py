"""Workers: stacks that learn elsewhere, in processes (`processes`) or in Ray actors (`actors`), and the mail between.

A worker has a `Served`: it is told the verbs of a `Here`. Mail between lanes of one worker never leaves it. What goes
to another worker is packed, a parcel for each of those that get any, and every payload is in it once, however many it
is for; whoever drives the run sees addresses and weights, and hands parcels on unopened.

A worker that ends in the middle of its work is replaced. All go on from the same stacks then, those of the last
checkpoint; because a run is a function of its state, it ends bit for bit as if nobody had ended.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from shoal.agents.lanes import joint_lanes
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.fleet.here import Here
from shoal.fleet.members import Member
from shoal.fleet.parcels import OWN, Parcel, Receipt, Route, bare
from shoal.letters.ledger import Ledger
from shoal.letters.posted import Posted
from shoal.letters.table import Table
from shoal.settings.groups import Settings

SENDING = ("ask", "answer")  # verbs by which mail leaves


class Served:
    """The stacks of a worker, which is told verbs from elsewhere."""

    here: Here

    def open(
        self, settings: Settings, bank: Bank, peers: Sequence[Lane], deals: Sequence[Sequence[Lane]], own: int
    ) -> list[str]:
        """Make the world of one of some deals of all lanes; what was done before is forgotten. Tells by what steps are
        taken there."""
        self.__dict__.clear()
        self.worlds = worlds(settings, bank, deals[own], peers)
        home = {lane: OWN if at == own else at for at, mine in enumerate(deals) for lane in mine}
        self.count, self.peers = len(deals), self.worlds[0].peers
        self.home = np.array([home[lane] for lane in self.peers], np.int64)  # where each of the peers is
        self.kept = Table.none(self.peers)
        return [one.kernel for one in self.worlds]

    def restore(self, stacks: Sequence[Stack] | None, ledger: Ledger) -> None:
        """Go on from some stacks, or begin. The rows of the ledger are written where the run is driven; limits hold
        where mail leaves."""
        self.here = Here(self.worlds, stacks)
        self.here.ledger = ledger
        self.here.bind()

    def act(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Do as told; of mail that leaves, a receipt and the parcels."""
        if verb in ("open", "restore"):
            return getattr(self, verb)(*arguments)
        if verb == "receive":
            return self.receive(*arguments)
        value = getattr(self.here, verb)(*arguments)
        return self.sent(value) if verb in SENDING else value

    def sent(self, posted: Posted) -> tuple[Receipt, list[Parcel | None]]:
        """What has left, as whoever drives the run may know it, and a parcel for each worker that gets any of it."""
        self.kept = table = posted.table
        worker, place, good = np.full(len(table), OWN), np.arange(len(table)), posted.places
        # To nobody: that it has no edge is found where the run is driven.
        worker[good] = np.append(self.home, OWN)[table.links.receivers[good].clip(max=len(self.home))]
        parcels: list[Parcel | None] = []
        for at in range(self.count):
            mine = np.flatnonzero(worker == at)
            place[mine] = np.arange(len(mine))
            parcels.append(Parcel.of(table.take(mine)) if len(mine) else None)
        strangers = table.links.peers[len(self.peers) :]
        return Receipt(bare(table), posted.verdicts, strangers, worker, place), parcels

    def receive(self, route: Route, *parcels: Parcel) -> list[str]:
        """What receivers say of mail that has come for them."""
        tables = {OWN: self.kept} | {at: one.opened(self.peers) for at, one in enumerate(parcels)}
        parts = [tables[number].take(places) for number, places in route.parts]
        return self.here.receive(Table.joined(parts, self.peers).take(route.order))


class Handle(Member, Protocol):
    """A worker: it is told a verb of `Here`, and later asked what came of it, so that workers work side by side."""

    pending: bool  # has it been told something of which it has not been asked what came of it?
    gone: bool  # has it been found to have ended?

    def tell(self, verb: str, *arguments: Any) -> None: ...

    def told(self) -> Any: ...

    def close(self) -> None: ...


class Workers:
    """All workers of a run."""

    def __init__(
        self, whole: Sequence[World], deals: Sequence[tuple[Lane, ...]], hire: Callable[[Sequence[int]], list[Handle]]
    ) -> None:
        self.whole, self.deals, self.hire = whole, deals, hire
        self.members: list[Handle] = []  # one for each deal, in their order

    def restart(self, stacks: Sequence[Stack] | None, ledger: Ledger) -> None:
        """Let all workers go on from some stacks, or begin; `hire` finds one for each deal that has none."""
        there = [member for member in self.members if drained(member)]
        for member in self.members:
            if member not in there:
                member.close()
        lanes = {member.lanes for member in there}
        self.members = there
        self.members += self.hire([at for at, mine in enumerate(self.deals) if frozenset(mine) not in lanes])
        self.members.sort(key=lambda member: [frozenset(mine) for mine in self.deals].index(member.lanes))
        for member, mine in zip(self.members, self.deals, strict=True):
            member.tell("restore", dealt(self.whole, stacks, mine), ledger.sent_by(member.lanes))
        for member in self.members:
            member.told()


def drained(member: Handle) -> bool:
    """Is a worker still there? What it was still at is waited for and forgotten."""
    if member.pending and not member.gone:
        with suppress(Exception):  # what it was still at is no concern any more
            member.told()
    return not member.gone


def dealt(whole: Sequence[World], stacks: Sequence[Stack] | None, lanes: Sequence[Lane]) -> list[Stack] | None:
    """What a member with some lanes gets of the stacks of a fleet."""
    if stacks is None:
        return None
    found, wanted_lanes = [], set(lanes)
    for one, stack in zip(whole, stacks, strict=True):
        mine = [lane for lane in one.lanes if lane in wanted_lanes]
        if not mine:
            continue
        wanted = mine if stack.lanes == one.lanes else list(joint_lanes(mine))
        place = {lane: at for at, lane in enumerate(stack.lanes)}
        found.append(stack.take([place[lane] for lane in wanted], wanted))
    return found


def headcount(settings: Settings) -> int:
    """How many workers a run has; raise if they cannot be. A cluster is asked; nothing is started."""
    machine, lanes = settings.machine, settings.agents * settings.seeds
    if machine.members != "here" and machine.workers > lanes:
        raise UserError(
            f"machine.workers = {machine.workers} (--workers, --stacks) is more than there are agents to deal out: "
            f"{settings.agents} agents x {settings.seeds} seeds = {lanes}; say {lanes} or fewer"
        )
    if machine.members == "ray":
        from shoal.fleet.cluster import possible

        return possible(machine, lanes)
    return machine.workers or min(lanes, os.cpu_count() or 1)
