"""The usual epochs: one over the initial tasks together, and one over a task with or without what came before."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.fleet.stack import MODEL, STEPS, Stack
from shoal.fleet.world import World
from shoal.learners.batches import Batch, Pool, balanced, batch_size, batches, generators, passes, pool
from shoal.learners.step import Part, Tensors, step, unchanged
from shoal.models import dropout
from shoal.models.contract import Usage


def nothing() -> None:
    pass


class Turn(NamedTuple):
    """What a learner does in one step beside learning the batch."""

    change: Callable[[Tensors], Tensors] = unchanged  # what it makes of the gradients
    after: Callable[[], None] = nothing  # the step
    usage: Usage | None = None  # how the net is used in it, where that is not as usual
    also: Batch | None = None  # further images whose heads are trained


# A learner's turn: it is told the batch, its number in the epoch, and what trains.
Act = Callable[[Batch, int, Mapping[str, Part]], Turn]


def as_usual(batch: Batch, number: int, parts: Mapping[str, Part]) -> Turn:
    return Turn()


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
    act: Act = as_usual,
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
    steps, exactly = max(-(-max(held.sizes) // size) for held in pools), world.settings.learner.steps(epoch)
    rngs = generators(stack, "dropout", "initial", epoch)
    every = [
        batches(held, generators(stack, "batches", "initial", task, epoch), size, steps, exactly)
        for task, held in enumerate(pools)
    ]
    for number, together in enumerate(zip(*every, strict=True)):
        for task, batch in enumerate(together):
            parts: dict[str, Part] = {name: (slice(0, units),) for name, units in model.body.items()}
            head = task if world.settings.tasks.heads == "task" else 0
            parts |= {name: (slice(head, head + 1),) for name in model.heads}
            turn = act(batch, number * len(together) + task, parts)
            dropped = masks(world, stack, rngs, shapes(size))
            step(world, stack, batch, parts, task, usage | dropped | (turn.usage or {}), cuts, change=turn.change)
            turn.after()


def usual_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    past: bool,
    act: Act = as_usual,
    balance: bool = False,
    held: Pool | None = None,
) -> None:
    """One pass over the task, or over the initial tasks together; everything trains. With `past`, the memories of all
    tasks before are part of it: experience replay (docs/protocol.md, section 3); with `balance`, as often as makes them
    as many as the task's own images. What is `held` is learned in place of the task's images, or the initial tasks'."""
    model, task = world.model, stack.task
    if task < world.settings.tasks.initial and held is None:
        initial_epoch(world, stack, epoch, model.mask_shapes, usage_of(world, stack), act=act)
        return
    stack.moved[:] = True
    held = pool(world, stack, task, past, task >= world.settings.tasks.initial, held)
    size = batch_size(world, held)
    if balance:
        held = balanced(held, world.train.sizes[:, task].tolist())
    rngs, shapes = generators(stack, "dropout", task, epoch), model.mask_shapes(size)
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    usage = usage_of(world, stack)
    for number, batch in enumerate(passes(world, held, stack, epoch, size, "replay")):
        turn = act(batch, number, parts)
        # A head without an image in the batch is not touched, not even by its moments.
        there = present(stack, model.heads[0], batch)
        if turn.also is not None:
            there = there | present(stack, model.heads[0], turn.also)
        dropped = masks(world, stack, rngs, shapes)
        active = dict.fromkeys(model.heads, there)
        step(world, stack, batch, parts, None, usage | dropped | (turn.usage or {}), active=active, change=turn.change)
        turn.after()


def present(stack: Stack, head: str, batch: Batch) -> Tensor:
    """Which heads have an image in the batch: bool [L, heads]."""
    count = torch.zeros_like(stack.of(STEPS)[head], dtype=batch.weight.dtype)
    return count.scatter_add(1, batch.task.clamp(max=count.shape[1] - 1), batch.weight) > 0
