"""What a lane learns from: pools of images, and minibatches of them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners import memory as memories
from shoal.learners import received as buffers
from shoal.rng import key


class Pool(NamedTuple):
    """Images to learn from, a row per lane; of the N places of lane l the first sizes[l] are real."""

    x: Tensor  # [L, N, ...]
    y: Tensor  # [L, N]
    task: Tensor  # [L, N]
    sizes: Sequence[int]
    own: int  # how many of them are the lane's own, the same in all lanes


class Batch(NamedTuple):
    """A minibatch of every lane; weight zero is padding."""

    x: Tensor  # [L, B, ...]
    y: Tensor  # [L, B]
    weight: Tensor  # [L, B]
    task: Tensor  # [L, B]


def pool(world: World, stack: Stack, task: int, past: bool, received: bool = True) -> Pool:
    """The training set of `task`, followed by the replay memories of the tasks before it if `past`, and by what others
    have sent for these tasks if `received`."""
    rows = world.train.rows[:, task]
    x, y = [world.inputs[rows]], [world.train.labels[:, task]]
    origin = [torch.full_like(rows, task)]
    memory, shared = stack.of(memories.OWNER), stack.of(buffers.OWNER)
    if past and task and memory["y"].shape[2]:
        x.append(memory["x"][:, :task].flatten(1, 2))
        y.append(memory["y"][:, :task].flatten(1))
        tasks = torch.arange(task, device=rows.device).repeat_interleave(memory["y"].shape[2])
        origin.append(tasks.expand(len(rows), -1))
    own = sum(part.shape[1] for part in y)
    first = 0 if past else task
    fill = shared["fill"][:, first : task + 1]
    room = int(fill.max()) if received and fill.numel() else 0
    if room:
        x.append(shared["x"][:, first : task + 1, :room].flatten(1, 2))
        y.append(shared["y"][:, first : task + 1, :room].flatten(1))
        tasks = torch.arange(first, task + 1, device=rows.device).repeat_interleave(room)
        origin.append(tasks.expand(len(rows), -1))
    held = Pool(torch.cat(x, 1), torch.cat(y, 1), torch.cat(origin, 1), [own] * len(rows), own)
    return gathered(held, fill, room) if room else held


def gathered(held: Pool, fill: Tensor, room: int) -> Pool:
    """The pool with what was received, `fill` [L, tasks] of `room` places for each task, moved to the front."""
    received = (torch.arange(room) < fill[..., None]).flatten(1)
    real = torch.cat([received.new_ones(len(fill), held.own), received], 1)
    sizes = real.sum(1)
    order = real.int().argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())].to(held.y.device)
    lane = torch.arange(len(fill), device=held.y.device)[:, None]
    return Pool(held.x[lane, order], held.y[lane, order], held.task[lane, order], sizes.tolist(), held.own)


def batches(pool: Pool, rngs: Sequence[np.random.Generator], size: int) -> Iterator[Batch]:
    """One shuffled pass over the pool, the last partial batch kept; lanes that are done early get empty batches.

    A batch has the same shape whatever the lanes hold, so that no lane's numbers depend on another's.
    """
    steps = -(-max(pool.sizes) // size)
    order = np.zeros((len(rngs), steps * size), np.int64)
    real = np.zeros(order.shape, np.float32)
    for row, (rng, held) in enumerate(zip(rngs, pool.sizes, strict=True)):
        order[row, :held] = rng.permutation(held)
        real[row, :held] = 1
    device = pool.y.device
    lane = torch.arange(len(rngs), device=device)[:, None]
    index, weights = torch.from_numpy(order).to(device), torch.from_numpy(real).to(device)
    for at, weight in zip(index.split(size, 1), weights.split(size, 1), strict=True):
        yield Batch(pool.x[lane, at], pool.y[lane, at], weight, pool.task[lane, at])


def batch_size(world: World, held: Pool) -> int:
    """The settings' batch, but no larger than a lane's own data, the same for all: padding costs as much as images."""
    return min(world.settings.learner.batch, held.own)


def generators(stack: Stack, *purpose: int | str) -> list[np.random.Generator]:
    """One generator per lane."""
    return [key(*lane, *purpose) for lane in stack.lanes]
