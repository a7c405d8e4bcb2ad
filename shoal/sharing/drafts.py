"""Drafts: what agents have written, as mail: without what may not leave, and cut to what links still carry."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.letters.letter import Letter, Room, fitting
from shoal.letters.links import Links
from shoal.letters.mail import Expected, identify
from shoal.letters.table import WHOLE, Table, words
from shoal.mail.filters import room
from shoal.mail.post import Post

# What an agent writes: a tensor or an array for each name of its letter, items in order of worth; images are rows of
# the bank, which the post looks up when it knows how many leave. What it writes beside the letter stays with it, but
# for `REPLIES`: kind, task and epoch of the receiver's own letter that this one is about.
Draft = Mapping[str, Any]
REPLIES = "replies"


class Written(NamedTuple):
    """What an agent has written to some others: a draft, or one by the kind of its letter; or nothing."""

    lane: Lane
    others: Sequence[Lane]
    draft: Draft | None
    reply: str = ""  # the id of the letter that it replies to


class Form(NamedTuple):
    """What letters of a kind look like to the agents of a world."""

    letter: Letter
    look: Mapping[str, Expected]
    most: int  # items
    whole: frozenset[str]  # tensors of a fixed size
    counted: str  # a tensor with an item in each row; empty: there is none


def form_of(post: Post, kind: str, other: Lane) -> Form:
    """The form of letters of a kind to some other agent."""
    settings = post.world.of(other)

    def find() -> Form:
        letter, world = post.mode.letters[kind], post.world
        look, whole = letter.look(world, settings), frozenset(letter.whole(world))
        return Form(letter, look, letter.number(world), whole, next((name for name in look if name not in whole), ""))

    return post.once(("form", kind), settings, find)


class Row(NamedTuple):
    """A letter of a kind before it is cut: which of what was written it is, its link, and what it may hold."""

    number: int
    lane: Lane
    other: Lane
    draft: Draft
    items: int
    form: Form
    reply: str


def posted(post: Post, kinds: Sequence[str], said: Sequence[Written]) -> Table:
    """What agents have written, as letters of some kinds: without what the policies of sites keep back, and cut to the
    most that such a letter has and to what its link still carries when what goes before it has gone."""
    letters, tables, ranks = post.mode.letters, list[Table](), list[tuple[int, ...]]()
    place = post.world.places
    for number, first in enumerate(one for one in kinds if not letters[one].behind):
        rooms = post.rooms.copy() if post.limited else None
        for turn, kind in enumerate((first, *(one for one in kinds if letters[one].behind == first))):
            rows = rows_of(post, kind, said, len(kinds) > 1)
            ends = np.array([(place[row.lane], place[row.other]) for row in rows], np.int64).reshape(-1, 2)
            links = Links(post.world.peers, *ends.T)
            items = np.array([row.items for row in rows], np.int64)
            if rooms is not None:
                over = post.world.links(post.mode).find(links)
                items = fitted(post, kind, links, items, rooms[over])
            sent = np.flatnonzero(items >= letters[kind].least)
            rows, links, items = [rows[at] for at in sent.tolist()], links.take(sent), items[sent]
            tables.append(filled(post, kind, rows, links, items))
            if rooms is not None:
                rooms[over[sent]] -= tables[-1].weights
            ranks += [(place[row.lane], number, row.number, turn) for row in rows]
    found = Table.joined(tables, post.world.peers)
    if len(tables) == 1:
        return found
    return found.take(np.lexsort(np.array(ranks, np.int64).reshape(-1, 4).T[::-1]))


def rows_of(post: Post, kind: str, said: Sequence[Written], several: bool) -> list[Row]:
    """The letters of a kind that agents have written, before they are cut."""
    found, letter = list[Row](), post.mode.letters[kind]
    for number, (lane, others, drafts, reply) in enumerate(said):
        draft = drafts.get(kind) if several and drafts is not None else drafts
        if draft is None:
            continue
        own = form_of(post, kind, lane)
        if not isinstance(draft, Mapping) or not own.look.keys() <= draft.keys():
            words = ", ".join(own.look)
            raise TypeError(f"what it writes is no mail of kind `{kind}`, which has {words}: {draft!r:.200}")
        if letter.alike:
            draft = post.notes[lane] = kept_back(post, lane, kind, own, draft, post.out(lane))
        for other in others:
            form = form_of(post, kind, other)
            mine = draft if letter.alike else kept_back(post, lane, kind, form, draft, [other])
            items = min(len(mine[form.counted]), form.most) if form.counted else form.most
            about = identify(other, lane, post.mode.mode, *draft[REPLIES]) if REPLIES in draft else reply
            found.append(Row(number, lane, other, mine, items, form, about))
    return found


def filled(post: Post, kind: str, rows: Sequence[Row], links: Links, items: np.ndarray) -> Table:
    """Letters of a kind with so many items each. Items of all that are alike lie in one content, and what is of a fixed
    size is in one of its own."""
    contents: list[Mapping[str, Tensor]] = []
    which, first = np.zeros(len(rows), np.int64), np.full(len(rows), WHOLE)
    alike: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(rows):
        post.drafts[row.lane, row.other, kind] = row.draft
        alike.setdefault(pile_of(post, row, int(items[at])), []).append(at)
    for (_, cut, *_), mine in alike.items():
        which[mine] = len(contents)
        row = rows[mine[0]]
        if not cut:
            contents.append(tensors_of(post.world, row.form, row.draft, int(items[mine[0]])))
            continue
        most: dict[int, int] = {}
        for at in mine:
            most[id(rows[at].draft)] = max(int(items[at]), most.get(id(rows[at].draft), 0))
        drafts = {id(rows[at].draft): rows[at].draft for at in mine}
        start = dict(zip(most, np.cumsum([0, *most.values()]).tolist(), strict=False))
        every = {name: stacked([drafts[one][name][:count] for one, count in most.items()]) for name in row.form.look}
        contents.append(tensors_of(post.world, row.form, every, sum(most.values())))
        first[mine] = [start[id(rows[at].draft)] for at in mine]
    replies = words(row.reply for row in rows) if any(row.reply for row in rows) else None
    clock = post.stack.task, post.stack.epoch
    return Table.at(links, post.mode.mode, kind, clock, contents, first, items, which=which, replies=replies)


def pile_of(post: Post, row: Row, items: int) -> tuple[Any, ...]:
    """What letters whose items can lie in one content have in common: the look of them, that they are cut there, and
    the shapes of their drafts; else it is nobody else's but of those with as much of the same draft."""

    def find() -> tuple[int, list[Any]]:
        values = [row.draft[name] for name in row.form.look]
        shapes = [type(value) is np.ndarray or value.shape[1:] for value in values]
        return min(map(len, values), default=-1), shapes

    short, shapes = (-1, []) if row.form.whole else post.once(("pile", id(row.form.look)), row.draft, find)
    cut = short >= items
    return id(row.form.look), cut, *(shapes if cut else (id(row.draft), items))


def stacked(values: Sequence[Any]) -> Any:
    """Arrays or tensors, one after the other."""
    if all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate(values)
    return torch.cat([torch.as_tensor(value) for value in values])


def within(post: Post, form: Form, other: Lane, most: int, left: Room) -> int:
    """How many of so many items of a letter fit what is left of a link."""

    def find() -> int:
        rest = left
        if form.letter.leaves:
            beside = form_of(post, form.letter.leaves, other)
            rest = left.less(beside.look, form.letter.spare or beside.most)
        return fitting(most, form.look, rest.part(form.letter.share))

    return post.once(("fits", most, left), form, find)


def tabled(
    post: Post,
    kind: str,
    content: Mapping[str, Tensor],
    first: np.ndarray,
    items: np.ndarray,
    at: np.ndarray | None = None,
    asked: Table | None = None,
) -> Table:
    """What all agents have written, as a table (`Post.table`), each letter cut to what its link still carries; and what
    each replies to, if they have been asked."""
    found = post.table(kind, content, first, items, at)
    if asked is not None:
        now = (asked.task == post.stack.task).all() and (asked.epoch == post.stack.epoch).all() and asked.names is None
        found = replace(found, answers=asked.kind[0]) if now else replace(found, replies=asked.ids)
    return replace(found, items=fitted(post, kind, found.links, found.items))


def same_form(post: Post, kind: str, links: Links) -> bool:
    """Do letters of a kind look to all at the ends of some links as they do to those who are here?"""
    if not post.world.fleet.kinds:
        return True
    ends = np.unique(np.concatenate([links.senders, links.receivers])).tolist()
    return len({tuple(form_of(post, kind, links.peers[at]).look) for at in ends}) <= 1


def fitted(post: Post, kind: str, links: Links, items: np.ndarray, rooms: np.ndarray | None = None) -> np.ndarray:
    """How many of so many items of a letter each link still carries, or what there is room for [M, 2]: int64 [M]."""
    if not len(links) or not post.limited or not post.mode.letters[kind].cut:
        return items
    if rooms is None:
        rooms = post.rooms[post.world.links(post.mode).find(links)]
    forms = [form_of(post, kind, links.peers[at]) for at in links.receivers.tolist()]
    number = {id(form): at for at, form in enumerate(forms)}
    columns = np.column_stack([[number[id(form)] for form in forms], items, rooms])
    some, which = np.unique(columns, axis=0, return_inverse=True)
    to = [links.peers[at] for at in links.receivers.tolist()]
    fits = [
        within(post, forms[int(at)], to[int(at)], int(most), room(np.array(left))) for at, most, *left in some.tolist()
    ]
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
