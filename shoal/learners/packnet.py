"""PackNet (Mallya & Lazebnik 2018, arXiv:1711.05769)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from shoal.agents.stack import MEAN, VAR, Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition
from shoal.learners.contract import Learner
from shoal.learners.step import Step, Tensors
from shoal.models.contract import shapes
from shoal.models.table import REPLAY
from shoal.settings.groups import Settings


class PackNet(Learner):
    """Pruning and packing: every task keeps some weights for ever, later ones use them and learn with the rest.

    *Source:* Mallya & Lazebnik 2018.

    Train free weights, prune the smallest of each layer after two thirds of the epochs, retrain, freeze; a task answers
    with the weights up to its own. Biases belong to the first task.
    For a head per task, not with federated modes.

    *Costs:* two bytes for each weight, and a product with a mask in every step.
    """

    teaches: ClassVar[str] = REPLAY
    serves: ClassVar[tuple[str, ...]] = ("task",)
    earlier: ClassVar[bool] = False  # what a task has learned stays as it is
    fixed: ClassVar[str] = "every task keeps its share of the weights, of which there are as many as tasks"
    method: Literal["packnet"] = "packnet"
    prune: float | None = Field(
        None, gt=0, lt=1, description="the share of the free weights that is given back; else every task keeps as many"
    )

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        for mode in settings.sharing:
            if mode.writes_weights:
                raise SettingsError(
                    f"the learner `packnet` keeps the weights of finished tasks as they are, and `{mode.mode}` may "
                    "change them; share by another mode, or use another learner"
                )

    def init(self, world: World) -> dict[str, Tensor]:
        """Whose each weight is (0: nobody's, t + 1: task t's, 1: initial), and how many are `packed`."""
        count = len(world.lanes)
        sizes = {name: (count, *shapes(world.model)[name]) for name in world.model.body}
        owners = {name: torch.zeros(size, dtype=torch.int16, device=world.device) for name, size in sizes.items()}
        return {**owners, "packed": torch.zeros(count, dtype=torch.int64)}

    def begin(self, world: World, stack: Stack) -> None:
        for name in world.model.body:
            calm(stack, name, stack.of(self.owner)[name] > 0)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        if epoch == self.epochs - self.epochs // 3:
            self.pack(world, stack)
        super().epoch(world, stack, epoch)

    def end(self, world: World, stack: Stack) -> None:
        if self.epochs < 3:
            self.pack(world, stack)

    def additions(self) -> tuple[Addition, ...]:
        return (self.hold,)

    def hold(self, world: World, stack: Stack, step: Step) -> Step:
        """Only what is free trains or, once the task is packed, what is its own."""
        state, own = stack.of(self.owner), mark(world, stack)
        mine = own if bool((state["packed"] > stack.task).any()) else 0

        def change(found: Tensors) -> Tensors:
            return found | {name: found[name].where(state[name] == mine, 0) for name in world.model.body}

        return step._replace(changes=(change,))

    def pack(self, world: World, stack: Stack) -> None:
        """Keep the largest free weights of every layer for the task, and give the others back."""
        state, tasks, own = stack.of(self.owner), world.settings.tasks, mark(world, stack)
        new = tasks.initial if own == 1 else 1
        share = new / (tasks.count - stack.task + new - 1) if self.prune is None else 1 - self.prune
        for name in world.model.body:
            owners, value = state[name], stack.params[name]
            free = owners == 0
            size = value.abs().masked_fill(~free, -1).flatten(2)
            rank = size.argsort(dim=2, descending=True, stable=True).argsort(2).view_as(value)
            many = free.flatten(2).sum(2).mul(share).round().view(*value.shape[:2], *[1] * (value.ndim - 2))
            kept = free & (rank < many) if value.ndim > 3 else free  # biases have no small ones
            owners[kept] = own
            value[free & ~kept] = 0
            calm(stack, name, owners != own)
        state["packed"].fill_(stack.task + 1)

    def answering(self, params: Tensors, state: Tensors, task: int) -> Tensors:
        if task >= int(state["packed"]):
            return params
        owned = {name: one for name, one in state.items() if name in params}
        return params | {name: params[name].where((one > 0) & (one <= task + 1), 0) for name, one in owned.items()}


def mark(world: World, stack: Stack) -> int:
    """By what number the weights of the current task are known."""
    return 1 if stack.task < world.settings.tasks.initial else stack.task + 1


def calm(stack: Stack, name: str, still: Tensor) -> None:
    """Forget the moments of weights that stand still, or Adam would go on moving them."""
    for owner in (MEAN, VAR):
        stack.of(owner)[name].masked_fill_(still, 0)
