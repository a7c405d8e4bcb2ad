"""One step of all lanes: the loss of one agent with whatever is added to it, its gradient, and a masked Adam."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor

from shoal.compiled import steps as kernel
from shoal.fleet.engine import each
from shoal.fleet.stack import BETAS, EPSILON, MEAN, MODEL, PARAMS, RECORD, STEPS, VAR, Stack
from shoal.fleet.world import World
from shoal.learners.batches import Batch, Pick
from shoal.learners.loss import errors, pull
from shoal.models import dropout, heads
from shoal.models.contract import Forth, Model, Usage
from shoal.models.contract import Part as Part
from shoal.models.params import Params

if TYPE_CHECKING:
    from shoal.learners.contract import Learner
    from shoal.sharing.contract import Sharing

VECTOR = 16  # numbers in the widest vector of a processor
FUSED = getattr(torch, "_fused_adam_", None)  # no public name: another torch may not have it, or have it otherwise

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


class Pulls(Penalises, Protocol):
    """One whose addition has a gradient that can be written down: a step does without autograd then."""

    def pull(self, frame: Frame) -> Tensors:
        """The gradient of its `penalty` with respect to some of what trains, or to the first units of it; of the rest
        it is zero. It may read what trains, the batch and its own state."""


def tangent(frame: Frame, pull: Tensors) -> Tensor:
    """A penalty with such a gradient, as far as a step can tell."""
    each_ = ((frame.free[name][: len(one)] * one.detach()).sum() for name, one in pull.items())
    return sum(each_, frame.batch.weight.new_zeros(()))


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


def may_wait(world: World, *words: str) -> bool:
    """Can the kernel take several steps at once? Not where a mode changes gradients, lets units rest or has one of
    these verbs more."""
    said = any(hasattr(mode, word) for mode in world.settings.sharing for word in ("bends", "rests", *words))
    return world.compiled and adam_steps(world) and not said


def undivided(world: World) -> bool:
    """Does the kernel take all steps of an epoch at once? Then it deals lanes to threads itself; of a stack that is cut
    into pieces it would be told piece by piece, by threads that wait for each other in Python."""
    return world.settings.learner.plain and may_wait(world, "penalty")


class Steps:
    """The steps of all lanes in an epoch, one after the other.

    Where the kernel takes them and nobody looks in between, several wait for each other: then it takes them lane by
    lane, and a lane stays in a core's cache.
    """

    def __init__(self, world: World, stack: Stack, watched: bool = False) -> None:
        self.world, self.stack = world, stack
        self.waiting: list[kernel.Described] = []
        self.taken: list[Pick] = []  # the minibatches of those that wait
        self.before: dict[tuple[object, ...], kernel.Described] = {}  # what was told of the batch before this one
        both = (world.settings.learner, *world.settings.sharing)
        self.adders = [cast(Penalises, one) for one in both if hasattr(one, "penalty")]
        self.may_wait = not watched and may_wait(world)

    def take(
        self,
        pick: Pick,
        parts: Mapping[str, Part],
        task: int | None,
        usage: Usage,
        cuts: Mapping[str, Part] | None = None,
        active: Mapping[str, Tensor] | None = None,
        change: Callable[[Tensors], Tensors] = unchanged,
        present: bool = False,
        also: Batch | None = None,
    ) -> None:
        """One step, as `step` takes it, now or at the end."""
        world, stack = self.world, self.stack
        if self.may_wait and not any(one.acts(world, stack, parts) for one in self.adders):
            found = self.told(pick, parts, task, usage, cuts, active, present)
            if found is not None:
                self.waiting.append(found)
                self.taken.append(pick)
                return
        self.finish()
        step(world, stack, pick.batch, parts, task, usage, cuts, active, change, present, also)

    def told(
        self,
        pick: Pick,
        parts: Mapping[str, Part],
        task: int | None,
        usage: Usage,
        cuts: Mapping[str, Part] | None,
        active: Mapping[str, Tensor] | None,
        present: bool,
    ) -> kernel.Described | None:
        """What the kernel is told of a step. Mostly it is that of the batch before in all but the batch and its masks:
        what is the same is not told again."""
        masks = usage.get("masks")
        same = (pick.deal, parts, task, cuts, active, present, *(one for one in usage.values() if one is not masks))
        name = tuple(map(id, same))
        before = self.before.get(name)
        found = None if before is None else kernel.following(before, pick, masks)
        if found is None:
            found = kernel.described(self.world, self.stack, pick, parts, task, usage, cuts or {}, active, present)
        if found is not None:
            found.held.append(same)  # as long as it is held, nothing else has its name
            self.before[name] = found
        return found

    def finish(self) -> None:
        """Take the steps that wait."""
        if self.waiting:
            count_steps(self.stack, (pick.busy for pick in self.taken))
            kernel.run(self.world, self.stack, self.waiting, kernel.FORTH | kernel.MOVE)
            self.waiting, self.taken, self.before = [], [], {}


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
    present: bool = False,
    also: Batch | None = None,
) -> None:
    """One Adam step of every lane on the `parts` of its parameters; the rest is frozen.

    `active` [L, units of the part] narrows that to some units of some lanes, `present` to the heads that have an image
    in the batch, or in what is `also` learned: no other is touched, not even by its moments. `task` says that the whole
    batch is of that task, the same in all lanes; None that every image is of its own. `cuts` say which part of each
    tensor is read at all. `change` may alter the gradients before they are used.
    """
    terms = terms_of(world, stack, parts)
    states = [dict(stack.of(one.owner)) for one in terms]
    if present:
        there = used(world, stack, batch) if also is None else used(world, stack, batch) | used(world, stack, also)
        active = {**(active or {}), **dict.fromkeys(world.model.heads, there)}
    active = without_rest(world, stack, parts, active)
    found = partial(slopes, world, stack, batch, parts, task, usage, cuts or {}, terms, states)
    # A lane without an image in this batch takes no step at all.
    busy = batch.weight.any(1)
    count_steps(stack, [busy])
    descend = adam if adam_steps(world) else sgd
    if busy.all():
        descend(world, stack, parts, bent(world, stack, parts, change(found())), active)
        return
    with unwritten(stack, ~busy):
        gradient = bent(world, stack, parts, change(found()))
    on = {name: busy[:, None].expand(one.shape[:2]) for name, one in gradient.items()}
    descend(world, stack, parts, gradient, {name: one & (active or {}).get(name, one) for name, one in on.items()})


def count_steps(stack: Stack, steps: Iterable[Tensor]) -> None:
    """Note which lanes take each of some steps, bool [L] each, where seconds are counted."""
    if (taken := stack.of(RECORD).get("steps")) is not None:
        taken += torch.stack(list(steps)).sum(0).to(taken.device)


def bent(world: World, stack: Stack, parts: Mapping[str, Part], found: Tensors) -> Tensors:
    """Gradients as modes that change them have them, one after the other."""
    for mode in world.settings.sharing:
        if hasattr(mode, "bends"):
            found = mode.bends(world, stack, parts, found)
    return found


def adam_steps(world: World) -> bool:
    """Is it Adam who takes the steps?"""
    return world.settings.learner.optimiser == "adam"


def terms_of(world: World, stack: Stack, parts: Mapping[str, Part]) -> list[Penalises]:
    """Who adds to the loss by now."""
    both: tuple[Learner | Sharing, ...] = (world.settings.learner, *world.settings.sharing)
    return [one for one in both if adds(one, world, stack, parts)]


def used(world: World, stack: Stack, batch: Batch) -> Tensor:
    """Which heads have an image in the batch: bool [L, heads]."""
    count = torch.zeros_like(stack.of(STEPS)[world.model.heads[0]], dtype=batch.weight.dtype)
    return count.scatter_add(1, batch.task.clamp(max=count.shape[1] - 1), batch.weight) > 0


def without_rest(
    world: World, stack: Stack, parts: Mapping[str, Part], active: Mapping[str, Tensor] | None
) -> Mapping[str, Tensor] | None:
    """What is active, without what a sharing mode lets rest."""
    for mode in world.settings.sharing:
        rests = mode.rests(world, stack, parts) if hasattr(mode, "rests") else {}
        for name, still in rests.items():
            active = {**(active or {}), name: ~still & (active or {}).get(name, ~still)}
    return active


def slopes(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: Usage,
    cuts: Mapping[str, Part],
    terms: Sequence[Penalises],
    states: Sequence[Tensors],
) -> Tensors:
    """Every lane's gradients of its objective with respect to the `parts`: of the loss by hand, where the model can,
    and of what `terms` add to it as they write it down, or by autograd."""
    found = compiled(world, stack, batch, parts, task, usage, cuts)
    if found is None:
        usage = dropout.drawn(usage)
        found = by_hand(world, stack, batch, parts, task, usage, cuts)
    if found is not None:
        pulling = [one for one in terms if hasattr(one, "pull")]
        for one in pulling:
            state = states[terms.index(one)]
            add_pull(world.model, cast(Pulls, one), read_parts(stack, parts), batch, state, found)
        if len(pulling) == len(terms):
            return found
        terms = [one for one in terms if one not in pulling]
        states = [dict(stack.of(one.owner)) for one in terms]
        usage = dropout.drawn(usage)
    function = partial(objective, world.model, parts, task, world.engine == "loop", terms, found is None)
    more = gradients(world, stack, function, (batch, usage, states), parts, cuts)
    return more if found is None else {name: found[name].add_(more[name]) for name in parts}


def add_pull(model: Model, one: Pulls, free: Tensors, batch: Batch, state: Tensors, found: Tensors) -> None:
    """Add to every lane's gradients those of what a learner or a mode adds to its loss."""

    def pull(free: Tensors, batch: Batch, state: Tensors) -> Tensors:
        return one.pull(Frame(model, dict(free), free, {}, batch, state))

    for name, more in torch.func.vmap(pull)(free, batch, state).items():
        found[name][:, : more.shape[1]] += more


def compiled(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: Usage,
    cuts: Mapping[str, Part],
) -> Tensors | None:
    """Every lane's gradients of its loss by the kernel; None, where it is not used or does not know such a step."""
    told = kernel.described(world, stack, batch, parts, task, usage, cuts) if world.compiled else None
    return None if told is None else kernel.gradients(world, stack, told, parts)


@torch.no_grad()
def by_hand(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: Usage,
    cuts: Mapping[str, Part],
) -> Tensors | None:
    """Every lane's gradients of its loss, without autograd; None, where the model has no such way."""
    way = forth(world, stack, batch, parts, task, usage, cuts)
    if way is None:
        return None
    known, _ = heads.parted(usage)
    share = batch.weight / batch.weight.sum(1, keepdim=True).clamp(min=1)
    logits = heads.all_closed(way.logits, known, batch.task if task is None else task)
    return way.back(pull(logits, batch.y, share))


@torch.no_grad()
def forth(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: Usage,
    cuts: Mapping[str, Part],
) -> Forth | None:
    """All lanes' logits and the way back by hand; None, where the model has no such way."""
    way = getattr(world.model, "by_hand", None) if world.engine == "vmap" else None
    if way is None:
        return None
    _, usage = heads.parted(usage)
    found: Forth | None = way(read(stack, cuts), batch.x, batch.task if task is None else task, parts, **usage)
    return found


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
    whole: bool,
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    usage: Usage,
    states: Sequence[Tensors],
) -> Tensor:
    """One agent's mean loss over the real images of a batch of one task, or of each image's own, and what `terms` add
    to it; or, unless `whole`, that alone. Only `free`, the `parts` of its parameters, has gradients.

    `trim` leaves out what is not computed, which only an engine can that takes lanes one by one.
    """
    params = together(model, parts, free, fixed)
    known, usage = heads.parted(usage)
    if trim:
        params, usage = model.trimmed(params, usage, task)
    total = batch.weight.new_zeros(())
    if whole:
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
    free = {name: one.detach().requires_grad_() for name, one in read_parts(stack, parts).items()}
    losses = each(function, world.engine)(free, read(stack, cuts), *arguments)
    found = torch.autograd.grad(losses.sum(), list(free.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parts, found, strict=True))


def read(stack: Stack, cuts: Mapping[str, Part]) -> Tensors:
    """All parameters that a step may read."""
    return {name: view(tensor, cuts.get(name, ())) for name, tensor in stack.params.items()}


def read_parts(stack: Stack, parts: Mapping[str, Part]) -> Tensors:
    """The parts of the parameters that train."""
    return {name: view(stack.params[name], part) for name, part in parts.items()}


def view(tensor: Tensor, part: Part) -> Tensor:
    return tensor[(slice(None), *part)]


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
    if world.compiled and kernel.trained(parts):
        kernel.adam(world, stack, parts, gradients, active)
        return
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
