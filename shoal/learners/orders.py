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
from shoal.learners.batches import Pick
from shoal.models import heads
from shoal.models.chains import masks_of
from shoal.models.contract import Model, Part
from shoal.models.dropout import Undrawn
from shoal.models.modular import Modular
from shoal.models.params import STRUCTURE

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
    model, params = known(world), stack.params
    batch, parts, task, usage = wanted.batch, wanted.parts, wanted.task, wanted.usage
    if not usage.keys() <= {"slots", "masks", heads.OPEN} or not trained(parts, model):
        return None
    step, held = Step(), Held()
    if isinstance(batch, Pick):
        index, weight, images = batch.deal.index, batch.deal.weight, batch.deal.pool.parts
        images = images if len(images) <= PARTS else (batch.deal.pool.joined,)
        step.index, step.index_lane = index.data_ptr() + batch.first * index.itemsize, index.stride(0)
        step.weight, step.weight_lane = weight.data_ptr() + batch.first * weight.itemsize, weight.stride(0)
        held += index, weight
    else:
        images = (batches.Images(batch.x, batch.y, batch.task),)
        step.weight, step.weight_lane = rows(batch.weight, held)
    if any(part.x.dtype != world.inputs.dtype for part in images):  # the net does not read such
        return None
    last = 0
    for to, part in zip(step.images, images, strict=False):
        to.last = last = last + part.y.shape[1]
        to.x, to.x_lane = rows(part.x, held)
        to.y, to.y_lane = rows(part.y, held)
        to.task, to.task_lane = rows(part.task, held)
        if part.rows is not None:
            to.x_lane, (to.rows, to.rows_lane) = 0, rows(part.rows, held)
    step.numbers = images[0].y.is_floating_point()
    step.whole = -1 if task is None else task
    plain = 0
    if "slots" in usage:
        slots, choice = usage["slots"], usage["slots"].choice
        step.choice, step.choice_lane = pointer(choice, held), choice.stride(0)
        step.mixes = task is None or task >= model.initial
        step.modules = length(wanted.cuts.get(WEIGHT, (slice(None),))[0], params[WEIGHT].shape[1])
        if step.mixes:
            plain = 0 if model.dropout_basis else min(model.basis, step.modules)
            step.counted = slots.counted.shape[1]
            step.place, step.place_lane = rows(slots.place, held)
            step.takes, step.takes_lane = rows(slots.counted, held)
            step.shows, step.shows_lane = rows(slots.visible, held)
    if heads.OPEN in usage:
        open_ = usage[heads.OPEN]
        step.known, step.known_lane, step.known_task = pointer(open_, held), open_.stride(0), open_.stride(1)
    every, masks = (step.modules if step.mixes else 1) - plain, usage.get("masks")
    step.plain, step.own = plain, every
    if masks is not None and every:
        if model.layers:
            masks = masks if isinstance(masks, Undrawn) else masks_of(model.layers, masks)
        elif isinstance(masks, Undrawn):  # there must be a mask for each module, and further ones for spare modules
            step.own = masks.shapes[0][model.axis]
            if step.own + (masks.further.shapes[0][model.axis] if masks.further else 0) != every:
                return None
        elif any(one.shape[model.axis + 1] != every for one in masks):
            return None
        dropped(step, masks, held)
    narrowed(step, parts, params, wanted.active, held, tensors(model))
    step.present = wanted.present
    if isinstance(batch, Pick):
        return Described(step, batch.deal.size, held, batch.first)
    return Described(step, batch.weight.shape[1], held)


def tensors(model: Model) -> tuple[str, ...]:
    """The names of a net's tensors in the order of the kernel; some of them a net does not have."""
    return (*TENSORS, *(name for layer in model.layers for name in layer.tensors))


def trained(parts: Mapping[str, Part], model: Model) -> bool:
    """Does the kernel know how to train these parts: whole units, weights and biases together?"""
    pairs = (*PAIRS, *(layer.tensors for layer in model.layers))
    if not parts.keys() <= set(tensors(model)) or any(parts.get(one) != parts.get(other) for one, other in pairs):
        return False
    wide = parts.get(STRUCTURE, ())[1:]
    plain = all(len(part) == 1 for name, part in parts.items() if name != STRUCTURE)
    return plain and len(wide) <= 1 and all(one.start in (None, 0) and one.step is None for one in wide)


def dropped(step: Step, masks: Undrawn | Sequence[Tensor | None], held: Held) -> None:
    """Tell which generators draw masks, or where those of each depth lie; None: nothing is dropped there."""
    held.append(masks)
    if isinstance(masks, Undrawn):
        step.drops, step.dropout = BITS if masks.dropout == 0.5 else UNIFORM, masks.dropout
        step.key, step.word, step.off = masks.source.address, masks.word, pointer(masks.off.contiguous(), held)
        if masks.further is not None:
            step.further, step.further_word = masks.further.source.address, masks.further.word
        return
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
            step.active[at], step.active_lane[at] = rows(active[name], held)


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
    held.append(tensor)
    return tensor.data_ptr(), tensor.stride(0)


def known(world: "World") -> Any:
    """The net of a world that the kernel knows (`shoal.compiled.library.unsuited`): it has layers or a depth."""
    return world.model


def run(world: "World", stack: Stack, steps: Sequence[Described], mode: int) -> None:
    """Take steps of all lanes that have one batch size; a thread takes one lane after the other."""
    library, model, params, learner = kernel().library, known(world), stack.params, world.settings.learner
    assert library is not None
    nets = Net(
        lanes=len(stack.lanes), apart=1, depth=len(model.layers) or model.depth, batch=steps[0].batch,
        classes=model.classes, read=model.read, tasks=world.settings.tasks.count,
        rate=learner.rate, beta1=BETAS[0], beta2=BETAS[1], epsilon=EPSILON, **pictured(model, world.inputs.dtype),
    )  # fmt: skip
    if isinstance(model, Modular):
        nets.initial, nets.basis = model.initial, model.basis
    for at, name in enumerate(tensors(model)):
        if name not in params:
            continue
        nets.units[at], nets.size[at] = params[name].shape[1], math.prod(params[name].shape[2:])
        for field, owner in ((nets.value, PARAMS), (nets.mean, MEAN), (nets.var, VAR), (nets.steps, STEPS)):
            tensor = stack.of(owner)[name]
            if not tensor.is_contiguous():
                apart, *inner = tensor.stride()
                lane = tensor.shape[1:]
                if any(step != math.prod(lane[at + 1 :]) and lane[at] > 1 for at, step in enumerate(inner)):
                    raise ValueError(f"`{name}` of `{owner}` must lie in one piece in every lane")
                nets.apart = max(1, apart // lane.numel())
            field[at] = tensor.data_ptr()
    every, threads = (Step * len(steps))(*(one.step for one in steps)), hands(world.settings.machine.threads)
    fault = library.shoal_steps(ctypes.byref(nets), every, len(steps), mode, threads)
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
