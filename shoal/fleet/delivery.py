"""Delivery: what members have sent is carried to the inboxes of its receivers, and written in the ledger."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.fleet.here import Here, Posted
from shoal.fleet.letters import alike, merged, singled
from shoal.letters.bundle import Lot
from shoal.letters.mail import ACCEPTED, FORGED, NO_EDGE, NO_TENSORS, UNSENT, Mail, packable
from shoal.mail.post import Observe

if TYPE_CHECKING:
    from shoal.fleet.members import Crew


def deliver(crew: "Crew", here: World, sent: Sequence[Sequence[Posted]], observe: Observe | None) -> dict[int, float]:
    """Carry what members have sent to the inboxes of their receivers, and write it in the ledger, in the order of its
    senders in the fleet, however it is cut into members. Nobody speaks for the lanes of another member. Returns how
    many seconds that takes in each seed, where all wait for it."""
    lot = sent[0]
    if len(sent) == 1 and isinstance(lot, Lot) and isinstance(crew.members[0], Here):
        told = lot.told(crew.members[0].receive(lot.arriving)) if len(lot.arriving) else lot
        crew.ledger.write_all(told)
        if observe:
            for mail, verdict in told:
                observe(mail, verdict)
        return taken(here, told)
    if crew.workers is not None:
        lots = [one for one in sent if isinstance(one, Lot)]  # what stays with the worker that sends it
        if len(lots) == len(sent) and alike(lots):
            every = merged([one.told(said) for one, said in zip(lots, crew.every("take"), strict=True)], here.peers)
            crew.ledger.write_all(every)
            single = singled(every) if observe or here.fleet.clock.counts else []
            if observe:
                for letter, verdict in single:
                    observe(letter, verdict)  # type: ignore[arg-type]
            return taken(here, single)
        sent = [singled(merged([one], here.peers)) if isinstance(one, Lot) else one for one in sent]
    spoken = [one for member, mine in zip(crew.members, sent, strict=True) for one in checked(here, member.lanes, mine)]
    posted = sorted(spoken, key=lambda one: crew.place.get(one[0].sender, -1))
    arriving = [
        [at for at, (mail, verdict) in enumerate(posted) if verdict == ACCEPTED and mail.receiver in member.lanes]
        for member in crew.members
    ]
    for member, places in zip(crew.members, arriving, strict=True):
        member.tell("receive", [posted[at][0] for at in places])
    for member, places in zip(crew.members, arriving, strict=True):
        for at, verdict in zip(places, member.told(), strict=True):
            posted[at] = posted[at][0], verdict
    crew.ledger.write(posted)
    if observe:
        for mail, verdict in posted:
            observe(mail, verdict)
    return taken(here, posted)


def taken(world: World, posted: Sequence[Posted]) -> dict[int, float]:
    """How many seconds the slowest link of each seed needs for what has left; nothing, where nobody waits for it."""
    clock = world.fleet.clock
    if not clock.counts or clock.pace == "asynchronous" or world.instant:
        return {}
    weights: dict[tuple[Lane, Lane], int] = {}
    for mail, verdict in posted:
        if verdict not in UNSENT:
            ends = mail.sender, mail.receiver
            weights[ends] = weights.get(ends, 0) + mail.bytes
    found: dict[int, float] = {}
    for ends, weight in weights.items():
        edge = world.edges[ends]
        seconds = edge.latency + (weight / edge.bandwidth if edge.bandwidth else 0.0)
        found[ends[0].seed] = max(seconds, found.get(ends[0].seed, 0.0))
    return found


def checked(here: World, lanes: Collection[Lane], posted: Iterable[Posted]) -> Iterator[Posted]:
    """What a member with some lanes has sent, where it is from them and goes over an edge."""
    for mail, verdict in posted:
        if verdict != ACCEPTED:
            yield mail, verdict
        elif mail.sender not in lanes:
            yield mail, FORGED
        elif isinstance(mail, Mail) and not packable(mail.payload):
            yield replace(mail, payload={}), NO_TENSORS
        else:
            yield mail, ACCEPTED if (mail.sender, mail.receiver) in here.edges else NO_EDGE
