"""The usual epochs: one over the initial tasks together, and one over a task with or without what came before."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.fleet.stack import MODEL, STEPS, Stack
from shoal.fleet.world import World
from shoal.learners.batches import Batch, balanced, batch_size, batches, generators, pool
from shoal.learners.step import Part, Tensors, step, unchanged
from shoal.models import dropout
from shoal.models.contract import Usage

# What a learner does to the gradients of a step: it is told the batch and its number in the epoch, and gets a function.
Change = Callable[[Batch, int], Callable[[Tensors], Tensors]]


def usage_of(world: World, stack: Stack) -> Usage:
    """How all lanes use their nets now."""
    return world.usage(stack.of(MODEL), stack.task)


def masks(
    world: World, stack: Stack, rngs: Sequence[np.random.Generator], shapes: Sequence[tuple[int, ...]]
) -> dict[str, list[Tensor]]:
    """The `masks` of nets in training; lanes whose dropout is switched off drop nothing."""
    rate = world.settings.net.dropout
    if rate == 0 or not shapes or 0 in shapes[0]:
        return {}
    off = stack.of(dropout.OWNER)["off"]
    if off.all():
        # Ones rather than no mask: such a lane computes the same whether others have dropout or not.
        one = torch.ones((), device=world.device)
        return {"masks": [one.expand(len(stack.lanes), *shape) for shape in shapes]}
    drawn = dropout.draw(rngs, shapes, rate, world.device)
    if off.any():
        drawn = [mask.masked_fill(off.view(-1, *[1] * (mask.ndim - 1)), 1) for mask in drawn]
    return {"masks": drawn}


def initial_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    shapes: Callable[[int], list[tuple[int, ...]]],
    usage: Usage,
    cuts: dict[str, Part] | None = None,
) -> None:
    """One lock-step pass over the initial tasks: a batch of task 0, a step, a batch of task 1, a step, ...
    (docs/protocol.md, section 3)

    All that agents have in common trains (Adam also moves what a task does not use, by its moments), and the head of
    the batch's task.
    """
    model = world.model
    stack.moved[:] = True
    pools = [pool(world, stack, task, past=False, received=False) for task in range(world.settings.tasks.initial)]
    size = batch_size(world, pools[0])
    steps = max(-(-max(held.sizes) // size) for held in pools)
    rngs = generators(stack, "dropout", "initial", epoch)
    passes = [
        batches(held, generators(stack, "batches", "initial", task, epoch), size, steps)
        for task, held in enumerate(pools)
    ]
    for together in zip(*passes, strict=True):
        for task, batch in enumerate(together):
            parts: dict[str, Part] = {name: (slice(0, units),) for name, units in model.body.items()}
            head = task if world.settings.tasks.heads == "task" else 0
            parts |= {name: (slice(head, head + 1),) for name in model.heads}
            step(world, stack, batch, parts, task, usage | masks(world, stack, rngs, shapes(size)), cuts)


def usual_epoch(
    world: World, stack: Stack, epoch: int, past: bool, change: Change | None = None, balance: bool = False
) -> None:
    """One pass over the task, or over the initial tasks together; everything trains. With `past`, the memories of all
    tasks before are part of it: experience replay (docs/protocol.md, section 3); with `balance`, as often as makes them
    as many as the task's own images."""
    model, task = world.model, stack.task
    if task < world.settings.tasks.initial:
        initial_epoch(world, stack, epoch, model.mask_shapes, usage_of(world, stack))
        return
    stack.moved[:] = True
    held = pool(world, stack, task, past)
    size = batch_size(world, held)
    if balance:
        held = balanced(held, world.train.sizes[:, task].tolist())
    rngs, shapes = generators(stack, "dropout", task, epoch), model.mask_shapes(size)
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    usage = usage_of(world, stack)
    for number, batch in enumerate(batches(held, generators(stack, "batches", "replay", task, epoch), size)):
        # A head without an image in the batch is not touched, not even by its moments.
        active = dict.fromkeys(model.heads, present(stack, model.heads[0], batch))
        dropped = masks(world, stack, rngs, shapes)
        changed = unchanged if change is None else change(batch, number)
        step(world, stack, batch, parts, None, usage | dropped, active=active, change=changed)


def present(stack: Stack, head: str, batch: Batch) -> Tensor:
    """Which heads have an image in the batch: bool [L, heads]."""
    count = torch.zeros_like(stack.of(STEPS)[head], dtype=batch.weight.dtype)
    return count.scatter_add(1, batch.task.clamp(max=count.shape[1] - 1), batch.weight) > 0
