"""How much every weight matters to a lane: the diagonal of its empirical Fisher information over what agents of its
model have in common."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from shoal.agents.engine import crew, each
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import loss
from shoal.learners import orders as kernel
from shoal.learners.batches import Batch, batch_size, batches, generators, pool
from shoal.learners.growth import cuts, slots
from shoal.learners.in_torch import autograd
from shoal.learners.step import Part, Step, Tensors, read, together
from shoal.learners.usual import usage_of
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.modular import Modular


def snapshot(world: World, stack: Stack) -> Tensors:
    """What agents have in common, of all lanes as it is now, [L, units, ...]."""
    return {name: stack.params[name][:, :units].clone() for name, units in world.model.body.items()}


def fisher(world: World, stack: Stack, rule: str, samples: int) -> Tensors:
    """The diagonal of every lane's empirical Fisher information over what agents have in common, [L, units, ...]: of
    what it trains on, without dropout."""
    if rule == "frozen" or not world.edges:
        return {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    work = by_batch if rule == "batch" else partial(by_sample, samples=samples)
    pieces: list[Tensors] = crew(stack.pieces(world), lambda piece: work(*piece))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in world.model.body}


def by_batch(world: World, stack: Stack) -> Tensors:
    """The mean over batches of the squared gradient of the batch's loss, which is the sum over its tasks of their mean
    cross-entropy, as in the paper's code."""
    held = pool(world, stack, stack.task, past=True)
    total = {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    steps = torch.zeros(len(stack.lanes), device=world.device)
    rngs = generators(stack, "fisher", stack.task, stack.epoch)
    parts, usage, shown = frame(world, stack)
    function = partial(task_loss, world.model, parts, world.engine == "loop")
    for batch in batches(held, rngs, batch_size(world, held)):
        for name, gradient in autograd(world, stack, function, (batch, usage), parts, shown).items():
            total[name] += gradient.square()  # zero for a lane without an image in this batch
        steps += batch.weight.any(1)
    steps = steps.clamp(min=1)
    return {name: tensor / steps.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in total.items()}


def errors(
    model: Model, parts: Mapping[str, Part], trim: bool, free: Tensors, fixed: Tensors, batch: Batch, usage: Usage
) -> Tensor:
    """One agent's loss [B] of each image by the head of its task, without dropout."""
    params = together(model, parts, free, fixed)
    known, usage = heads.parted(usage)
    if trim:
        params, usage = model.trimmed(params, usage, None)
    return loss.errors(heads.closed(model.logits(params, batch.x, batch.task, **usage), known, batch.task), batch.y)


def task_loss(
    model: Model, parts: Mapping[str, Part], trim: bool, free: Tensors, fixed: Tensors, batch: Batch, usage: Usage
) -> Tensor:
    """One agent's sum over the tasks of a batch of their mean cross-entropy."""
    found = errors(model, parts, trim, free, fixed, batch, usage)
    same = (batch.task[:, None] == batch.task[None]) * batch.weight
    return (found * batch.weight / same.sum(1).clamp(min=1)).sum()


def by_sample(world: World, stack: Stack, samples: int) -> Tensors:
    """The mean over some random images of the squared gradient of each one's own cross-entropy."""
    held = pool(world, stack, stack.task, past=True)
    rngs = generators(stack, "fisher", stack.task, stack.epoch)
    batch = next(batches(held, rngs, batch_size(world, held, samples)), None)
    model = world.model
    if batch is None:  # nobody here has an image: their streams have ended
        return {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    own = snapshot(world, stack)
    parts, usage, shown = frame(world, stack)
    told = kernel.described(world, stack, Step(batch, parts, None, usage, shown)) if world.compiled else None
    if told is not None:
        images = batch.weight.sum(1).clamp(min=1)
        found = kernel.squares(world, stack, told, parts)
        return {name: one.div_(images.view(-1, *[1] * (one.ndim - 1))).clamp_(min=0) for name, one in found.items()}
    function = partial(sample_squares, model, parts, world.engine == "loop")
    flat = each(function, world.engine)(own, read(stack, shown), batch, usage)
    sizes = [tensor[0].numel() for tensor in own.values()]
    return {name: part.view_as(own[name]) for name, part in zip(own, flat.split(sizes, 1), strict=True)}


def sample_squares(
    model: Model, parts: Mapping[str, Part], trim: bool, free: Tensors, fixed: Tensors, batch: Batch, usage: Usage
) -> Tensor:
    """One agent's mean squared gradient, all shared tensors in a row."""

    def error(free: Tensors, one: Batch) -> Tensor:
        alone = Batch(*(part[None] for part in one))
        return errors(model, parts, trim, free, fixed, alone, usage)[0]

    every = torch.func.vmap(torch.func.grad(error), in_dims=(None, 0))(free, batch)
    rows = torch.cat([every[name].flatten(1) for name in free], 1)
    return batch.weight @ rows.square() / batch.weight.sum().clamp(min=1)


def frame(world: World, stack: Stack) -> tuple[dict[str, Part], Usage, dict[str, Part]]:
    """Which parts have gradients, and how the net is used: all slots that the current task may have."""
    model = world.model
    parts: dict[str, Part] = {name: (slice(0, units),) for name, units in model.body.items()}
    if not isinstance(model, Modular):
        return parts, usage_of(world, stack), {}
    width = min(model.slot(max(stack.task, model.initial)) + 1, model.slots)
    return parts, dict(slots(world, stack, width)), cuts(model, width, width)
