"""FedCurv without a server: averaging, and a pull to what matters to neighbours."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, tangent, trains_body
from shoal.learners.step import Frame, Part, Tensors
from shoal.settings.groups import Settings
from shoal.sharing.body import remember, scale
from shoal.sharing.codecs import NONE
from shoal.sharing.compress import COPIES, DIFFERENCE, opened
from shoal.sharing.federated import Federated
from shoal.sharing.mode import Draft, Present, Received


class FedCurv(Federated):
    """Averaging, and a pull to each neighbour's weights where they matter to it (Shoham et al. 2019).

    *Source:* Shoham et al. 2019.

    *Formula:* loss + `mu` Σ_j Σ F_j (w − w_j)², over the neighbours j of the last exchange; F_j is the mean over 64
    (`samples`) images that j trains on of the squared gradient of their cross-entropy, without dropout.

    *Price:* 2 W, and 1 for each module.

    *Changed:* protocol `paper` does as the paper's code: squared gradients of batches, and zeros in modular nets, so
    that FedCurv is FedAvg there.
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    beside: ClassVar[str] = "fisher"
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedcurv"] = "fedcurv"
    mu: NonNegativeFloat = Field(1.0, description="strength of the pull")
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per row, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="rows that fisher = sample looks at")
    scaling: Literal["once", "task"] = Field(
        "once", description="added to the mean loss once, or once per task in the batch and divided by its rows"
    )

    def suits(self, settings: Settings) -> None:
        """What matters is sent once, and means something only if all of it is."""
        if self.compress not in (NONE, "int8") or self.way == COPIES:
            raise SettingsError(
                f"mode `fedcurv` can send what matters as int8 in the difference form or as it is, got compress = "
                f"{self.compress} in form {self.way}; use compress = int8, or another mode"
            )
        super().suits(settings)

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its weights, and how much each matters to it."""
        return self.modules_of(agent, to, agent.weights, agent.matters(self.fisher, self.samples))

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean over oneself and what has arrived; and sum_j F_j and sum_j F_j w_j, which is all that the sum over
        neighbours of F_j (w - w_j)^2 needs for its gradient. What came earlier is forgotten."""
        agent.become(self.combined(agent, letters))
        if not letters:
            return
        total = {name: torch.zeros_like(own) for name, own in agent.weights.items()}
        moment = {name: torch.zeros_like(own) for name, own in agent.weights.items()}
        for letter in letters:
            whole = opened(self, agent, letter) if self.way == DIFFERENCE else letter.tensors
            at = whole["modules"].long()
            for name in total:
                matters = whole[f"fisher.{name}"]
                total[name][at] += matters
                moment[name][at] += matters * whole[name]
        remember(agent, sum=total, moment=moment)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty, self.pull),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.mode) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mu times the sum over neighbours and weights of F_j (w - w_j)^2, as its tangent: the gradient is
        all that a step needs, and half the work."""
        return tangent(frame, self.pull(frame))

    def pull(self, frame: Frame) -> Tensors:
        factor, found = 2 * self.mu * frame.state["on"] * scale(self.scaling, frame.batch), {}
        for name in frame.model.body:
            matters, moment = frame.state[f"sum.{name}"], frame.state[f"moment.{name}"]
            found[name] = factor * (matters * frame.free[name][: len(matters)] - moment)
        return found
