"""Learning on a frozen backbone: the mask or the biases of a task, and its head, are all that trains.

Masks: Wortsman et al. 2020 (SupSup), combined as by Ben-Iwhiwhu et al. 2023; biases: Ge et al. 2023 (SKILL).
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.learners.step import Part, Tensors
from shoal.learners.usual import own_epoch
from shoal.models.frozen import SCORES, combined
from shoal.models.table import FROZEN
from shoal.settings.groups import Settings

MIXING = "mixing"


class Frozen(Learner):
    """The weights of the net stay as they were drawn; a task learns a mask of them, or biases, and its head.

    *Source:* masks: Wortsman et al. 2020; combined: Ben-Iwhiwhu et al. 2023; biases: Ge et al. 2023.

    For nets on weights that nobody trains, sign(N(0, 1)) √(2 / width), the same everywhere. `masked-mlp`: every task
    has scores S for all weights, a layer is ReLU((W · [S ≥ 0]) h), gradients go straight through; with `combine` the
    scores are a softmax mixture, per layer, of one's own and those of all earlier tasks. `frozen-mlp`: every task has
    biases β, a layer is ReLU(W h + β) stretched to length √width. A task trains its own scores or biases and its own
    head, so nothing can be forgotten.

    *Costs:* the scores or biases of every task; no more in a step.
    """

    teaches: ClassVar[str] = FROZEN
    serves: ClassVar[tuple[str, ...]] = ("task",)
    earlier: ClassVar[bool] = False  # what a task has learned stays as it is
    method: Literal["frozen"] = "frozen"
    combine: bool = Field(
        False, description="does a task begin with a mixture of the scores of all tasks before it (masked nets)?"
    )

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        if self.combine and not settings.model.startswith("masked"):
            raise SettingsError(
                f"learner.combine mixes the scores of masks, and `{settings.model}` has biases; leave it out, or use "
                'model = "masked-mlp"'
            )

    def init(self, world: World) -> dict[str, Tensor]:
        """Which task is being combined, -1: none."""
        return {MIXING: torch.full((len(world.lanes),), -1)} if self.combine else {}

    def begin(self, world: World, stack: Stack) -> None:
        if self.combine and stack.task:
            stack.of(self.owner)[MIXING].fill_(stack.task)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        """One pass over the task, or over each of the initial tasks."""
        first = world.settings.tasks.initial
        stack.moved[:] |= stack.task < first
        names = [name for name in stack.params if name != "mix" or self.combine]

        def parts(task: int) -> dict[str, Part]:
            return {name: (slice(task, task + 1),) for name in names}

        mixed = self.combine and stack.task >= max(first, 1)
        usage = {MIXING: torch.ones(len(stack.lanes), device=world.device)} if mixed else {}
        own_epoch(world, stack, epoch, self.method, parts, usage)

    def end(self, world: World, stack: Stack) -> None:
        """What was combined becomes the task's own."""
        if self.combine and int(stack.of(self.owner)[MIXING][0]) >= 0:
            for row in range(len(stack.lanes)):
                own = {name: stack.params[name][row] for name in stack.params}
                stack.params[SCORES][row, stack.task] = combined(own, stack.task)
            stack.of(self.owner)[MIXING].fill_(-1)

    def answering(self, params: Tensors, state: Tensors, task: int) -> Tensors:
        if not self.combine or int(state[MIXING]) != task:
            return params
        scores = params[SCORES].clone()
        scores[task] = combined(params, task)
        return params | {SCORES: scores}
