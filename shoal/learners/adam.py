"""Masked Adam, its one definition in Python, and plain SGD: what a step does with gradients."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import BETAS, EPSILON, MEAN, PARAMS, STEPS, VAR, Stack
from shoal.agents.world import World
from shoal.learners.step import view
from shoal.models.contract import Part

VECTOR = 16  # numbers in the widest vector of a processor
FUSED = getattr(torch, "_fused_adam_", None)  # no public name: another torch may not have it, or have it otherwise


class Moving(NamedTuple):
    """What an Adam step of a part of a stacked tensor reads and writes."""

    value: Tensor  # [L, units, ...], as the rest
    mean: Tensor
    var: Tensor
    gradient: Tensor


@torch.no_grad()
def sgd(
    world: World,
    stack: Stack,
    parts: Mapping[str, Part],
    gradients: Mapping[str, Tensor],
    active: Mapping[str, Tensor] | None = None,
) -> None:
    """Plain gradient descent on the `parts` of stacked tensors; units where `active` [L, units] is false stay."""
    for name, gradient in gradients.items():
        value, on = view(stack.params[name], parts[name]), None if active is None else active.get(name)
        if on is not None:
            gradient = gradient.where(on.view(*on.shape, *[1] * (value.ndim - 2)), 0)
        value.sub_(gradient, alpha=world.settings.learner.rate)


@torch.no_grad()
def adam(
    world: World,
    stack: Stack,
    parts: Mapping[str, Part],
    gradients: Mapping[str, Tensor],
    active: Mapping[str, Tensor] | None = None,
) -> None:
    """Adam (Kingma & Ba 2015) on the `parts` of stacked tensors.

    Units where `active` [L, units] is false keep value, moments and step count: a zero gradient would still move them.
    """
    rate, factors = world.settings.learner.rate, None
    params, means, variances, counts = (stack.of(owner) for owner in (PARAMS, MEAN, VAR, STEPS))
    for name, gradient in gradients.items():
        part = parts[name]
        moving = Moving(view(params[name], part), view(means[name], part), view(variances[name], part), gradient)
        steps = view(counts[name], part[:1])
        on = None if active is None else active.get(name)
        # The heads of one lane have done different numbers of steps.
        if name not in world.model.heads and at_once(moving.value):
            fused(moving, steps, rate, on)
        else:
            factors = factors_of(steps, rate, on, factors)
            update(moving, factors)
        steps += 1 if on is None else on


def at_once(value: Tensor) -> bool:
    """Do units of this shape go through torch's own Adam, which is one pass over memory? Nothing but a unit's shape may
    decide: what is computed for a lane must not depend on others. A unit has to fill vectors, because numbers that do
    not are rounded in another way."""
    here = value.device.type == "cpu" and value.dtype == torch.float32 and math.prod(value.shape[2:]) % VECTOR == 0
    return here and has_fused()


@cache
def has_fused() -> bool:
    """Has torch an Adam of its own that does what we expect? It is tried once, on a number."""
    if FUSED is None:
        return False
    numbers = [torch.full((VECTOR,), one) for one in (1.0, 0.0, 0.0, 2.0)]
    try:
        pass_over(numbers, 0.5, 1)
    except (RuntimeError, TypeError):
        return False
    wanted = (0.5, (1 - BETAS[0]) * 2, (1 - BETAS[1]) * 4)  # the first step of Adam is as long as its rate
    return all(math.isclose(float(one[0]), value, rel_tol=1e-5) for one, value in zip(numbers, wanted, strict=False))


def fused(moving: Moving, steps: Tensor, rate: float, active: Tensor | None) -> None:
    """One Adam step in one pass, for those units at once that have done as many steps [L, units]."""
    done = steps.numpy()
    if (active is None or active.all()) and done.min() == done.max():
        packed = [tensor.contiguous() for tensor in moving]
        pass_over(packed, rate, int(done.max()) + 1)
        for whole, piece in zip(moving[:3], packed, strict=False):
            if piece is not whole:
                whole.copy_(piece)
        return
    moves = np.ones_like(done, bool) if active is None else active.numpy()
    for count in np.unique(done[moves]):
        at = tuple(map(torch.from_numpy, np.nonzero(moves & (done == count))))
        chosen = [tensor[at] for tensor in moving]
        pass_over(chosen, rate, int(count) + 1)
        for whole, piece in zip(moving[:3], chosen, strict=False):
            whole[at] = piece


def pass_over(moving: Sequence[Tensor], rate: float, count: int) -> None:
    """The `count`-th Adam step of a value, its mean, its variance and a gradient, each of which lies in one piece."""
    value, mean, var, gradient = ([one] for one in moving)
    assert FUSED is not None
    FUSED(
        value, gradient, mean, var, [], [torch.full((), float(count))],
        lr=rate, beta1=BETAS[0], beta2=BETAS[1], eps=EPSILON, weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip


class Factors(NamedTuple):
    """What an Adam step multiplies by, [L, units] each; a unit that does not move is multiplied by one, and zero is
    added to it."""

    steps: np.ndarray  # done before, int64
    active: Tensor | None
    on: Tensor  # one or zero
    blend: Tensor  # of the gradient into the mean
    decay: Tensor  # of the variance
    root: Tensor  # the variance's correction
    size: Tensor  # of the step, with the mean's correction


def factors_of(steps: Tensor, rate: float, active: Tensor | None, before: Factors | None) -> Factors:
    """The factors of units that have done so many `steps` [L, units]; those from `before`, if nothing has changed:
    weights and biases of heads move together."""
    done, (beta1, beta2) = steps.cpu().numpy(), BETAS
    if before is not None and before.active is active and np.array_equal(before.steps, done):
        return before
    count = done + 1.0
    on = np.ones(count.shape) if active is None else active.cpu().numpy().astype(np.float64)
    rows = on, on * (1 - beta1), np.where(on, beta2, 1), np.sqrt(1 - beta2**count), on * rate / (1 - beta1**count)
    wide = torch.from_numpy(np.stack(rows).astype(np.float32)).to(steps.device)
    return Factors(done.copy(), active, *wide.unbind())


def update(moving: Moving, factors: Factors) -> None:
    """One Adam step of units that have done different numbers of steps."""
    value, mean, var, gradient = moving
    shape = (*value.shape[:2], *[1] * (value.ndim - 2))
    on, blend, decay, root, size = (one.view(shape) for one in factors[2:])
    mean.lerp_(gradient, blend)
    pull = gradient if factors.active is None else gradient * on
    var.mul_(decay).addcmul_(pull, pull, value=1 - BETAS[1])
    value.sub_((mean / var.sqrt().div_(root).add_(EPSILON)).mul_(size))
