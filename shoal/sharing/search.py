"""Recv's search: the hardest validation images of agents, and the nearest to what each is asked about; for many agents
at once where their nets can be read together, else (`nearest_to`) for one, by torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.agents import memory
from shoal.agents.engine import THREADS, crew
from shoal.agents.evaluate import Trained, read_all, together
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.compiled.answers import Asks
from shoal.compiled.nearest import Searches, nearest
from shoal.learners.batches import filled
from shoal.sharing.agent import Held
from shoal.sharing.images import seen
from shoal.sharing.mode import Present

AT_ONCE = 16384  # queries: what a thread computes with at a time stays small


def at_once(world: World) -> bool:
    """Are all lanes searched at once? Modular nets are not yet: small ones have features that differ in rounding alone,
    and which image is then the nearer must not depend on the engine."""
    return together(world) and world.model.agnostic


class Harder(NamedTuple):
    """Validation images of some lanes, the hardest of each first; those from `counts` on are none."""

    task: np.ndarray  # int64 [lanes, n]
    place: np.ndarray  # [lanes, n]: in the task
    local: np.ndarray  # [lanes, n]: the label
    counts: np.ndarray  # [lanes]


def ranked(
    world: World, stack: Stack, tasks: Sequence[int], score: Callable[[Tensor, Tensor], Tensor], most: int | None
) -> Harder:
    """Every lane's validation images of some tasks, or the first so many, by a score of logits [n, K] and labels."""
    split, count = world.validation, len(world.lanes)
    sizes = split.sizes[:, list(tasks)]
    real = filled(sizes, split.rows.shape[2])
    rows, labels = (one[:, list(tasks)] for one in (split.rows, split.labels))
    lane, task = (one.ravel() for one in np.indices(sizes.shape))
    asks = Asks(lane, np.array(tasks)[task], np.zeros_like(lane), sizes.numpy().ravel(), rows[real], [world.inputs])
    scores = torch.full(real.shape, -torch.inf, dtype=torch.float32)
    scores[real] = score(read_all(world, stack, "logits", asks), labels[real])
    order = scores.reshape(count, -1).argsort(dim=1, descending=True, stable=True)[:, :most]
    local = labels.reshape(count, -1).gather(1, order).numpy()
    which, place = np.divmod(order.numpy(), real.shape[2])
    return Harder(np.array(tasks)[which], place, local, np.minimum(sizes.sum(1).numpy(), order.shape[1]))


class Queries(NamedTuple):
    """Questions to lanes that are here, in the order of these: int64 [M] each."""

    who: np.ndarray  # the row of the lane that each is put to
    first: np.ndarray  # its first image among all,
    items: np.ndarray  # and how many it has

    def parts(self) -> list[slice]:
        """The questions cut where the lane changes, into parts that are not too large."""
        starts = np.flatnonzero(np.diff(self.who, prepend=-1))
        before = np.concatenate([[0], self.items.cumsum()])[starts]
        cuts = starts[np.flatnonzero(np.diff(before // AT_ONCE, prepend=-1))].tolist()
        return [slice(*pair) for pair in pairwise([*cuts, len(self.who)])]


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


NOTHING_NEAR = Near(*np.zeros((4, 0), np.int64))


def joined(parts: Sequence[Near]) -> Near:
    """All that was found, one after the other."""
    return Near(*map(np.concatenate, zip(NOTHING_NEAR, *parts, strict=True)))


def closest(world: World, stack: Stack, asked: Mapping[str, Tensor], queries: Queries, oldest: int, most: int) -> Near:
    """The `most` nearest images of the lanes that are asked, for all images of all questions; tasks from the
    `oldest` on are searched, of queries with labels those that have the label."""
    parts = [Queries(*(column[part] for column in queries)) for part in queries.parts()]
    count = min(world.settings.machine.threads or THREADS, len(world.lanes))
    return joined(crew(parts, lambda part: closest_of(world, stack, asked, part, oldest, most), count))


def closest_of(
    world: World, stack: Stack, asked: Mapping[str, Tensor], queries: Queries, oldest: int, most: int
) -> Near:
    """`closest` of one part."""
    one = np.repeat(np.arange(len(queries.who)), queries.items)
    number = np.arange(len(one)) - np.repeat(queries.items.cumsum() - queries.items, queries.items)
    lane, which = queries.who[one], queries.first[one] + number
    if not len(lane):
        return NOTHING_NEAR._replace(counts=np.zeros_like(queries.who))
    wanted = np.broadcast_to(np.arange(stack.task + 1) >= oldest, (len(lane), stack.task + 1)).copy()
    if "labels" in asked:
        labels = asked["labels"].numpy()[which]
        wanted &= world.outputs[lane, : stack.task + 1, labels] >= 0
    own = held_all(world, stack, lane, wanted)
    found = compared(world, stack, seen(world, asked["images"], lane, which), lane, wanted, own, most)
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


def held_all(world: World, stack: Stack, lane: np.ndarray, wanted: np.ndarray) -> Own:
    """What lanes hold, as far as it is searched for queries to lane[n], in order, of tasks wanted[n, tasks]."""
    kept, task = stack.of(memory.OWNER), stack.task
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


def compared(
    world: World,
    stack: Stack,
    asked: tuple[Tensor, np.ndarray],
    lane: np.ndarray,
    wanted: np.ndarray,
    own: Own,
    most: int,
) -> np.ndarray:
    """The places among `own` of the nearest to each query, int64 [n, most]; -1: there are no more. Of features that
    depend on the task, each task has its own."""
    alike = world.model.agnostic
    tasks, count = stack.task + 1, len(world.lanes)
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
    features = read_all(world, stack, "features", asks)
    first = counts.cumsum() - counts
    # Of every cell of a task and a lane where its queries are, and how many; behind these come images.
    asking = len(blocks[0][0])
    begin, many = np.zeros((2, len(sides) * count), np.int64)
    begin[whose[:asking]], many[whose[:asking]] = first[:asking], counts[:asking]
    searches = Searches(begin[whose[asking:]], many[whose[asking:]], first[asking:], counts[asking:])
    number = np.concatenate([some, np.arange(len(own.rows))])
    task = np.concatenate([np.zeros(len(some), np.int64), own.task])
    return nearest(searches, features, number, task, wanted[:, :tasks], most)


# Lane by lane


def nearest_to(agent: Present, asked: Mapping[str, Tensor], counts: np.ndarray, oldest: int, most: int) -> Near:
    """One agent's own images that are nearest to what questions with so many images ask for, one after the other: the
    `most` nearest to each image, of tasks from the `oldest` on."""
    if at_once(agent._world):
        mine = Queries(np.full(len(counts), agent._row), counts.cumsum() - counts, counts)
        return closest(agent._world, agent._stack, asked, mine, oldest, most)
    own, x = agent.held, agent.read(asked["images"])
    near, place = nearness(agent.net, most, x, own, admissible(agent, len(x), asked.get("labels"), oldest))
    query, rank = (one.numpy() for one in near.isfinite().nonzero(as_tuple=True))
    whose = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(whose)) - np.repeat(counts.cumsum() - counts, counts)
    order = np.lexsort([number[query], rank, whose[query]])
    query, rank = query[order], rank[order]
    at = place.numpy()[query, rank]
    return Near(own.rows[at], own.labels[at], number[query], np.bincount(whose[query], minlength=len(counts)))


def admissible(agent: Present, count: int, labels: Tensor | None, oldest: int) -> Tensor:
    """Which of an agent's tasks are searched for which of so many queries: bool [queries, task + 1]."""
    searched = (torch.arange(agent.task + 1) >= oldest).expand(count, -1)
    if labels is None:
        return searched
    has = torch.zeros(len(agent._world.bank.classes), agent.task + 1, dtype=torch.bool)
    for own, task in enumerate(agent.tasks):
        has[list(task.classes), own] = True
    return searched & has[labels.long()]


def nearness(net: Trained, count: int, x: Tensor, own: Held, admissible: Tensor) -> tuple[Tensor, Tensor]:
    """For each query x[n] the `count` nearest of an agent's own images by the cosine of features, each task with its
    own: similarities [n, count], -inf where there is no admissible image, and places in `held` [n, count] (or
    fewer)."""
    similar = torch.full((len(x), len(own.rows)), -torch.inf)
    for tasks in net.alike(range(admissible.shape[1])):
        wanted = admissible[:, tasks]
        asked, here = wanted.any(1).nonzero().squeeze(1), np.flatnonzero(np.isin(own.task, tasks))
        if not len(asked) or not len(here):
            continue
        theirs, mine = (F.normalize(net.features(one, tasks[0])) for one in (x[asked], own.x[here]))
        found = (theirs @ mine.T).cpu()
        if len(tasks) > 1:
            column = torch.from_numpy(np.searchsorted(tasks, own.task[here]))
            found.masked_fill_(~wanted[asked][:, column], -torch.inf)
        similar[asked[:, None], torch.from_numpy(here)] = found
    best = similar.sort(dim=1, descending=True, stable=True)  # of images that are as near, the first
    return best.values[:, :count], best.indices[:, :count]
