"""Averaging that leaves agents something of their own: Ditto and FedRep."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, resting, trains_body
from shoal.learners.step import Frame, Part, Tensors
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.settings.groups import Settings
from shoal.sharing.agent import ON
from shoal.sharing.body import remember
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.federated import Federated
from shoal.sharing.mode import Draft, Present, Received


def in_one_piece(mode: Federated, settings: Settings) -> None:
    """Raise for modular nets, whose common part hardly learns after the first tasks."""
    if family(settings) == GROWTH:
        raise SettingsError(
            f"mode `{mode.mode}` needs a net in one piece, got `{settings.model}`; use model = "
            f"{settings.model.removeprefix('modular-')} or another mode"
        )


class FedRep(FedAvg):
    """Averaging, and in every round the head learns alone, then the rest alone (Collins et al. 2021).

    Heads learn for `head` epochs of every round. For nets in one piece.

    *Price:* that of fedavg.
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "head": 1}
    mode: Literal["fedrep"] = "fedrep"  # type: ignore[assignment]
    head: PositiveInt = Field(1, description="epochs of a round in which only heads learn; less than every")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        in_one_piece(self, settings)
        if self.head >= self.every:
            raise SettingsError(
                f"sharing.fedrep.head = {self.head} leaves nothing of a round of sharing.fedrep.every = {self.every} "
                f"epochs to the rest of the net; use less than {self.every}"
            )

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean; whoever has got one learns in turns from then on."""
        super().absorb(agent, letters)
        if letters:
            agent.keep(**{ON: torch.ones((), device=agent.device)})

    def additions(self) -> tuple[Addition, ...]:
        return (resting(self.rests),)

    def rests(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> dict[str, Tensor]:
        """Which units stand still now, bool [L, units of the part]."""
        if "on" not in stack.of(self.owner):
            return {}
        on = stack.of(self.owner)["on"] > 0
        heads = stack.epoch % self.every < self.head
        still = [name for name in parts if (name in world.model.heads) != heads]
        units = {name: len(range(*parts[name][0].indices(stack.params[name].shape[1]))) for name in still}
        return {name: on[:, None].expand(-1, count) for name, count in units.items()}


class Ditto(Federated):
    """Averaging of a second net, to which each agent's own is pulled while it learns (Li et al. 2021).

    *Formula:* a second net w is averaged and learns; the own net v learns its loss + `mu`/2 |v − w|² and is tested (Li
    et al. 2021).

    *Changed:* w learns at the exchange, the epochs of a round at once, with a new Adam and a copy of v's heads.

    *Price:* that of fedavg, twice the computing.
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    mode: Literal["ditto"] = "ditto"
    mu: NonNegativeFloat = Field(0.1, description="strength of the pull")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        in_one_piece(self, settings)

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its second net; as long as nothing has come, that is its own."""
        return self.modules_of(agent, to, second(agent))

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean of second nets, which then learns as the first one will until the next exchange; what it learns
        with, its head and Adam's moments, begins anew each time."""
        mean = self.combined(agent, letters, second(agent))
        if mean:
            remember(agent, shared=agent.learned(mean, self.every))

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.owner) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mu/2 times |v - w|^2, with w its second net."""
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            shared = frame.state[f"shared.{name}"]
            total = total + (frame.free[name][: len(shared)] - shared).square().sum()
        return self.mu / 2 * frame.state["on"] * total


def second(agent: Present) -> Tensors:
    """An agent's second net."""
    return {name: agent.kept[f"shared.{name}"].clone() if agent.heard else own for name, own in agent.weights.items()}
