"""Gradients on memories: what learners that rehearse add to the gradient of the new images."""

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.batches import Batch, generators
from shoal.learners.contract import Learner
from shoal.learners.in_kernel import backend
from shoal.learners.in_torch import gradients
from shoal.learners.step import Part, Step, Tensors, unwritten
from shoal.models import heads
from shoal.models.contract import Usage


def luck(learner: Learner, stack: Stack, step: Step) -> list[np.random.Generator]:
    """What a learner draws from in one step, for each lane."""
    return generators(stack, learner.method, stack.task, stack.epoch, step.number)


def relearned(world: World, stack: Stack, parts: Mapping[str, Part], batch: Batch, usage: Usage) -> Tensors:
    """Every lane's gradients of its mean loss on a batch of memories, each by the head of its task."""
    with unwritten(stack, ~batch.weight.any(1)):
        return gradients(backend(world, stack), Step(batch, parts, None, usage))


def repeated(
    world: World, stack: Stack, parts: Mapping[str, Part], batch: Batch, usage: Usage, said: Tensor
) -> Tensors:
    """Every lane's gradients of the mean squared distance between what its net says of a batch and what it `said`."""
    known, _ = heads.parted(usage)
    said = heads.all_closed(said, known, batch.task)  # outputs that do not count are as they should be
    found = relearned(world, stack, parts, batch._replace(y=said), usage)
    if known is None:
        return found
    # What was a mean over all outputs becomes one over those that count.
    counts = (batch.weight[..., None] * known.take_along_dim(batch.task[..., None], 1)).sum((1, 2))
    more = batch.weight.sum(1) * said.shape[-1] / counts.clamp(min=1)
    return {name: one * more.view(-1, *[1] * (one.ndim - 1)) for name, one in found.items()}


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
