"""One step of all lanes: the loss of one agent with whatever is added to it, its gradient, and a masked Adam."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard

import torch
from torch import Tensor

from shoal.fleet.engine import each
from shoal.fleet.stack import MEAN, MODEL, STEPS, VAR, Stack
from shoal.fleet.world import World
from shoal.learners.batches import Batch
from shoal.learners.loss import errors
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.params import Params

if TYPE_CHECKING:
    from shoal.learners.contract import Learner
    from shoal.sharing.contract import Sharing

BETAS, EPSILON = (0.9, 0.999), 1e-8

# Where in a stacked tensor a part lies: the slices after the lane axis. The first one counts units.
Part = tuple[slice, ...]
Tensors = dict[str, Tensor]


class Frame(NamedTuple):
    """One agent in the middle of a step: all that an addition to its loss may read."""

    model: Model
    params: Params  # all parameters
    free: Tensors  # those that train
    usage: Usage
    batch: Batch
    state: Tensors  # what the one who adds keeps for this agent
    known: Tensor | None = None  # which outputs of each task's head count, bool [T, K]; None: all


class Penalises(Protocol):
    """A learner or a sharing mode that adds to the loss."""

    @property
    def owner(self) -> str: ...

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        """Does it add anything by now, where these parts train?"""

    def penalty(self, frame: Frame) -> Tensor:
        """What it adds to one agent's loss."""


def trains_body(world: World, parts: Mapping[str, Part]) -> bool:
    """Is all that agents have in common trained? Where it is frozen there is nothing to hold back."""
    return all(name in parts and parts[name][0].start == 0 for name in world.model.body)


def common_units(world: World) -> dict[str, int]:
    """How many units of which tensors all tasks of an agent use: what agents have in common and, if there is one head
    for all tasks, that too."""
    one = world.settings.tasks.heads != "task"
    return {**world.model.body, **(dict.fromkeys(world.model.heads, 1) if one else {})}


def unchanged(gradients: Tensors) -> Tensors:
    return gradients


def step(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: Usage,
    cuts: Mapping[str, Part] | None = None,
    active: Mapping[str, Tensor] | None = None,
    change: Callable[[Tensors], Tensors] = unchanged,
) -> None:
    """One Adam step of every lane on the `parts` of its parameters; the rest is frozen.

    `active` [L, units of the part] narrows that to some units of some lanes. `task` says that the whole batch is of
    that task, the same in all lanes; None that every image is of its own. `cuts` say which part of each tensor is read
    at all. `change` may alter the gradients before they are used.
    """
    settings = world.settings
    both: tuple[Learner | Sharing, ...] = (settings.learner, *settings.sharing)
    terms = [one for one in both if adds(one, world, stack, parts)]
    states = [dict(stack.of(one.owner)) for one in terms]
    function = partial(objective, world.model, parts, task, world.engine == "loop", terms)
    # A lane without an image in this batch takes no step at all.
    busy = batch.weight.any(1)
    with unwritten(stack, ~busy):
        found = change(gradients(world, stack, function, (batch, usage, states), parts, cuts or {}))
    full, descend = bool(busy.all()), sgd if settings.learner.optimiser == "sgd" else adam
    for name, gradient in found.items():
        on = None if active is None else active.get(name)
        if not full:
            on = busy[:, None].expand(gradient.shape[:2]) if on is None else on & busy[:, None]
        descend(stack, name, parts[name], gradient, settings.learner.rate, on)


@contextmanager
def unwritten(stack: Stack, idle: Tensor) -> Iterator[None]:
    """What nets of `idle` lanes [L] keep, such as running statistics, stays as it is, although their padding runs."""
    before = {name: tensor[idle].clone() for name, tensor in stack.of(MODEL).items()} if idle.any() else {}
    yield
    for name, tensor in before.items():
        stack.of(MODEL)[name][idle] = tensor


def adds(one: "Learner | Sharing", world: World, stack: Stack, parts: Mapping[str, Part]) -> TypeGuard[Penalises]:
    """Does a learner or a mode add to the loss by now? It is asked at every step: `isinstance` would be slow."""
    return hasattr(one, "penalty") and one.acts(world, stack, parts)  # type: ignore[union-attr]


def objective(
    model: Model,
    parts: Mapping[str, Part],
    task: int | None,
    trim: bool,
    terms: Sequence[Penalises],
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    usage: Usage,
    states: Sequence[Tensors],
) -> Tensor:
    """One agent's mean loss over the real images of a batch of one task, or of each image's own, and what `terms` add
    to it. Only `free`, the `parts` of its parameters, has gradients.

    `trim` leaves out what is not computed, which only an engine can that takes lanes one by one.
    """
    params = together(model, parts, free, fixed)
    known, usage = heads.parted(usage)
    if trim:
        params, usage = model.trimmed(params, usage, task)
    which = batch.task if task is None else task
    logits = heads.closed(model.logits(params, batch.x, which, training=True, **usage), known, which)
    total = (errors(logits, batch.y) * batch.weight).sum() / batch.weight.sum().clamp(min=1)
    for one, state in zip(terms, states, strict=True):
        total = total + one.penalty(Frame(model, params, free, usage, batch, state, known))
    return total


def together(model: Model, parts: Mapping[str, Part], free: Tensors, fixed: Tensors) -> Params:
    """One agent's parameters, trained and frozen."""
    joined: dict[str, Tensor | list[Tensor]] = dict(fixed)
    for name, tensor in free.items():
        units = parts[name][0]
        around = (fixed[name][: units.start], tensor, fixed[name][units.stop :])
        pieces = [piece for piece in around if len(piece)]
        # In pieces where the model can take it, so that no gradient is computed for what is frozen.
        joined[name] = pieces if name in model.pieced else pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    return joined


def gradients(
    world: World,
    stack: Stack,
    function: Callable[..., Tensor],
    arguments: tuple[object, ...],
    parts: Mapping[str, Part],
    cuts: Mapping[str, Part],
) -> Tensors:
    """Every lane's gradients of a one-agent `function(free, fixed, *arguments)` with respect to the `parts`."""
    free = {name: view(stack.params[name], part).detach().requires_grad_() for name, part in parts.items()}
    losses = each(function, world.engine)(free, read(stack, cuts), *arguments)
    return dict(zip(parts, torch.autograd.grad(losses.sum(), list(free.values())), strict=True))


def read(stack: Stack, cuts: Mapping[str, Part]) -> Tensors:
    """All parameters that a step may read."""
    return {name: view(tensor, cuts.get(name, ())) for name, tensor in stack.params.items()}


def view(tensor: Tensor, part: Part) -> Tensor:
    return tensor[(slice(None), *part)]


@torch.no_grad()
def sgd(stack: Stack, name: str, part: Part, gradient: Tensor, rate: float, active: Tensor | None = None) -> None:
    """Plain gradient descent on a part of a stacked tensor; units where `active` [L, units] is false stay."""
    value = view(stack.params[name], part)
    if active is None:
        value.sub_(gradient, alpha=rate)
    else:
        value.sub_(gradient.where(active.view(*active.shape, *[1] * (value.ndim - 2)), 0), alpha=rate)


@torch.no_grad()
def adam(stack: Stack, name: str, part: Part, gradient: Tensor, rate: float, active: Tensor | None = None) -> None:
    """Adam (Kingma & Ba 2015) on a part of a stacked tensor.

    Units where `active` [L, units] is false keep value, moments and step count: a zero gradient would still move them.
    """
    value, mean, var = (view(stack.of(owner)[name], part) for owner in ("params", MEAN, VAR))
    steps = view(stack.of(STEPS)[name], part[:1])
    if active is not None and not active.all():
        lane, unit = active.nonzero(as_tuple=True)
        chosen = value[lane, unit], mean[lane, unit], var[lane, unit], steps[lane, unit]
        update(*chosen, gradient[lane, unit], rate)
        for whole, piece in zip((value, mean, var, steps), chosen, strict=True):
            whole[lane, unit] = piece
        return
    update(value, mean, var, steps, gradient, rate)


def update(value: Tensor, mean: Tensor, var: Tensor, steps: Tensor, gradient: Tensor, rate: float) -> None:
    """One Adam step in place; `steps` has the leading axes of the rest."""
    beta1, beta2 = BETAS
    steps += 1
    shape = (*steps.shape, *[1] * (value.ndim - steps.ndim))
    count = steps.double()
    size = (rate / (1 - beta1**count)).float().reshape(shape)
    root = (1 - beta2**count).sqrt().float().reshape(shape)
    mean.lerp_(gradient, 1 - beta1)
    var.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    value.sub_((mean / var.sqrt().div_(root).add_(EPSILON)).mul_(size))
