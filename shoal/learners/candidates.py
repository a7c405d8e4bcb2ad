"""Candidates: modules that a task tries, fresh ones and those that others offer, and whether one is kept
(docs/protocol.md, section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents import memory
from shoal.agents.engine import crew
from shoal.agents.evaluate import accuracy
from shoal.agents.stack import MEAN, MODEL, PARAMS, STEPS, VAR, Stack
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.modular import Growth
from shoal.models.contract import Usage
from shoal.models.modular import STRUCTURE, Modular
from shoal.rng import key

OWNER = "modular"
FROZEN, TRIAL, ORIGIN = "frozen", "trial", "origin"
TOGETHER = 3  # offered candidates that are tried out at once
ROWS = 64  # copies of lanes that try at once
NOTHING = np.zeros((0, 0), bool)


class Offer(NamedTuple):
    """A module that a neighbour offers for the coming task."""

    score: float
    source: int  # the sender's task that it was grown for
    sender: int
    parts: Mapping[str, Tensor]

    @property
    def order(self) -> tuple[float, int, int, int]:
        """The best first; of equals one that comes with more, then that of the earlier task, then of the agent with the
        lower number."""
        return -self.score, -len(self.parts), self.source, self.sender


def modular(world: World) -> Modular:
    """The modular net of a world whose learner grows modules."""
    if not isinstance(world.model, Modular):
        raise SettingsError(f"`{world.settings.model}` is no modular net, and has no modules to grow or to share")
    return world.model


def growing(world: World) -> Growth:
    """The learner of a world, if it grows modules."""
    if not isinstance(world.settings.learner, Growth):
        raise SettingsError(f"the learner `{world.settings.learner.method}` grows no modules; use `modular`")
    return world.settings.learner


def init(world: World) -> dict[str, Tensor]:
    """What the learner keeps: which slots stay as they are until the end of the task, bool [L, C]; the validation
    accuracy with and without the candidate at the end of each task, [L, T, 2]; the agent and task that each task's
    candidate was received from, int64 [L, T, 2], -1 for a fresh one."""
    count, tasks = len(world.lanes), world.settings.tasks.count
    return {
        FROZEN: torch.zeros(count, modular(world).slots, dtype=torch.bool, device=world.device),
        TRIAL: torch.full((count, tasks, 2), np.nan),
        ORIGIN: torch.full((count, tasks, 2), -1),
    }


def alive(stack: Stack) -> Tensor:
    """Which slots hold a module: bool [L, C]."""
    return stack.of(MODEL)["alive"]


def grown(world: World, stack: Stack, row: int) -> list[int]:
    """The tasks before the current one for which a lane has kept a module."""
    model, there = modular(world), alive(stack)
    return [task for task in range(model.initial, stack.task) if there[row, model.slot(task)]]


def grown_all(world: World, stack: Stack) -> np.ndarray:
    """For which tasks before the current one, the initial ones aside, each lane has kept a module: bool [L, n]."""
    model = modular(world)
    slots = [model.slot(task) for task in range(model.initial, stack.task)]
    return alive(stack)[:, slots].cpu().numpy()


def trying(world: World, stack: Stack) -> Tensor:
    """Where the modules on trial are: bool [L, C]."""
    model, there = modular(world), alive(stack)
    slot = model.slot(stack.task)
    here = torch.zeros_like(there)
    here[:, slot : slot + 1 + model.spare] = there[:, slot : slot + 1 + model.spare]
    return here


def one_of(tried: Tensor, turn: int) -> Tensor:
    """Of each lane's candidates `tried` [L, C] the one whose turn it is: bool [L, C], they take turns."""
    number = tried.cumsum(1) - 1
    return tried & (number == turn % tried.sum(1, keepdim=True).clamp(min=1))


def without(world: World, stack: Stack, hidden: Tensor) -> Usage:
    """How all lanes use their nets if the slots `hidden` [L, C] are left out."""
    renormalise = growing(world).hidden == "renormalise"
    used = modular(world).used(stack.of(MODEL), stack.task, None, hidden, renormalise)
    return {"slots": used, **world.opened(stack.task)}


def correct(world: World, stack: Stack, split: str, hidden: Tensor) -> Tensor:
    """The accuracy [L] of the current task if the slots `hidden` are left out."""
    return accuracy(world, stack, split, [stack.task], without(world, stack, hidden))[:, 0]


def begin(world: World, stack: Stack) -> None:
    """Put a fresh candidate module into the task's slot of every lane that has none, and beside a received one if
    there is room."""
    model = modular(world)
    learns = (world.ends > stack.task).tolist()
    for row, received in enumerate(alive(stack)[:, model.slot(stack.task)].tolist()):
        if not learns[row]:
            continue
        if not received:
            plant(world, stack, row)
        elif model.spare:
            plant(world, stack, row, 1)


def plant(world: World, stack: Stack, row: int, place: int = 0) -> None:
    """Put a fresh module into a lane's `place`-th slot for candidates of the current task."""
    slot = modular(world).slot(stack.task) + place
    for name, tensor in fresh(world, stack, row).parts.items():
        stack.params[name][row, slot] = tensor
    alive(stack)[row, slot] = True


def settle(world: World, stack: Stack, row: int, offers: Sequence[Offer], frozen: bool = False) -> None:
    """Make offered modules a lane's candidates, frozen or not; head and structure are those of the first."""
    task, model = stack.task, modular(world)
    slot = model.slot(task)
    for place, offer in enumerate(offers):
        for name in model.block.names:
            stack.params[name][row, slot + place] = offer.parts[name].to(world.device)
        alive(stack)[row, slot + place] = True
        stack.of(OWNER)[FROZEN][row, slot + place] = frozen
    adopt(world, stack, row, offers[0].parts)


def settle_all(world: World, stack: Stack, rows: np.ndarray, parts: Mapping[str, Tensor], frozen: bool = False) -> None:
    """`settle` one offered module for each lane in some rows, tensors [n, ...]."""
    at, slot = torch.from_numpy(rows).to(world.device), modular(world).slot(stack.task)
    for name in modular(world).block.names:
        stack.params[name][at, slot] = parts[name].to(world.device)
    alive(stack)[at, slot] = True
    stack.of(OWNER)[FROZEN][at, slot] = frozen
    adopt_all(world, stack, rows, parts)


def adopt(world: World, stack: Stack, row: int, parts: Mapping[str, Tensor]) -> None:
    """Take head and structure of a lane's current task from what was offered, as far as they are there."""
    adopt_all(world, stack, np.array([row]), {name: tensor[None] for name, tensor in parts.items()})


def adopt_all(world: World, stack: Stack, rows: np.ndarray, parts: Mapping[str, Tensor]) -> None:
    """`adopt` for the lanes in some rows, from tensors [n, ...]."""
    task, model = stack.task, modular(world)
    slot, at = model.slot(task), torch.from_numpy(rows).to(world.device)
    if all(name in parts for name in model.heads):
        theirs = parts["classes"].cpu().long().numpy()
        own = np.array([world.row[stack.lanes[row]] for row in rows.tolist()])
        named = world.named  # there all outputs stand for the same classes everywhere
        local = theirs if named else world.outputs[own[:, None], task, theirs]
        for name in model.heads:
            stack.params[name][at, task] = 0
            for place in reversed(range(theirs.shape[1])):  # of a class that is said twice, the first counts
                known = np.flatnonzero(local[:, place] >= 0)
                where = torch.from_numpy(local[known, place].astype(np.int64)).to(world.device)
                stack.params[name][at[known], task, where] = parts[name][known, place].to(world.device)
    if STRUCTURE in parts:
        # The lane's own added modules count as little as a logit of 0; its own basis as the sender's.
        structure = parts[STRUCTURE].to(world.device)
        stack.params[STRUCTURE][at, task, :slot] = 0
        stack.params[STRUCTURE][at, task, : model.basis] = structure[:, :-1]
        stack.params[STRUCTURE][at, task, slot] = structure[:, -1]


def came(stack: Stack, row: int, offer: Offer) -> None:
    """Note from whom a lane has the candidate of its current task."""
    stack.of(OWNER)[ORIGIN][row, stack.task] = torch.tensor([offer.sender, offer.source])


def end(world: World, stack: Stack) -> None:
    """Keep the best candidate where it raises validation accuracy by more than `accept`, relatively; else none."""
    model, task, state = modular(world), stack.task, stack.of(OWNER)
    winner = best(world, stack)
    shown, hidden = trial(world, stack, "validation", winner)
    state[TRIAL][:, task] = torch.stack([shown, hidden], 1)
    # Differs: in whole images, because fractions would decide a gain of exactly 5 % by rounding; and as a product,
    # because a net that was never right without the candidate must not divide by zero.
    size = world.validation.sizes[:, task]
    right, before = (shown * size).round(), (hidden * size).round()
    accept = growing(world).accept
    kept = ((right - before > accept * before) | (accept == -1)) & (world.ends > task)
    if model.spare:
        clear(world, stack, winner)
    alive(stack)[:, model.slot(task)] = kept.to(world.device)
    state[FROZEN][:] = False


def clear(world: World, stack: Stack, winner: Tensor) -> None:
    """Move the winning module [L, C] to the task's slot, and leave the spare slots behind it as they were."""
    model, task = modular(world), stack.task
    slot = model.slot(task)
    behind = slice(slot + 1, slot + 1 + model.spare)
    for row, place in winner[:, behind].nonzero().tolist():
        for owner in (PARAMS, MEAN, VAR, STEPS):
            for name in model.block.names:
                stack.of(owner)[name][row, slot] = stack.of(owner)[name][row, slot + 1 + place]
        for owner in (PARAMS, MEAN, VAR):
            structure = stack.of(owner)[STRUCTURE]
            structure[row, task, slot] = structure[row, task, slot + 1 + place]
        stack.of(OWNER)[ORIGIN][row, task] = -1  # only a fresh module is tried beside a received one
    for owner in (PARAMS, MEAN, VAR, STEPS):
        for name in model.block.names:
            stack.of(owner)[name][:, behind] = 0
    alive(stack)[:, behind] = False


def best(world: World, stack: Stack) -> Tensor:
    """Every lane's candidate with the highest validation accuracy, of equals the first: bool [L, C]."""
    model, tried = modular(world), trying(world, stack)
    if not model.spare:
        return tried
    turns = [one_of(tried, turn) for turn in range(1 + model.spare)]
    found = [correct(world, stack, "validation", tried & ~one) for one in turns]
    first = torch.stack(found, 1).argmax(1)
    return torch.stack(turns, 1)[torch.arange(len(first)), first.to(tried.device)]


def trial(world: World, stack: Stack, split: str, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy [L] of the current task with the candidate `shown` [L, C] and without any."""
    tried = trying(world, stack)
    return correct(world, stack, split, tried & ~shown), correct(world, stack, split, tried)


def now(world: World, stack: Stack) -> Tensor:
    """The test accuracy [L] of the current task while candidates are on trial, by the rule `learner.current`."""
    rule = growing(world).current
    winner, hidden = best(world, stack), trying(world, stack)
    if rule == "max":  # as in the paper's code: optimistic, because test data chooses
        return torch.maximum(*trial(world, stack, "test", winner))
    if rule == "validation":
        with_, without = trial(world, stack, "validation", winner)
        winner &= (with_ > without).to(winner.device)[:, None]
    if rule != "without":
        hidden &= ~winner
    return correct(world, stack, "test", hidden)


def try_out(
    world: World, stack: Stack, offered: Mapping[int, Sequence[Offer]], epochs: int, frozen: bool
) -> dict[int, list[float]]:
    """The validation accuracy of every offer of lanes that have several, each after a short while of learning in
    turn with a few others, on copies of the lane (the paper's TryOut)."""
    groups = [
        (row, offers[first : first + TOGETHER])
        for row, offers in offered.items()
        if len(offers) > 1
        for first in range(0, len(offers), TOGETHER)
    ]
    found: dict[int, list[float]] = {}
    for first in range(0, len(groups), ROWS):
        some = groups[first : first + ROWS]
        for (row, _), results in zip(some, tried_out(world, stack, some, epochs, frozen), strict=True):
            found.setdefault(row, []).extend(results)
    return found


def beside_fresh(
    world: World, stack: Stack, offered: Mapping[int, Sequence[Offer]], epochs: int, frozen: bool
) -> dict[int, tuple[int | None, list[float]]]:
    """For each lane the first of its offers that is not behind a fresh module on its validation images, each tried on a
    copy of the lane of its own; None, if all are behind. And how well each did, NaN where it was not tried."""

    def trials(groups: Sequence[tuple[int, Offer]], frozen: bool) -> list[float]:
        found: list[float] = []
        for first in range(0, len(groups), ROWS):
            some = [(row, [offer]) for row, offer in groups[first : first + ROWS]]
            found += [result for (result,) in tried_out(world, stack, some, epochs, frozen)]
        return found

    rows = [row for row, offers in offered.items() if offers]
    best = dict(zip(rows, trials([(row, fresh(world, stack, row)) for row in rows], False), strict=True))
    results = {row: [np.nan] * len(offers) for row, offers in offered.items()}
    chosen: dict[int, int | None] = dict.fromkeys(offered)
    for at in range(max((len(offered[row]) for row in rows), default=0)):
        some = [row for row in rows if chosen[row] is None and at < len(offered[row])]
        for row, result in zip(some, trials([(row, offered[row][at]) for row in some], frozen), strict=True):
            results[row][at] = result
            if result >= best[row]:
                chosen[row] = at
    return {row: (chosen[row], results[row]) for row in offered}


def fresh(world: World, stack: Stack, row: int) -> Offer:
    """The module that a lane would try if nobody offered one."""
    model = modular(world)
    drawn = model.block.start(key(*stack.lanes[row], "candidate", stack.task), 1)
    return Offer(0.0, -1, -1, {name: tensor[0] for name, tensor in zip(model.block.names, drawn, strict=True)})


def tried_out(
    world: World, stack: Stack, groups: Sequence[tuple[int, Sequence[Offer]]], epochs: int, frozen: bool
) -> list[list[float]]:
    """The validation accuracy of the offers of each group, on a copy of the lane in its row."""
    rows = [row for row, _ in groups]
    model = replace(modular(world), spare=TOGETHER - 1)
    there = replace(world.piece(rows), model=model)
    copies = widened(world, forgetful(stack.take(rows, [stack.lanes[row] for row in rows])), model.slots)
    for at, (_, offers) in enumerate(groups):
        settle(there, copies, at, offers, frozen)
    if world.settings.learner.fresh_adam:
        copies.forget_moments()
    rehearse(there, copies, min(epochs, world.settings.learner.epochs))
    here = trying(there, copies)
    turns = [correct(there, copies, "validation", here & ~one_of(here, at)) for at in range(TOGETHER)]
    return [[float(turn[at]) for turn in turns[: len(offers)]] for at, (_, offers) in enumerate(groups)]


def forgetful(stack: Stack) -> Stack:
    """A stack without replay memories, which only adapting reads."""
    state = stack.of(memory.OWNER)
    for name, tensor in list(state.items()):
        state[name] = tensor[:, :, :0] if tensor.ndim > 2 else tensor.new_zeros(tensor.shape)
    return stack


def rehearse(world: World, copies: Stack, epochs: int) -> None:
    """Let copies of lanes learn their task with their candidates for a while."""
    from shoal.learners.growth import assimilate

    def learn(piece: tuple[World, Stack]) -> None:
        for epoch in range(epochs):
            assimilate(*piece, epoch)

    crew(copies.pieces(world), learn)


def widened(world: World, stack: Stack, slots: int) -> Stack:
    """A stack with room for so many slots."""
    before = alive(stack).shape[1]
    axes = {
        **{(owner, name): 1 for owner in (PARAMS, MEAN, VAR, STEPS) for name in modular(world).block.names},
        **{(owner, STRUCTURE): 2 for owner in (PARAMS, MEAN, VAR)},
        (MODEL, "alive"): 1,
        (OWNER, FROZEN): 1,
    }
    for (owner, name), axis in axes.items():
        state: State = stack.of(owner)
        shape = list(state[name].shape)
        shape[axis] = slots - shape[axis]
        state[name] = torch.cat([state[name], state[name].new_zeros(shape)], axis)
    stack.params[STRUCTURE][:, :, before:] = 1
    return stack


def trials(stack: Stack, tasks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What came of every trial: validation accuracy with and without the candidate [L, T, 2], from whom it came
    [L, T, 2], and which slots hold a module now [L, C]. Of no trials, where nothing grows."""
    if TRIAL not in stack.of(OWNER):
        return (
            np.full((len(stack.lanes), tasks, 2), np.nan, np.float32),
            np.full((len(stack.lanes), tasks, 2), -1),
            NOTHING,
        )
    state = stack.of(OWNER)
    return state[TRIAL].numpy(), state[ORIGIN].numpy(), alive(stack).cpu().numpy()


def modules(stack: Stack) -> np.ndarray:
    """How many modules every lane has [L]; empty, where nets are not made of modules."""
    return alive(stack).sum(1).cpu().numpy() if "alive" in stack.of(MODEL) else np.zeros(0, np.int64)
