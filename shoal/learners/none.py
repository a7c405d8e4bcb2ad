"""Fine-tuning: the control for learners that do something against forgetting."""

from typing import ClassVar, Literal

from shoal.learners.contract import Learner
from shoal.models.table import REPLAY


class Nothing(Learner):
    """Fine-tuning: every task is learned on its own images, and nothing is done against forgetting.

    *Costs:* nothing beside its net, and no more in a step.
    """

    teaches: ClassVar[str] = REPLAY
    plain: ClassVar[bool] = True
    method: Literal["none"] = "none"
