"""Drafts: what agents have written, as mail: without what may not leave, and cut to what links still carry."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Links
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected, Mail, identify
from shoal.letters.quote import Room, fitting
from shoal.mail.filters import room
from shoal.mail.post import Post

# What an agent writes: a tensor or an array for each name of its letter, items in order of worth; images are rows of
# the bank, which the post looks up when it knows how many leave. What it writes beside the letter stays with it, but
# for `REPLIES`: kind, task and epoch of the receiver's own letter that this one is about.
Draft = Mapping[str, Any]
REPLIES = "replies"


class Form(NamedTuple):
    """What letters of a kind look like to the agents of a world."""

    letter: Letter
    look: Mapping[str, Expected]
    most: int  # items
    whole: frozenset[str]  # tensors of a fixed size

    @property
    def counted(self) -> str:
        """A tensor with an item in each row; empty: there is none."""
        return next((name for name in self.look if name not in self.whole), "")


def form_of(post: Post, kind: str, other: Lane) -> Form:
    """The form of letters of a kind to some other agent."""
    settings = post.world.of(other)

    def find() -> Form:
        letter, world = post.mode.letters[kind], post.world
        return Form(letter, letter.look(world, settings), letter.number(world), frozenset(letter.whole(world)))

    return post.once(("form", kind), settings, find)


def posted(
    post: Post,
    lane: Lane,
    kind: str,
    draft: Draft,
    others: Sequence[Lane],
    reply: str = "",
    before: Sequence[Mail] = (),
) -> list[Mail]:
    """What an agent has written, as mail to each of some others: without what the policy of its site keeps back, and
    cut to the most that such a letter has and to what the link still carries when what goes `before` has gone."""
    letter, own, mails = post.mode.letters[kind], form_of(post, kind, lane), list[Mail]()
    if not isinstance(draft, Mapping) or not own.look.keys() <= draft.keys():
        raise TypeError(f"what it writes is no mail of kind `{kind}`, which has {', '.join(own.look)}: {draft!r:.200}")
    if letter.alike:
        draft = kept_back(post, lane, kind, own, draft, post.out(lane))
        post.notes[lane] = draft
    for other in others:
        form = form_of(post, kind, other)
        mine = draft if letter.alike else kept_back(post, lane, kind, form, draft, [other])
        items = min(len(mine[form.counted]), form.most) if form.counted else form.most
        if letter.cut and post.limited:
            items = min(items, room_for(post, kind, lane, other, items, before))
        if items < letter.least:
            continue
        tensors = post.once(
            ("tensors", kind, items, *form.look), mine, partial(tensors_of, post.world, form, mine, items)
        )
        about = identify(other, lane, post.mode.mode, *draft[REPLIES]) if REPLIES in draft else reply
        mails.append(post.mail(lane, other, kind, tensors, items, about))
        post.drafts[mails[-1].id] = mine
    return mails


def room_for(
    post: Post, kind: str, lane: Lane, other: Lane, most: int | None = None, before: Sequence[Mail] = ()
) -> int:
    """How many items of a letter the link to a neighbour still carries when what goes `before` has gone."""
    form = form_of(post, kind, other)
    most = form.most if most is None else most
    left = post.left(lane, other)
    for mail in before:
        left = left.less(form_of(post, mail.kind, other).look, mail.items)
    return within(post, form, other, most, left)


def within(post: Post, form: Form, other: Lane, most: int, left: Room) -> int:
    """How many of so many items of a letter fit what is left of a link."""

    def find() -> int:
        rest = left
        if form.letter.leaves:
            beside = form_of(post, form.letter.leaves, other)
            rest = left.less(beside.look, form.letter.spare or beside.most)
        return fitting(most, form.look, rest.part(form.letter.share))

    return post.once(("fits", most, left), form, find)


def bundled(
    post: Post,
    kind: str,
    content: Mapping[str, Tensor],
    first: np.ndarray,
    items: np.ndarray,
    replies: str = "",
    at: np.ndarray | None = None,
) -> Bundle:
    """What all agents have written, as a bundle (`Post.bundle`), each mail cut to what its link still carries."""
    found = post.bundle(kind, content, first, items, replies, at)
    return replace(found, items=fitted(post, kind, found.links, found.items)) if len(found) else found


def fitted(post: Post, kind: str, links: Links, items: np.ndarray) -> np.ndarray:
    """How many of so many items of a letter each link still carries: int64 [M]."""
    if not post.limited or not post.mode.letters[kind].cut:
        return items
    other = links.peers[links.receivers[0]]
    form, rooms = form_of(post, kind, other), post.rooms[links.places]
    some, which = np.unique(np.column_stack([items, rooms]), axis=0, return_inverse=True)
    fits = [within(post, form, other, int(most), room(np.array(left))) for most, *left in some.tolist()]
    found: np.ndarray = np.minimum(items, np.array(fits, np.int64)[which.reshape(-1)])
    return found


def kept_back(post: Post, lane: Lane, kind: str, form: Form, draft: Draft, others: Sequence[Lane]) -> Draft:
    """What an agent has written, without items that may not go to all of some others, and no more than such a letter
    has."""
    by, most, whole, may = form.letter.classes, form.most, form.whole | {REPLIES}, None
    if not form.letter.cut:
        return draft
    if post.world.fleet.policy and by in draft and by not in whole:
        may = np.flatnonzero(post.permitted(lane, others, kind, np.asarray(draft[by])))[:most]
    elif not form.counted or len(draft[form.counted]) <= most:
        return draft
    at = slice(most) if may is None else may
    return {name: one if name in whole else one[at] for name, one in draft.items()}


def tensors_of(world: World, form: Form, draft: Draft, items: int) -> dict[str, Tensor]:
    """The first items of what an agent has written, as they are sent."""
    fields, found = form.letter.fields, {}
    for name, want in form.look.items():
        value = draft[name] if name in form.whole else draft[name][:items]
        rows = not callable(fields) and fields[name] == "rows"
        found[name] = world.images(value) if rows else torch.as_tensor(value).to(want.dtype)
    return found
