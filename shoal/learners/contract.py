"""The contract of learners: settings that come with verbs."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from shoal.settings.part import Part, named

if TYPE_CHECKING:
    from torch import Tensor

    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.learners.additions import Addition
    from shoal.learners.step import Tensors
    from shoal.models.contract import Model
    from shoal.settings.groups import Settings
    from shoal.sharing.contract import Sharing


class Learner(Part):
    """How an agent learns its tasks: the settings of every learner and its own, and what it does before, in and after a
    task, for all lanes of a stack at once. `shoal.learners.table.LEARNERS` lists the learners.

    It keeps state under its own name, and may write what it lists in `writes` through the functions of those owners.
    """

    writes: ClassVar[tuple[str, ...]] = ()
    later: ClassVar[tuple[str, ...]] = ("fresh_adam",)  # settings that mean nothing while the initial tasks are learned
    example: ClassVar[Mapping[str, Any]] = {}  # settings with which it shows what it does in a tiny fleet, for tests
    serves: ClassVar[tuple[str, ...]] = ("task", "one", "grow")  # the `tasks.heads` that it makes sense with
    teaches: ClassVar[str] = ""  # the family of nets that it teaches (shoal/models/families.py); empty: any
    needs: ClassVar[tuple[str, ...]] = ()  # of "classes", where labels are predicted, and "memory", rows that are kept
    earlier: ClassVar[bool] = True  # does it learn from what others send for tasks that are finished?
    fixed: ClassVar[str] = ""  # why it cannot go on with more tasks than it began with, to follow "because"
    plain: ClassVar[bool] = False  # do the steps of an epoch follow each other, with nothing between them or added?
    method: str = Field(description="how agents learn; else modular for modular nets and replay for others")
    epochs: PositiveInt = Field(100, description="epochs per task")
    batch: PositiveInt = Field(64, description="rows per step")
    rate: PositiveFloat = Field(1e-3, description="the learning rate, Adam's or that of plain SGD")
    memory: NonNegativeInt = Field(32, description="replay rows kept per finished task")
    fresh_adam: bool = Field(False, description="forget Adam's moments at the start of every task?")
    optimiser: Literal["adam", "sgd"] = Field(
        "adam", description="who takes the steps: Adam, or plain SGD without momentum"
    )
    iterations: PositiveInt | None = Field(
        None, description="steps per task, dealt evenly to its epochs, instead of one pass over the rows in each"
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        named(cls, Learner)

    @property
    def door(self) -> str:
        """What finds this learner again: its name in the table, or `package.module:Name`."""
        from shoal.learners.table import LEARNERS

        return LEARNERS.door(self.method, type(self))

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Its settings, with a name by which they can be read back."""
        return {**handler(self), "method": self.door}

    @property
    def owner(self) -> str:
        """Whose state it keeps."""
        return self.method

    def steps(self, epoch: int) -> int | None:
        """How many steps an epoch of a task has, if it is not one pass."""
        if self.iterations is None:
            return None
        return self.iterations * (epoch + 1) // self.epochs - self.iterations * epoch // self.epochs

    @property
    def doubt(self) -> str:
        """Why what its settings say may not be meant, in a sentence that `shoal check` shows; empty: nothing is
        known."""
        return ""

    def unused(self, modes: "Iterable[Sharing]") -> str:
        """What agents would be sent for nothing, in a sentence that is shown before a run; empty: nothing."""
        asks = [mode.mode for mode in modes if mode.room and getattr(mode, "scope", "all") != "current"]
        if self.earlier or not asks:
            return ""
        return (
            f"the learner `{self.method}` learns nothing from rows of finished tasks, and `{'`, `'.join(asks)}` can "
            'bring such rows; share rows of the current task alone (scope = "current", where a mode has it), or use '
            "another learner"
        )

    def suits(self, settings: "Settings") -> None:
        """Raise if this learner cannot serve such agents, by what it says of nets, heads and rows."""
        from shoal.learners.plain import suited

        suited(self, settings)

    def holds(self, settings: "Settings", model: "Model") -> int:
        """Bytes that it keeps for each agent beside what every learner does, where they are many."""
        return 0

    def init(self, world: "World") -> dict[str, "Tensor"]:
        """What it keeps, named tensors with the lane axis first."""
        return {}

    def begin(self, world: "World", stack: "Stack") -> None:
        """What comes before the first epoch of a task that is learned on its own."""

    def epoch(self, world: "World", stack: "Stack", epoch: int) -> None:
        """One epoch of the current task, or of the initial tasks together, on a piece of the stack. Where nothing else
        is said, it is one pass over the task's own images."""
        from shoal.learners.usual import usual_epoch

        usual_epoch(world, stack, epoch, past=False)

    def additions(self) -> tuple["Addition", ...]:
        """What it adds to every step (shoal/learners/additions.py): a term in the loss, say."""
        return ()

    def end(self, world: "World", stack: "Stack") -> None:
        """What comes after the last epoch of a task, or of the initial tasks."""

    def answering(self, params: "Tensors", state: "Tensors", task: int) -> "Tensors":
        """The parameters with which one agent answers for a task, of all that it has; `state` is what this learner
        keeps for it."""
        return params

    @property
    def answers_apart(self) -> bool:
        """Has it an `answering` of its own, so that a lane may answer with other parameters than it has?"""
        return type(self).answering is not Learner.answering

    def now(self, world: "World", stack: "Stack") -> "Tensor":
        """The test accuracy [L] of the current task while it is learned."""
        from shoal.agents.evaluate import accuracy

        return accuracy(world, stack, "test", [stack.task])[:, 0]
