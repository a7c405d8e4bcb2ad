"""Exchanges: every mode that is due acts for all lanes of all stacks at once, wherever they are."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from shoal.data.tasks import Lane
from shoal.fleet.members import Crew, Here, Posted
from shoal.mail.bundle import Lot
from shoal.mail.mail import ACCEPTED, FORGED, NO_EDGE, NO_TENSORS, Mail, packable
from shoal.mail.post import Observe
from shoal.settings.groups import Settings
from shoal.sharing.clock import due


def meet(
    crew: Crew, settings: Settings, task: int, epoch: int, ended: bool = False, observe: Observe | None = None
) -> None:
    """Let every mode act that is due when so many epochs of a task are done, one after the other. `observe` is told of
    every mail and its verdict.

    In one exchange everybody sees the state in which it began, because nobody absorbs before all have answered. What
    has been under way since an earlier exchange and is due now counts as if it came now.
    """
    for mode in due(settings, task, epoch, ended):
        deliver(crew, crew.every("ask", settings.sharing.index(mode)), observe)
        deliver(crew, crew.every("answer"), observe)
        crew.every("absorb")


def deliver(crew: Crew, sent: Sequence[Sequence[Posted]], observe: Observe | None) -> None:
    """Carry what members have sent to the inboxes of their receivers, and write it in the ledger, in the order of its
    senders in the fleet, however it is cut into members. Nobody speaks for the lanes of another member."""
    lot = sent[0]
    if len(sent) == 1 and isinstance(lot, Lot) and isinstance(crew.members[0], Here):
        told = Lot(lot.bundle, crew.members[0].receive(lot.bundle))
        crew.ledger.write_all(told)
        if observe:
            for mail, verdict in told:
                observe(mail, verdict)
        return
    spoken = [one for member, mine in zip(crew.members, sent, strict=True) for one in checked(crew, member.lanes, mine)]
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


def checked(crew: Crew, lanes: Collection[Lane], posted: Iterable[Posted]) -> Iterator[Posted]:
    """What a member with some lanes has sent, where it is from them and goes over an edge."""
    for mail, verdict in posted:
        if verdict != ACCEPTED:
            yield mail, verdict
        elif mail.sender not in lanes:
            yield mail, FORGED
        elif isinstance(mail, Mail) and not packable(mail.payload):
            yield replace(mail, payload={}), NO_TENSORS
        else:
            yield mail, ACCEPTED if (mail.sender, mail.receiver) in crew.whole[0].edges else NO_EDGE
