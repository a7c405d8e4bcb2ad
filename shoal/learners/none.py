"""Fine-tuning: the control for learners that do something against forgetting."""

from typing import TYPE_CHECKING, ClassVar, Literal

from shoal.learners.contract import Learner
from shoal.learners.plain import plain_only

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Nothing(Learner):
    """Fine-tuning: every task is learned on its own images, and nothing is done against forgetting.

    *Costs:* nothing beside its net, and no more in a step.
    """

    plain: ClassVar[bool] = True
    method: Literal["none"] = "none"

    def suits(self, settings: "Settings") -> None:
        plain_only(self, settings)
