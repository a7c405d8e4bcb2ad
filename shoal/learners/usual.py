"""The usual epochs: one over the initial tasks together, and one over a task with or without what came before."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.learners.batches import Pool, balanced, batch_size, deal, orders, passes, pool, source
from shoal.learners.in_kernel import backend
from shoal.learners.step import Part, Step
from shoal.models import dropout
from shoal.models.contract import Usage


def usage_of(world: World, stack: Stack) -> Usage:
    """How all lanes use their nets now."""
    return world.usage(stack.of(MODEL), stack.task)


def masks(
    world: World, stack: Stack, rngs: Sequence[np.random.Generator], shapes: Sequence[tuple[int, ...]]
) -> dict[str, list[Tensor]]:
    """The `masks` of nets in training; lanes whose dropout is switched off drop nothing."""
    rate = world.settings.net.dropout
    own = world.model.rates
    if undropped(world, shapes):
        return {}
    off = stack.of(dropout.OWNER)["off"]
    if off.all():
        # Ones rather than no mask: such a lane computes the same whether others have dropout or not.
        one = torch.ones((), device=world.device)
        return {"masks": [one.expand(len(stack.lanes), *shape) for shape in shapes]}
    first = len(shapes) - len(own)
    drawn = [
        *dropout.draw(rngs, shapes[:first], rate, world.device),
        *(dropout.draw(rngs, [shape], one, world.device)[0] for shape, one in zip(shapes[first:], own, strict=True)),
    ]
    return {"masks": dropout.silenced(drawn, off)}


def undropped(world: World, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Does no net drop anything?"""
    return not shapes or 0 in shapes[0] or (world.settings.net.dropout == 0 and not world.model.rates)


def dropped(world: World, stack: Stack, source: dropout.Source, shapes: Sequence[tuple[int, ...]]) -> Usage:
    """The next `masks` of an epoch; where the kernel draws them itself, it is told from where."""
    if undropped(world, shapes):
        return {}
    rate = world.settings.net.dropout
    if world.model.rates or not world.compiled:
        return {**masks(world, stack, source.live, shapes)}
    first, off = source.word, stack.of(dropout.OWNER)["off"]
    source.word += dropout.words(shapes, rate)
    return {"masks": dropout.Undrawn(source, first, shapes, rate, off, axis=world.model.axis)}


def initial_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    shapes: Callable[[int], list[tuple[int, ...]]],
    usage: Usage,
    cuts: Mapping[str, Part] | None = None,
) -> None:
    """One lock-step pass over the initial tasks: a batch of task 0, a step, a batch of task 1, a step, ...
    (docs/protocol.md, section 3)

    All that agents have in common trains (Adam also moves what a task does not use, by its moments), and the head of
    the batch's task.
    """
    stack.moved[:] = True
    tasks = range(world.settings.tasks.initial)
    pools = [pool(world, stack, task, past=False, received=False) for task in tasks]
    size = batch_size(world, pools[0])
    most, exactly = max(-(-max(held.sizes) // size) for held in pools), world.settings.learner.steps(epoch)
    every = [
        deal(held, orders(world, stack, "initial", task, epoch), size, most, exactly) for task, held in enumerate(pools)
    ]
    bits, own, read = source(stack, "dropout", "initial", epoch), world.settings.tasks.heads == "task", cuts or {}
    body: dict[str, Part] = {name: (slice(0, units),) for name, units in world.model.body.items()}
    parts = [body | dict.fromkeys(world.model.heads, (slice(task * own, task * own + 1),)) for task in tasks]
    backend(world, stack).take(
        Step(pick, parts[task], task, usage | dropped(world, stack, bits, shapes(size)), read)
        for together in zip(*every, strict=True)
        for task, pick in enumerate(together)
    )


def own_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    word: str,
    parts: Callable[[int], Mapping[str, Part]],
    usage: Usage | None = None,
) -> None:
    """One pass over the task, or over each of the initial tasks after the other, where units of the net are a task's
    own: `parts` says what trains with a task. The learner's `word` is in the names of all that is drawn."""
    first, used = world.settings.tasks.initial, usage_of(world, stack) | (usage or {})
    for task in range(first) if stack.task < first else [stack.task]:
        held = pool(world, stack, task, past=False, received=task >= first)
        size, trained = batch_size(world, held), parts(task)
        bits, shapes = source(stack, "dropout", word, task, epoch), world.model.mask_shapes(size)
        backend(world, stack).take(
            Step(pick, trained, task, used | dropped(world, stack, bits, shapes))
            for pick in passes(world, held, stack, epoch, size, word, task)
        )


def usual_epoch(
    world: World, stack: Stack, epoch: int, past: bool, balance: bool = False, held: Pool | None = None
) -> None:
    """One pass over the task, or over the initial tasks together; everything trains. With `past`, the memories of all
    tasks before are part of it: experience replay (docs/protocol.md, section 3); with `balance`, as often as makes them
    as many as the task's own images. What is `held` is learned in place of the task's images, or the initial tasks'.
    What others have sent is part of it, whatever task it is for, unless the learner does not take it so."""
    model, task, later = world.model, stack.task, stack.task >= world.settings.tasks.initial
    if not later and held is None:
        initial_epoch(world, stack, epoch, model.mask_shapes, usage_of(world, stack))
        return
    stack.moved[:] = True
    held = pool(world, stack, task, past, later, held, world.settings.learner.earlier)
    size = batch_size(world, held)
    if balance:
        held = balanced(held, world.train.sizes[:, task].tolist())
    bits, shapes, usage = source(stack, "dropout", task, epoch), model.mask_shapes(size), usage_of(world, stack)
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    backend(world, stack).take(
        Step(pick, parts, None, usage | dropped(world, stack, bits, shapes), present=True)
        for pick in passes(world, held, stack, epoch, size, "replay")
    )
