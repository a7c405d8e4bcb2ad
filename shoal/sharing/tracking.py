"""Gradient tracking: agents learn as if they saw the data of all (K-GT, Liu et al. 2024; SCAFFOLD on graphs)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, trains_body
from shoal.learners.step import Frame, Part, Tensors
from shoal.settings.groups import Settings
from shoal.sharing.body import WEIGHTIEST
from shoal.sharing.codecs import NONE
from shoal.sharing.federated import Federated
from shoal.sharing.mixing import PUSH_SUM, gap_to, mixed
from shoal.sharing.mode import Draft, Present, Received


class Tracking(Federated):
    """Averaging, and a correction of every gradient towards that of all (gradient tracking).

    *Source:* K-GT, Liu et al. 2024; SCAFFOLD, Karimireddy et al. 2020.

    *Formula:* y_i = g_i + c_i; send (x_i, y_i); x_i ← Σ w_ij x_j, c_i ← Σ w_ij y_j − g_i; c is added to every gradient
    until the next exchange and forgotten with a new task.

    *Changed:* g_i is the gradient of `samples` images at the exchange, so that it does not depend on the optimiser.

    *Price:* twice that of fedavg.
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    beside: ClassVar[str] = "track"
    least: ClassVar[float] = -WEIGHTIEST
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["tracking"] = "tracking"
    when: Literal["before"] = Field("before", description="exchange before every so many epochs")
    samples: PositiveInt = Field(64, description="rows that an agent's gradient is of")

    def suits(self, settings: Settings) -> None:
        if self.compress != NONE or self.weights == PUSH_SUM:
            raise SettingsError(
                "mode `tracking` sends gradients as they are, by weights that are the same both ways, got compress = "
                f"{self.compress} and weights = {self.weights}; use compress = none and weights = metropolis or mean"
            )
        super().suits(settings)

    def tracked(self, agent: Present) -> Tensors:
        """y_i = g_i + c_i; the correction of an earlier task counts no more."""
        slope, kept = agent.slope(self.samples), agent.kept
        if "since" not in kept:
            return slope
        here = float(kept["since"] == 1 + agent.task)
        return {name: one + here * kept[f"correction.{name}"] for name, one in slope.items()}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its weights and what it tracks."""
        return self.modules_of(agent, to, agent.weights, self.tracked(agent))

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean of weights, and c_i = sum_j w_ij y_j - g_i until the next exchange; the sum over agents of c stays
        zero where weights are the same both ways."""
        self.follow(agent, letters)
        agent.become(self.combined(agent, letters))

    def follow(self, agent: Present, letters: Sequence[Received]) -> None:
        """Keep the correction until the next exchange; that of an earlier task is forgotten."""
        kept = agent.kept
        if letters:
            slope, tracked = agent.slope(self.samples), self.tracked(agent)
            gaps = [gap_to(letter, letter.tensors, tracked, f"{self.beside}.") for letter in letters]
            mean = mixed(agent, tracked, gaps, 1.0)
            self.correct(agent, {name: one - slope[name] for name, one in mean.items()}, 1 + agent.task)
        elif "since" in kept and 0 < kept["since"] != 1 + agent.task:
            self.correct(agent, {name: torch.zeros_like(own) for name, own in agent.weights.items()}, 0)

    def correct(self, agent: Present, correction: Tensors, since: int) -> None:
        """Keep a correction, and of which task it is."""
        named = {f"correction.{name}": one for name, one in correction.items()}
        agent.keep(since=torch.tensor(since, device=agent.device), **named)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "since" in stack.of(self.owner) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's <c, w>, of which c is the gradient."""
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            correction = frame.state[f"correction.{name}"]
            total = total + (frame.free[name][: len(correction)] * correction).sum()
        return torch.where(frame.state["since"] > 0, total, 0.0)
