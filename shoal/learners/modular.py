"""Modular growth: every new task tries a module of its own and keeps it if validation data says so."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from shoal.learners.contract import Learner
from shoal.models.table import GROWTH

if TYPE_CHECKING:
    from torch import Tensor

    from shoal.agents.stack import Stack
    from shoal.agents.world import World


class Growth(Learner):
    """Component dropout with growth: every task tries a module of its own (Mendez & Eaton 2021).

    *Source:* Mendez & Eaton 2021; nets: Meyerson & Miikkulainen 2018.

    The paper's learner for modular nets (docs/protocol.md). At every depth h ← Σ_m softmax(s)_m
    ReLU(W_m h + b_m) over the modules m that the task can use; the structure s is the task's own. A new task brings a
    candidate module. In every epoch but the last each batch makes a step with the candidate, which trains it, the
    structure and the head, and one without it, which trains structure and head; the last epoch trains all modules and
    nothing else, on the task and all memories. The candidate is kept if r₁ − r₀ > `accept` (0.05) · r₀, with r₁ and r₀
    the validation images that are right with it and without.

    *Changed:* `hidden = "renormalise"` takes the softmax without the hidden candidate, where the paper's code left it
    in (`keep`); on the way the accuracy of a task is that of the net which is better on validation images, where the
    paper's code took the larger of two on test images (`current`).

    *Costs:* the images of `memory`, modules, and a structure for every task; each batch is learned twice, and
    all modules are computed at every depth.
    """

    teaches: ClassVar[str] = GROWTH
    later: ClassVar[tuple[str, ...]] = (*Learner.later, "adaptation", "accept", "hidden", "current")
    example: ClassVar[Mapping[str, Any]] = {"accept": -1.0}
    plain: ClassVar[bool] = True
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

    @property
    def doubt(self) -> str:
        if self.memory or not any(self.adapts(epoch) for epoch in range(self.epochs)):
            return ""
        return (
            "learner.memory = 0 leaves nothing to replay: epochs that adapt all modules see no images kept of earlier "
            'tasks, which may be forgotten; raise it, or say learner.adaptation = "never"'
        )

    def init(self, world: "World") -> dict[str, "Tensor"]:
        from shoal.learners.candidates import init

        return init(world)

    def begin(self, world: "World", stack: "Stack") -> None:
        from shoal.learners.candidates import begin

        begin(world, stack)

    def epoch(self, world: "World", stack: "Stack", epoch: int) -> None:
        from shoal.learners import growth

        if stack.task < world.settings.tasks.initial:
            growth.initial(world, stack, epoch)
        elif self.adapts(epoch):
            growth.adapt(world, stack, epoch)
        else:
            growth.assimilate(world, stack, epoch)

    def adapts(self, epoch: int) -> bool:
        """Does this epoch adapt all modules?"""
        done = epoch + 1
        if isinstance(self.adaptation, int):
            return done % self.adaptation == 0
        return self.adaptation == "last" and done == self.epochs

    def end(self, world: "World", stack: "Stack") -> None:
        from shoal.learners.candidates import end

        if stack.task >= world.settings.tasks.initial:
            end(world, stack)

    def now(self, world: "World", stack: "Stack") -> "Tensor":
        from shoal.learners.candidates import now

        return now(world, stack) if stack.task >= world.settings.tasks.initial else super().now(world, stack)
