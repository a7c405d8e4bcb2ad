"""The usual epochs: one over the initial tasks together, and one over a task with or without what came before."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.learners.batches import (
    Batch,
    Pool,
    balanced,
    batch_size,
    batches,
    deal,
    generators,
    orders,
    passes,
    pool,
    source,
)
from shoal.learners.in_kernel import backend
from shoal.learners.step import Change, Part, Step
from shoal.models import dropout
from shoal.models.base import Stacked
from shoal.models.contract import Usage
from shoal.models.wrapped import Wrapped


def nothing() -> None:
    pass


class Turn(NamedTuple):
    """What a learner does in one step beside learning the batch."""

    changes: tuple[Change, ...] = ()  # what it makes of the gradients
    after: Callable[[], None] = nothing  # the step
    usage: Usage | None = None  # how the net is used in it, where that is not as usual
    also: Batch | None = None  # further images whose heads are trained


# A learner's turn: it is told the batch, its number in the epoch, and what trains.
Act = Callable[[Batch, int, Mapping[str, Part]], Turn]


def as_usual(batch: Batch, number: int, parts: Mapping[str, Part]) -> Turn:
    return Turn()


def usage_of(world: World, stack: Stack) -> Usage:
    """How all lanes use their nets now."""
    return world.usage(stack.of(MODEL), stack.task)


def masks(
    world: World, stack: Stack, rngs: Sequence[np.random.Generator], shapes: Sequence[tuple[int, ...]]
) -> dict[str, list[Tensor]]:
    """The `masks` of nets in training; lanes whose dropout is switched off drop nothing."""
    rate = world.settings.net.dropout
    own: Sequence[float] = getattr(world.model, "rates", ())  # of the layers of a net of one's own
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
    return not shapes or 0 in shapes[0] or (world.settings.net.dropout == 0 and not getattr(world.model, "rates", ()))


def dropped(world: World, stack: Stack, source: dropout.Source, shapes: Sequence[tuple[int, ...]]) -> Usage:
    """The next `masks` of an epoch; where the kernel draws them itself, it is told from where."""
    if undropped(world, shapes):
        return {}
    rate = world.settings.net.dropout
    chained = isinstance(world.model, Wrapped)  # a net of one's own, whose dropout layers have rates of their own
    if not world.compiled or rate == 0 or (chained and len(shapes) > 1):
        return {**masks(world, stack, source.live, shapes)}
    axis = world.model.block.axis if isinstance(world.model, Stacked) else 0
    first, off = source.word, stack.of(dropout.OWNER)["off"]
    source.word += dropout.words(shapes, rate)
    return {"masks": dropout.Undrawn(source, first, shapes, rate, off, axis=axis)}


def initial_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    shapes: Callable[[int], list[tuple[int, ...]]],
    usage: Usage,
    cuts: dict[str, Part] | None = None,
    act: Act = as_usual,
) -> None:
    """One lock-step pass over the initial tasks: a batch of task 0, a step, a batch of task 1, a step, ...
    (docs/protocol.md, section 3)

    All that agents have in common trains (Adam also moves what a task does not use, by its moments), and the head of
    the batch's task.
    """
    model = world.model
    stack.moved[:] = True
    read = cuts or {}
    pools = [pool(world, stack, task, past=False, received=False) for task in range(world.settings.tasks.initial)]
    size = batch_size(world, pools[0])
    most, exactly = max(-(-max(held.sizes) // size) for held in pools), world.settings.learner.steps(epoch)
    bits, steps = source(stack, "dropout", "initial", epoch), backend(world, stack, act is not as_usual)
    every = [
        deal(held, orders(world, stack, "initial", task, epoch), size, most, exactly) for task, held in enumerate(pools)
    ]
    for number, together in enumerate(zip(*every, strict=True)):
        for task, pick in enumerate(together):
            parts: dict[str, Part] = {name: (slice(0, units),) for name, units in model.body.items()}
            head = task if world.settings.tasks.heads == "task" else 0
            parts |= {name: (slice(head, head + 1),) for name in model.heads}
            turn = Turn() if act is as_usual else act(pick.batch, number * len(together) + task, parts)
            masked = usage | dropped(world, stack, bits, shapes(size))
            steps.take(Step(pick, parts, task, masked | (turn.usage or {}), read, changes=turn.changes))
            turn.after()
    steps.finish()


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
    first, learner = world.settings.tasks.initial, world.settings.learner
    used, steps = usage_of(world, stack) | (usage or {}), backend(world, stack)
    for task in range(first) if stack.task < first else [stack.task]:
        held = pool(world, stack, task, past=False, received=task >= first)
        size, trained = batch_size(world, held), parts(task)
        rngs, shapes = generators(stack, "dropout", word, task, epoch), world.model.mask_shapes(size)
        dealt = batches(held, generators(stack, "batches", word, task, epoch), size, exactly=learner.steps(epoch))
        for batch in dealt:
            steps.take(Step(batch, trained, task, used | masks(world, stack, rngs, shapes)))
        steps.finish()


def usual_epoch(
    world: World,
    stack: Stack,
    epoch: int,
    past: bool,
    act: Act = as_usual,
    balance: bool = False,
    held: Pool | None = None,
) -> None:
    """One pass over the task, or over the initial tasks together; everything trains. With `past`, the memories of all
    tasks before are part of it: experience replay (docs/protocol.md, section 3); with `balance`, as often as makes them
    as many as the task's own images. What is `held` is learned in place of the task's images, or the initial tasks'.
    What others have sent is part of it, whatever task it is for, unless the learner does not take it so."""
    model, task = world.model, stack.task
    if task < world.settings.tasks.initial and held is None:
        initial_epoch(world, stack, epoch, model.mask_shapes, usage_of(world, stack), act=act)
        return
    stack.moved[:] = True
    held = pool(world, stack, task, past, task >= world.settings.tasks.initial, held, world.settings.learner.earlier)
    size = batch_size(world, held)
    if balance:
        held = balanced(held, world.train.sizes[:, task].tolist())
    bits, shapes = source(stack, "dropout", task, epoch), model.mask_shapes(size)
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    usage, steps = usage_of(world, stack), backend(world, stack, act is not as_usual)
    for number, pick in enumerate(passes(world, held, stack, epoch, size, "replay")):
        turn = Turn() if act is as_usual else act(pick.batch, number, parts)
        masked = usage | dropped(world, stack, bits, shapes) | (turn.usage or {})
        steps.take(Step(pick, parts, None, masked, present=True, also=turn.also, changes=turn.changes))
        turn.after()
    steps.finish()
