"""Tryouts: copies of lanes learn a task for a short while, to see which offered module serves it best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shoal.fleet.engine import crew
from shoal.fleet.evaluate import accuracy
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.learn import assimilation_epoch, candidates, one_of
from shoal.sharing.offers import Offer, modular, settle

TOGETHER = 3  # candidates that are tried at once
ROWS = 64  # copies of lanes that try at once


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
        for (row, _), results in zip(some, tried(world, stack, some, epochs, frozen), strict=True):
            found.setdefault(row, []).extend(results)
    return found


def tried(
    world: World, stack: Stack, groups: Sequence[tuple[int, Sequence[Offer]]], epochs: int, frozen: bool
) -> list[list[float]]:
    """The validation accuracy of the offers of each group, on a copy of the lane in its row."""
    rows, task = [row for row, _ in groups], stack.task
    model = replace(modular(world), spare=TOGETHER - 1)
    there = replace(world.piece(rows), model=model)
    copies = stack.take(rows, [stack.lanes[row] for row in rows])
    copies.memory = copies.memory[:, :, :0]  # only what adapts modules reads it
    copies = widened(copies, model.slots)
    for at, (_, offers) in enumerate(groups):
        settle(there, copies, at, offers, frozen)
    if world.settings.learner.fresh_adam:
        copies.forget_moments()
    rehearse(there, copies, min(epochs, world.settings.learner.epochs))
    trying = candidates(there, copies, task)
    turns = [accuracy(there, copies, "validation", [task], trying & ~one_of(trying, at)) for at in range(TOGETHER)]
    return [[float(turn[at, 0]) for turn in turns[: len(offers)]] for at, (_, offers) in enumerate(groups)]


def rehearse(world: World, copies: Stack, epochs: int) -> None:
    """Let copies of lanes learn their task with their candidates for a while."""

    def learn(piece: tuple[World, Stack]) -> None:
        for epoch in range(epochs):
            assimilation_epoch(*piece, copies.task, epoch)

    crew(copies.pieces(world), learn)


def widened(stack: Stack, slots: int) -> Stack:
    """A stack with room for so many slots."""
    flat = {}
    for name, tensor in stack.tensors.items():
        if name in ("alive", "frozen") or name.endswith(("/module.weight", "/module.bias")):
            axis = 1
        elif name.endswith("/structure") and not name.startswith("steps/"):
            axis = 2
        else:
            flat[name] = tensor
            continue
        shape = list(tensor.shape)
        shape[axis] = slots - shape[axis]
        flat[name] = torch.cat([tensor, tensor.new_zeros(shape)], axis)
    flat["params/structure"][:, :, stack.alive.shape[1] :] = 1
    return Stack.of(stack.lanes, stack.task, stack.epoch, flat)
