"""Component dropout with growth: a new module is on trial in every task, and kept if it helps."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt

from shoal.errors import SettingsError
from shoal.learners.contract import Learner

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Growth(Learner):
    """Learning by growing modules, for modular nets."""

    method: Literal["modular"] = "modular"
    adaptation: PositiveInt | Literal["last", "never"] = Field(
        "last", description="epochs that adapt all modules on replay: the last of a task, every n-th, or none (modular)"
    )
    accept: float = Field(
        0.05,
        ge=-1,
        description="relative gain on validation data above which a new module is kept; -1: always (modular)",
    )
    hidden: Literal["renormalise", "keep"] = Field(
        "renormalise", description="softmax over the visible slots, or over all with the hidden one left out (modular)"
    )
    current: Literal["validation", "max", "with", "without"] = Field(
        "validation",
        description="the current task's accuracy while a candidate is on trial: which net counts (modular)",
    )

    def suits(self, settings: "Settings") -> None:
        if not settings.modular:
            raise SettingsError(
                f"the learner `modular` needs a modular model, got `{settings.model}`; use model = "
                f'"modular-{settings.model}" or another learner.method'
            )


def growth(settings: "Settings") -> Growth:
    """The learner of agents that grow modules."""
    assert isinstance(settings.learner, Growth)  # `suits` has seen to it
    return settings.learner
