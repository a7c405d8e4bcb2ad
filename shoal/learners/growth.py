"""The epochs of modular growth: initial tasks, assimilation with component dropout, adaptation on replay
(docs/protocol.md, section 3)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.learners.batches import batch_size, passes, pool, source
from shoal.learners.candidates import FROZEN, growing, modular, one_of, trying
from shoal.learners.in_kernel import backend
from shoal.learners.step import Part, Step
from shoal.learners.usual import dropped, initial_epoch
from shoal.models.contract import Usage
from shoal.models.dropout import Source, Undrawn
from shoal.models.heads import NAMES as HEADS
from shoal.models.modular import STRUCTURE, Modular


def slots(world: World, stack: Stack, width: int, hidden: Tensor | None = None) -> Usage:
    """How the first `width` slots are used; `hidden` [L, C] are left out."""
    renormalise = growing(world).hidden == "renormalise"
    used = modular(world).used(stack.of(MODEL), stack.task, width, hidden, renormalise)
    return {"slots": used, **world.opened(stack.task)}


def cuts(model: Modular, modules: int, counted: int) -> dict[str, Part]:
    """What a step reads: the first `modules` modules are computed, `counted` slots take part."""
    return {**dict.fromkeys(model.block.names, (slice(0, modules),)), STRUCTURE: (slice(None), slice(0, counted))}


def initial(world: World, stack: Stack, epoch: int) -> None:
    """One pass over the initial tasks, each of which uses one module at each depth."""
    model = modular(world)
    used = slots(world, stack, model.basis)
    initial_epoch(world, stack, epoch, model.initial_masks, dict(used), cuts(model, model.basis, model.basis))


def assimilate(world: World, stack: Stack, epoch: int) -> None:
    """Component dropout: each batch once with a candidate module and once without.

    Trained are the task's structure and head, and, in the step that sees it, the candidate. Several take turns.
    """
    model, task = modular(world), stack.task
    held = pool(world, stack, task, past=False)
    size = batch_size(world, held)
    slot = model.slot(task)
    width = slot + 1 + model.spare
    own = slice(task, task + 1)
    without: dict[str, Part] = {STRUCTURE: (own, slice(0, width)), **dict.fromkeys(HEADS, (own,))}
    last = slice(slot, width)
    with_: dict[str, Part] = {**dict.fromkeys(model.block.names, (last,)), **without}
    bits, further = source(stack, "dropout", task, epoch), source(stack, "dropout", "spare", task, epoch)
    tried, frozen = trying(world, stack), stack.of("modular")[FROZEN]
    hidden, wide, narrow = slots(world, stack, width, tried), cuts(model, width, width), cuts(model, slot, width)

    dealt = passes(world, held, stack, epoch, size, "assimilate")

    def steps() -> Iterator[Step]:
        for turn, pick in enumerate(dealt):
            if turn == 0 or model.spare:
                chosen = one_of(tried, turn)
                shown = slots(world, stack, width, tried & ~chosen)
                active = dict.fromkeys(model.block.names, (chosen & ~frozen)[:, last])
            masked = shown | trial_masks(world, stack, bits, further, size, slot)
            yield Step(pick, with_, task, masked, wide, active)
            masked = hidden | dropped(world, stack, bits, model.soft_masks(size, slot))
            yield Step(pick, without, task, masked, narrow)

    backend(world, stack).take(steps())


def adapt(world: World, stack: Stack, epoch: int) -> None:
    """One pass over the new task and all memories that trains the modules alone, with and without the candidate.

    Differs: several candidates take turns, as everywhere; the paper's code repeats the pass for each.
    """
    model, task = modular(world), stack.task
    stack.moved[:] = True
    held = pool(world, stack, task, past=True)
    size = batch_size(world, held)
    slot = model.slot(task)
    width = slot + 1 + model.spare
    bits, further = source(stack, "dropout", task, epoch), source(stack, "dropout", "spare", task, epoch)
    tried, frozen = trying(world, stack), stack.of("modular")[FROZEN]
    alive, dealt = stack.of(MODEL)["alive"], passes(world, held, stack, epoch, size, "adapt")

    def steps() -> Iterator[Step]:
        for turn, pick in enumerate(dealt):
            for modules, hidden in ((width, tried & ~one_of(tried, turn)), (slot, tried)):
                if modules == width:
                    masked = trial_masks(world, stack, bits, further, size, slot)
                else:
                    masked = dropped(world, stack, bits, model.soft_masks(size, slot))
                computed = slice(0, modules)
                parts: dict[str, Part] = dict.fromkeys(model.block.names, (computed,))
                free = dict.fromkeys(model.block.names, (alive & ~hidden & ~frozen)[:, computed])
                usage = slots(world, stack, width, hidden) | masked
                yield Step(pick, parts, None, usage, cuts(model, modules, width), free)

    backend(world, stack).take(steps())


def trial_masks(world: World, stack: Stack, bits: Source, further: Source, size: int, slot: int) -> Usage:
    """The masks over all slots up to the task's own and the spare ones behind it, which draw from generators of their
    own: that there is room for them must not change what the others drop."""
    model: Modular = modular(world)
    own = dropped(world, stack, bits, model.soft_masks(size, slot + 1))
    if not own or not model.spare:
        return own
    more = dropped(world, stack, further, model.block.shapes(model.spare, size, model.depth))
    first, behind = own["masks"], more["masks"]
    if isinstance(first, Undrawn):
        return {"masks": first._replace(further=behind)}
    axis = model.block.axis + 1
    return {"masks": [torch.cat(pair, axis) for pair in zip(first, behind, strict=True)]}
