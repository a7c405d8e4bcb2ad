"""SI (Zenke et al. 2017, arXiv:1703.04200)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, common_units
from shoal.learners.contract import Learner
from shoal.learners.step import Step, Tensors
from shoal.models.table import REPLAY


class SI(Learner):
    """Synaptic intelligence: weights are held by how much their way through a task lowered the loss.

    *Source:* Zenke et al. 2017.

    Path −= g Δw in every step, g with the penalty; at a task's end importance += path / (way² + damping); loss +
    strength Σ importance (w − anchor)². The new task is learned alone.

    *Costs:* three numbers for each weight that all tasks use, and two sums over them in every step.
    """

    teaches: ClassVar[str] = REPLAY
    method: Literal["si"] = "si"
    strength: NonNegativeFloat = Field(1.0, description="how hard weights are held; choose it on validation data")
    damping: PositiveFloat = Field(0.1, description="what keeps importance small where a weight hardly moved")
    clip: PositiveFloat | None = Field(None, description="no slope is steeper than this; else they are as they are")

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        state = stack.of(self.owner)
        for name, units in common_units(world).items():
            if f"anchor.{name}" not in state:
                now = stack.params[name][:, :units]
                state[f"anchor.{name}"] = now.clone()
                state[f"path.{name}"], state[f"importance.{name}"] = torch.zeros_like(now), torch.zeros_like(now)
        super().epoch(world, stack, epoch)

    def additions(self) -> tuple[Addition, ...]:
        return (self.follow,)

    def follow(self, world: World, stack: Stack, step: Step) -> Step:
        """Hold weights back in a step, and note what their movement was worth."""
        state, names = stack.of(self.owner), [name for name in common_units(world) if name in step.parts]
        before = {name: stack.params[name][:, : state[f"path.{name}"].shape[1]].clone() for name in names}
        slopes: Tensors = {}

        def change(found: Tensors) -> Tensors:
            for name in names:
                pull = state[f"importance.{name}"] * (before[name] - state[f"anchor.{name}"])
                slopes[name] = found[name] + 2 * self.strength * pull
            if self.clip is not None:
                found = {name: one.clamp(-self.clip, self.clip) for name, one in {**found, **slopes}.items()}
                slopes.update({name: found[name] for name in names})
            return {**found, **slopes}

        def after() -> None:
            for name in names:
                moved = stack.params[name][:, : before[name].shape[1]] - before[name]
                state[f"path.{name}"].sub_(slopes[name] * moved)

        return step._replace(changes=(change,), after=(after,))

    def end(self, world: World, stack: Stack) -> None:
        """Add what the task's way was worth, and anchor weights where they are."""
        state = stack.of(self.owner)
        for name, units in common_units(world).items():
            now: Tensor = stack.params[name][:, :units]
            came = (now - state[f"anchor.{name}"]).square()
            state[f"importance.{name}"] += state[f"path.{name}"] / (came + self.damping)
            state[f"anchor.{name}"] = now.clone()
            state[f"path.{name}"].zero_()
