"""The contract of learners: how an agent learns a task without forgetting the others."""

from typing import TYPE_CHECKING, Any

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from shoal.settings.part import Part

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Learner(Part):
    """What every learner is: these settings and its own. `shoal.learners.table.LEARNERS` lists the learners."""

    method: str = Field(description="how agents learn; else modular for modular nets and replay for others")
    epochs: PositiveInt = Field(100, description="epochs per task")
    batch: PositiveInt = Field(64, description="images per step")
    rate: PositiveFloat = Field(1e-3, description="Adam's learning rate")
    memory: NonNegativeInt = Field(32, description="replay images kept per finished task")
    fresh_adam: bool = Field(False, description="forget Adam's moments at the start of every task?")

    @property
    def door(self) -> str:
        """What finds this learner again: its name in the table, or `package.module:Name`."""
        from shoal.learners.table import LEARNERS

        return LEARNERS.door(self.method, type(self))

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Its settings, with a name by which they can be read back."""
        return {**handler(self), "method": self.door}

    def suits(self, settings: "Settings") -> None:
        """Raise if this learner cannot serve such agents."""
