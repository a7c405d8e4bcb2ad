"""Experience replay: every epoch is one pass over the new task and the memories of all tasks before."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from shoal.learners.contract import Learner
from shoal.models.table import REPLAY

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World


class Replay(Learner):
    """Replay of images from earlier tasks; everything trains.

    The paper's learner for nets in one piece (docs/protocol.md). At the end of a task
    `memory` (32) of its training images are kept, drawn uniformly; an epoch is one pass over the new task and all
    memories, each image through the head of its own task.

    *Changed:* memories hold an agent's own images alone; `balance` (off) repeats them until there are as many as new
    ones.

    *Costs:* the images of `memory`; nothing more in a step, because memories are part of the pass.
    """

    teaches: ClassVar[str] = REPLAY
    plain: ClassVar[bool] = True
    method: Literal["replay"] = "replay"
    balance: bool = Field(False, description="repeat what is replayed until there is as much of it as of the new task?")

    @property
    def doubt(self) -> str:
        if self.memory:
            return ""
        return 'learner.memory = 0 leaves nothing to replay: agents learn each task alone, as with learner = "none"'

    def epoch(self, world: "World", stack: "Stack", epoch: int) -> None:
        from shoal.learners.usual import usual_epoch

        usual_epoch(world, stack, epoch, past=True, balance=self.balance)
