"""LwF (Li & Hoiem 2016, arXiv:1606.09282)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, once_kept, penalised
from shoal.learners.contract import Learner
from shoal.learners.step import Frame
from shoal.models import heads
from shoal.models.params import whole
from shoal.models.table import REPLAY

KNOWN = "known"


class LwF(Learner):
    """Learning without forgetting: earlier heads go on saying what they said of the new task's images.

    *Source:* Li & Hoiem 2016.

    Cross-entropy between what the net of the last task's end says of new images and what it says now, at temperature 2,
    summed over earlier heads; one head for all counts as often as there were tasks, one that grows once, and what it
    said is of the classes of then.

    *Costs:* a second net, which goes forth and back in every step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("classes",)
    method: Literal["lwf"] = "lwf"
    strength: NonNegativeFloat = Field(1.0, description="how much what earlier heads said counts")
    temperature: PositiveFloat = Field(2.0, description="of what heads say")

    def end(self, world: World, stack: Stack) -> None:
        """Keep the net as it is now and, of a head that has all classes, which it knows."""
        if world.named:
            stack.of(self.owner)[KNOWN] = world.open[:, : stack.task + 1].any(1)
        for name, tensor in stack.params.items():
            stack.of(self.owner)[name] = tensor.clone()

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, once_kept(self.owner), self.penalty),)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's sum over earlier tasks of CE(softmax(z_before / T), softmax(z / T)), the mean over images."""
        model, batch = frame.model, frame.batch
        names = set(model.heads)
        before = {  # of heads those that the step has
            name: one[: len(whole(frame.params[name]))] if name in names else one
            for name, one in frame.state.items()
            if name != KNOWN
        }
        known, usage = frame.known, frame.usage
        quiet = {name: one for name, one in usage.items() if name != "masks"}  # a teacher has no dropout
        old = heads.every(before, model.features(before, batch.x, batch.task, **quiet))
        new = heads.every(frame.params, model.features(frame.params, batch.x, batch.task, training=True, **usage))
        if known is not None:
            old, new = (one.masked_fill(~known[: one.shape[1]], heads.CLOSED) for one in (old, new))
        grown = frame.state.get(KNOWN)
        if grown is not None:
            old = old.masked_fill(~grown, heads.CLOSED)
        said = (old / self.temperature).softmax(-1)
        lost = -(said * (new / self.temperature).log_softmax(-1)).sum(-1)  # [B, T]
        times = torch.arange(lost.shape[1], device=lost.device) < batch.task[:, None]
        if lost.shape[1] == 1 and grown is None:
            times = batch.task[:, None]
        total = (lost * times).sum(1)
        return self.strength * (total * batch.weight).sum() / batch.weight.sum().clamp(min=1)
