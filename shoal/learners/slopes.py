"""Slopes: gradients of what agents have in common, which some modes send."""

from collections.abc import Mapping
from functools import partial

import torch
from torch.utils import _pytree as tree

from shoal.agents.engine import crew, parted
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.batches import Batch, batch_size, batches, generators, pool, remembered
from shoal.learners.fisher import errors, frame, snapshot
from shoal.learners.in_torch import autograd, objective
from shoal.learners.step import Part, Step, Tensors
from shoal.learners.usual import usage_of
from shoal.models.contract import Model, Usage


def slope(world: World, stack: Stack, samples: int) -> Tensors:
    """The gradient of every lane's mean loss over some random images of what it trains on, without dropout, over what
    agents have in common, [L, units, ...]."""
    pieces = crew(stack.pieces(world), lambda piece: slope_of(*piece, samples))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in world.model.body}


def slope_of(world: World, stack: Stack, samples: int) -> Tensors:
    """The same of a piece of the lanes."""
    held = pool(world, stack, stack.task, past=True)
    rngs = generators(stack, "track", stack.task, stack.epoch)
    batch = next(batches(held, rngs, batch_size(world, held, samples)), None)
    if batch is None:  # nobody here has an image: their streams have ended
        return {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    parts, usage, shown = frame(world, stack)
    function = partial(mean_loss, world.model, parts, world.engine == "loop")
    return autograd(world, stack, function, (batch, usage), parts, shown)


def mean_loss(
    model: Model, parts: Mapping[str, Part], trim: bool, free: Tensors, fixed: Tensors, batch: Batch, usage: Usage
) -> torch.Tensor:
    """One agent's mean loss over the real images of a batch."""
    found = errors(model, parts, trim, free, fixed, batch, usage)
    return (found * batch.weight).sum() / batch.weight.sum().clamp(min=1)


def memories(world: World, stack: Stack, samples: int) -> list[tuple[Batch, Usage]]:
    """Some of every lane's memories of earlier tasks, and how its net is used: a lane each, so that none depends on how
    many there are."""
    past = remembered(stack, samples, generators(stack, "fedagem", stack.task, stack.epoch))
    usage, single = usage_of(world, stack), [1] * len(stack.lanes)
    return list(zip(parted(past, single, single=True), parted(usage, single, single=True), strict=True))


def slope_on(world: World, stack: Stack, row: int, batch: Batch, usage: Usage) -> Tensors:
    """The gradient of one lane's loss on a batch, over what agents have in common; zero where it is empty."""
    parts: dict[str, Part] = {name: (slice(0, units),) for name, units in world.model.body.items()}
    # Copies, because how a product is summed depends on where in memory it begins.
    fixed = {name: tensor[row].clone() for name, tensor in stack.params.items()}
    free = {name: fixed[name][part].clone().requires_grad_() for name, part in parts.items()}
    batch, usage = tree.tree_map(torch.clone, (batch, usage))  # running statistics are not to be written
    loss = objective(world.model, Step(batch, parts, None, usage), True, True, free, fixed, batch, usage, [])
    slopes = torch.autograd.grad(loss, list(free.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(free, slopes, strict=True))
