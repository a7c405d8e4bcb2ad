"""Judgement: what receivers say of mail that has come, each for itself.

Mail that does not look as its mode says, that its receiver objects to, that is not the first of its kind or is of no
use any more is refused, in a word. What is accepted is remembered, for mail that comes after it. Code of a mode that
fails on it is no verdict: it ends the run (shoal/own_code.py).
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.ledger import Settled
from shoal.letters.mail import (
    ACCEPTED,
    EXPIRED,
    ONCE,
    OVERTAKEN,
    TOO_MANY,
    UNKNOWN_KIND,
    UNSENT,
    Expected,
    counted,
    fault,
    noted,
)
from shoal.letters.table import Table, Words

if TYPE_CHECKING:
    from shoal.mail.post import Post


def counted_once(post: "Post", table: Table, verdicts: Words) -> None:
    """A sender counts once: of its letters of a kind that are accepted the first, if none has been before."""
    for kind in table.kinds:
        mine = np.flatnonzero(table.among_kinds([kind]) & (verdicts == ACCEPTED))
        some = table if len(mine) == len(table) else table.take(mine)
        twice = np.full(len(mine), not some.links.once_each)
        twice[np.unique(some.links.codes, return_index=True)[1] if twice.any() else []] = False
        if kind in post.heard:
            twice |= np.isin(some.links.codes, post.heard[kind])
        verdicts[mine[twice]] = ONCE
        hear(post, some.take(np.flatnonzero(~twice)) if twice.any() else some, kind)


def judged(post: "Post", table: Table) -> Words:
    """What receivers say of letters, each for itself."""
    verdicts = looked_at(post, table)
    fine = np.flatnonzero(verdicts == ACCEPTED)
    some = table if len(fine) == len(table) else table.take(fine)
    with post.running("welcomes"):
        welcome = not len(some) or post.mode.welcomes(post, some)
    if not welcome:
        verdicts[fine] = objections(post, some)
    return verdicts


def objections(post: "Post", table: Table) -> list[str]:
    """What the mode of each receiver says of letters that look as expected."""
    found, whom = list[str](), list[Lane]()
    with post.running("objects", whom):
        for at in range(len(table)):
            whom[:] = [table.ends(at)[1]]
            verdict = post.mode.objection(post, table, at) or ACCEPTED
            if not isinstance(verdict, str):
                raise TypeError(f"it returns {verdict!r}, and a word or nothing is needed")
            found.append(verdict)
    if wrong := set(found) & set(UNSENT):
        raise ValueError(
            f"mode `{post.mode.mode}` refuses mail that has arrived as `{min(wrong)}`, which says that it never left; "
            "use another word"
        )
    return found


def looked_at(post: "Post", table: Table) -> Words:
    """What receivers say of what letters look like: of all at once where they are alike and nothing is wrong with any,
    else of each content once."""
    found = np.full(len(table), ACCEPTED, object)
    kind = table.kind[0] if table.alike else ""
    if table.alike and post.known(kind) and (looks := looks_of(post, table, kind)):
        # Of letters that are alike the contents are looked at as a whole.
        pairs = [(content, look) for content in table.contents for look in looks]
        if all(noted(one, tuple(look.items()), partial(fault, one, look)) == ACCEPTED for one, look in pairs):
            return found
    verdicts: dict[tuple[object, ...], str] = {}
    columns = (table.kind, table.links.senders, table.which, table.first, table.items)
    for at, (kind, sender, *place) in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
        if not post.known(kind):
            found[at] = UNKNOWN_KIND
            continue
        look = post.look(kind, table.links.peers[sender])
        name = kind, id(look), *place
        if name not in verdicts:
            verdicts[name] = fault_of(post, kind, look, table.payload(at))
        found[at] = verdicts[name]
    return found


def looks_of(post: "Post", table: Table, kind: str) -> list[Mapping[str, Expected]]:
    """What letters of a kind must look like to be looked at as a whole; nothing, where one by one is needed."""
    senders = table.links.senders
    some = np.unique(senders) if post.world.fleet.kinds else senders[:1]
    looks = {id(look): look for look in (post.look(kind, table.links.peers[at]) for at in some.tolist())}.values()
    many = kind in post.quotes and int(table.items.max()) > post.quotes[kind].items
    apart = any(not look or any(want.shape[:1] != (None,) for want in look.values()) for look in looks)
    return [] if many or apart else [*looks]


def fault_of(post: "Post", kind: str, look: Mapping[str, Expected], payload: Mapping[str, Tensor]) -> str:
    """The verdict on what a letter of some kind looks like."""

    def find() -> str:
        verdict = fault(payload, look)
        many = kind in post.quotes and (counted(payload, look) or 0) > post.quotes[kind].items
        return TOO_MANY if verdict == ACCEPTED and many else verdict

    return post.once(("fault", kind, id(look)), payload, find)


def hear(post: "Post", table: Table, kind: str) -> None:
    """Remember that letters of some kind are accepted."""
    post.heard[kind] = np.concatenate([post.heard.get(kind, np.zeros(0, np.int64)), table.links.codes])
    if not post.prompt or post.own:
        newest, mode = post.stack.ledger.latest, post.mode.mode
        for ends, sent in zip(table.links.pairs, post.sent_at(table).tolist(), strict=True):
            newest[*ends, mode, kind] = max(newest.get((*ends, mode, kind), -1), sent)


# Mail that has been under way


def seen_late(post: "Post", table: Table) -> Words:
    """What receivers say of letters that have been under way, which is noted: each must still be of use, and is then
    judged as any other. The newest is judged first: what it has overtaken is of no use."""
    ids, sent, verdicts = table.ids, post.sent_at(table), judged(post, table)
    post.waited |= set(ids.tolist())
    for at in np.argsort(-sent, kind="stable").tolist():
        one = table.take(np.array([at]))
        verdicts[at] = stale(post, *table.ends(at), table.kind[at], int(sent[at])) or verdicts[at]
        if verdicts[at] == ACCEPTED:
            hear(post, one, table.kind[at])
        age = 0 if post.own else post.now - int(sent[at])  # two clocks say nothing of it
        post.settled.append(Settled(ids[at], verdicts[at], age))
    return verdicts


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
