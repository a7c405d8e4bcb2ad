"""DER and DER++ (Buzzega et al. 2020, arXiv:2004.07211)."""

from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.additions import Addition
from shoal.learners.batches import Batch
from shoal.learners.contract import Learner
from shoal.learners.rehearsal import added, luck, relearned, repeated
from shoal.learners.step import Step, Tensors
from shoal.models.table import REPLAY


class DER(Learner):
    """Dark experience replay: of remembered images the net goes on saying what it said when they came.

    *Source:* Buzzega et al. 2020.

    Cross-entropy + α MSE(logits, logits when the image was stored) [+ β cross-entropy of another draw]; logits are kept
    without dropout.

    *Costs:* the images of `memory` with a number for each class; a second gradient, and a pass forth, in every
    step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("memory",)
    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["der"] = "der"
    replayed: PositiveInt = Field(64, description="remembered rows in every step")
    alpha: NonNegativeFloat = Field(0.5, description="how much what was said of memories counts")

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world, logits=True)

    def additions(self) -> tuple[Addition, ...]:
        return (self.rehearse,)

    def rehearse(self, world: World, stack: Stack, step: Step, beta: float = 0.0) -> Step:
        """Draw memories once or twice, and add their gradients to that of the new images, which are then remembered."""
        rngs, state = luck(self, stack, step), stack.of(self.owner)
        old, at = reservoir.draw(state, self.replayed, rngs)
        more: list[tuple[float, Tensors]] = []
        if old.weight.any():
            said = state["said"].take_along_dim(at[..., None], 1)
            usage = reservoir.usage(world, stack, old, rngs)
            more.append((self.alpha, repeated(world, stack, step.parts, old, usage, said)))
            if beta:
                again, _ = reservoir.draw(state, self.replayed, rngs)
                usage = reservoir.usage(world, stack, again, rngs)
                more.append((beta, relearned(world, stack, step.parts, again, usage)))
                old = Batch(*(torch.cat(pair, 1) for pair in zip(old, again, strict=True)))
        reservoir.add(state, step.images, rngs, reservoir.logits(world, stack, step.images))
        return step._replace(changes=(lambda found: added(found, *more),), also=old)


class DERpp(DER):
    """Dark experience replay with labels: what was said of some memories, and the true labels of others.

    *Source:* Buzzega et al. 2020.

    Cross-entropy + α MSE(logits, logits when the image was stored) [+ β cross-entropy of another draw]; logits are kept
    without dropout.

    *Costs:* the images of `memory` with a number for each class; two more gradients, and a pass forth, in
    every step.
    """

    method: Literal["derpp"] = "derpp"  # type: ignore[assignment]
    replayed: PositiveInt = Field(64, description="remembered rows in every step, once for each of the two")
    beta: NonNegativeFloat = Field(0.5, description="how much labels of memories count")

    def additions(self) -> tuple[Addition, ...]:
        return (partial(self.rehearse, beta=self.beta),)
