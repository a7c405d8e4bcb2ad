"""Modular nets with soft layer ordering: every depth mixes all modules, each task with its own weights
(docs/protocol.md, section 2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.models import heads
from shoal.models.base import Stacked
from shoal.models.blocks import Block
from shoal.models.contract import Masks, Usage, Which
from shoal.models.params import STRUCTURE, Params, pieces, whole

__all__ = ["STRUCTURE", "Modular", "Slots"]


class Slots(NamedTuple):
    """Which modules one agent has and uses; the first `basis` slots are always there."""

    place: Tensor  # int64 [C]: the number of the slot; candidates of a task all have its own slot's
    counted: Tensor  # bool [C]: takes part in the softmax
    visible: Tensor  # bool [C]: its output counts
    choice: Tensor  # int64 [initial, D]: the one module an initial task uses at each depth


@dataclass(frozen=True)
class Modular(Stacked):
    """Modules that every task composes in its own way, and a head per task."""

    block: Block
    depth: int
    tasks: int
    classes: int
    basis: int
    initial: int
    dropout_basis: bool
    rule: str  # of the initial tasks: `onehot` or `own`
    spare: int = 0  # places for further candidates while a task has its own on trial

    @property
    def pieced(self) -> tuple[str, ...]:
        return self.block.names

    @property
    def body(self) -> Mapping[str, int]:
        return dict.fromkeys(self.block.names, self.basis)

    @property
    def slots(self) -> int:
        """Places for modules: the basis, one for each task that may add a module, and the spare ones."""
        return self.basis + self.tasks - self.initial + self.spare

    def slot(self, task: int) -> int:
        """The slot of the module that `task` may add.

        It is the same for all lanes, so that growing is a mask and never a change of shape; and as slots are in the
        order of the tasks, the slots that a task may use are those up to its own. While it has several candidates, the
        others are in the slots behind, which later tasks have not used yet.
        """
        return self.basis + task - self.initial

    @property
    def numbers(self) -> int:
        structure = self.tasks * self.slots * self.depth
        return self.slots * self.block.numbers + structure + heads.numbers(self.tasks, self.classes, self.read)

    @property
    def work(self) -> int:
        return (self.basis + self.slots) // 2 * self.block.work(self.depth)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """One agent's initial parameters; the first axis of each counts units (slots, tasks)."""
        drawn = zip(self.block.names, self.block.start(rng, self.basis), strict=True)
        empty = self.slots - self.basis
        return {
            **{name: torch.cat([tensor, tensor.new_zeros(empty, *tensor.shape[1:])]) for name, tensor in drawn},
            STRUCTURE: torch.ones(self.tasks, self.slots, self.depth),
            **heads.start(rng, self.tasks, self.classes, self.block.features),
        }

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """Which slots hold a module [C], and the modules of the initial tasks [initial, D]."""
        return {"alive": torch.arange(self.slots) < self.basis, "choice": self.choose(rng)}

    def choose(self, rng: np.random.Generator) -> Tensor:
        """The modules of the initial tasks [initial, D]: `own`, task i has module i; `onehot`, random, none unused."""
        if self.rule == "own":
            return torch.arange(self.initial)[:, None].expand(self.initial, self.depth).contiguous()
        places = self.initial * self.depth
        needed = min(self.basis, places)
        for _ in range(1000):
            choice = rng.integers(self.basis, size=(self.initial, self.depth))
            if len(np.unique(choice)) == needed:
                return torch.from_numpy(choice)
        # With almost as many modules as places luck takes too long: give every module a place, then fill the rest.
        choice.flat[rng.permutation(places)[:needed]] = rng.permutation(self.basis)[:needed]
        return torch.from_numpy(choice)

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        return {"slots": self.used(kept, task)}

    def used(
        self,
        kept: Mapping[str, Tensor],
        task: int,
        width: int | None = None,
        hidden: Tensor | None = None,
        renormalise: bool = True,
    ) -> Slots:
        """The slots of all lanes by the time of a task, of which the first `width` take part; `hidden` [L, C] are left
        out, and out of the softmax too if it is to `renormalise`."""
        alive = kept["alive"][:, :width]
        visible = alive if hidden is None else alive & ~hidden[:, :width]
        youngest = max(self.slot(task), self.basis - 1)
        place = torch.arange(alive.shape[1], device=alive.device).clamp(max=youngest).expand_as(alive)
        return Slots(place, visible if renormalise else alive, visible, kept["choice"])

    def trimmed(self, params: Params, usage: Usage, task: int | None) -> tuple[Params, Usage]:
        params, slots, masks = self.trim(params, usage["slots"], usage.get("masks"), task)
        return params, {"slots": slots, "masks": masks}

    def composed(self, params: Params, usage: Usage, task: int) -> tuple[Params, Usage]:
        params, slots, _ = self.trim(params, usage["slots"], task=task)
        return params, {"slots": slots, "fold": self.block.folds}

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks for a batch over all slots."""
        return self.soft_masks(batch, self.slots)

    def soft_masks(self, batch: int, slots: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks for a soft batch over the first `slots` slots, one per depth."""
        return self.block.shapes(slots if self.dropout_basis else slots - self.basis, batch, self.depth)

    def initial_masks(self, batch: int) -> list[tuple[int, ...]]:
        """Shapes of the dropout masks for a batch of an initial task: one module a depth, if the basis has dropout."""
        return self.block.shapes(1 if self.dropout_basis else 0, batch, self.depth)

    def shares(self, params: Params, slots: Slots, task: int | None = None) -> Tensor:
        """How much of each module a task takes at each depth: [C, D] for one (later) task, [T, C, D] for all.

        A slot counts in the softmax if it is alive and not younger than the task. A hidden slot that is alive takes its
        share and gives nothing (the paper's code: the rest then sums to less than one); one that is not gets -inf, so
        the visible ones still sum to one. With a lane axis in all arguments, the result has one.
        """
        if task is not None:
            return self.soft(params, slots, task) * slots.visible[..., None]
        structure = whole(params[STRUCTURE])
        youngest = self.slot(self.initial) + torch.arange(self.tasks - self.initial, device=structure.device)
        usable = (slots.place[..., None, :] <= youngest[:, None]) & slots.counted[..., None, :]
        later = structure[..., self.initial :, :, :].masked_fill(~usable[..., None], -torch.inf).softmax(-2)
        fixed = (slots.place[..., None, :, None] == slots.choice[..., None, :]).to(later.dtype)
        return torch.cat([fixed, later * slots.visible[..., None, :, None]], -3)

    def soft(self, params: Params, slots: Slots, task: int) -> Tensor:
        """The softmax [C, D] of one (later) task's structure; of all lanes [L, C, D], where all comes with lanes."""
        usable = (slots.place <= self.slot(task)) & slots.counted
        return whole(params[STRUCTURE])[..., task, :, :].masked_fill(~usable[..., None], -torch.inf).softmax(-2)

    def features(
        self,
        params: Params,
        x: Tensor,
        task: Which,
        training: bool = False,
        *,
        slots: Slots,
        masks: Masks = None,
        fold: bool = False,
    ) -> Tensor:
        """What the head reads, [B, F]: every task composes the modules in its own way.

        Hidden slots at the end need no module in `params`.
        `fold` puts the shares of one task into the weights, s * relu(Wh + b) = relu(sWh + sb): cheaper when the batch
        is larger than a module is wide, that is in evaluation.
        """
        run: Callable[..., Tensor] = self.block.run
        h = self.block.enter(x)
        if isinstance(task, int) and task < self.initial:
            tensors, chosen = [whole(params[name]) for name in self.block.names], slots.choice[task]
            for k in range(self.depth):
                outputs = run(*(tensor[chosen[k : k + 1]] for tensor in tensors), h)
                h = self.block.total(outputs * masks[k] if masks else outputs)
            return self.block.leave(h)
        shares = self.shares(params, slots, task) if isinstance(task, int) else self.shares(params, slots)[task]
        groups = self.groups(params, masks)
        sizes = [len(parts[0]) for parts, _ in groups]
        shares = shares[..., : sum(sizes), :]
        for k in range(self.depth):
            mixed = []
            for (parts, mask), share in zip(groups, shares[..., k].split(sizes, -1), strict=True):
                if fold:
                    scaled = (part * share.reshape(-1, *[1] * (part.ndim - 1)) for part in parts)
                    mixed.append(self.block.total(run(*scaled, h)))
                else:
                    outputs = run(*parts, h)
                    mixed.append(self.block.mix(outputs if mask is None else outputs * mask[k], share))
            h = sum(mixed[1:], mixed[0])
        return self.block.leave(h)

    def trim(
        self, params: Params, slots: Slots, masks: Sequence[Tensor] | None = None, task: int | None = None
    ) -> tuple[Params, Slots, Sequence[Tensor] | None]:
        """The same net without the slots that are empty, or that `task` cannot have. (Not under `vmap`, where every
        lane must have the same shape.) The basis always stays."""
        if task is not None and task < self.initial:
            return params, slots, masks
        stays = slots.counted if task is None else slots.counted & (slots.place <= self.slot(task))
        if bool(stays.all()):
            return params, slots, masks
        at = stays.nonzero().squeeze(1)
        less = dict(params)
        less[STRUCTURE] = whole(params[STRUCTURE])[:, at]
        for name in self.block.names:
            less[name] = chosen = []
            first = 0
            for piece in pieces(params[name]):
                mine = stays[first : first + len(piece)].nonzero().squeeze(1)
                if len(mine):
                    chosen.append(piece if len(mine) == len(piece) else piece[mine])
                first += len(piece)
        if masks:
            plain, modules = 0 if self.dropout_basis else self.basis, sum(map(len, pieces(params[self.block.names[0]])))
            dropped = at[(at >= plain) & (at < modules)] - plain
            masks = [mask.index_select(self.block.axis, dropped) for mask in masks]
        return less, Slots(slots.place[at], slots.counted[at], slots.visible[at], slots.choice), masks

    def groups(
        self, params: Params, masks: Sequence[Tensor] | None
    ) -> list[tuple[tuple[Tensor, ...], list[Tensor] | None]]:
        """The modules in groups (their tensors, masks by depth): as they come in pieces, cut where dropout begins."""
        grouped = list(zip(*(pieces(params[name]) for name in self.block.names), strict=True))
        if masks is None:
            return [(parts, None) for parts in grouped]
        plain = 0 if self.dropout_basis else self.basis
        found: list[tuple[tuple[Tensor, ...], list[Tensor] | None]] = []
        at = 0
        for tensors in grouped:
            count = len(tensors[0])
            cut = min(max(plain - at, 0), count)
            sizes = [size for size in (cut, count - cut) if size]
            for parts in zip(*(tensor.split(sizes) for tensor in tensors), strict=True):
                first = at - plain
                mask = [one.narrow(self.block.axis, first, len(parts[0])) for one in masks] if first >= 0 else None
                found.append((parts, mask))
                at += len(parts[0])
        return found
