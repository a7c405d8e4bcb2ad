"""Joint training: the upper bound."""

from typing import ClassVar, Literal

from pydantic import Field

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.anew import anew
from shoal.learners.batches import trained
from shoal.learners.contract import Learner
from shoal.learners.usual import usual_epoch
from shoal.models.table import REPLAY


class Joint(Learner):
    """Joint training: every epoch goes through all images of all tasks so far, which is an upper bound.

    What a method loses against it is what it forgets, or learns worse for not forgetting; `fresh` begins each task with
    a new net.

    *Costs:* all images; no more in a step.
    """

    teaches: ClassVar[str] = REPLAY
    plain: ClassVar[bool] = True
    method: Literal["joint"] = "joint"
    fresh: bool = Field(False, description="does every task begin with a fresh net?")

    def begin(self, world: World, stack: Stack) -> None:
        if self.fresh:
            anew(world, stack, self.method)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        usual_epoch(world, stack, epoch, past=False, held=trained(world, range(stack.task + 1)))
