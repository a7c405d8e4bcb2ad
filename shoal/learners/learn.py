"""Learning: minibatch plans, one step for all lanes, a masked Adam, and the epochs of each learner (protocol 3)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.fleet.engine import each
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.modular import growth
from shoal.models import Modular, Monolithic, Params, Slots, dropout
from shoal.rng import key
from shoal.sharing.contract import Sharing

BETAS, EPSILON = (0.9, 0.999), 1e-8

# Where in a stacked tensor a part lies: the slices after the lane axis. The first one counts units.
Part = tuple[slice, ...]


class Pool(NamedTuple):
    """Images to learn from, a row per lane; of the N places of lane l the first sizes[l] are real."""

    x: Tensor  # [L, N, ...]
    y: Tensor  # [L, N]
    task: Tensor  # [L, N]
    sizes: Sequence[int]
    own: int  # how many of them are the lane's own, the same in all lanes


class Batch(NamedTuple):
    """A minibatch of every lane; weight zero is padding."""

    x: Tensor  # [L, B, ...]
    y: Tensor  # [L, B]
    weight: Tensor  # [L, B]
    task: Tensor  # [L, B]


# One agent's addition to the loss: from the parameters that train, what its mode remembers, and the batch.
Penalty = Callable[[dict[str, Tensor], dict[str, Tensor], Batch], Tensor]


@runtime_checkable
class Penalises(Protocol):
    """A sharing mode that adds to the loss."""

    @property
    def penalty(self) -> Penalty: ...


def pool(world: World, stack: Stack, task: int, past: bool, received: bool = True) -> Pool:
    """The training set of `task`, followed by the replay memories of the tasks before it if `past`, and by what others
    have sent for these tasks if `received`."""
    rows = world.train.rows[:, task]
    x, y = [world.inputs[rows]], [world.train.labels[:, task]]
    origin = [torch.full_like(rows, task)]
    if past and task and stack.memory.shape[2]:
        x.append(stack.memory[:, :task].flatten(1, 2))
        y.append(stack.memory_labels[:, :task].flatten(1))
        tasks = torch.arange(task, device=rows.device).repeat_interleave(stack.memory.shape[2])
        origin.append(tasks.expand(len(rows), -1))
    own = sum(part.shape[1] for part in y)
    first = 0 if past else task
    fill = stack.shared_fill[:, first : task + 1]
    room = int(fill.max()) if received and fill.numel() else 0
    if room:
        x.append(stack.shared[:, first : task + 1, :room].flatten(1, 2))
        y.append(stack.shared_labels[:, first : task + 1, :room].flatten(1))
        tasks = torch.arange(first, task + 1, device=rows.device).repeat_interleave(room)
        origin.append(tasks.expand(len(rows), -1))
    held = Pool(torch.cat(x, 1), torch.cat(y, 1), torch.cat(origin, 1), [own] * len(rows), own)
    return gathered(held, fill, room) if room else held


def gathered(held: Pool, fill: Tensor, room: int) -> Pool:
    """The pool with what was received, `fill` [L, tasks] of `room` places for each task, moved to the front."""
    received = (torch.arange(room) < fill[..., None]).flatten(1)
    real = torch.cat([received.new_ones(len(fill), held.own), received], 1)
    sizes = real.sum(1)
    order = real.int().argsort(dim=1, descending=True, stable=True)[:, : int(sizes.max())].to(held.y.device)
    lane = torch.arange(len(fill), device=held.y.device)[:, None]
    return Pool(held.x[lane, order], held.y[lane, order], held.task[lane, order], sizes.tolist(), held.own)


def batches(pool: Pool, rngs: Sequence[np.random.Generator], size: int) -> Iterator[Batch]:
    """One shuffled pass over the pool, the last partial batch kept; lanes that are done early get empty batches.

    A batch has the same shape whatever the lanes hold, so that no lane's numbers depend on another's.
    """
    steps = -(-max(pool.sizes) // size)
    order = np.zeros((len(rngs), steps * size), np.int64)
    real = np.zeros(order.shape, np.float32)
    for row, (rng, held) in enumerate(zip(rngs, pool.sizes, strict=True)):
        order[row, :held] = rng.permutation(held)
        real[row, :held] = 1
    device = pool.y.device
    lane = torch.arange(len(rngs), device=device)[:, None]
    index, weights = torch.from_numpy(order).to(device), torch.from_numpy(real).to(device)
    for at, weight in zip(index.split(size, 1), weights.split(size, 1), strict=True):
        yield Batch(pool.x[lane, at], pool.y[lane, at], weight, pool.task[lane, at])


def batch_size(world: World, held: Pool) -> int:
    """The settings' batch, but no larger than a lane's own data, the same for all: padding costs as much as images."""
    return min(world.settings.learner.batch, held.own)


def loss(
    model: Monolithic | Modular,
    parts: Mapping[str, Part],
    task: int | None,
    trim: bool,
    penalties: Sequence[Penalty],
    free: dict[str, Tensor],
    fixed: dict[str, Tensor],
    batch: Batch,
    extra: dict[str, Any],
    kept: dict[str, Tensor],
) -> Tensor:
    """One agent's mean cross-entropy over the real images of a batch of one task, or of each image's own, and what
    sharing modes add to it, which remember `kept`."""
    errors = cross_entropy(model, parts, task, trim, free, fixed, batch, extra)
    total = (errors * batch.weight).sum() / batch.weight.sum().clamp(min=1)
    for penalty in penalties:
        total = total + penalty(free, kept, batch)
    return total


def cross_entropy(
    model: Monolithic | Modular,
    parts: Mapping[str, Part],
    task: int | None,
    trim: bool,
    free: dict[str, Tensor],
    fixed: dict[str, Tensor],
    batch: Batch,
    extra: dict[str, Any],
) -> Tensor:
    """One agent's cross-entropy [B] of each image; only `free`, the `parts` of its parameters, has gradients.

    `trim` leaves out empty slots, which only an engine can that takes lanes one by one.
    """
    joined: dict[str, Tensor | list[Tensor]] = dict(fixed)
    for name, tensor in free.items():
        units = parts[name][0]
        around = (fixed[name][: units.start], tensor, fixed[name][units.stop :])
        pieces = [piece for piece in around if len(piece)]
        # Modules stay in pieces, so that no gradient is computed for those that are frozen.
        joined[name] = pieces if name.startswith("module.") else torch.cat(pieces)
    params: Params = joined
    if trim and isinstance(model, Modular):
        params, slots, masks = model.trim(params, extra["slots"], extra.get("masks"), task)
        extra = {"slots": slots, "masks": masks}
    logits = model.logits(params, batch.x, batch.task if task is None else task, **extra)
    return F.cross_entropy(logits, batch.y, reduction="none")


def step(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    extra: dict[str, Any],
    modules: int = 0,
    active: Mapping[str, Tensor] | None = None,
) -> None:
    """One Adam step of every lane on the `parts` of its parameters; the rest is frozen.

    `active` [L, units of the part] narrows that to some units of some lanes. `task` says that the whole batch is of
    that task, the same in all lanes; None that every image is of its own. Of a modular net's slots only the first
    `modules` are computed: the candidate is the last, so hiding it costs nothing.
    """
    # Penalties are on modules that all agents have: where those are frozen there is nothing to hold back.
    basis = "module.weight" in parts and parts["module.weight"][0].start == 0
    penalties = [mode.penalty for mode in world.settings.sharing if basis and holds_back(mode, stack)]
    kept = stack.kept if penalties else {}
    function = partial(loss, world.model, parts, task, world.engine == "loop", penalties)
    found = gradients(world, stack, function, (batch, extra, kept), parts, modules, extra)
    # A lane without an image in this batch takes no step at all.
    busy = batch.weight.any(1)
    full = bool(busy.all())
    for (name, part), gradient in zip(parts.items(), found, strict=True):
        on = None if active is None else active.get(name)
        if not full:
            on = busy[:, None].expand(gradient.shape[:2]) if on is None else on & busy[:, None]
        adam(stack, name, part, gradient, world.settings.learner.rate, on)


def holds_back(mode: Sharing, stack: Stack) -> TypeGuard[Penalises]:
    """Does a mode add to the loss by now? Not before something has come that it remembers."""
    return isinstance(mode, Penalises) and f"{mode.mode}.on" in stack.kept


def gradients(
    world: World,
    stack: Stack,
    function: Callable[..., Tensor],
    arguments: tuple[Any, ...],
    parts: Mapping[str, Part],
    modules: int,
    extra: dict[str, Any],
) -> tuple[Tensor, ...]:
    """Every lane's gradients of a one-agent `function(free, fixed, *arguments)` with respect to the `parts`."""
    fixed = fixed_parts(stack, modules, extra)
    free = {name: view(stack.params[name], part).detach().requires_grad_() for name, part in parts.items()}
    losses = each(function, world.engine)(free, fixed, *arguments)
    return torch.autograd.grad(losses.sum(), list(free.values()))


def fixed_parts(stack: Stack, modules: int, extra: dict[str, Any]) -> dict[str, Tensor]:
    """All parameters that a step may read; of a modular net's the slots that take part."""
    cuts = used_slots(extra["slots"], modules) if modules else {}
    return {name: view(tensor, cuts.get(name, ())) for name, tensor in stack.params.items()}


def view(tensor: Tensor, part: Part) -> Tensor:
    return tensor[(slice(None), *part)]


def used_slots(slots: Slots, modules: int) -> dict[str, Part]:
    """Where the slots that take part lie, of which the first `modules` are computed."""
    computed, counted = slice(0, modules), slice(0, slots.counted.shape[1])
    return {"module.weight": (computed,), "module.bias": (computed,), "structure": (slice(None), counted)}


@torch.no_grad()
def adam(stack: Stack, name: str, part: Part, gradient: Tensor, rate: float, active: Tensor | None = None) -> None:
    """Adam (Kingma & Ba 2015) on a part of a stacked tensor.

    Units where `active` [L, units] is false keep value, moments and step count: a zero gradient would still move them.
    """
    value, first, second = (view(group[name], part) for group in (stack.params, stack.first, stack.second))
    steps = view(stack.steps[name], part[:1])
    if active is not None and not active.all():
        lane, unit = active.nonzero(as_tuple=True)
        chosen = value[lane, unit], first[lane, unit], second[lane, unit], steps[lane, unit]
        update(*chosen, gradient[lane, unit], rate)
        for whole, piece in zip((value, first, second, steps), chosen, strict=True):
            whole[lane, unit] = piece
        return
    update(value, first, second, steps, gradient, rate)


def update(value: Tensor, first: Tensor, second: Tensor, steps: Tensor, gradient: Tensor, rate: float) -> None:
    """One Adam step in place; `steps` has the leading axes of the rest."""
    beta1, beta2 = BETAS
    steps += 1
    shape = (*steps.shape, *[1] * (value.ndim - steps.ndim))
    count = steps.double()
    size = (rate / (1 - beta1**count)).float().reshape(shape)
    root = (1 - beta2**count).sqrt().float().reshape(shape)
    first.lerp_(gradient, 1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    value.sub_((first / second.sqrt().div_(root).add_(EPSILON)).mul_(size))


def slots(world: World, stack: Stack, width: int, hidden: Tensor | None = None) -> dict[str, Slots]:
    """The `slots` argument of a modular net over its first `width` slots; `hidden` [L, C] are left out."""
    if not isinstance(world.model, Modular):
        return {}
    alive = stack.alive[:, :width]
    visible = alive if hidden is None else alive & ~hidden[:, :width]
    counted = visible if growth(world.settings).hidden == "renormalise" else alive
    youngest = max(world.model.slot(stack.task), world.model.basis - 1)
    place = torch.arange(width, device=alive.device).clamp(max=youngest).expand_as(alive)
    return {"slots": Slots(place, counted, visible, stack.choice)}


def candidates(world: World, stack: Stack, task: int) -> Tensor:
    """Where the modules on trial are: bool [L, C]."""
    assert isinstance(world.model, Modular)
    slot = world.model.slot(task)
    here = torch.zeros_like(stack.alive)
    here[:, slot : slot + 1 + world.model.spare] = stack.alive[:, slot : slot + 1 + world.model.spare]
    return here


def one_of(tried: Tensor, turn: int) -> Tensor:
    """Of each lane's candidates `tried` [L, C] the one whose turn it is: bool [L, C], they take turns."""
    number = tried.cumsum(1) - 1
    return tried & (number == turn % tried.sum(1, keepdim=True).clamp(min=1))


def masks(
    world: World, stack: Stack, rngs: Sequence[np.random.Generator], shapes: Sequence[tuple[int, ...]]
) -> dict[str, list[Tensor]]:
    """The `masks` argument of a net in training; lanes that have gone silent drop nothing."""
    rate = world.settings.net.dropout
    if rate == 0 or 0 in shapes[0]:
        return {}
    if stack.silent.all():
        # Ones rather than no mask: a silent lane computes the same whether others are silent or not.
        one = torch.ones((), device=world.device)
        return {"masks": [one.expand(len(stack.lanes), *shape) for shape in shapes]}
    drawn = dropout.draw(rngs, shapes, rate, world.device)
    if stack.silent.any():
        drawn = [mask.masked_fill(stack.silent.view(-1, *[1] * (mask.ndim - 1)), 1) for mask in drawn]
    return {"masks": drawn}


def generators(stack: Stack, *purpose: int | str) -> list[np.random.Generator]:
    """One generator per lane."""
    return [key(*lane, *purpose) for lane in stack.lanes]


def initial_epoch(world: World, stack: Stack, epoch: int) -> None:
    """One lock-step pass over the initial tasks: a batch of task 0, a step, a batch of task 1, a step, ... (protocol 3)

    All modules train (Adam also moves those a task does not use, by their moments), and the head of the batch's task.
    """
    model = world.model
    stack.moved[:] = True
    pools = [pool(world, stack, task, past=False, received=False) for task in range(world.settings.tasks.initial)]
    size = batch_size(world, pools[0])
    rngs = generators(stack, "dropout", "initial", epoch)
    passes = [
        batches(held, generators(stack, "batches", "initial", task, epoch), size) for task, held in enumerate(pools)
    ]
    if isinstance(model, Modular):
        modules, shapes = slice(0, model.basis), model.initial_mask_shapes(size)
    else:
        modules, shapes = slice(0, model.depth), model.mask_shapes(size)
    for together in zip(*passes, strict=True):
        for task, batch in enumerate(together):
            head = slice(task, task + 1)
            parts: dict[str, Part] = {
                "module.weight": (modules,),
                "module.bias": (modules,),
                "head.weight": (head,),
                "head.bias": (head,),
            }
            extra = slots(world, stack, modules.stop) | masks(world, stack, rngs, shapes)
            step(world, stack, batch, parts, task, extra, modules.stop if isinstance(model, Modular) else 0)


def replay_epoch(world: World, stack: Stack, task: int, epoch: int) -> None:
    """Experience replay: one pass over the new task and all memories; everything trains (protocol 3)."""
    assert isinstance(world.model, Monolithic)
    stack.moved[:] = True
    held = pool(world, stack, task, past=True)
    size = batch_size(world, held)
    rngs, shapes = generators(stack, "dropout", task, epoch), world.model.mask_shapes(size)
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    for batch in batches(held, generators(stack, "batches", "replay", task, epoch), size):
        # A head without an image in the batch is not touched, not even by its moments.
        present = torch.zeros_like(stack.steps["head.bias"], dtype=batch.weight.dtype)
        present = present.scatter_add(1, batch.task, batch.weight) > 0
        active = {"head.weight": present, "head.bias": present}
        step(world, stack, batch, parts, None, masks(world, stack, rngs, shapes), active=active)


def assimilation_epoch(world: World, stack: Stack, task: int, epoch: int) -> None:
    """Component dropout: each batch once with a candidate module and once without (protocol 3).

    Trained are the task's structure and head, and, in the step that sees it, the candidate. Several take turns.
    """
    model = world.model
    assert isinstance(model, Modular)
    held = pool(world, stack, task, past=False)
    size = batch_size(world, held)
    slot = model.slot(task)
    width = slot + 1 + model.spare
    own = slice(task, task + 1)
    without: dict[str, Part] = {
        "structure": (own, slice(0, width)),
        "head.weight": (own,),
        "head.bias": (own,),
    }
    last = slice(slot, width)
    with_: dict[str, Part] = {"module.weight": (last,), "module.bias": (last,), **without}
    rngs, further = generators(stack, "dropout", task, epoch), generators(stack, "dropout", "spare", task, epoch)
    tried = candidates(world, stack, task)
    hidden = slots(world, stack, width, tried)
    for turn, batch in enumerate(batches(held, generators(stack, "batches", "assimilate", task, epoch), size)):
        if turn == 0 or model.spare:
            chosen = one_of(tried, turn)
            shown, free = slots(world, stack, width, tried & ~chosen), (chosen & ~stack.frozen)[:, last]
        dropped = trial_masks(world, stack, rngs, further, size, slot)
        step(world, stack, batch, with_, task, shown | dropped, width, {"module.weight": free, "module.bias": free})
        dropped = masks(world, stack, rngs, model.mask_shapes(size, slot))
        step(world, stack, batch, without, task, hidden | dropped, slot)


def adaptation_epoch(world: World, stack: Stack, task: int, epoch: int) -> None:
    """One pass over the new task and all memories that trains the modules alone, with and without the candidate.

    Differs: several candidates take turns, as everywhere; the paper's code repeats the pass for each.
    """
    model = world.model
    assert isinstance(model, Modular)
    stack.moved[:] = True
    held = pool(world, stack, task, past=True)
    size = batch_size(world, held)
    slot = model.slot(task)
    width = slot + 1 + model.spare
    rngs, further = generators(stack, "dropout", task, epoch), generators(stack, "dropout", "spare", task, epoch)
    tried = candidates(world, stack, task)
    for turn, batch in enumerate(batches(held, generators(stack, "batches", "adapt", task, epoch), size)):
        for modules, hidden in ((width, tried & ~one_of(tried, turn)), (slot, tried)):
            if modules == width:
                dropped = trial_masks(world, stack, rngs, further, size, slot)
            else:
                dropped = masks(world, stack, rngs, model.mask_shapes(size, slot))
            computed = slice(0, modules)
            parts: dict[str, Part] = {"module.weight": (computed,), "module.bias": (computed,)}
            free = (stack.alive & ~hidden & ~stack.frozen)[:, computed]
            extra = slots(world, stack, width, hidden) | dropped
            step(world, stack, batch, parts, None, extra, modules, {"module.weight": free, "module.bias": free})


def trial_masks(
    world: World,
    stack: Stack,
    rngs: Sequence[np.random.Generator],
    further: Sequence[np.random.Generator],
    size: int,
    slot: int,
) -> dict[str, list[Tensor]]:
    """The `masks` argument over all slots up to the task's own and the spare ones behind it, which draw from generators
    of their own: that there is room for them must not change what the others drop."""
    model = world.model
    assert isinstance(model, Modular)
    own = masks(world, stack, rngs, model.mask_shapes(size, slot + 1))
    if not own or not model.spare:
        return own
    more = masks(world, stack, further, model.block.shapes(model.spare, size, model.depth))
    axis = model.block.axis + 1
    return {"masks": [torch.cat(pair, axis) for pair in zip(own["masks"], more["masks"], strict=True)]}
