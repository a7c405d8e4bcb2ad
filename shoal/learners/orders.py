"""What the kernel is told: steps of a stack, described by where their tensors lie."""

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shoal.agents.engine import hands
from shoal.agents.stack import BETAS, EPSILON, MEAN, PARAMS, STEPS, VAR, Stack
from shoal.compiled.layout import BIAS, PARTS, TENSORS, WEIGHT, Int, Net, Pointer, Step
from shoal.compiled.library import kernel, pictured
from shoal.learners import batches
from shoal.learners.batches import Batch, Pick
from shoal.models import heads
from shoal.models.chains import Layer, masks_of
from shoal.models.contract import Model, Part
from shoal.models.dropout import Undrawn
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.params import STRUCTURE
from shoal.models.wrapped import Wrapped

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.learners import step as learned

PAIRS = ((WEIGHT, BIAS), heads.NAMES)
FORTH, MOVE, SQUARES = 1, 2, 4  # find gradients; take the step; sum squares of each image's gradients
NO_DROPOUT, BITS, UNIFORM, GIVEN = range(4)

Held = list[object]  # what must stay as long as something points to it
OUTSIDE = 2  # what the kernel gives where an index lies outside


class Described:
    """A step, and the tensors that it points to; `first` is where its batch begins in its deal."""

    def __init__(self, step: Step, batch: int, held: Held, first: int = 0) -> None:
        self.step, self.batch, self.held, self.first = step, batch, held, first


def following(before: Described, pick: Pick, masks: Undrawn | Sequence[Tensor] | None) -> Described | None:
    """A step that differs in its batch, of the same deal, and in its masks alone; None, if these are drawn already."""
    step = Step.from_buffer_copy(before.step)
    ahead = pick.first - before.first
    step.index += ahead * pick.deal.index.itemsize
    step.weight += ahead * pick.deal.weight.itemsize
    if isinstance(masks, Undrawn):
        step.word, step.further_word = masks.word, masks.further.word if masks.further else 0
    elif masks is not None:
        return None
    return Described(step, before.batch, [before.held, masks], pick.first)


def described(world: "World", stack: Stack, wanted: "learned.Step") -> Described | None:
    """A step for the kernel; None, where it does not know such a step. Nothing but what all lanes have in common may
    decide that."""
    model, params = world.model, stack.params
    batch, parts, task, usage = wanted.batch, wanted.parts, wanted.task, wanted.usage
    if not usage.keys() <= {"slots", "masks", heads.OPEN} or not trained(parts, model):
        return None
    step, held = Step(), Held()
    if not images(step, batch, held, world.inputs.dtype):
        return None
    step.whole = -1 if task is None else task
    plain = 0
    if isinstance(model, Modular):
        slots, choice = usage["slots"], usage["slots"].choice
        step.choice, step.choice_lane = pointer(choice, held), choice.stride(0)
        step.mixes = task is None or task >= model.initial
        step.modules = length(wanted.cuts.get(WEIGHT, (slice(None),))[0], params[WEIGHT].shape[1])
        if step.mixes:
            plain = 0 if model.dropout_basis else min(model.basis, step.modules)
            step.counted = slots.counted.shape[1]
            step.place, step.place_lane = lanes(slots.place, held)
            step.takes, step.takes_lane = lanes(slots.counted, held)
            step.shows, step.shows_lane = lanes(slots.visible, held)
    if heads.OPEN in usage:
        known = usage[heads.OPEN]
        step.known, step.known_lane, step.known_task = pointer(known, held), known.stride(0), known.stride(1)
    assert isinstance(model, Monolithic | Modular | Wrapped)
    every, masks = (step.modules if step.mixes else 1) - plain, usage.get("masks")
    if isinstance(model, Wrapped):
        dropped_in_chain(step, masks, model.layers, held)
    elif not dropped(step, masks, plain, every, model.block.axis, held):
        return None
    narrowed(step, parts, params, wanted.active, held, tensors(model))
    step.present = wanted.present
    if isinstance(batch, Pick):
        return Described(step, batch.deal.size, held, batch.first)
    return Described(step, batch.weight.shape[1], held)


def tensors(model: Model) -> tuple[str, ...]:
    """The names of a net's tensors in the order of the kernel; some of them a net does not have."""
    return (*TENSORS, *(name for layer in getattr(model, "layers", ()) for name in layer.tensors))


def trained(parts: Mapping[str, Part], model: Model) -> bool:
    """Does the kernel know how to train these parts: whole units, weights and biases together?"""
    pairs = (*PAIRS, *(layer.tensors for layer in getattr(model, "layers", ())))
    if not parts.keys() <= set(tensors(model)) or any(parts.get(one) != parts.get(other) for one, other in pairs):
        return False
    wide = parts.get(STRUCTURE, ())[1:]
    plain = all(len(part) == 1 for name, part in parts.items() if name != STRUCTURE)
    return plain and len(wide) <= 1 and all(one.start in (None, 0) and one.step is None for one in wide)


def images(step: Step, batch: Batch | Pick, held: Held, reads: torch.dtype) -> bool:
    """Tell where the images of a batch lie, or those that it is picked from, which must be what the net `reads`."""
    if isinstance(batch, Pick):
        index, weight, parts = batch.deal.index, batch.deal.weight, batch.deal.pool.parts
        parts = parts if len(parts) <= PARTS else (batch.deal.pool.joined,)
        step.index, step.index_lane = pointer(index, held) + batch.first * index.itemsize, index.stride(0)
        step.weight, step.weight_lane = pointer(weight, held) + batch.first * weight.itemsize, weight.stride(0)
    else:
        parts = (batches.Images(batch.x, batch.y, batch.task),)
        step.weight, step.weight_lane = rows(batch.weight, held)
    last = 0
    for to, part in zip(step.images, parts, strict=False):
        last += part.y.shape[1]
        to.last = last
        to.x, to.x_lane = rows(part.x, held)
        to.y, to.y_lane = rows(part.y, held)
        to.task, to.task_lane = rows(part.task, held)
        if part.rows is not None:
            to.x_lane, (to.rows, to.rows_lane) = 0, rows(part.rows, held)
    step.numbers = parts[0].y.is_floating_point()
    return all(part.x.dtype == reads for part in parts)


def dropped(
    step: Step, masks: Undrawn | Sequence[Tensor] | None, plain: int, every: int, axis: int, held: Held
) -> bool:
    """Tell where masks come from, of which there must be `every` at each depth, along an axis of one agent's."""
    step.plain, step.own = plain, every
    if masks is None or not every:
        return True
    if isinstance(masks, Undrawn):
        undrawn(step, masks, held)
        step.own = masks.shapes[0][axis]
        more = masks.further
        if more is not None:
            step.further, step.further_word = more.source.address, more.word
        return int(step.own) + (more.shapes[0][axis] if more else 0) == every
    given(step, masks, held)
    return all(mask.shape[axis + 1] == every for mask in masks)


def dropped_in_chain(step: Step, masks: Undrawn | Sequence[Tensor] | None, layers: Sequence[Layer], held: Held) -> None:
    """Tell where the masks of a chain come from: undrawn ones are of what its heads read."""
    step.own = 1
    if isinstance(masks, Undrawn):
        undrawn(step, masks, held)
    elif masks is not None:
        given(step, masks_of(layers, masks), held)


def undrawn(step: Step, masks: Undrawn, held: Held) -> None:
    """Tell which generators draw masks."""
    step.drops, step.dropout = BITS if masks.dropout == 0.5 else UNIFORM, masks.dropout
    step.key, step.word = masks.source.address, masks.word
    step.off = pointer(masks.off.contiguous(), held)
    held.append(masks)


def given(step: Step, masks: Sequence[Tensor | None], held: Held) -> None:
    """Tell where the masks of each depth lie; None: nothing is dropped there."""
    step.drops = GIVEN
    packed = [one if one is None or one[0].is_contiguous() else one.contiguous() for one in masks]
    step.masks = address((Pointer * len(packed))(*(0 if one is None else one.data_ptr() for one in packed)), held)
    step.masks_lane = address((Int * len(packed))(*(0 if one is None else one.stride(0) for one in packed)), held)
    held.append(packed)


def narrowed(
    step: Step,
    parts: Mapping[str, Part],
    params: Mapping[str, Tensor],
    active: Mapping[str, Tensor] | None,
    held: Held,
    names: Sequence[str],
) -> None:
    """Tell what trains of the tensors of these names."""
    for at, name in enumerate(names):
        if name not in parts:
            continue
        step.first[at], step.last[at] = parts[name][0].indices(params[name].shape[1])[:2]
        if name == STRUCTURE:
            wide = parts[name][1] if len(parts[name]) > 1 else slice(None)
            step.across = length(wide, params[name].shape[2])
        if active is not None and name in active:
            step.active[at], step.active_lane[at] = lanes(active[name], held)


def length(part: slice, whole: int) -> int:
    """How many of the first units a slice takes."""
    return part.indices(whole)[1]


def pointer(tensor: Tensor, held: Held) -> int:
    held.append(tensor)
    return tensor.data_ptr()


def address(array: Any, held: Held) -> int:
    held.append(array)
    return ctypes.addressof(array)


def rows(tensor: Tensor, held: Held) -> tuple[int, int]:
    """Where a stacked tensor lies whose rows lie one after the other in each lane, and the stride between lanes."""
    if not tensor.is_contiguous() and not tensor[0].is_contiguous():
        tensor = tensor.contiguous()
    return pointer(tensor, held), tensor.stride(0)


def lanes(tensor: Tensor, held: Held) -> tuple[int, int]:
    """Where a stacked tensor [L, n] lies, and the stride between lanes."""
    if tensor.stride(1) != 1:
        tensor = tensor.contiguous()
    return pointer(tensor, held), tensor.stride(0)


def depth_of(model: Monolithic | Modular | Wrapped) -> int:
    """How many layers come one behind the other."""
    return len(model.layers) if isinstance(model, Wrapped) else model.depth


def net(world: "World", stack: Stack, batch: int) -> Net:
    """The nets of a stack."""
    model, params = world.model, stack.params
    assert isinstance(model, Monolithic | Modular | Wrapped)
    made = Net(
        lanes=len(stack.lanes), apart=1, depth=depth_of(model), batch=batch, classes=model.classes, read=model.read,
        tasks=world.settings.tasks.count, initial=getattr(model, "initial", 0), basis=getattr(model, "basis", 0),
        rate=world.settings.learner.rate, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON,
        **pictured(model, world.inputs.dtype),
    )  # fmt: skip
    for at, name in enumerate(tensors(model)):
        if name not in params:
            continue
        made.units[at], made.size[at] = params[name].shape[1], math.prod(params[name].shape[2:])
        for field, owner in ((made.value, PARAMS), (made.mean, MEAN), (made.var, VAR), (made.steps, STEPS)):
            tensor = stack.of(owner)[name]
            if not tensor.is_contiguous():
                apart, *inner = tensor.stride()
                lane = tensor.shape[1:]
                if any(step != math.prod(lane[at + 1 :]) and lane[at] > 1 for at, step in enumerate(inner)):
                    raise ValueError(f"`{name}` of `{owner}` must lie in one piece in every lane")
                made.apart = max(1, apart // lane.numel())
            field[at] = tensor.data_ptr()
    return made


def run(world: "World", stack: Stack, steps: Sequence[Described], mode: int) -> None:
    """Take steps of all lanes that have one batch size; a thread takes one lane after the other."""
    library = kernel().library
    assert library is not None
    made, every = net(world, stack, steps[0].batch), (Step * len(steps))(*(one.step for one in steps))
    fault = library.shoal_steps(ctypes.byref(made), every, len(steps), mode, hands(world.settings.machine.threads))
    if fault == OUTSIDE:
        raise IndexError("a label, task, image or module of a batch has a number that there is not")
    if fault:
        raise MemoryError("there is no memory for the activations of one agent")


def gradients(
    world: "World", stack: Stack, described: Described, parts: Mapping[str, Part], mode: int = FORTH
) -> dict[str, Tensor]:
    """Every lane's gradients of its loss with respect to the `parts`; zeros, where a lane has no image."""
    found = {name: torch.empty(stack.params[name][(slice(None), *part)].shape) for name, part in parts.items()}
    point(described, found, tensors(world.model))
    run(world, stack, [described], mode)
    return found


def squares(world: "World", stack: Stack, described: Described, parts: Mapping[str, Part]) -> dict[str, Tensor]:
    """Every lane's sums over images, each as often as it counts, of squared gradients of its own loss."""
    return gradients(world, stack, described, parts, FORTH | SQUARES)


def adam(
    world: "World",
    stack: Stack,
    parts: Mapping[str, Part],
    gradients: Mapping[str, Tensor],
    active: Mapping[str, Tensor] | None,
) -> None:
    """An Adam step on the `parts`; units where `active` is false keep value, moments and step count."""
    step, held = Step(), Held()
    narrowed(step, parts, stack.params, active, held, tensors(world.model))
    made = Described(step, 1, held)
    point(made, {name: one.contiguous() for name, one in gradients.items()}, tensors(world.model))
    run(world, stack, [made], MOVE)


def point(described: Described, gradients: Mapping[str, Tensor], names: Sequence[str]) -> None:
    """Tell where gradients are of the tensors of these names."""
    for at, name in enumerate(names):
        if name in gradients:
            described.step.gradient[at] = pointer(gradients[name], described.held)
