"""What a lane learns from: pools of images, and minibatches of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents import memory as memories
from shoal.agents import received as buffers
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.compiled.orders import as_numpy, shuffled
from shoal.models.dropout import Source
from shoal.rng import digest, key

AT_ONCE = 2**22  # numbers of an epoch's images that are gathered at once


class Images(NamedTuple):
    """Images that lie together, a row per lane."""

    x: Tensor  # [L, n, ...] or, where there are rows, [N, ...]
    y: Tensor  # [L, n]
    task: Tensor  # [L, n]
    rows: Tensor | None = None  # int64 [L, n]: of x, which all lanes share

    @property
    def numbers(self) -> int:
        """Of one image."""
        return prod(self.x.shape[2 if self.rows is None else 1 :])

    @property
    def plain(self) -> "Images":
        """The same images, each lane's copied out of what they share."""
        return self if self.rows is None else Images(self.x[self.rows], self.y, self.task)


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to learn from, one part behind the other; of the N places of lane l the first sizes[l] are real."""

    parts: tuple[Images, ...]
    sizes: Sequence[int]
    own: int  # how many of them are a lane's own, at most

    @cached_property
    def joined(self) -> Images:
        """All parts as one, without rows: a copy, unless it is so by itself."""
        plain = [part.plain[:3] for part in self.parts]
        return Images(*(column[0] if len(column) == 1 else torch.cat(column, 1) for column in zip(*plain, strict=True)))

    @property
    def x(self) -> Tensor:
        return self.joined.x

    @property
    def y(self) -> Tensor:
        return self.joined.y

    @property
    def task(self) -> Tensor:
        return self.joined.task

    @property
    def device(self) -> torch.device:
        return self.parts[0].y.device


class Batch(NamedTuple):
    """A minibatch of every lane; weight zero is padding."""

    x: Tensor  # [L, B, ...]
    y: Tensor  # [L, B]
    weight: Tensor  # [L, B]
    task: Tensor  # [L, B]


def pool(
    world: World,
    stack: Stack,
    task: int,
    past: bool,
    received: bool = True,
    held: Pool | None = None,
    earlier: bool = False,
) -> Pool:
    """The training set of `task`, or what is `held` instead, followed by the replay memories of the tasks before it if
    `past`, and by what others have sent if `received`: for the task and, with `past` or `earlier`, those before it.
    Parts are views wherever they can be."""
    held = trained(world, [task]) if held is None else held
    memory, shared, parts, fills = stack.of(memories.OWNER), stack.of(buffers.OWNER), [*held.parts], []

    def add(kept: Mapping[str, Tensor], first: int, last: int, room: int) -> None:
        """Some places of each of some tasks, of which the first `fill` are real."""
        x, y = (kept[name][:, first:last, :room].flatten(1, 2) for name in ("x", "y"))
        parts.append(Images(x, y, origins(first, last, room, y)))
        fills.append((kept["fill"][:, first:last], room))

    if past and task and memory["y"].shape[2]:
        add(memory, 0, task, memory["y"].shape[2])
    own = sum(part.y.shape[1] for part in parts)
    first = 0 if past or earlier else task
    if received and shared["y"].shape[2] and (room := int(shared["fill"].numpy()[:, first : task + 1].max())):
        add(shared, first, task + 1, room)
    if not fills:
        return held
    width = sum(part.y.shape[1] for part in held.parts)
    if min(held.sizes) == width:
        return packed(tuple(parts), own, fills, width)
    return packed(tuple(parts), own, [(torch.tensor(held.sizes)[:, None], width), *fills])


def trained(world: World, tasks: Sequence[int]) -> Pool:
    """The training sets of some tasks, one behind the other. Where nothing is copied, views are made once."""
    if (known := world.taught.get((tasks[0], tasks[-1]))) is not None:
        return replace(known)  # without what it has come to join
    split, some = world.train, slice(tasks[0], tasks[-1] + 1)
    rows, labels, room = split.rows[:, some].flatten(1, 2), split.labels[:, some].flatten(1, 2), split.rows.shape[2]
    images = Images(world.inputs, labels, origins(some.start, some.stop, room, rows), rows)
    found = packed((images,), rows.shape[1], [(split.sizes[:, some], room)])
    if found.parts[0] is images:
        world.taught[tasks[0], tasks[-1]] = replace(found)
    return found


def origins(first: int, last: int, room: int, like: Tensor) -> Tensor:
    """The task of each of `room` places of each of some tasks, int64 [L, n]."""
    return origin(first, last, room, like.device).expand(len(like), -1)


@lru_cache(64)
def origin(first: int, last: int, room: int, device: torch.device) -> Tensor:
    return torch.arange(first, last, device=device).repeat_interleave(room)


def packed(parts: tuple[Images, ...], own: int, fills: Sequence[tuple[Tensor, int]], full: int = 0) -> Pool:
    """The pool of some parts; `fills` say of how many places one behind the other, [L, n] times, how many are real;
    before them there are so many that are `full`."""
    width = sum(part.y.shape[1] for part in parts)
    whole = Pool(parts, [width] * len(parts[0].y), own)
    if all((counts.numpy() == room).all() for counts, room in fills):
        return whole
    ones = torch.ones(len(parts[0].y), full, dtype=torch.bool)
    return gathered(whole, torch.cat([ones, *(filled(counts, room).flatten(1) for counts, room in fills)], 1))


def filled(counts: Tensor, room: int) -> Tensor:
    """Which of `room` places are real, where the first so many are: bool [..., room]."""
    return torch.arange(room) < counts[..., None]


def gathered(held: Pool, real: Tensor) -> Pool:
    """The pool with what is `real` [L, N] moved to the front, in its order."""
    sizes = real.sum(1)
    order = real.int().argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())].to(held.device)
    return Pool((picked(held, order),), sizes.tolist(), held.own)


def picked(held: Pool, order: Tensor) -> Images:
    """Images of every lane in some places [L, n]."""
    lane = torch.arange(len(order), device=order.device)[:, None]
    x, y, task, _ = held.joined
    return Images(x[lane, order], y[lane, order], task[lane, order])


def balanced(held: Pool, own: Sequence[int]) -> Pool:
    """The pool with what lies behind each lane's first `own` places repeated until there is as much of it, all of it
    about as often."""
    every = []
    for new, size in zip(own, held.sizes, strict=True):
        old = size - new
        rest = new + np.arange(max(new, old)) * old // max(new, old) if old else np.arange(0)
        every.append(np.concatenate([np.arange(new), rest]))
    order = np.zeros((len(every), max(map(len, every))), np.int64)
    for row, at in enumerate(every):
        order[row, : len(at)] = at
    return Pool((picked(held, torch.from_numpy(order).to(held.device)),), [len(at) for at in every], held.own)


class Deal:
    """The minibatches of one epoch, as places in a pool: index[L, steps * size], weight zero is padding."""

    def __init__(self, pool: Pool, index: Tensor, weight: Tensor, size: int) -> None:
        self.pool, self.index, self.weight, self.size = pool, index, weight, size

    def __iter__(self) -> "Iterator[Pick]":
        return (Pick(self, first) for first in range(0, self.index.shape[1], self.size))

    @cached_property
    def busy(self) -> Sequence[Tensor]:
        """Which lanes have an image in each minibatch, bool [L] each."""
        there: Tensor = self.weight.unflatten(1, (-1, self.size)).any(2)
        return there.unbind(1)

    @cached_property
    def gathered(self) -> Batch | None:
        """All images at once, if they are not too many."""
        if self.index.numel() * self.pool.parts[0].numbers > AT_ONCE:
            return None
        x, y, task, _ = picked(self.pool, self.index)
        return Batch(x, y, self.weight, task)


class Pick(NamedTuple):
    """One minibatch of a deal."""

    deal: Deal
    first: int  # where it begins

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + self.deal.size)

    @property
    def busy(self) -> Tensor:
        """Which lanes have an image in it, bool [L]."""
        return self.deal.busy[self.first // self.deal.size]

    @property
    def batch(self) -> Batch:
        """Its images."""
        if self.deal.gathered is not None:
            return Batch(*(one[:, self.places] for one in self.deal.gathered))
        x, y, task, _ = picked(self.deal.pool, self.deal.index[:, self.places])
        return Batch(x, y, self.deal.weight[:, self.places], task)


def deal(
    pool: Pool, rngs: Source | Sequence[np.random.Generator], size: int, steps: int = 0, exactly: int | None = None
) -> Deal:
    """One shuffled pass over the pool, the last partial batch kept; lanes that are done early get empty batches, and
    all do if there are `steps` more. If none has an image, there is no batch. Or `exactly` so many full batches, of one
    pass after the other. From a source the kernel draws, to the same effect.

    A batch has the same shape whatever the lanes hold, so that no lane's numbers depend on another's.
    """
    most = max(pool.sizes)
    steps = max(steps, -(-most // size)) if exactly is None else exactly if most else 0
    if isinstance(rngs, Source):
        order, real = shuffled(rngs, np.array(pool.sizes), steps * size, exactly is not None)
    else:
        order = np.zeros((len(rngs), steps * size), np.int64)
        real = np.zeros(order.shape, np.float32)
        for row, (rng, held) in enumerate(zip(rngs, pool.sizes, strict=True)):
            passes = 1 if exactly is None else -(-order.shape[1] // max(held, 1)) * (held > 0)
            at = np.concatenate([np.arange(0), *(rng.permutation(held) for _ in range(passes))])[: order.shape[1]]
            order[row, : len(at)] = at
            real[row, : len(at)] = 1
    return Deal(pool, torch.from_numpy(order).to(pool.device), torch.from_numpy(real).to(pool.device), size)


def batches(pool: Pool, rngs: Sequence[np.random.Generator], size: int, exactly: int | None = None) -> Iterator[Batch]:
    """The minibatches that are dealt of a pool, one after the other."""
    return (pick.batch for pick in deal(pool, rngs, size, exactly=exactly))


def passes(world: World, held: Pool, stack: Stack, epoch: int, size: int, word: str, task: int | None = None) -> Deal:
    """The minibatches of one epoch of a task, or of the current one: one pass, or as many steps as the settings say."""
    rngs = orders(world, stack, word, stack.task if task is None else task, epoch)
    return deal(held, rngs, size, exactly=world.settings.learner.steps(epoch))


def batch_size(world: World, held: Pool, most: int | None = None) -> int:
    """The settings' batch, or `most`; but no larger than a lane's own data where all have the same: padding costs as
    much as images. Where they differ, a lane must not depend on what others have, only on what there is for all."""
    most = world.settings.learner.batch if most is None else most
    return min(most, held.own if world.even else len(world.bank))


def remembered(stack: Stack, count: int, rngs: Sequence[np.random.Generator]) -> Batch:
    """A random batch of every lane's memories of earlier tasks."""
    kept, task = stack.of(memories.OWNER), stack.task
    room = kept["y"].shape[2]
    real = filled(kept["fill"][:, :task], room).flatten(1)
    count = min(count, task * room)
    at, there = np.zeros((len(real), count), np.int64), np.zeros((len(real), count), np.float32)
    for row, rng in enumerate(rngs):
        mine = real[row].nonzero().squeeze(1).numpy()
        pick = mine[rng.permutation(len(mine))[:count]]
        at[row, : len(pick)], there[row, : len(pick)] = pick, 1
    place, lane = torch.from_numpy(at).to(kept["y"].device), torch.arange(len(at), device=kept["y"].device)[:, None]
    x, y = kept["x"][:, :task].flatten(1, 2)[lane, place], kept["y"][:, :task].flatten(1, 2)[lane, place]
    return Batch(x, y, torch.from_numpy(there).to(y.device), place // room)


def generators(stack: Stack, *purpose: int | str) -> list[np.random.Generator]:
    """One generator per lane."""
    return [key(*lane, *purpose) for lane in stack.lanes]


def orders(world: World, stack: Stack, *purpose: int | str) -> Source | list[np.random.Generator]:
    """What the orders of batches are drawn from: by the kernel, where it takes the steps."""
    quick = world.compiled and as_numpy()
    return source(stack, "batches", *purpose) if quick else generators(stack, "batches", *purpose)


def source(stack: Stack, *purpose: int | str) -> Source:
    """The random numbers of one purpose of all lanes."""
    return Source([digest(*lane, *purpose) for lane in stack.lanes])
