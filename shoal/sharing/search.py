"""Recv's search: the nearest of agents' own images to what each is asked about, for one agent or for many at once."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.agents import memory
from shoal.agents.evaluate import read_all, together
from shoal.agents.received import read_once
from shoal.compiled.answers import Asks
from shoal.compiled.nearest import Searches, nearest
from shoal.learners.batches import filled
from shoal.mail.post import Post
from shoal.sharing.present import agent_of

AT_ONCE = 16384  # queries: what a thread computes with at a time stays small
# Modular nets can have images whose features differ in rounding alone. Which is the nearer should not depend on how a
# sum was made: their cosines are compared in units of 1 / 65536, and of images that are as near the first is taken.
PLACES = 2**16


class Queries(NamedTuple):
    """Questions to lanes that are here, in the order of these: int64 [M] each."""

    who: np.ndarray  # the row of the lane that each is put to
    first: np.ndarray  # its first image among all,
    items: np.ndarray  # and how many it has

    def parts(self) -> "list[Queries]":
        """The questions cut where the lane changes, into parts that are not too large."""
        starts = np.flatnonzero(np.diff(self.who, prepend=-1))
        before = np.concatenate([[0], self.items.cumsum()])[starts]
        cuts = starts[np.flatnonzero(np.diff(before // AT_ONCE, prepend=-1))].tolist()
        return [Queries(*(one[slice(*pair)] for one in self)) for pair in pairwise([*cuts, len(self.who)])]


class Near(NamedTuple):
    """A lane's own images, or those of many lanes, that answer some questions, one question after the other: first the
    nearest to each of its images, then the second nearest, and so on. If not all fits the budget, every one still gets
    its nearest."""

    rows: np.ndarray  # int64 [n], in the bank
    labels: np.ndarray  # [n], global
    query: np.ndarray  # [n]: which image of its question each is for
    counts: np.ndarray  # [questions]: how many there are for each

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, labels and queries for each question."""
        ends = self.counts.cumsum()
        for first, last in zip(ends - self.counts, ends, strict=True):
            yield self.rows[first:last], self.labels[first:last], self.query[first:last]


@torch.inference_mode()
def closest(post: Post, asked: Mapping[str, Tensor], queries: Queries, oldest: int, most: int) -> Near:
    """The `most` nearest images of the lanes that are asked, for all images of all questions; tasks from the
    `oldest` on are searched, of queries with labels those that have the label."""
    world, tasks = post.world, post.stack.task + 1
    one = np.repeat(np.arange(len(queries.who)), queries.items)
    number = np.arange(len(one)) - np.repeat(queries.items.cumsum() - queries.items, queries.items)
    lane, which = queries.who[one], queries.first[one] + number
    if not len(lane):
        none = np.zeros(0, np.int64)
        return Near(none, none, none, np.zeros_like(queries.who))
    wanted = np.broadcast_to(np.arange(tasks) >= oldest, (len(lane), tasks)).copy()
    if "labels" in asked:
        labels = asked["labels"].numpy()[which]
        wanted &= world.outputs[lane, :tasks, labels] >= 0
    own = held_all(post, lane, wanted)
    alike = world.model.agnostic and not world.settings.learner.answers_apart
    images = read_once(world, asked["images"], lane, which)
    asks, searches, numbers, task = laid_out(post, images, lane, wanted, own, alike)
    known = together(world)
    features = read_all(world, post.stack, "features", asks) if known else read_by_torch(post, asks)
    find = nearest if known else nearest_by_torch
    found = find(searches, features, numbers, task, wanted, most, 0 if alike else PLACES)
    width = int(queries.items.max())
    ranks = np.full((len(queries.who), most, width), -1)
    ranks[one, :, number] = found
    places = ranks.reshape(len(ranks), -1)
    real = places >= 0
    rows = own.bank[places[real]]
    return Near(rows, world.bank.labels[world.bank.base(rows)], real.nonzero()[1] % width, real.sum(1))


class Own(NamedTuple):
    """The images that lanes hold of tasks in which something is searched: lane after lane and task after task those
    that they keep of earlier tasks, then lane after lane those of the current one."""

    lane: np.ndarray  # int64 [n]
    task: np.ndarray  # [n]
    rows: np.ndarray  # [n]: among what memories hold, or among World.inputs
    bank: np.ndarray  # [n]: in the bank
    past: int  # how many are of earlier tasks


def held_all(post: Post, lane: np.ndarray, wanted: np.ndarray) -> Own:
    """What lanes hold, as far as it is searched for queries to lane[n], in order, of tasks wanted[n, tasks]."""
    world, kept, task = post.world, post.stack.of(memory.OWNER), post.stack.task
    needed = np.zeros((len(world.lanes), task + 1), bool)
    needed[np.unique(lane)] = np.logical_or.reduceat(wanted, np.flatnonzero(np.diff(lane, prepend=-1)))
    tasks, room = kept["rows"].shape[1:]
    there = filled(kept["fill"][:, :task], room).numpy() & needed[:, :task, None]
    who, which, place = there.nonzero()
    now = np.flatnonzero(needed[:, task])
    sizes = world.train.sizes[now, task].numpy()
    train = world.train.rows[now, task].numpy()[np.arange(world.train.rows.shape[2]) < sizes[:, None]]
    drawn = [world.streams[row][task].train for row in now.tolist()]
    return Own(
        np.concatenate([who, np.repeat(now, sizes)]),
        np.concatenate([which, np.full(len(train), task)]),
        np.concatenate([(who * tasks + which) * room + place, train]),
        np.concatenate([kept["rows"].numpy()[who, which, place], *drawn]),
        len(who),
    )


def laid_out(
    post: Post, asked: tuple[Tensor, np.ndarray], lane: np.ndarray, wanted: np.ndarray, own: Own, alike: bool
) -> tuple[Asks, Searches, np.ndarray, np.ndarray]:
    """What nets are asked about, and what is searched for what in their features, of which each row is the query or the
    image of one's own with some number, and of a task. Where heads do not read `alike`, each task has features of its
    own."""
    world, stack, count = post.world, post.stack, len(post.world.lanes)
    # What nets are asked about: queries in the order of tasks and lanes, then one's own images.
    sides = [wanted.any(1)] if alike else list(wanted.T)
    queries = [np.flatnonzero(side) for side in sides]
    cell = np.concatenate([at * count + lane[some] for at, some in enumerate(queries)])
    mine = (0 if alike else own.task) * count + own.lane
    kept = stack.of(memory.OWNER)["x"]
    blocks = []
    for part in (cell, mine[: own.past], mine[own.past :]):
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        blocks.append((part[starts], np.diff([*starts, len(part)])))
    whose, counts = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    source = np.repeat(np.arange(len(blocks)), [len(cells) for cells, _ in blocks])
    some = np.concatenate(queries)
    rows = torch.from_numpy(np.concatenate([asked[1][some], own.rows]))
    asks = Asks(whose % count, whose // count, source, counts, rows, [asked[0], kept.flatten(0, 2), world.inputs])
    first = counts.cumsum() - counts
    # Of every cell of a task and a lane where its queries are, and how many; behind these come images.
    asking = len(blocks[0][0])
    begin, many = np.zeros((2, len(sides) * count), np.int64)
    begin[whose[:asking]], many[whose[:asking]] = first[:asking], counts[:asking]
    searches = Searches(begin[whose[asking:]], many[whose[asking:]], first[asking:], counts[asking:])
    number = np.concatenate([some, np.arange(len(own.rows))])
    task = np.concatenate([np.zeros(len(some), np.int64), own.task])
    return asks, searches, number, task


# Where the kernel does not know the nets


def read_by_torch(post: Post, asks: Asks) -> Tensor:
    """The features [N, F] of images that nets of lanes are asked about, question after question."""
    assert asks.rows is not None
    found, rows = list[Tensor](), asks.rows.split(np.asarray(asks.counts).tolist())
    for row, task, source, mine in zip(asks.lane, asks.task, asks.source, rows, strict=True):  # type: ignore[arg-type]
        found.append(agent_of(post, post.world.lanes[row]).net.features(asks.x[source][mine], int(task)).cpu())
    return torch.cat(found) if found else torch.zeros(0, post.world.model.read)


def nearest_by_torch(
    searches: Searches,
    features: Tensor,
    number: np.ndarray,
    task: np.ndarray,
    wanted: np.ndarray,
    most: int,
    places: int = 0,
) -> np.ndarray:
    """What the kernel finds (shoal/compiled/nearest.py)."""
    unit, numbers = F.normalize(features), torch.from_numpy(number)
    best, found = torch.full((len(wanted), most), -torch.inf), torch.full((len(wanted), most), -1)
    for theirs, asked, mine, held in np.stack(searches, 1).tolist():
        query, own = number[theirs : theirs + asked], slice(mine, mine + held)
        near = unit[theirs : theirs + asked] @ unit[own].T
        near = (near * places).round() if places else near
        near.masked_fill_(~torch.from_numpy(wanted[query][:, task[own]]), -torch.inf)
        # Of images that are as near, the first: those that were searched before come first.
        both, who = torch.cat([best[query], near], 1), torch.cat([found[query], numbers[own].expand(asked, -1)], 1)
        best[query], order = (one[:, :most] for one in both.sort(dim=1, descending=True, stable=True))
        found[query] = who.gather(1, order)
    result: np.ndarray = found.masked_fill(best == -torch.inf, -1).numpy()
    return result
