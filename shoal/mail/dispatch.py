"""Dispatch: what lanes that are here let leave, mail by mail or as a bundle, and why not.

A sender cannot speak for others, send where there is no edge, send more than its mode does, or twice of a kind at an
exchange. What may leave is copied, so that nobody can change it any more, passes the filters of its edge, and is paid
for, whatever becomes of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Lot
from shoal.letters.mail import (
    DOWN,
    FORGED,
    LOST,
    NO_EDGE,
    NO_TENSORS,
    NOBODY,
    SENT_ALREADY,
    TOO_MUCH,
    UNSENT,
    Mail,
    counted,
    frozen,
    identify,
    packable,
)
from shoal.letters.terms import counted as counted_by_class
from shoal.mail.carriage import carried, fates, met
from shoal.mail.filters import sent, stopped
from shoal.mail.lies import lied
from shoal.mail.policy import given, note
from shoal.mail.privacy import released

if TYPE_CHECKING:
    from shoal.mail.post import Post


def send_one(post: "Post", mail: Mail) -> tuple[Mail, str]:
    """Let one mail leave, if it may."""
    if why := misaddressed(post, mail):
        return blank(mail, post.mode.mode), why
    ends = mail.sender, mail.receiver
    if not post.once(("packable",), mail.payload, lambda: packable(mail.payload)):
        return blank(mail, post.mode.mode), NO_TENSORS
    if excessive(post, mail):
        return blank(mail, post.mode.mode), TOO_MUCH
    payload = post.once(("copy",), mail.payload, lambda: frozen(mail.payload))
    mail = replace(mail, payload=payload, items=items_of(post, mail, payload))
    if (lie := lied(post, mail)) is not None:
        mail = lie
    if (*ends, mail.kind) in post.gone or mail.kind in post.lots:
        return mail, SENT_ALREADY
    way = post.way(*ends)
    if way.terms is not None and way.terms.by_class and post.known(mail.kind):
        classes = len(post.world.bank.classes)
        counts = counted_by_class(post.mode, mail, post.look(mail.kind, mail.sender), classes)
        way = way._replace(counts=counts, given=given(post, *ends))
    if why := stopped(way, mail):
        if why not in UNSENT:  # the ledger could not tell that it was never paid for
            raise ValueError(f"a filter stops mail as `{why}`, which is not in UNSENT; put it there")
        return mail, why
    mail, why = released(post, mail)
    if why:
        return mail, why
    note(post, mail, way)
    post.sent[mail.id] = mail
    post.gone[*ends, mail.kind] = mail
    post.stack.ledger.carry(mail, post.now)
    if "sent" in post.stack.clock:
        post.stack.clock["sent"][post.world.row[mail.sender]] += mail.bytes
    under_way = sent(way, carried(post, mail))
    if under_way is None:
        return mail, LOST
    back, why = met(post, mail.receiver, max(0, int(under_way.due) - post.now))
    return (replace(under_way, due=back) if back else under_way), why


def misaddressed(post: "Post", mail: Mail) -> str:
    """Why a mail cannot be what a lane that is here has said now to one that it has an edge to; empty: it can."""
    ends = mail.sender, mail.receiver
    if not all(type(one) is Lane and all(type(number) is int for number in one) for one in ends):
        return FORGED if type(mail.sender) is not Lane or mail.sender not in post.world.row else NO_EDGE
    if mail.sender not in post.world.row:
        return FORGED
    if ends not in post.world.edges:
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
    if not (ours and now and first and post.free and len(bundle)) or bundle.due is not None:
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
    """Let a bundle that is sealed leave, but for what would go over links that are down."""
    verdicts, due = fates(post, bundle)
    gone = bundle if DOWN not in verdicts else bundle.take(np.flatnonzero([one != DOWN for one in verdicts]))
    post.lots[bundle.kind] = gone
    post.stack.ledger.carry_all(gone, post.now)
    if "sent" in post.stack.clock:
        rows, weights = post.rows(gone.links.senders), torch.from_numpy(gone.bytes)
        post.stack.clock["sent"].index_add_(0, torch.from_numpy(rows), weights)
    return Lot(replace(bundle, due=due), verdicts)
