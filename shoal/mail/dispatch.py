"""Dispatch: what lanes that are here let leave, and why not.

A sender cannot speak for others, send where there is no edge, send more than its mode does, or twice of a kind at an
exchange. What may leave is copied, so that nobody can change it any more, passes the filters of its edge, and is paid
for, whatever becomes of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.mail import (
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
from shoal.letters.posted import Posted
from shoal.letters.table import WHOLE, Table, Words, words
from shoal.letters.terms import counted as counted_by_class
from shoal.mail.carriage import fates
from shoal.mail.filters import Load, stopped
from shoal.mail.lies import lied
from shoal.mail.policy import given, note
from shoal.mail.privacy import released

if TYPE_CHECKING:
    from shoal.mail.post import Post


def send(post: "Post", mails: Sequence[Mail]) -> Posted:
    """Let mails of lanes that are here leave, if they may: all at once, but for several over one edge, which go one
    after the other. They are paid for, whatever becomes of them.

    Each comes back as it is under way, with a verdict: ACCEPTED, as far as its sender can know, or why it is not under
    way. What is under way is a copy, one for all that hold the same payload: nobody can change it any more.
    """
    if not len(mails):
        return Posted(Table.none(post.world.peers), words([]))
    sealed_ = sealed(post, mails) if isinstance(mails, Table) else None
    table, verdicts = one_by_one(post, mails) if sealed_ is None else (sealed_, words([""] * len(mails)))
    table = lied(post, table, np.flatnonzero(verdicts == ""))
    for rows in turns(table, np.flatnonzero(verdicts == "")):
        table = leave(post, table, rows, verdicts)
    return Posted(table, verdicts)


def turns(table: Table, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Some letters, first those that are the first over their edge, then those that are the second, and so on."""
    if len(rows) == len(table) and table.links.once_each:
        yield rows
        return
    codes = table.links.codes[rows]
    order = np.argsort(codes, kind="stable")
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - np.searchsorted(codes[order], codes[order])
    for number in range(int(turn.max(initial=-1)) + 1):
        yield rows[turn == number]


def leave(post: "Post", table: Table, rows: np.ndarray, verdicts: Words) -> Table:
    """Let letters leave over edges of which each has one: what they are then, with their verdicts written down."""
    links = post.world.links(post.mode)
    at = links.find(table.links.take(rows))
    ways, load = post.ways(at), loaded(post, table, rows)
    why = stopped(ways, load)
    why[post.has_left(table.kind[rows], at)] = SENT_ALREADY
    table = released(post, table, rows, why)
    verdicts[rows] = why
    fine = np.flatnonzero(why == "")
    going, at = rows[fine], at[fine]
    if not len(going):
        return table
    for place in fine.tolist() if ways.terms else ():
        note(post, table[int(rows[place])], ways.terms[place], load.counts[place])
    gone = table.take(going)
    post.left_now(gone, at)
    paid(post, at, gone.weights)
    verdicts[going], due = fates(post, ways.take(fine), Load(gone.kind, gone.weights), post.leaves(gone))
    every = table.due.astype(due.dtype)
    every[going] = due
    return replace(table, due=every)


def loaded(post: "Post", table: Table, rows: np.ndarray) -> Load:
    """What filters see of letters over some edges."""
    load = Load(table.kind[rows], table.weights[rows])
    if not post.world.fleet.policy:
        return load
    counts, before = list[np.ndarray | None](), list[np.ndarray | None]()
    for at in rows.tolist():
        mail = table[at]
        ours = post.world.terms(mail.sender, mail.receiver)
        by_class = ours is not None and ours.by_class and post.known(mail.kind)
        looks = post.look(mail.kind, mail.sender) if by_class else {}
        counts.append(counted_by_class(post.mode, mail, looks, len(post.world.bank.classes)) if by_class else None)
        before.append(given(post, mail.sender, mail.receiver) if by_class else None)
    return Load(*load[:2], counts, before)


def paid(post: "Post", at: np.ndarray, weights: np.ndarray) -> None:
    """Note that mail crosses links at some places, of so many floats and bytes [M, 2]."""
    links = post.world.links(post.mode)
    post.room = None
    post.stack.ledger.carry(post.mode.mode, links, weights, post.now, post.stack.task, at)
    if "sent" in post.stack.clock:
        rows = torch.from_numpy(post.rows(links.senders[at]))
        post.stack.clock["sent"].index_add_(0, rows, torch.from_numpy(weights[:, 1].copy()))


# What may be posted at all


def sealed(post: "Post", table: Table) -> Table | None:
    """A table that nobody can change any more, if it is what lanes that are here say now over edges that they have;
    None: its letters must be looked at one by one."""
    if table.links.peers is not post.world.peers or not all(packable(one) for one in table.contents):
        return None
    clock = (table.task == post.stack.task).all() and (table.epoch == post.stack.epoch).all()
    if not clock or set(table.mode.tolist()) - {post.mode.mode} or not all(type(kind) is str for kind in table.kinds):
        return None
    shapes = {name: np.shape(getattr(table, name)) for name in ("which", "first", "items", "due")}
    if set(shapes.values()) != {(len(table),)} or table.due.any() or not within(table):
        return None
    if (post.world.links(post.mode).find(table.links) < 0).any():
        return None
    for kind in [one for one in table.kinds if one in post.quotes]:
        mine, quote = table.among_kinds([kind]), post.quotes[kind]
        if table.items[mine].max() > quote.items or table.floats[mine].max() > quote.floats:
            return None
    first, items = table.first.copy(), table.items.copy()  # the sender may write to its own
    contents, names = [frozen(one) for one in table.contents], post.names(table) if post.own else None
    return replace(table, contents=contents, first=first, items=items, names=names, weighed=table.weights, made={})


def within(table: Table) -> bool:
    """Is what each letter of a table holds in its content?"""
    if len(table) and not 0 <= table.which.min() <= table.which.max() < len(table.contents):
        return False
    for at, held in enumerate(table.contents):
        lengths = {one.shape[:1] for one in held.values()}
        cut = (table.which == at) & (table.first != WHOLE)
        if not cut.any():
            continue
        first, items = table.first[cut], table.items[cut]
        if len(lengths) != 1 or () in lengths or min(first.min(), items.min()) < 0:
            return False
        if int((first + items).max()) > next(iter(lengths))[0]:
            return False
    return True


def one_by_one(post: "Post", mails: Sequence[Mail]) -> tuple[Table, Words]:
    """Single letters as a table, and why some of them never leave."""
    found = [admitted(post, mail) for mail in mails]
    return Table.of((mail for mail, _ in found), post.world.peers), words(why for _, why in found)


def admitted(post: "Post", mail: Mail) -> tuple[Mail, str]:
    """A letter that nobody can change any more, or why it never leaves."""
    if why := misaddressed(post, mail):
        return blank(mail, post.mode.mode), why
    if not post.once(("packable",), mail.payload, lambda: packable(mail.payload)):
        return blank(mail, post.mode.mode), NO_TENSORS
    if excessive(post, mail):
        return blank(mail, post.mode.mode), TOO_MUCH
    payload = post.once(("copy",), mail.payload, lambda: frozen(mail.payload))
    return replace(mail, payload=payload, items=items_of(post, mail, payload)), ""


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
