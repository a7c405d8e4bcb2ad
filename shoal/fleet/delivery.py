"""Delivery: what members have sent is carried to the inboxes of its receivers, and written in the ledger."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.agents.world import World
from shoal.fleet.here import Here
from shoal.fleet.parcels import Told, routed
from shoal.letters.links import Links
from shoal.letters.mail import ACCEPTED, FORGED, NO_EDGE, NO_TENSORS, UNSENT, packable
from shoal.letters.posted import Posted
from shoal.mail.post import Observe

if TYPE_CHECKING:
    from shoal.fleet.members import Crew


def deliver(crew: "Crew", here: World, sent: Sequence[Any], observe: Observe | None) -> dict[int, float]:
    """Carry what members have sent to the inboxes of their receivers, and write it in the ledger, in the order of its
    senders in the fleet, however it is cut into members. Nobody speaks for the lanes of another member. Returns how
    many seconds that takes in each seed, where all wait for it."""
    parts = [posted_of(here, one) for one in sent]
    if not any(map(len, parts)):
        return {}
    if len(parts) > 1 or not isinstance(crew.members[0], Here):
        parts = [checked(here, crew.homes == at, one) for at, one in enumerate(parts)]
    every = Posted.joined(parts, here.peers)
    order = np.argsort(every.table.links.senders, kind="stable")
    every = every if len(parts) == 1 and (np.diff(order) == 1).all() else every.take(order)
    source = np.repeat(np.arange(len(parts)), [len(one) for one in parts])[order]
    going = every.places
    homes = crew.homes[every.table.links.receivers[going]]
    if crew.workers is None:
        here_alone: Any = crew.members[0]
        every.verdicts[going] = here_alone.receive(every.table if len(going) == len(every) else every.table.take(going))
    else:
        places = np.concatenate([one.receipt.place for one in sent])[order]
        for at, member in enumerate(crew.workers.members):
            mine = going[homes == at]
            member.tell("receive", *routed(sent, source[mine], places[mine], at))
        for at, member in enumerate(crew.workers.members):
            every.verdicts[going[homes == at]] = member.told()
    crew.ledger.write(every)
    if observe:
        for mail, verdict in every:
            observe(mail, verdict)
    return taken(here, every)


def posted_of(here: World, sent: Any) -> Posted:
    """What a member has sent, as a table."""
    if isinstance(sent, Told):
        return sent.receipt.posted(here.peers)
    return sent if isinstance(sent, Posted) else Posted.of(sent, here.peers)


def checked(here: World, mine: np.ndarray, posted: Posted) -> Posted:
    """What a member has sent, where it is from lanes that are its own, bool [peers], and goes over an edge."""
    table, verdicts, count = posted.table, posted.verdicts.copy(), len(here.peers)
    senders, receivers = table.links.senders, table.links.receivers
    good = verdicts == ACCEPTED
    known = (senders < count) & (receivers < count)
    edge = np.zeros(len(table), bool)
    every = here.once(("every link",), lambda: here.arrays(here.edges))
    edge[known] = every.find(Links(here.peers, senders[known], receivers[known])) >= 0
    verdicts[good & ~edge] = NO_EDGE
    verdicts[good & ~np.append(mine, False)[senders.clip(max=count)]] = FORGED
    bad = [at for at, held in enumerate(table.contents) if not packable(held)]
    torn = np.flatnonzero(np.isin(table.which, bad)) if bad else np.zeros(0, np.int64)
    verdicts[torn[verdicts[torn] == ACCEPTED]] = NO_TENSORS
    return Posted(table.holding({at: {} for at in torn.tolist()}), verdicts)


def taken(world: World, posted: Posted) -> dict[int, float]:
    """How many seconds the slowest link of each seed needs for what has left; nothing, where nobody waits for it."""
    clock = world.fleet.clock
    if not clock.counts or clock.pace == "asynchronous" or world.instant:
        return {}
    left = posted.take(np.flatnonzero(~np.isin(posted.verdicts, UNSENT))).table
    _, first, which = np.unique(left.links.codes, return_index=True, return_inverse=True)
    weights = np.bincount(which, left.bytes, len(first))
    found: dict[int, float] = {}
    for ends, weight in zip(left.links.take(first).pairs, weights.tolist(), strict=True):
        edge = world.edges[ends]
        seconds = edge.latency + (weight / edge.bandwidth if edge.bandwidth else 0.0)
        found[ends[0].seed] = max(seconds, found.get(ends[0].seed, 0.0))
    return found
