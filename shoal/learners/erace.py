"""ER-ACE (Caccia et al. 2022, arXiv:2104.05025)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.additions import Addition
from shoal.learners.batches import Batch
from shoal.learners.contract import Learner
from shoal.learners.rehearsal import added, luck, relearned
from shoal.learners.step import Step
from shoal.models.heads import OPEN
from shoal.models.table import REPLAY


class ERACE(Learner):
    """Asymmetric replay: new images push down no class that was learned before, memories are learned as usual; it needs
    tasks.heads=grow.

    *Source:* Caccia et al. 2022.

    New images count only outputs of classes in their batch, and of classes still to come if all outputs count; the
    plain cross-entropy of memories is added. For heads that grow.

    *Costs:* the images of `memory`, and a second gradient in every step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("memory",)
    serves: ClassVar[tuple[str, ...]] = ("grow",)
    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["er-ace"] = "er-ace"
    replayed: PositiveInt = Field(64, description="remembered rows in every step")

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world)

    def additions(self) -> tuple[Addition, ...]:
        return (self.rehearse,)

    def rehearse(self, world: World, stack: Stack, step: Step) -> Step:
        """Draw memories, and add their gradient to that of the new images; the first tasks have none."""
        rngs, state = luck(self, stack, step), stack.of(self.owner)
        first = stack.task < world.settings.tasks.initial
        old, _ = reservoir.draw(state, self.replayed, rngs)
        reservoir.add(state, step.images, rngs)
        if first or not old.weight.any():
            return step
        slopes = relearned(world, stack, step.parts, old, reservoir.usage(world, stack, old, rngs))
        usage = step.usage | {OPEN: open_to(world, stack, step.images)}
        return step._replace(changes=(lambda found: added(found, (1.0, slopes)),), usage=usage, also=old)


def open_to(world: World, stack: Stack, batch: Batch) -> Tensor:
    """The outputs that count for new images, bool [L, T, K]: of classes in the batch and, if outputs of classes that no
    task so far has count at all, of those."""
    count = torch.zeros(world.open[:, 0].shape, device=batch.y.device)
    there = count.scatter_add(1, batch.y, batch.weight) > 0
    if world.settings.tasks.outputs == "all":
        there = there | ~world.open[:, : stack.task + 1].any(1)
    return there[:, None].expand_as(world.open)
