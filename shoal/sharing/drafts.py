"""Drafts: what agents have written, as mail: without what may not leave, and cut to what links still carry."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.mail.letter import Letter, most_of
from shoal.mail.mail import Expected, Mail
from shoal.mail.post import Post
from shoal.sharing.present import Draft


def posted(post: Post, lane: Lane, kind: str, draft: Draft, others: Sequence[Lane], reply: str = "") -> list[Mail]:
    """What an agent has written, as mail to each of some others: without what the policy of its site keeps back, and
    cut to the most that such a letter has and to what the link still carries."""
    letters, world = post.mode.letters, post.world
    letter = letters[kind]
    look, most, whole = letter.look(world), letter.number(world), letter.whole(world)
    if letter.alike:
        draft = kept_back(post, lane, kind, letter, draft, post.out(lane))
        post.notes[lane] = draft
    made, mails, first = dict[tuple[int, int], tuple[dict[str, Tensor], Draft]](), [], next(iter(look))
    for other in others:
        mine = draft if letter.alike else kept_back(post, lane, kind, letter, draft, [other])
        items = min(len(mine[first]), most)
        if not post.free:
            items = min(items, most_of(letters, kind, world, post.left(lane, other), items))
        if items < letter.least:
            continue
        name = id(mine), items
        if name not in made:
            part = {one: mine[one] if one in whole else mine[one][:items] for one in look}
            tensors = {one: tensor_of(world, letter, one, look[one], value) for one, value in part.items()}
            made[name] = tensors, mine  # which stays alive, so that no other can have its id
        mails.append(post.mail(lane, other, kind, made[name][0], items, reply))
        post.drafts[mails[-1].id] = mine
    return mails


def kept_back(post: Post, lane: Lane, kind: str, letter: Letter, draft: Draft, others: Sequence[Lane]) -> Draft:
    """What an agent has written, without items that may not go to all of some others, and no more than such a letter
    has."""
    most, whole, may = letter.number(post.world), letter.whole(post.world), None
    if post.world.fleet.policy and letter.classes in draft and letter.classes not in whole:
        may = np.flatnonzero(post.permitted(lane, others, kind, np.asarray(draft[letter.classes])))[:most]
    elif len(next(iter(draft.values()))) <= most:
        return draft
    at = slice(most) if may is None else may
    return {name: one if name in whole else one[at] for name, one in draft.items()}


def tensor_of(world: World, letter: Letter, name: str, want: Expected, value: Any) -> Tensor:
    """What a draft holds under a name, as it is sent."""
    if letter.fields[name] == "rows":
        return world.images(value)
    return torch.as_tensor(value).to(want.dtype)
