"""Carriage: what becomes of mail between its sender and its receiver, and when it is there.

A link can be down, lose mail or be slow, and a receiver can be absent when it comes. Where agents have clocks of their
own, mail takes seconds: it waits until its link is free, and then for as long as its bytes take. It is there when it is
due and its receiver is at the exchange; until then it lies in the receiver's inbox.
"""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.links import Links
from shoal.letters.mail import ABSENT, ACCEPTED, LOST
from shoal.letters.table import Table
from shoal.mail.filters import Load, Ways, sent
from shoal.settings.conditions import NEVER

if TYPE_CHECKING:
    from shoal.mail.post import Post


def fates(post: "Post", ways: Ways, load: Load, leaves: Sequence[float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What becomes of a mail over each of some links: ACCEPTED, as far as its sender can know, or that it is lost,
    object [M]; and when it is due, [M], 0: at once. They leave now, or each at a moment."""
    links = post.world.links(post.mode).take(ways.at)
    lost, late = sent(ways, load)
    found = np.where(lost, LOST, ACCEPTED).astype(object)
    due = np.where(late > 0, post.now + late, 0)
    if post.asynchronous and not post.world.instant:
        due = np.where(late > 0, due, carried(post, links, load.weights[:, 1], leaves))
    if post.world.gaps:
        waits = np.maximum(0, due.astype(np.int64) - post.now).tolist()
        for one, (to, wait) in enumerate(zip(links.receivers.tolist(), waits, strict=True)):
            back, word = met(post, links.peers[to], wait)
            due[one] = back or due[one]
            found[one] = LOST if lost[one] else word
    due[lost] = 0
    return found, due


def met(post: "Post", receiver: Lane, late: int) -> tuple[int, str]:
    """Until when mail has to wait for its receiver, who may be absent when it comes after so many epochs (0: it does
    not wait), and its verdict: what does not wait for one that is absent is lost."""
    if not post.world.gaps:
        return 0, ACCEPTED
    back = post.world.back(receiver, post.when + late)
    if back == post.when + late:
        return 0, ACCEPTED
    if back == NEVER or post.world.fleet.presence.mail == "lost":
        return 0, ABSENT
    return back, ACCEPTED


# In seconds


def carried(post: "Post", links: Links, weights: np.ndarray, leaves: Sequence[float] | None) -> np.ndarray:
    """When links have carried mails of so many bytes: each leaves when its link is free, an answer after its question
    has come, and is there when all of it has gone through. float64 [M]."""
    found = np.empty(len(links))
    for at, (ends, weight) in enumerate(zip(links.pairs, weights.tolist(), strict=True)):
        edge, starts = post.world.edges[ends], post.time if leaves is None else max(post.time, leaves[at])
        if edge.bandwidth is not None:
            starts = through(post, *ends, starts, weight / edge.bandwidth)
        found[at] = starts + edge.latency
    return found


def through(post: "Post", sender: Lane, receiver: Lane, leaves: float, seconds: float) -> float:
    """When what would leave at a moment has gone through a link that it keeps busy for some seconds."""
    busy = post.stack.clock["busy"][post.world.row[sender]]
    place = post.world.receivers[sender].index(receiver)
    busy[place] = max(leaves, float(busy[place])) + seconds
    return float(busy[place])


def are_there(post: "Post", table: Table) -> np.ndarray:
    """Which letters are there at this exchange, and their receivers at it too: bool [M]."""
    asked = table.among_kinds(post.mode.asking)
    last = np.where(asked, until(post, True), until(post, False))
    found: np.ndarray = (table.due <= last) & (post.acts | (asked & post.mode.both_ways))
    return found & ~post.gone_at(table.links.receivers) if post.away else found


def taken(post: "Post", asked: bool) -> Table:
    """Take from the inbox what is there of this mode: questions, or all that is none."""
    last = until(post, asked)

    def which(table: Table) -> np.ndarray:
        mine = post.there_now[table.links.receivers] & (table.due <= last) & (table.mode == post.mode.mode)
        found: np.ndarray = mine & (table.among_kinds(post.mode.asking) == asked) if mine.any() else mine
        return found

    return post.stack.inbox.take(which, post.world.peers)


def until(post: "Post", asked: bool) -> float:
    """What has come by when is collected now. Where everybody goes on, a question is answered with what its receiver
    is when it is asked, and who has asked waits for the answer, with patience."""
    if not post.asynchronous or not post.mode.both_ways:
        return post.time
    patience = post.world.fleet.clock.patience
    return inf if asked or patience == "unlimited" else post.time + patience
