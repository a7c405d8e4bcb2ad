"""Experience replay step by step (Chaudhry et al. 2019, arXiv:1902.10486; Buzzega et al. 2020, arXiv:2004.07211)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.additions import Addition
from shoal.learners.batches import remembered
from shoal.learners.contract import Learner
from shoal.learners.rehearsal import luck, mixed, relearned
from shoal.learners.step import Step
from shoal.models.table import REPLAY


class ER(Learner):
    """Experience replay step by step: every step has images of the new task, and others from a memory.

    *Source:* Chaudhry et al. 2019.

    A batch of memories, from a reservoir of all images so far, in every step; one mean over all images, or 1/t new and
    (1 − 1/t) old. Where `replay` goes through the new task and all memories in one pass, here each step draws
    its memories anew.

    *Costs:* the images of `memory`, and a second gradient in every step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("memory",)
    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["er"] = "er"
    replayed: PositiveInt = Field(64, description="remembered rows in every step")
    keep: Literal["stream", "task"] = Field(
        "stream", description="remember a random part of all rows so far, or learner.memory of every finished task"
    )
    mix: Literal["images", "tasks"] = Field(
        "images",
        description="the loss of a step: the mean over all its rows, or memories count as much as earlier tasks are",
    )

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world) if self.keep == "stream" else {}

    def additions(self) -> tuple[Addition, ...]:
        return (self.rehearse,)

    def rehearse(self, world: World, stack: Stack, step: Step) -> Step:
        """Draw memories, and mix their gradient with that of the new images."""
        rngs, batch = luck(self, stack, step), step.images
        if self.keep == "stream":
            old, _ = reservoir.draw(stack.of(self.owner), self.replayed, rngs)
            reservoir.add(stack.of(self.owner), batch, rngs)
        elif stack.task < world.settings.tasks.initial:
            return step
        else:
            old = remembered(stack, self.replayed, rngs)
        if not old.weight.any():
            return step
        slopes = relearned(world, stack, step.parts, old, reservoir.usage(world, stack, old, rngs))

        def share(new: Tensor, remembered: Tensor) -> Tensor:
            if self.mix == "images":
                return remembered / (new + remembered).clamp(min=1)
            return torch.full_like(new, stack.task / (stack.task + 1))

        return step._replace(changes=(lambda found: mixed(batch, old, share, found, slopes),), also=old)
