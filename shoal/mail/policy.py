"""Policies at the post: which mail may leave over an edge, whatever modes want, and what has left.

How many items of each class have left over every edge is state of the sender, so that a run that goes on knows it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from shoal.agents.slots import slots
from shoal.data.tasks import Lane
from shoal.letters.mail import Mail
from shoal.letters.terms import Terms

if TYPE_CHECKING:
    from shoal.mail.post import Post

OWNER = "policy"  # of what senders remember


def given(post: "Post", sender: Lane, receiver: Lane) -> np.ndarray:
    """How many items of each class have left over an edge so far, [classes]."""
    state, at = post.stack.of(OWNER), (post.world.row[sender], slots(post.world).of(sender, receiver))
    if "given" not in state:
        return np.zeros(len(post.world.bank.classes), np.int64)
    found: np.ndarray = state["given"][at].numpy()
    return found


def note(post: "Post", mail: Mail, terms: Terms | None, counts: np.ndarray | None) -> None:
    """Note the items of a mail that leaves, so many of each class, where they count."""
    carried = post.mode.carries(mail.kind)
    if terms is None or terms.per_class is None or counts is None or not Terms.classed(carried):
        return
    state, near = post.stack.of(OWNER), slots(post.world)
    if "given" not in state:
        shape = len(post.stack.lanes), near.most, len(post.world.bank.classes)
        state["given"] = torch.zeros(shape, dtype=torch.int64)
    state["given"][post.world.row[mail.sender], near.of(mail.sender, mail.receiver)] += torch.from_numpy(counts)


def permitted(post: "Post", lane: Lane, others: Sequence[Lane], kind: str, classes: np.ndarray) -> np.ndarray:
    """Which of some items may be in mail of a kind from a lane to all of `others`, bool [n], the first before the
    last; they are of classes [n], or of several each [n, K]. Neighbours to whom no such mail may go do not count."""
    found, carried = np.ones(len(classes), bool), post.mode.carries(kind)
    for other in others:
        ours = post.world.terms(lane, other)
        if not len(classes) or ours is None or not ours.by_class or ours.refuses(carried):
            continue
        several = np.asarray(classes).reshape(len(classes), -1)
        found &= ~np.isin(several, list(ours.classes)).any(1)
        if ours.per_class is None or not Terms.classed(carried):
            continue
        room = ours.per_class - given(post, lane, other)
        for at in np.flatnonzero(found):
            own = np.unique(several[at])
            found[at] = (room[own] > 0).all()
            room[own] -= int(found[at])
    return found
