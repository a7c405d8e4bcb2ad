"""Turns: where not all modules fit a link, with which the next mail goes on; and receipts, by which a sender knows what
has come."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.letters.mail import ACCEPTED, Mail, identify
from shoal.mail.post import Post
from shoal.models.contract import body_units


def turned(post: Post, receipts: Sequence[Mail], confirmed: bool) -> Tensor | None:
    """With which module every edge goes on over which not all went, [L, agents]: that after the last one that has left
    or, if receivers confirm what they accept (`confirmed`), after the last one confirmed. None: with the first."""
    count, turns = body_units(post.world.model), post.stack.of(post.mode.owner).get("turn")
    if confirmed:
        gone = [(mail.receiver, mail.sender, int(mail.payload["last"])) for mail in receipts]
    else:
        models = [mail for mail in post.sent.values() if mail.kind == "model" and post.fault(mail) == ACCEPTED]
        left = [mail for mail in models if 0 < len(mail.payload["modules"]) < count]
        gone = [(mail.sender, mail.receiver, int(mail.payload["modules"][-1])) for mail in left]
    if not gone:
        return turns
    if turns is None:
        turns = torch.zeros(len(post.stack.lanes), post.world.settings.agents, dtype=torch.int64)
    turns = turns.clone()
    for sender, receiver, last in gone:
        turns[post.world.row[sender], receiver.agent] = (last + 1) % count
    return turns


def remember_turns(post: Post, receipts: Sequence[Mail], answers: Sequence[Mail], confirmed: bool) -> None:
    """Remember with which module every edge goes on and, if receipts are wanted, what is to be confirmed."""
    turns, state = turned(post, receipts, confirmed), post.stack.of(post.mode.owner)
    if turns is not None:
        state["turn"] = turns
    if confirmed:
        state["owed"] = owed(post, answers)


def owed(post: Post, answers: Sequence[Mail]) -> Tensor:
    """What every lane has still to confirm, [L, agents, 3]: task and epoch of the sender's mail, and the last module in
    it; -1: nothing."""
    found = post.stack.of(post.mode.owner).get("owed")
    if found is None:
        found = torch.full((len(post.stack.lanes), post.world.settings.agents, 3), -1)
    for mail in post.sent.values():
        if mail.kind == "receipt":
            found[post.world.row[mail.sender], mail.receiver.agent] = -1
    for mail in answers:
        what = torch.tensor([mail.task, mail.epoch, int(mail.payload["modules"][-1])])
        found[post.world.row[mail.receiver], mail.sender.agent] = what
    return found


def receipts_owed(post: Post) -> list[Mail]:
    """Receipts for what has come at earlier exchanges, if they are wanted."""
    owed, mails, mode = post.stack.of(post.mode.owner).get("owed"), [], post.mode.mode
    if owed is None:
        return []
    for row, lane in enumerate(post.world.lanes):
        for other in post.out(lane):
            task, epoch, last = owed[row, other.agent].tolist()
            if last >= 0:
                model = identify(other, lane, mode, "model", task, epoch)
                payload = {"last": torch.tensor([last], dtype=torch.int32)}
                mails.append(post.mail(lane, other, "receipt", payload, 1, model))
    return mails
