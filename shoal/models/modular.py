"""Modular nets with soft layer ordering: every depth mixes all modules, each task with its own weights (spec 2.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.models import heads
from shoal.models.cnn import Conv
from shoal.models.mlp import Linear


class Slots(NamedTuple):
    """Which modules one agent has and uses; the first `basis` slots are always there."""

    alive: Tensor  # bool [C]: takes part in the softmax
    visible: Tensor  # bool [C]: its output counts
    choice: Tensor  # int64 [initial, D]: the one module an initial task uses at each depth


@dataclass(frozen=True)
class Modular:
    """Modules that every task composes in its own way, and a head per task."""

    block: Linear | Conv
    depth: int
    tasks: int
    classes: int
    basis: int
    initial: int
    dropout_basis: bool

    @property
    def slots(self) -> int:
        """Places for modules: the basis, and one for each task that may add a module."""
        return self.basis + self.tasks - self.initial

    def slot(self, task: int) -> int:
        """The slot of the module that `task` may add.

        It is the same for all lanes, so that growing is a mask and never a change of shape; and as slots are in the
        order of the tasks, the slots that a task may use are those up to its own.
        """
        return self.basis + task - self.initial

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """One agent's initial parameters; the first axis of each counts units (slots, tasks)."""
        weight, bias = self.block.start(rng, self.basis)
        empty = self.slots - self.basis
        return {
            "module.weight": torch.cat([weight, weight.new_zeros(empty, *weight.shape[1:])]),
            "module.bias": torch.cat([bias, bias.new_zeros(empty, *bias.shape[1:])]),
            "structure": torch.ones(self.tasks, self.slots, self.depth),
            **heads.start(rng, self.tasks, self.classes, self.block.features),
        }

    def choose(self, rng: np.random.Generator, rule: str) -> Tensor:
        """The modules of the initial tasks [initial, D]: `own`, task i has module i; `onehot`, random, none unused."""
        if rule == "own":
            return torch.arange(self.initial)[:, None].expand(self.initial, self.depth).contiguous()
        needed = min(self.basis, self.initial * self.depth)
        while True:
            choice = rng.integers(self.basis, size=(self.initial, self.depth))
            if len(np.unique(choice)) == needed:
                return torch.from_numpy(choice)

    def masks(self, batch: int, slots: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks for a soft batch over the first `slots` slots, one per depth."""
        return self.block.shapes(slots if self.dropout_basis else slots - self.basis, batch, self.depth)

    def masks_initial(self, batch: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks for a batch of an initial task: one module a depth, if the basis has dropout."""
        return self.block.shapes(1 if self.dropout_basis else 0, batch, self.depth)

    def shares(self, params: dict[str, Tensor], slots: Slots, task: int | None = None) -> Tensor:
        """How much of each module a task takes at each depth: [C, D] for one (later) task, [T, C, D] for all.

        A slot counts in the softmax if it is alive and not younger than the task. A hidden slot that is alive takes its
        share and gives nothing (the paper's code: the rest then sums to less than one); one that is not gets -inf, so
        the visible ones still sum to one.
        """
        structure = params["structure"]
        slot = torch.arange(structure.shape[1], device=structure.device)
        if task is not None:
            usable = (slot <= self.slot(task)) & slots.alive
            return structure[task].masked_fill(~usable[:, None], -torch.inf).softmax(0) * slots.visible[:, None]
        youngest = self.slot(self.initial) + torch.arange(self.tasks - self.initial, device=structure.device)
        usable = (slot <= youngest[:, None]) & slots.alive
        soft = structure[self.initial :].masked_fill(~usable[..., None], -torch.inf).softmax(1)
        fixed = F.one_hot(slots.choice, len(slot)).transpose(1, 2).to(soft.dtype)
        return torch.cat([fixed, soft * slots.visible[:, None]])

    def logits(
        self,
        params: dict[str, Tensor],
        x: Tensor,
        task: int | Tensor,
        slots: Slots,
        masks: Sequence[Tensor] | None = None,
        fold: bool = False,
    ) -> Tensor:
        """Logits [B, K] of one agent for images x of one task, or of tasks task[B].

        `fold` puts the shares of one task into the weights, s * relu(Wh + b) = relu(sWh + sb): cheaper when the batch
        is larger than a module is wide, that is in evaluation.
        """
        weight, bias = params["module.weight"], params["module.bias"]
        h = self.block.enter(x)
        if isinstance(task, int) and task < self.initial:
            chosen = slots.choice[task]
            for k in range(self.depth):
                outputs = self.block.run(weight[chosen[k : k + 1]], bias[chosen[k : k + 1]], h)
                h = self.block.total(outputs * masks[k] if masks else outputs)
            return heads.read(params, self.block.leave(h), task)
        shares = self.shares(params, slots, task) if isinstance(task, int) else self.shares(params, slots)[task]
        for k in range(self.depth):
            share = shares[..., k]
            if fold:
                scale = share.reshape(-1, *[1] * (weight.ndim - 1))
                h = self.block.total(self.block.run(weight * scale, bias * share[:, None], h))
            elif masks is None:
                h = self.block.mix(self.block.run(weight, bias, h), share)
            elif self.dropout_basis:
                h = self.block.mix(self.block.run(weight, bias, h) * masks[k], share)
            else:
                n = self.basis
                plain = self.block.run(weight[:n], bias[:n], h)
                dropped = self.block.run(weight[n:], bias[n:], h) * masks[k]
                h = self.block.mix(plain, share[..., :n]) + self.block.mix(dropped, share[..., n:])
        return heads.read(params, self.block.leave(h), task)
