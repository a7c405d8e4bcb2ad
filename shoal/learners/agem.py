"""A-GEM (Chaudhry et al. 2019, arXiv:1812.00420)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, common_units
from shoal.learners.batches import remembered
from shoal.learners.contract import Learner
from shoal.learners.rehearsal import luck, relearned
from shoal.learners.step import Part, Step, Tensors, unwritten
from shoal.learners.usual import usage_of
from shoal.models.table import REPLAY


class AGEM(Learner):
    """Averaged gradient episodic memory: no step may raise the loss on what is remembered.

    *Source:* Chaudhry et al. 2019.

    If g·r < 0: g −= (g·r / r·r) r, with r the gradient on memories; both over what all tasks use, r without dropout.

    *Costs:* the images of `memory`, and a second gradient in every step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("memory",)
    method: Literal["agem"] = "agem"
    reference: PositiveInt = Field(128, description="remembered rows that every step is compared with")

    def additions(self) -> tuple[Addition, ...]:
        return (self.compare,)

    def compare(self, world: World, stack: Stack, step: Step) -> Step:
        """A step whose gradients are compared with those on memories."""
        if stack.task < world.settings.tasks.initial:
            return step
        past = remembered(stack, self.reference, luck(self, stack, step))
        parts: dict[str, Part] = {name: (slice(0, units),) for name, units in common_units(world).items()}
        with unwritten(stack, ~step.images.weight.any(1)):
            wanted = relearned(world, stack, parts, past, usage_of(world, stack))
        return step._replace(changes=(lambda found: projected(found, wanted),))


def projected(found: Tensors, wanted: Tensors) -> Tensors:
    """Every lane's gradients without what points against those that are `wanted`; the heads of single tasks stay as
    they are."""
    both = dot(found, wanted)
    share = torch.where(both < 0, both / dot(wanted, wanted).clamp(min=torch.finfo(both.dtype).tiny), 0)
    changed = {name: found[name] - share.view(-1, *[1] * (one.ndim - 1)) * one for name, one in wanted.items()}
    return found | changed


def dot(one: Tensors, other: Tensors) -> Tensor:
    """The inner product [L] of two gradients, over all that the second has."""
    return torch.stack([(one[name] * tensor).flatten(1).sum(1) for name, tensor in other.items()]).sum(0)
