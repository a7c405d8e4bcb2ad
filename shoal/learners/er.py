"""Experience replay step by step (Chaudhry et al. 2019, arXiv:1902.10486; Buzzega et al. 2020, arXiv:2004.07211)."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.batches import Batch, generators, remembered
from shoal.learners.contract import Learner
from shoal.learners.plain import plain_only, remembering
from shoal.learners.rehearsal import mixed, relearned
from shoal.learners.step import Part
from shoal.learners.usual import Turn, usual_epoch
from shoal.settings.groups import Settings


class ER(Learner):
    """Experience replay step by step: every step has images of the new task, and others from a memory.

    *Source:* Chaudhry et al. 2019.

    A batch of memories, from a reservoir of all images so far, in every step; one mean over all images, or 1/t new and
    (1 − 1/t) old. Where `replay` goes through the new task and all memories in one pass, here each step draws
    its memories anew.

    *Costs:* the images of `memory`, and a second gradient in every step.
    """

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

    def suits(self, settings: Settings) -> None:
        plain_only(self, settings)
        remembering(self, settings)

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world) if self.keep == "stream" else {}

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        usual_epoch(world, stack, epoch, past=False, act=partial(self.rehearse, world, stack, epoch))

    def rehearse(
        self, world: World, stack: Stack, epoch: int, batch: Batch, number: int, parts: Mapping[str, Part]
    ) -> Turn:
        """Draw memories, and mix their gradient with that of the new images."""
        rngs = generators(stack, self.method, stack.task, epoch, number)
        if self.keep == "stream":
            old, _ = reservoir.draw(stack.of(self.owner), self.replayed, rngs)
            reservoir.add(stack.of(self.owner), batch, rngs)
        elif stack.task < world.settings.tasks.initial:
            return Turn()
        else:
            old = remembered(stack, self.replayed, rngs)
        if not old.weight.any():
            return Turn()
        slopes = relearned(world, stack, parts, old, reservoir.usage(world, stack, old, rngs))

        def share(new: Tensor, remembered: Tensor) -> Tensor:
            if self.mix == "images":
                return remembered / (new + remembered).clamp(min=1)
            return torch.full_like(new, stack.task / (stack.task + 1))

        return Turn((lambda found: mixed(batch, old, share, found, slopes),), also=old)
