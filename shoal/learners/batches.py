"""What a lane learns from: pools of images, and minibatches of them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners import memory as memories
from shoal.learners import received as buffers
from shoal.models.dropout import Source
from shoal.rng import digest, key

AT_ONCE = 2**22  # numbers of an epoch's images that are gathered at once


class Pool(NamedTuple):
    """Images to learn from, a row per lane; of the N places of lane l the first sizes[l] are real."""

    x: Tensor  # [L, N, ...]
    y: Tensor  # [L, N]
    task: Tensor  # [L, N]
    sizes: Sequence[int]
    own: int  # how many of them are a lane's own, at most


class Batch(NamedTuple):
    """A minibatch of every lane; weight zero is padding."""

    x: Tensor  # [L, B, ...]
    y: Tensor  # [L, B]
    weight: Tensor  # [L, B]
    task: Tensor  # [L, B]


def pool(world: World, stack: Stack, task: int, past: bool, received: bool = True, held: "Pool | None" = None) -> Pool:
    """The training set of `task`, or what is `held` instead, followed by the replay memories of the tasks before it if
    `past`, and by what others have sent for these tasks if `received`."""
    held = trained(world, [task]) if held is None else held
    rows = held.task
    x, y, origin, real = [held.x], [held.y], [held.task], [filled(torch.tensor(held.sizes), rows.shape[1])]
    memory, shared = stack.of(memories.OWNER), stack.of(buffers.OWNER)

    def add(kept: Mapping[str, Tensor], first: int, last: int, room: int) -> None:
        """Some places of each of some tasks, of which the first `fill` are real."""
        x.append(kept["x"][:, first:last, :room].flatten(1, 2))
        y.append(kept["y"][:, first:last, :room].flatten(1, 2))
        tasks = torch.arange(first, last, device=rows.device).repeat_interleave(room)
        origin.append(tasks.expand(len(rows), -1))
        real.append(filled(kept["fill"][:, first:last], room).flatten(1))

    if past and task and memory["y"].shape[2]:
        add(memory, 0, task, memory["y"].shape[2])
    own = sum(part.shape[1] for part in y)
    first = 0 if past else task
    fill = shared["fill"][:, first : task + 1]
    if received and fill.numel() and fill.max():
        add(shared, first, task + 1, int(fill.max()))
    everything = torch.cat(real, 1)
    joined = Pool(torch.cat(x, 1), torch.cat(y, 1), torch.cat(origin, 1), [everything.shape[1]] * len(rows), own)
    return joined if everything.all() else gathered(joined, everything)


def trained(world: World, tasks: Sequence[int]) -> Pool:
    """The training sets of some tasks."""
    split = world.train
    rows, labels = split.rows[:, tasks].flatten(1, 2), split.labels[:, tasks].flatten(1, 2)
    origin = torch.tensor(tasks, device=rows.device).repeat_interleave(split.rows.shape[2]).expand_as(rows)
    real = filled(split.sizes[:, tasks], split.rows.shape[2]).flatten(1)
    whole = Pool(world.inputs[rows], labels, origin, [rows.shape[1]] * len(rows), rows.shape[1])
    return whole if real.all() else gathered(whole, real)


def filled(counts: Tensor, room: int) -> Tensor:
    """Which of `room` places are real, where the first so many are: bool [..., room]."""
    return torch.arange(room) < counts[..., None]


def gathered(held: Pool, real: Tensor) -> Pool:
    """The pool with what is `real` [L, N] moved to the front, in its order."""
    sizes = real.sum(1)
    order = real.int().argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())].to(held.y.device)
    lane = torch.arange(len(real), device=held.y.device)[:, None]
    return Pool(held.x[lane, order], held.y[lane, order], held.task[lane, order], sizes.tolist(), held.own)


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
    lane, index = torch.arange(len(order), device=held.y.device)[:, None], torch.from_numpy(order).to(held.y.device)
    there = held.x[lane, index], held.y[lane, index], held.task[lane, index]
    return Pool(*there, [len(at) for at in every], held.own)


class Deal:
    """The minibatches of one epoch, as places in a pool: index[L, steps * size], weight zero is padding."""

    def __init__(self, pool: Pool, index: Tensor, weight: Tensor, size: int) -> None:
        self.pool, self.index, self.weight, self.size = pool, index, weight, size

    def __iter__(self) -> "Iterator[Pick]":
        return (Pick(self, first) for first in range(0, self.index.shape[1], self.size))

    @cached_property
    def lane(self) -> Tensor:
        return torch.arange(len(self.index), device=self.index.device)[:, None]

    @cached_property
    def busy(self) -> Sequence[Tensor]:
        """Which lanes have an image in each minibatch, bool [L] each."""
        there: Tensor = self.weight.unflatten(1, (-1, self.size)).any(2)
        return there.unbind(1)

    @cached_property
    def gathered(self) -> Batch | None:
        """All images at once, if they are not too many."""
        if self.index.numel() * self.pool.x[0, 0].numel() > AT_ONCE:
            return None
        x, y, task = (one[self.lane, self.index] for one in (self.pool.x, self.pool.y, self.pool.task))
        return Batch(x, y, self.weight, task)


class Pick(NamedTuple):
    """One minibatch of a deal."""

    deal: Deal
    first: int  # where it begins

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + self.deal.size)

    @property
    def batch(self) -> Batch:
        """Its images."""
        if self.deal.gathered is not None:
            return Batch(*(one[:, self.places] for one in self.deal.gathered))
        held, at = self.deal.pool, (self.deal.lane, self.deal.index[:, self.places])
        return Batch(held.x[at], held.y[at], self.deal.weight[:, self.places], held.task[at])


def deal(
    pool: Pool, rngs: Sequence[np.random.Generator], size: int, steps: int = 0, exactly: int | None = None
) -> Deal:
    """One shuffled pass over the pool, the last partial batch kept; lanes that are done early get empty batches, and
    all do if there are `steps` more. If none has an image, there is no batch. Or `exactly` so many full batches, of one
    pass after the other.

    A batch has the same shape whatever the lanes hold, so that no lane's numbers depend on another's.
    """
    steps = exactly if exactly is not None else max(steps, -(-max(pool.sizes) // size))
    if exactly is not None and not max(pool.sizes):
        steps = 0
    order = np.zeros((len(rngs), steps * size), np.int64)
    real = np.zeros(order.shape, np.float32)
    for row, (rng, held) in enumerate(zip(rngs, pool.sizes, strict=True)):
        passes = 1 if exactly is None else -(-order.shape[1] // max(held, 1)) * (held > 0)
        at = np.concatenate([np.arange(0), *(rng.permutation(held) for _ in range(passes))])[: order.shape[1]]
        order[row, : len(at)] = at
        real[row, : len(at)] = 1
    device = pool.y.device
    return Deal(pool, torch.from_numpy(order).to(device), torch.from_numpy(real).to(device), size)


def batches(pool: Pool, rngs: Sequence[np.random.Generator], size: int, exactly: int | None = None) -> Iterator[Batch]:
    """The minibatches that are dealt of a pool, one after the other."""
    return (pick.batch for pick in deal(pool, rngs, size, exactly=exactly))


def passes(world: World, held: Pool, stack: Stack, epoch: int, size: int, word: str) -> Deal:
    """The minibatches of one epoch of the current task: one pass, or as many steps as the settings say."""
    rngs = generators(stack, "batches", word, stack.task, epoch)
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


def source(stack: Stack, *purpose: int | str) -> Source:
    """The random numbers of one purpose of all lanes."""
    return Source([digest(*lane, *purpose) for lane in stack.lanes])
