"""Judgement: what receivers say of mail that has come, each for itself.

Mail that does not look as its mode says, that its receiver objects to, that is not the first of its kind or is of no
use any more is refused, in a word. What is accepted is remembered, for mail that comes after it. Code of a mode that
fails on it is no verdict: it ends the run (shoal/own_code.py).
"""

from typing import TYPE_CHECKING

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Gathered
from shoal.letters.ledger import Settled
from shoal.letters.mail import ACCEPTED, EXPIRED, ONCE, OVERTAKEN, UNKNOWN_KIND, UNSENT, Mail, fault, noted

if TYPE_CHECKING:
    from shoal.mail.post import Post


def judged(post: "Post", mail: Mail) -> str:
    """A receiver's verdict on a mail."""
    if not post.known(mail.kind):
        return UNKNOWN_KIND
    verdict = post.fault(mail)
    if verdict == ACCEPTED:
        with post.running("objects", [mail.receiver]):
            verdict = post.mode.objects(post, mail) or ACCEPTED
            if not isinstance(verdict, str):
                raise TypeError(f"it returns {verdict!r}, and a word or nothing is needed")
    twice = (mail.sender, mail.receiver, mail.kind) in post.heard or mail.kind in post.arrived
    if verdict == ACCEPTED and twice and not post.was_late(mail):
        return ONCE
    return verdict


def seen(post: "Post", mail: Mail) -> str:
    """A receiver's verdict on a mail that is there, which it remembers."""
    verdict = judged(post, mail)
    if verdict in UNSENT:
        raise ValueError(
            f"mode `{post.mode.mode}` refuses mail that has arrived as `{verdict}`, which says that it never left; "
            "use another word"
        )
    if verdict == ACCEPTED:
        hear(post, mail.sender, mail.receiver, mail.kind, post.sent_at(mail))
    return verdict


def hear(post: "Post", sender: Lane, receiver: Lane, kind: str, sent: int) -> None:
    """Remember that mail of some kind, sent in such an epoch, is accepted."""
    post.heard.add((sender, receiver, kind))
    if not post.prompt or post.own:
        newest, name = post.stack.ledger.latest, (sender, receiver, post.mode.mode, kind)
        newest[name] = max(newest.get(name, -1), sent)


# Bundles: what is said of all their mail at once


def all_right(post: "Post", bundle: Bundle) -> bool:
    """Does nobody refuse anything in a bundle that has just come?"""
    if bundle.kind in post.arrived or any(kind == bundle.kind for *_, kind in post.heard):
        return False
    return sound(post, bundle)


def sound(post: "Post", bundle: Bundle) -> bool:
    """Does all in a bundle look as expected, and do its receivers welcome it?"""
    expected = post.look(bundle.kind, bundle.ends(0)[0])
    free = all(want.shape[:1] == (None,) for want in expected.values())
    if not post.known(bundle.kind) or not free:
        return False
    look = tuple(expected.items())
    verdicts = (noted(one, look, lambda one=one: fault(one, expected)) for one in bundle.contents)  # type: ignore[misc]
    if any(verdict != ACCEPTED for verdict in verdicts):
        return False
    with post.running("welcomes"):
        return post.mode.welcomes(post, bundle)


# Mail that has been under way


def seen_late(post: "Post", mail: Mail) -> str:
    """The verdict on a mail that has been under way, which is noted: it must still be of use, and is then judged as any
    other."""
    sent = post.sent_at(mail)
    verdict = stale(post, mail.sender, mail.receiver, mail.kind, sent) or seen(post, mail)
    settle(post, mail.id, verdict, sent)
    return verdict


def all_late(post: "Post", bundle: Gathered) -> dict[str, str]:
    """`seen_late` of mails that are known to be sound, by their ids."""
    found, kind = dict[str, str](), bundle.kind
    sent, ends = bundle.sent(post.world.settings.learner.epochs).tolist(), bundle.links.pairs
    ids = [bundle.id(at) for at in range(len(bundle))]
    for at in sorted(range(len(bundle)), key=sent.__getitem__, reverse=True):
        found[ids[at]] = stale(post, *ends[at], kind, sent[at]) or ACCEPTED
        if found[ids[at]] == ACCEPTED:
            hear(post, *ends[at], kind, sent[at])
        settle(post, ids[at], found[ids[at]], sent[at])
    return {name: found[name] for name in ids}


def stale(post: "Post", sender: Lane, receiver: Lane, kind: str, sent: int) -> str:
    """Why a mail of some kind, sent in such an epoch, is of no use any more; empty: it is."""
    good = post.mode.late.get(kind, "newest")
    old = not post.own and post.now - sent > post.mode.period(post.world.settings)
    if good == "never" or (old and kind in post.mode.asking):
        return EXPIRED
    newest = post.stack.ledger.latest
    if good == "newest" and newest.get((sender, receiver, post.mode.mode, kind), -1) >= sent:
        return OVERTAKEN
    return ""


def settle(post: "Post", name: str, verdict: str, sent: int) -> None:
    """Note what a receiver has said of a mail that had been under way since such an epoch."""
    age = 0 if post.own else post.now - sent  # two clocks say nothing of it
    post.settled.append(Settled(name, verdict, age))
