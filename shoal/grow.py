"""Growing: every new task tries a candidate module and keeps it if validation data says so (protocol 3)."""

import torch
from torch import Tensor

from shoal.evaluate import accuracy
from shoal.learn import candidate
from shoal.models import Modular
from shoal.rng import key
from shoal.stack import Stack
from shoal.world import World


def begin(world: World, stack: Stack, task: int) -> None:
    """Put a fresh candidate module into the task's slot of every lane."""
    model = world.model
    assert isinstance(model, Modular)
    slot = model.slot(task)
    for row, lane in enumerate(stack.lanes):
        weight, bias = model.block.start(key(*lane, "candidate", task), 1)
        stack.params["module.weight"][row, slot] = weight[0]
        stack.params["module.bias"][row, slot] = bias[0]
    stack.alive[:, slot] = True


def end(world: World, stack: Stack, task: int) -> None:
    """Keep the candidate where it raises validation accuracy by more than `accept`, relatively; else empty the slot."""
    model = world.model
    assert isinstance(model, Modular)
    shown, hidden = trial(world, stack, "validation", task)
    stack.trial[:, task] = torch.stack([shown, hidden], 1)
    # Differs: in whole images, because fractions would decide a gain of exactly 5 % by rounding; and as a product,
    # because a net that was never right without the candidate must not divide by zero.
    size = world.validation.sizes[:, task]
    right, before = (shown * size).round(), (hidden * size).round()
    kept = right - before > world.settings.learner.accept * before
    stack.alive[:, model.slot(task)] = kept.to(stack.alive.device)


def trial(world: World, stack: Stack, split: str, task: int) -> tuple[Tensor, Tensor]:
    """Accuracy [L] of the current task with and without its candidate."""
    shown = accuracy(world, stack, split, [task])
    hidden = accuracy(world, stack, split, [task], candidate(world, stack, task))
    return shown[:, 0], hidden[:, 0]


def current(world: World, stack: Stack, task: int) -> Tensor:
    """The test accuracy [L] of the current task while its candidate is on trial, by the rule `learner.current`."""
    rule = world.settings.learner.current
    if rule == "max":  # as in the paper's code: optimistic, because test data chooses
        return torch.maximum(*trial(world, stack, "test", task))
    here = candidate(world, stack, task)
    if rule == "validation":
        shown, hidden = trial(world, stack, "validation", task)
        here &= (hidden >= shown).to(here.device)[:, None]
    elif rule == "with":
        here.zero_()
    return accuracy(world, stack, "test", [task], here)[:, 0]
