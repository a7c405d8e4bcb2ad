"""Learning with weights that are put together of a base and of sparse parts (FedWeIT; Yoon et al. 2021)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, penalised
from shoal.learners.contract import Learner
from shoal.learners.step import Frame, Part
from shoal.learners.usual import own_epoch
from shoal.models.decomposed import ATTEND, BASE, LAST, OTHERS, PART, SCALE
from shoal.models.table import DECOMPOSED

ANCHOR, HOLD = "anchor", "hold"


class Decomposed(Learner):
    """The net is a base that all tasks use and a sparse part for each; the base is held where earlier tasks need it.

    *Source:* FedWeIT; Yoon et al. 2021.

    Weights of a base and of a sparse part for every task: see sharing mode `fedweit`.

    *Costs:* a number for each weight and task; in a step the weights of a layer are put together.
    """

    teaches: ClassVar[str] = DECOMPOSED
    serves: ClassVar[tuple[str, ...]] = ("task",)
    earlier: ClassVar[bool] = False  # what a task has learned stays as it is
    method: Literal["decomposed"] = "decomposed"
    sparse: NonNegativeFloat = Field(1e-3, description="how much entries of parts cost, and the least that is kept")
    drift: NonNegativeFloat = Field(100.0, description="how hard the base is held; choose it on validation data")
    decay: NonNegativeFloat = Field(1e-4, description="how much the squares of weights cost")

    def init(self, world: World) -> dict[str, Tensor]:
        """The base at the end of the task before, and how hard the units of every layer are held."""
        size = len(world.lanes), world.settings.net.depth, world.settings.net.width
        return {
            ANCHOR: torch.zeros(*size, size[-1], device=world.device),
            HOLD: torch.zeros(size, device=world.device),
        }

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        """One pass over the task, or over each of the initial tasks."""
        depth = world.settings.net.depth
        rest = [name for name in stack.params if name != BASE]

        def parts(task: int) -> dict[str, Part]:
            return {BASE: (slice(0, depth),), **{name: (slice(task, task + 1),) for name in rest}}

        stack.moved[:] = True
        own_epoch(world, stack, epoch, self.method, parts)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return BASE in parts and PART in parts

    def penalty(self, frame: Frame) -> Tensor:
        """What one agent pays for its part, its scales and the drift of its base."""
        base, part, scale = (frame.free[name] for name in (BASE, PART, SCALE))
        hold, anchor = frame.state[HOLD], frame.state[ANCHOR]
        # Scales are sigmoids, so that a base that nobody needs yet is one of which nothing is held.
        first = (hold.sum() == 0).float()
        small = part.square().sum() + scale.square().sum() + first * base.square().sum()
        drift = (hold[..., None] * (base - anchor).square()).sum()
        found: Tensor = self.sparse * part.abs().sum() + self.decay / 2 * small + self.drift / 2 * drift
        return found

    def end(self, world: World, stack: Stack) -> None:
        """Prune the part of the task and make what it attended to a portion of it; from now on hold the base."""
        state, kept, params = stack.of(self.owner), stack.of(MODEL), stack.params
        first = world.settings.tasks.initial
        others = list(kept[OTHERS].unbind(1)) if OTHERS in kept else []
        for task in range(first) if stack.task < first else [stack.task]:
            part = params[PART][:, task]
            part.masked_fill_(part.abs() <= self.sparse, 0)
            own, share = part.clone(), params[ATTEND][:, task]
            for at, other in enumerate([kept[LAST], *others]):
                part += share[:, :, at, None, None] * other
            share.zero_()
            state[HOLD] += params[SCALE][:, task].sigmoid().square()
        kept[LAST].copy_(own)
        if others:
            kept[OTHERS].zero_()
        state[ANCHOR].copy_(params[BASE])


def hear(stack: Stack, row: int, slot: int, slots: int, part: Tensor) -> None:
    """Let a lane attend to the part that a neighbour has sent, in one of so many slots, until the end of its task."""
    kept = stack.of(MODEL)
    if OTHERS not in kept:
        kept[OTHERS] = kept[LAST].new_zeros(len(stack.lanes), slots, *kept[LAST].shape[1:])
    kept[OTHERS][row, slot] = part.to(kept[OTHERS].device)
