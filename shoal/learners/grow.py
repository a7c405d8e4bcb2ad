"""Growing: every new task tries a candidate module and keeps it if validation data says so (protocol 3).

Sharing may have put received modules into the slots of the task; a lane without any tries a fresh one.
"""

import torch
from torch import Tensor

from shoal.fleet.evaluate import accuracy
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.learn import candidates, one_of
from shoal.learners.modular import growth
from shoal.models import Modular
from shoal.rng import key


def begin(world: World, stack: Stack, task: int) -> None:
    """Put a fresh candidate module into the task's slot of every lane that has none, and beside a received one if
    there is room."""
    model = world.model
    assert isinstance(model, Modular)
    for row, received in enumerate(stack.alive[:, model.slot(task)].tolist()):
        if not received:
            plant(world, stack, row, task)
        elif model.spare:
            plant(world, stack, row, task, 1)


def plant(world: World, stack: Stack, row: int, task: int, place: int = 0) -> None:
    """Put a fresh module into a lane's `place`-th slot for candidates of a task."""
    model = world.model
    assert isinstance(model, Modular)
    slot = model.slot(task) + place
    weight, bias = model.block.start(key(*stack.lanes[row], "candidate", task), 1)
    stack.params["module.weight"][row, slot] = weight[0]
    stack.params["module.bias"][row, slot] = bias[0]
    stack.alive[row, slot] = True


def end(world: World, stack: Stack, task: int) -> None:
    """Keep the best candidate where it raises validation accuracy by more than `accept`, relatively; else none."""
    model = world.model
    assert isinstance(model, Modular)
    winner = best(world, stack, task)
    shown, hidden = trial(world, stack, "validation", task, winner)
    stack.trial[:, task] = torch.stack([shown, hidden], 1)
    # Differs: in whole images, because fractions would decide a gain of exactly 5 % by rounding; and as a product,
    # because a net that was never right without the candidate must not divide by zero.
    size = world.validation.sizes[:, task]
    right, before = (shown * size).round(), (hidden * size).round()
    accept = growth(world.settings).accept
    kept = (right - before > accept * before) | (accept == -1)
    if model.spare:
        clear(stack, task, model.slot(task), model.spare, winner)
    stack.alive[:, model.slot(task)] = kept.to(stack.alive.device)
    stack.frozen[:] = False


def clear(stack: Stack, task: int, slot: int, spare: int, winner: Tensor) -> None:
    """Move the winning module [L, C] to the task's slot, and leave the spare slots behind it as they were."""
    behind = slice(slot + 1, slot + 1 + spare)
    for row, place in winner[:, behind].nonzero().tolist():
        for group in (stack.params, stack.first, stack.second, stack.steps):
            for name in ("module.weight", "module.bias"):
                group[name][row, slot] = group[name][row, slot + 1 + place]
        for group in (stack.params, stack.first, stack.second):
            group["structure"][row, task, slot] = group["structure"][row, task, slot + 1 + place]
        stack.origin[row, task] = -1  # only a fresh module is tried beside a received one
    for group in (stack.params, stack.first, stack.second, stack.steps):
        for name in ("module.weight", "module.bias"):
            group[name][:, behind] = 0
    stack.alive[:, behind] = False


def best(world: World, stack: Stack, task: int) -> Tensor:
    """Every lane's candidate with the highest validation accuracy, of equals the first: bool [L, C]."""
    assert isinstance(world.model, Modular)
    tried = candidates(world, stack, task)
    if not world.model.spare:
        return tried
    turns = [one_of(tried, turn) for turn in range(1 + world.model.spare)]
    found = [accuracy(world, stack, "validation", [task], tried & ~one) for one in turns]
    first = torch.cat(found, 1).argmax(1)
    return torch.stack(turns, 1)[torch.arange(len(first)), first.to(tried.device)]


def trial(world: World, stack: Stack, split: str, task: int, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy [L] of the current task with the candidate `shown` [L, C] and without any."""
    tried = candidates(world, stack, task)
    seen = accuracy(world, stack, split, [task], tried & ~shown)
    return seen[:, 0], accuracy(world, stack, split, [task], tried)[:, 0]


def current(world: World, stack: Stack, task: int) -> Tensor:
    """The test accuracy [L] of the current task while candidates are on trial, by the rule `learner.current`."""
    rule = growth(world.settings).current
    winner, hidden = best(world, stack, task), candidates(world, stack, task)
    if rule == "max":  # as in the paper's code: optimistic, because test data chooses
        return torch.maximum(*trial(world, stack, "test", task, winner))
    if rule == "validation":
        with_, without = trial(world, stack, "validation", task, winner)
        winner &= (with_ > without).to(winner.device)[:, None]
    if rule != "without":
        hidden &= ~winner
    return accuracy(world, stack, "test", [task], hidden)[:, 0]
