"""DER and DER++ (Buzzega et al. 2020, arXiv:2004.07211)."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.batches import Batch, generators
from shoal.learners.contract import Learner
from shoal.learners.plain import plain_only, remembering
from shoal.learners.rehearsal import added, relearned, repeated
from shoal.learners.step import Part
from shoal.learners.usual import Turn, usual_epoch
from shoal.settings.groups import Settings


class DER(Learner):
    """Dark experience replay: of remembered images the net goes on saying what it said when they came.

    *Source:* Buzzega et al. 2020.

    Cross-entropy + α MSE(logits, logits when the image was stored) [+ β cross-entropy of another draw]; logits are kept
    without dropout.

    *Costs:* the images of `memory` with a number for each class; a second gradient, and a pass forth, in every
    step.
    """

    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["der"] = "der"
    replayed: PositiveInt = Field(64, description="remembered rows in every step")
    alpha: NonNegativeFloat = Field(0.5, description="how much what was said of memories counts")

    def suits(self, settings: Settings) -> None:
        plain_only(self, settings)
        remembering(self, settings)

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world, logits=True)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        rehearsing = partial(rehearse, self, self.replayed, self.alpha, 0.0, world, stack, epoch)
        usual_epoch(world, stack, epoch, past=False, act=rehearsing)


class DERpp(Learner):
    """Dark experience replay with labels: what was said of some memories, and the true labels of others.

    *Source:* Buzzega et al. 2020.

    Cross-entropy + α MSE(logits, logits when the image was stored) [+ β cross-entropy of another draw]; logits are kept
    without dropout.

    *Costs:* the images of `memory` with a number for each class; two more gradients, and a pass forth, in
    every step.
    """

    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["derpp"] = "derpp"
    replayed: PositiveInt = Field(64, description="remembered rows in every step, once for each of the two")
    alpha: NonNegativeFloat = Field(0.5, description="how much what was said of memories counts")
    beta: NonNegativeFloat = Field(0.5, description="how much labels of memories count")

    def suits(self, settings: Settings) -> None:
        plain_only(self, settings)
        remembering(self, settings)

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world, logits=True)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        rehearsing = partial(rehearse, self, self.replayed, self.alpha, self.beta, world, stack, epoch)
        usual_epoch(world, stack, epoch, past=False, act=rehearsing)


def rehearse(
    learner: Learner, count: int, alpha: float, beta: float, world: World, stack: Stack, epoch: int,
    batch: Batch, number: int, parts: Mapping[str, Part],
) -> Turn:  # fmt: skip
    """Draw memories once or twice, and add their gradients to that of the new images, which are then remembered."""
    rngs, state = generators(stack, learner.method, stack.task, epoch, number), stack.of(learner.owner)
    old, at = reservoir.draw(state, count, rngs)
    more: list[tuple[float, dict[str, Tensor]]] = []
    if old.weight.any():
        said = state["said"].take_along_dim(at[..., None], 1)
        usage = reservoir.usage(world, stack, old, rngs)
        more.append((alpha, repeated(world, stack, parts, old, usage, said)))
        if beta:
            again, _ = reservoir.draw(state, count, rngs)
            more.append((beta, relearned(world, stack, parts, again, reservoir.usage(world, stack, again, rngs))))
            old = Batch(*(torch.cat(pair, 1) for pair in zip(old, again, strict=True)))
    reservoir.add(state, batch, rngs, reservoir.logits(world, stack, batch))
    return Turn((lambda found: added(found, *more),), also=old)
