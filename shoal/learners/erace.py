"""ER-ACE (Caccia et al. 2022, arXiv:2104.05025)."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.batches import Batch, generators
from shoal.learners.contract import Learner
from shoal.learners.plain import plain_only, remembering, with_heads
from shoal.learners.rehearsal import added, relearned
from shoal.learners.step import Part
from shoal.learners.usual import Turn, usual_epoch
from shoal.models.heads import OPEN
from shoal.settings.groups import Settings


class ERACE(Learner):
    """Asymmetric replay: new images push down no class that was learned before, memories are learned as usual; it needs
    tasks.heads=grow.

    *Source:* Caccia et al. 2022.

    New images count only outputs of classes in their batch, and of classes still to come if all outputs count; the
    plain cross-entropy of memories is added. For heads that grow.

    *Costs:* the images of `memory`, and a second gradient in every step.
    """

    serves: ClassVar[tuple[str, ...]] = ("grow",)
    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["er-ace"] = "er-ace"
    replayed: PositiveInt = Field(64, description="remembered rows in every step")

    def suits(self, settings: Settings) -> None:
        plain_only(self, settings)
        with_heads(self, settings)
        remembering(self, settings)

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        usual_epoch(world, stack, epoch, past=False, act=partial(self.rehearse, world, stack, epoch))

    def rehearse(
        self, world: World, stack: Stack, epoch: int, batch: Batch, number: int, parts: Mapping[str, Part]
    ) -> Turn:
        """Draw memories, and add their gradient to that of the new images; the first tasks have none."""
        rngs, state = generators(stack, self.method, stack.task, epoch, number), stack.of(self.owner)
        first = stack.task < world.settings.tasks.initial
        old, _ = reservoir.draw(state, self.replayed, rngs)
        reservoir.add(state, batch, rngs)
        if first or not old.weight.any():
            return Turn()
        slopes = relearned(world, stack, parts, old, reservoir.usage(world, stack, old, rngs))
        changes = (lambda found: added(found, (1.0, slopes)),)
        return Turn(changes, usage={OPEN: open_to(world, stack, batch)}, also=old)


def open_to(world: World, stack: Stack, batch: Batch) -> Tensor:
    """The outputs that count for new images, bool [L, T, K]: of classes in the batch and, if outputs of classes that no
    task so far has count at all, of those."""
    count = torch.zeros(world.open[:, 0].shape, device=batch.y.device)
    there = count.scatter_add(1, batch.y, batch.weight) > 0
    if world.settings.tasks.outputs == "all":
        there = there | ~world.open[:, : stack.task + 1].any(1)
    return there[:, None].expand_as(world.open)
