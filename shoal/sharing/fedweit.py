"""FedWeIT (Yoon et al. 2021) without the server: neighbours average the base, and attend to each other's parts."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil, prod
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.slots import slots
from shoal.agents.stack import MODEL
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.decomposed import hear
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected
from shoal.models.decomposed import BASE, LAST, SCALE, Decomposed
from shoal.models.families import family
from shoal.models.table import DECOMPOSED
from shoal.settings.groups import Settings
from shoal.sharing.body import far_larger, net_of
from shoal.sharing.mode import Draft, Mode, Present, Received

LARGE = 100.0  # no entry of a part that is sent is larger


class FedWeIT(Mode):
    """Averaging of the base, unit by unit where its scale is large, and sparse parts of tasks that others attend to.

    For `decomposed-mlp` and its learner `decomposed`.

    *Source:* FedWeIT (Yoon et al. 2021).

    *Formula:* the weights of a layer for task t are θ = B · σ(m) + A + Σ_j α_j A_j: a base B, a scale m for each output
    unit, a sparse part A, and others' parts A_j, each with a number α_j per layer. Loss + `sparse` |A|₁ + `decay`/2
    (|A|² + |m|²) + `drift`/2 Σ_{u<t} |(B − B₀) · σ(m_u)|², B₀ the agent's own base at the end of the task before; the
    first task pays `decay`/2 |B|² instead. The sum over u is one number per unit. At a task's end entries with |A| ≤
    `sparse` become zero and Σ α_j A_j is added to A.

    *Sent:* at every exchange the base of the `share` (0.7) of the units of each layer with the largest |m|, averaged
    unit by unit over all that have it; with the first exchange of a task the part of the task before, its non-zero
    entries and a bit for every entry, the largest where not all fit. An agent attends to the part of its own task
    before and to those of 16 neighbours at most.

    *Price:* depth (share · width² + width/32 + 1) numbers per exchange; per task the non-zero entries and depth ·
    width²/32 words.

    *Changed:* one loss over B in place of a copy of all earlier weights (equal); parts are pruned at the end of a task;
    the rate stays as it is.
    """

    between: ClassVar[str] = "agents of model decomposed-mlp with the same net.width and net.depth"
    writes: ClassVar[tuple[str, ...]] = (MODEL,)
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["fedweit"] = "fedweit"
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before"] = Field("before", description="exchange before every so many epochs")
    share: float = Field(0.7, gt=0, le=1, description="the share of the units of a layer that is sent")

    def suits(self, settings: Settings) -> None:
        if family(settings) != DECOMPOSED:
            raise SettingsError(
                f"mode `fedweit` shares a base and parts of tasks, and `{settings.model}` has none; use model = "
                '"decomposed-mlp", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    @property
    def letters(self) -> Mapping[str, Letter]:
        """The base, which is common to all, layer by layer; and before it the part of a task, which is grown for it as
        a module is, entry by entry."""
        part, base = partial(self.look, "part"), partial(self.look, "base")
        return {
            "part": Letter(part, entries, ("modules",)),
            "base": Letter(base, lambda world: world.settings.net.depth, ("models",), behind="part"),
        }

    def look(self, kind: str, world: World) -> dict[str, Expected]:
        """What letters of a kind look like."""
        width = world.settings.net.width
        if kind == "part":
            values = Expected(torch.float32, (None,), least=-LARGE, most=LARGE)
            return {"values": values, "bits": Expected(torch.int32, (words(entries(world)),))}
        return {
            "base": Expected(torch.float32, (None, self.many(width), width)),
            "units": Expected(torch.int32, (None, words(width))),
            "layers": Expected(torch.int32, (None,), world.settings.net.depth),
        }

    def many(self, width: int) -> int:
        """How many units of a layer are sent."""
        return ceil(round(self.share * width, 6))

    def init(self, world: World) -> dict[str, Tensor]:
        """Up to which task neighbours have been told of parts; what all have learned together is known there."""
        tasks = world.settings.tasks
        known = tasks.initial if tasks.common else 0
        return {"told": torch.full((len(world.lanes), slots(world).most), known)}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """The part of the task before, if the neighbour has not been told, and the layers of the base, in turn another
        one first."""
        part, base = agent.state_of(MODEL)[LAST].cpu(), agent.once("base", lambda: self.base(agent))
        wanted = int((part != 0).sum()) if int(agent.kept["told"][agent.slot(to)]) < agent.task else 0
        many = min(wanted, agent.fits("part", to))
        told = agent.once(f"part {many}", lambda: sparse(part, many, LARGE)) if many else None
        return {"part": told, "base": base}

    def base(self, agent: Present) -> Draft:
        """The layers of the base, those units of each that an agent sends."""
        depth = agent.settings.net.depth
        now = agent.task * agent.settings.learner.epochs + agent.epoch
        layers = (torch.arange(depth) + now // self.every) % depth
        base, units = agent.tensor(BASE)[layers].cpu(), self.units(agent)[layers]
        return {"base": base[units].unflatten(0, (depth, -1)), "units": packed(units), "layers": layers}

    def units(self, agent: Present) -> Tensor:
        """Which units of every layer are sent, bool [depth, H]: by the scales of the task or, before it is trained, of
        the one before."""
        size = agent.tensor(SCALE)[agent.task if agent.epoch else max(0, agent.task - 1)].abs().cpu()
        rank = size.argsort(dim=1, descending=True, stable=True).argsort(1)
        return rank < self.many(size.shape[1])

    def judge(self, agent: Present, letter: Received) -> str:
        """Bits stand for as many numbers as there are, no layer comes twice, and no base is far larger than the
        receiver's own."""
        net = agent.settings.net
        if letter.kind == "part":
            found = unpacked(letter["bits"], net.depth * net.width**2)
            return ACCEPTED if 0 < len(letter["values"]) == int(found.sum()) else OUT_OF_RANGE
        if not 0 < len(letter["layers"]) == len(letter["layers"].unique()):
            return OUT_OF_RANGE
        if (unpacked(letter["units"], net.width).sum(1) != self.many(net.width)).any():
            return OUT_OF_RANGE
        return TOO_LARGE if far_larger(agent, letter.tensors, [BASE]) else ACCEPTED

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Average the base over all that have a unit, and keep parts."""
        told = agent.kept["told"].clone()
        for other in agent.sent("part"):
            told[agent.slot(other)] = agent.task
        agent.keep(told=told)
        assert isinstance(agent.model, Decomposed)
        room = min(agent.model.attended - 1, agent.slots)
        for letter in letters:
            if letter.kind == "part" and (slot := agent.slot(letter.sender)) < room:
                part = opened(letter.tensors, agent.state_of(MODEL)[LAST].shape)
                hear(agent._stack, agent._row, slot, room, part)
        if any(letter.kind == "base" for letter in letters):
            self.average(agent, [letter for letter in letters if letter.kind == "base"])

    def average(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean of every unit over all that have sent it and oneself, if one would, in the order of agents."""
        own = agent.tensor(BASE).cpu()
        sent = [(letter.sender, letter.tensors) for letter in letters] + [
            (agent.number, agent.once("base", lambda: self.base(agent)))
        ]
        total, count = own.new_zeros(own.shape, dtype=torch.float64), torch.zeros(own.shape[:2])
        heard = torch.zeros(own.shape[:2], dtype=torch.bool)
        for sender, told in sorted(sent, key=lambda one: one[0]):
            units, order = torch.zeros_like(heard), told["layers"].argsort()
            units[told["layers"].long()] = unpacked(told["units"], own.shape[1])
            total[units] += told["base"][order].flatten(0, 1)
            count += units
            heard |= units & (sender != agent.number)
        mean = (total / count.clamp(min=1)[..., None]).float()
        agent.become({BASE: torch.where(heard[..., None], mean, own).to(agent.device)})


def entries(world: World) -> int:
    """How many entries the part of a task has."""
    net = world.settings.net
    return net.depth * net.width**2


def words(bits: int) -> int:
    """How many whole numbers of 32 bits hold so many bits."""
    return -(-bits // 32)


def packed(bits: Tensor) -> Tensor:
    """Bits [..., n] as whole numbers, int32 [..., n / 32]."""
    wide = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 32))
    return torch.from_numpy(np.packbits(wide.numpy(), axis=-1).view(np.int32))


def unpacked(held: Tensor, count: int) -> Tensor:
    """The first `count` bits that whole numbers [..., n] hold, bool [..., count]."""
    return torch.from_numpy(np.unpackbits(held.numpy().view(np.uint8), axis=-1)[..., :count].astype(bool))


def sparse(part: Tensor, many: int, large: float) -> dict[str, Tensor]:
    """The `many` largest entries of a part, none larger than `large`, and where they are."""
    flat = part.flatten()
    held = torch.zeros(len(flat), dtype=torch.bool)
    held[flat.abs().argsort(descending=True, stable=True)[:many]] = True
    return {"values": flat[held].clamp(-large, large), "bits": packed(held)}


def opened(sent: Mapping[str, Tensor], shape: Sequence[int]) -> Tensor:
    """The part that was sent."""
    flat = torch.zeros(prod(shape))
    flat[unpacked(sent["bits"], len(flat))] = sent["values"]
    return flat.view(*shape)
