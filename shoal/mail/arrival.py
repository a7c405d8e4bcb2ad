"""Arrival: which mail is there at an exchange, by the clock of all lanes or by their own.

Mail is there when it is due and its receiver is at the exchange; until then it lies in the receiver's inbox.
"""

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from shoal.letters.bundle import Bundle
from shoal.letters.inbox import Some
from shoal.letters.mail import Mail

if TYPE_CHECKING:
    from shoal.mail.post import Post


def is_there(post: "Post", mail: Mail) -> bool:
    """Is a mail there at this exchange, and its receiver at it too?"""
    asked = mail.kind in post.mode.asking
    takes = post.acts or (asked and post.mode.both_ways)
    return takes and mail.due <= until(post, asked) and mail.receiver not in post.away


def are_there(post: "Post", bundle: Bundle) -> np.ndarray:
    """Of which mails of a bundle `is_there` is true: bool [M]."""
    asked, found = bundle.kind in post.mode.asking, np.full(len(bundle), True)
    if not (post.acts or (asked and post.mode.both_ways)):
        return ~found
    if bundle.due is not None:
        found = bundle.due <= until(post, asked)
    return found & ~post.gone_at(bundle.links.receivers) if post.away else found


def taken(post: "Post", asked: bool) -> list[Some]:
    """Take from the inbox what is there of this mode: questions, or all that is none."""
    last = until(post, asked)

    def mine(mail: Mail) -> bool:
        ours = mail.receiver in post.world.row and mail.mode == post.mode.mode and mail.receiver not in post.away
        return ours and mail.due <= last and (mail.kind in post.mode.asking) == asked

    def which(bundle: Bundle) -> np.ndarray | None:
        if bundle.mode != post.mode.mode or (bundle.kind in post.mode.asking) != asked:
            return None
        there: np.ndarray = post.there_now[bundle.links.receivers]
        return there if bundle.due is None else there & (bundle.due <= last)

    return post.stack.inbox.take(mine, which)


def until(post: "Post", asked: bool) -> float:
    """What has come by when is collected now. Where everybody goes on, a question is answered with what its receiver
    is when it is asked, and who has asked waits for the answer, with patience."""
    if not post.asynchronous or not post.mode.both_ways:
        return post.time
    patience = post.world.fleet.clock.patience
    return inf if asked or patience == "unlimited" else post.time + patience
