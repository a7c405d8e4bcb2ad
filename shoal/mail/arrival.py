"""Arrival: which mail is there at an exchange, by the clock of all lanes or by their own.

Mail is there when it is due and its receiver is at the exchange; until then it lies in the receiver's inbox.
"""

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from shoal.letters.table import Table

if TYPE_CHECKING:
    from shoal.mail.post import Post


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
