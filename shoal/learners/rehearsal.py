"""Gradients on memories: what learners that rehearse add to the gradient of the new images."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.batches import Batch
from shoal.learners.in_kernel import backend
from shoal.learners.in_torch import autograd, forth, gradients
from shoal.learners.step import Part, Step, Tensors, together, unwritten
from shoal.models import heads
from shoal.models.contract import Model, Usage


def relearned(world: World, stack: Stack, parts: Mapping[str, Part], batch: Batch, usage: Usage) -> Tensors:
    """Every lane's gradients of its mean loss on a batch of memories, each by the head of its task."""
    with unwritten(stack, ~batch.weight.any(1)):
        return gradients(backend(world, stack), Step(batch, parts, None, usage))


def repeated(
    world: World, stack: Stack, parts: Mapping[str, Part], batch: Batch, usage: Usage, said: Tensor
) -> Tensors:
    """Every lane's gradients of the mean squared distance between what its net says of a batch and what it `said`."""
    if (way := forth(world, stack, Step(batch, parts, None, usage))) is not None:
        known, _ = heads.parted(usage)
        return way.back(2 * (way.logits - said) * shares(batch, known, way.logits))
    function = partial(distance, world.model, parts, world.engine == "loop")
    with unwritten(stack, ~batch.weight.any(1)):
        return autograd(world, stack, function, (batch, usage, said), parts, {})


def shares(batch: Batch, known: Tensor | None, logits: Tensor) -> Tensor:
    """How much each output of each image counts in a mean over those that count, all lanes: [L, B, K]."""
    counts = batch.weight[..., None].expand_as(logits)
    if known is not None:
        counts = counts * known.take_along_dim(batch.task[..., None], 1)
    return counts / counts.sum((1, 2), keepdim=True).clamp(min=1)


def distance(
    model: Model,
    parts: Mapping[str, Part],
    trim: bool,
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    usage: Usage,
    said: Tensor,
) -> Tensor:
    """One agent's mean over images and outputs that count of the squared distance between logits and `said` [B, K]."""
    params = together(model, parts, free, fixed)
    known, usage = heads.parted(usage)
    if trim:
        params, usage = model.trimmed(params, usage, None)
    gap = (model.logits(params, batch.x, batch.task, training=True, **usage) - said).square()
    counts = batch.weight[:, None].expand_as(gap)
    if known is not None:
        counts = counts * known[batch.task]
    found: Tensor = (gap * counts).sum() / counts.sum().clamp(min=1)
    return found


def added(found: Tensors, *more: tuple[float, Tensors]) -> Tensors:
    """Gradients with some others, each times a factor, added to them."""
    for factor, other in more:
        found = {name: one + factor * other[name] for name, one in found.items()}
    return found


def mixed(
    new: Batch, old: Batch, balance: Callable[[Tensor, Tensor], Tensor], found: Tensors, other: Tensors
) -> Tensors:
    """Gradients of new images and of memories, with the share of memories in each lane that `balance` gives for the
    numbers of both, [L]; none where there are none."""
    share = balance(new.weight.sum(1), old.weight.sum(1)).where(old.weight.any(1), 0)
    return {name: one.lerp(other[name], share.view(-1, *[1] * (one.ndim - 1))) for name, one in found.items()}
