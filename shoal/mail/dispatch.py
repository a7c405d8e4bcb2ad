"""Dispatch: what lanes that are here let leave, mail by mail or as a bundle, and why not.

A sender cannot speak for others, send where there is no edge, send more than its mode does, or twice of a kind at an
exchange. What may leave is copied, so that nobody can change it any more, passes the filters of its edge, and is paid
for, whatever becomes of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Links, Lot
from shoal.letters.mail import (
    ACCEPTED,
    FORGED,
    NO_EDGE,
    NO_TENSORS,
    NOBODY,
    SENT_ALREADY,
    TOO_MUCH,
    Mail,
    counted,
    frozen,
    identify,
    packable,
)
from shoal.letters.terms import counted as counted_by_class
from shoal.mail.carriage import fates
from shoal.mail.filters import Load, Ways, stopped
from shoal.mail.lies import lied
from shoal.mail.policy import given, note
from shoal.mail.privacy import released

if TYPE_CHECKING:
    from shoal.mail.post import Post


def send_each(post: "Post", mails: Iterable[Mail]) -> list[tuple[Mail, str]]:
    """Let single mails leave, if they may: all at once, but for several over one edge, which go one after the other."""
    found, left = list[tuple[Mail, str]](), list[int]()
    for mail in mails:
        found.append(admitted(post, mail))
        if not found[-1][1]:
            left.append(len(found) - 1)
    while left:
        turn = {ends_of(found[at][0]): at for at in reversed(left)}  # the first of each edge
        now = sorted(turn.values())
        for at, one in zip(now, leave(post, [found[at][0] for at in now]), strict=True):
            found[at] = one
        left = [at for at in left if turn[ends_of(found[at][0])] != at]
    return found


def ends_of(mail: Mail) -> tuple[Lane, Lane]:
    return mail.sender, mail.receiver


def admitted(post: "Post", mail: Mail) -> tuple[Mail, str]:
    """A mail that nobody can change any more, or why it never leaves."""
    if why := misaddressed(post, mail):
        return blank(mail, post.mode.mode), why
    if not post.once(("packable",), mail.payload, lambda: packable(mail.payload)):
        return blank(mail, post.mode.mode), NO_TENSORS
    if excessive(post, mail):
        return blank(mail, post.mode.mode), TOO_MUCH
    payload = post.once(("copy",), mail.payload, lambda: frozen(mail.payload))
    mail = replace(mail, payload=payload, items=items_of(post, mail, payload))
    return lied(post, mail) or mail, ""


def leave(post: "Post", mails: Sequence[Mail]) -> list[tuple[Mail, str]]:
    """What becomes of mails over edges of which each has one."""
    found = [(mail, "") for mail in mails]
    for at, mail in enumerate(mails):
        if (*ends_of(mail), mail.kind) in post.gone or mail.kind in post.lots:
            found[at] = mail, SENT_ALREADY
    places = post.world.links(post.mode).index
    ways = post.ways(np.array([places[ends_of(mail)] for mail in mails]))
    load = loaded(post, ways, mails)
    for at, why in enumerate(stopped(ways, load).tolist()):
        if not found[at][1]:
            found[at] = (mails[at], why) if why else released(post, mails[at])
    going = [at for at, (_, why) in enumerate(found) if not why]
    if not going:
        return found
    gone = [found[at][0] for at in going]
    for at, mail in zip(going, gone, strict=True):
        note(post, mail, ways.terms[at] if ways.terms else None, load.counts[at] if load.counts else None)
        post.sent[mail.id] = mail
        post.gone[*ends_of(mail), mail.kind] = mail
    links, weights = post.world.links(post.mode).take(ways.at[going]), weights_of(gone)
    paid(post, links, weights)
    leaves = [post.asked_at.get(mail.reply, post.time) for mail in gone]
    verdicts, due = fates(post, links, Load([mail.kind for mail in gone], weights), leaves)
    for at, mail, verdict, when in zip(going, gone, verdicts, due.tolist(), strict=True):
        found[at] = (replace(mail, due=when) if when else mail), verdict
    return found


def weights_of(mails: Sequence[Mail]) -> np.ndarray:
    """What mails weigh, floats and bytes: int64 [M, 2]."""
    return np.array([(mail.floats, mail.bytes) for mail in mails], np.int64)


def loaded(post: "Post", ways: Ways, mails: Sequence[Mail]) -> Load:
    """What filters see of mails over some edges."""
    counts, before = list[np.ndarray | None](), list[np.ndarray | None]()
    for mail, ours in zip(mails, ways.terms, strict=bool(ways.terms)):
        by_class = ours is not None and ours.by_class and post.known(mail.kind)
        looks = post.look(mail.kind, mail.sender) if by_class else {}
        counts.append(counted_by_class(post.mode, mail, looks, len(post.world.bank.classes)) if by_class else None)
        before.append(given(post, *ends_of(mail)) if by_class else None)
    return Load([mail.kind for mail in mails], weights_of(mails), counts, before)


def paid(post: "Post", links: Links, weights: np.ndarray) -> None:
    """Note that mail crosses some links, of so many floats and bytes [M, 2]."""
    post.room = None
    post.stack.ledger.carry(post.mode.mode, links, weights, post.now, post.stack.task)
    if "sent" in post.stack.clock:
        rows = torch.from_numpy(post.rows(links.senders))
        post.stack.clock["sent"].index_add_(0, rows, torch.from_numpy(weights[:, 1].copy()))


def misaddressed(post: "Post", mail: Mail) -> str:
    """Why a mail cannot be what a lane that is here has said now to one that it has an edge to; empty: it can."""
    ends = mail.sender, mail.receiver
    if not all(type(one) is Lane and all(type(number) is int for number in one) for one in ends):
        return FORGED if type(mail.sender) is not Lane or mail.sender not in post.world.row else NO_EDGE
    if mail.sender not in post.world.row:
        return FORGED
    if ends not in post.world.links(post.mode).index:
        return NO_EDGE
    said = (mail.mode, mail.task, mail.epoch) == (post.mode.mode, post.stack.task, post.stack.epoch)
    if not said or not all(type(word) is str for word in (mail.kind, mail.id, mail.reply)):
        return FORGED
    name, _, number = mail.id.partition(identify(*ends, mail.mode, mail.kind, mail.task, mail.epoch))
    numbered = not number or number[1:].replace(".", "").isdigit()
    return "" if not name and numbered and mail.id and mail.due == 0 else FORGED


def excessive(post: "Post", mail: Mail) -> bool:
    """Does a mail hold more than the mode ever sends? It is then not even copied."""
    if not post.quotes:
        return False
    quote = post.quotes.get(mail.kind) or max(post.quotes.values(), key=lambda one: one.floats)
    return sum(one.numel() for one in mail.payload.values()) > quote.floats


def items_of(post: "Post", mail: Mail, payload: Mapping[str, Tensor]) -> int:
    """How many items a mail has: what is counted in it, or else what is said, within what is possible."""
    if not post.known(mail.kind):
        return 0
    found = counted(payload, post.look(mail.kind, mail.sender))
    if found is not None:
        return found
    most = post.quotes[mail.kind].items if post.quotes else mail.items
    return min(max(0, mail.items), most, 2**62) if type(mail.items) is int else 0


def blank(mail: Mail, mode: str) -> Mail:
    """A mail that never leaves, as far as the ledger can hold it: who says that it is from whom, and nothing in it."""

    def lane(said: object) -> Lane:
        known = (
            isinstance(said, tuple) and len(said) == 2 and all(type(one) is int and abs(one) < 2**62 for one in said)
        )
        return Lane(*said) if known else NOBODY  # type: ignore[misc]

    word = mail.kind if type(mail.kind) is str else type(mail.kind).__name__
    clock = (one if type(one) is int and 0 <= one < 2**62 else 0 for one in (mail.task, mail.epoch))
    return Mail(lane(mail.sender), lane(mail.receiver), mode, word[:200], {}, 0, "", "", *clock)


# Bundles


def sealed(post: "Post", bundle: Bundle) -> Bundle | None:
    """A bundle that nobody can change any more, if it leaves as it is; None: its mails must be looked at one by one."""
    ours = bundle.links.within(post.links) and bundle.mode == post.mode.mode
    now = (bundle.task, bundle.epoch) == (post.stack.task, post.stack.epoch)
    first = not any(kind == bundle.kind for *_, kind in post.gone) and bundle.kind not in post.lots
    if not (ours and now and first and post.bundles and len(bundle)) or bundle.due is not None:
        return None
    if not packable(bundle.content) or len({tensor.shape[:1] for tensor in bundle.content.values()}) != 1:
        return None
    content = frozen(bundle.content)
    start, count = (np.array(one, np.int64) for one in (bundle.first, bundle.items))
    length = next(iter(content.values())).shape[:1]
    if start.shape != (len(bundle),) or count.shape != start.shape or min(start.min(), count.min()) < 0:
        return None
    if not length or int((start + count).max()) > length[0] or post.crowded(bundle):
        return None
    return replace(bundle, content=content, first=start, items=count)


def send_all(post: "Post", bundle: Bundle) -> Lot:
    """Let a bundle that is sealed leave, but for what links do not carry."""
    weights = np.stack([bundle.floats, bundle.bytes], 1)
    verdicts = stopped(post.ways(bundle.links.places), Load([bundle.kind] * len(bundle), weights))
    going = np.flatnonzero(verdicts == "")
    gone = bundle if len(going) == len(bundle) else bundle.take(going)
    post.lots[bundle.kind] = gone
    due = np.zeros(len(bundle))
    if len(gone):
        paid(post, gone.links, weights[going])
        verdicts[going], late = fates(post, gone.links, Load([bundle.kind] * len(gone), weights[going]))
        due = due.astype(late.dtype)
        due[going] = late
    fine = bool((verdicts == ACCEPTED).all())
    return Lot(replace(bundle, due=due if due.any() else None), () if fine else verdicts.tolist())
