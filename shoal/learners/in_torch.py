"""The backend that takes steps by torch, with gradients by autograd; the kernel's does otherwise where it knows a step
(`in_kernel`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from shoal.agents.engine import parted
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.adam import adam, sgd
from shoal.learners.additions import additions_of
from shoal.learners.batches import Batch
from shoal.learners.loss import errors
from shoal.learners.step import (
    Frame,
    Part,
    Step,
    Tensors,
    Term,
    begun,
    count_steps,
    read,
    read_parts,
    together,
    unwritten,
    used,
    view,
)
from shoal.models import dropout, heads
from shoal.models.contract import Model, Usage
from shoal.own_code import running


class InTorch:
    """What takes the steps of the lanes of a stack: torch, one after the other."""

    def __init__(self, world: World, stack: Stack) -> None:
        self.world, self.stack = world, stack

    def take(self, steps: Iterable[Step]) -> None:
        """The steps of an epoch, each with all that is added to it."""
        additions = additions_of(self.world)
        for number, step in enumerate(steps):
            step = step._replace(batch=step.images, number=number)  # they are picked out once
            for addition in additions:
                step = addition(self.world, self.stack, step)
            moved(self, step)
            for act in step.after:
                act()

    def losses(self, step: Step) -> Tensors | None:
        """Every lane's gradients of its loss alone, without autograd; None, where there is no such way."""
        return None

    def adam(self, step: Step, gradients: Tensors) -> None:
        """One masked Adam step with such gradients."""
        adam(self.world, self.stack, step.parts, gradients, step.active)


def moved(by: InTorch, step: Step) -> None:
    """Take one step as it is, now: a gradient, what is made of it, and Adam or plain SGD."""
    world, stack = by.world, by.stack
    if step.present:
        there, active = used(world, stack, step), step.active or {}
        heads_ = {name: there & active.get(name, there) for name in world.model.heads}
        step = step._replace(active={**active, **heads_})
    # A lane without an image in this batch takes no step at all.
    busy = step.images.weight.any(1)
    count_steps(stack, [busy])
    with unwritten(stack, ~busy):
        found = gradients(by, step)
        for change in step.changes:
            found = change(found)
    if not busy.all():
        step = step.resting({name: ~busy[:, None].expand(one.shape[:2]) for name, one in found.items()})
    if world.settings.learner.optimiser == "adam":
        by.adam(step, found)
    else:
        sgd(world, stack, step.parts, found, step.active)


def gradients(by: InTorch, step: Step) -> Tensors:
    """Every lane's gradients of its objective: of the loss as the backend finds them, and of what the terms of the step
    add to it as they write it down, or by autograd."""
    world, stack, batch, whole = by.world, by.stack, step.images, step.parts
    found = by.losses(step)
    if found is not None:
        for term in step.terms:
            if term.pull is not None:
                add_pull(world.model, term.pull, read_parts(stack, step.parts), batch, term.state, found)
        step = step._replace(terms=tuple(term for term in step.terms if term.pull is None))
        if not step.terms:
            return found
    step = step._replace(parts=reached(world, stack, step.parts), cuts=read_by_now(world, stack, step.cuts))
    function = partial(objective, world.model, step, world.engine == "loop", found is None)
    arguments = batch, dropout.drawn(step.usage), [term.state for term in step.terms]
    more = autograd(world, stack, function, arguments, step.parts, step.cuts)
    if found is None:
        return {name: widened(one, view(stack.params[name], whole[name])) for name, one in more.items()}
    for name, one in more.items():
        found[name][:, : one.shape[1]] += one
    return found


def reached(world: World, stack: Stack, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Parts of the parameters without heads that are not computed."""
    last, found = begun(world, stack), dict(parts)
    for name in found.keys() & set(world.model.heads):
        units, *inner = found[name]
        found[name] = (slice(units.start, min(units.stop, last)), *inner)
    return found


def read_by_now(world: World, stack: Stack, cuts: Mapping[str, Part]) -> dict[str, Part]:
    """What is read of each tensor, without heads that are not computed."""
    heads_ = {name: (slice(0, begun(world, stack)), *cuts.get(name, ())[1:]) for name in world.model.heads}
    return {**cuts, **heads_}


def widened(gradient: Tensor, part: Tensor) -> Tensor:
    """The gradient of a part of a parameter, [L, units, ...], whose last units have none."""
    if gradient.shape == part.shape:
        return gradient
    found = torch.zeros_like(part)
    found[:, : gradient.shape[1]] = gradient
    return found


def add_pull(
    model: Model, pull: Callable[[Frame], Tensors], free: Tensors, batch: Batch, state: Tensors, found: Tensors
) -> None:
    """Add to every lane's gradients those of what a learner or a mode adds to its loss."""

    def of_one(free: Tensors, batch: Batch, state: Tensors) -> Tensors:
        return pull(Frame(model, dict(free), free, {}, batch, state))

    for name, more in torch.func.vmap(of_one)(free, batch, state).items():
        found[name][:, : more.shape[1]] += more


def objective(
    model: Model,
    step: Step,
    trim: bool,
    whole: bool,
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    usage: Usage,
    states: Sequence[Tensors],
) -> Tensor:
    """One agent's mean loss over the real images of a batch of one task, or of each image's own, and what the terms of
    a step add to it; or, unless `whole`, that alone. Only `free`, the parts of its parameters, has gradients.

    `trim` leaves out what is not computed, which only an engine can that takes lanes one by one.
    """
    params = together(model, step.parts, free, fixed)
    known, usage = heads.parted(usage)
    if trim:
        params, usage = model.trimmed(params, usage, step.task)
    total = batch.weight.new_zeros(())
    if whole:
        which = batch.task if step.task is None else step.task
        logits = heads.closed(model.logits(params, batch.x, which, training=True, **usage), known, which)
        total = (errors(logits, batch.y) * batch.weight).sum() / batch.weight.sum().clamp(min=1)
    for term, state in zip(step.terms, states, strict=True):
        total = total + added(term, Frame(model, params, free, usage, batch, state, known))
    return total


def added(term: Term, frame: Frame) -> Tensor | float:
    """What is added to one agent's loss: one number."""
    with running(getattr(term.penalty, "__self__", term.penalty), f"the penalty of `{term.owner}`"):
        found: Any = term.penalty(frame)
        if isinstance(found, (int, float)) or (isinstance(found, Tensor) and found.ndim == 0):
            return found
        got = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise TypeError(f"it returns {got}, and one number is needed")


def autograd(
    world: World,
    stack: Stack,
    function: Callable[..., Tensor],
    arguments: tuple[object, ...],
    parts: Mapping[str, Part],
    cuts: Mapping[str, Part],
) -> Tensors:
    """Every lane's gradients of a one-agent `function(free, fixed, *arguments)` with respect to the `parts`."""
    if world.engine == "loop":
        return one_by_one(function, (read_parts(stack, parts), read(stack, cuts), *arguments))
    free = {name: one.detach().requires_grad_() for name, one in read_parts(stack, parts).items()}
    losses = torch.func.vmap(function, randomness="error")(free, read(stack, cuts), *arguments)
    found = torch.autograd.grad(losses.sum(), list(free.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parts, found, strict=True))


def one_by_one(function: Callable[..., Tensor], stacked: tuple[Any, ...]) -> Tensors:
    """Every lane's gradients of a one-agent function of `stacked` arguments with respect to the first of them. A lane
    goes forth and back before the next begins, so that what it remembers of its way is still in the cache."""
    lanes = len(next(iter(stacked[0].values())))
    found = {name: torch.empty(one.shape, device=one.device) for name, one in stacked[0].items()}
    for lane, (own, *others) in enumerate(parted(stacked, [1] * lanes, single=True)):
        free = {name: one.detach().requires_grad_() for name, one in own.items()}
        loss = function(free, *others)
        known = torch.autograd.grad(loss, list(free.values()), allow_unused=True) if loss.requires_grad else ()
        for name, slope in zip_longest(found, known):
            found[name][lane] = 0 if slope is None else slope
    return found
