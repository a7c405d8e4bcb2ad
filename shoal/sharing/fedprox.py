"""FedProx without a server: averaging, and a pull back to the average."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, penalised, trains_body
from shoal.learners.step import Frame, Part, Tensors
from shoal.sharing.body import remember, scale
from shoal.sharing.federated import Federated
from shoal.sharing.mode import Present, Received


class FedProx(Federated):
    """Averaging, and a pull back to the average while learning (Li et al. 2020).

    *Source:* Li et al. 2020.

    *Formula:* loss + `mu`/2 Σ (w − a)², a the weights after the last exchange that brought something.

    *Price:* that of fedavg.

    *Changed:* `mu` is 0.01 and was never tuned; protocol `paper` takes the plain distance, once for each task in a
    batch, over the images of the batch (`squared`, `scaling`), with the `mu` of each row (docs/protocol.md).
    """

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    mode: Literal["fedprox"] = "fedprox"
    mu: NonNegativeFloat = Field(0.01, description="strength of the pull")
    squared: bool = Field(True, description="mu/2 times the squared distance, as published, or the plain one")
    scaling: Literal["once", "task"] = Field(
        "once", description="added to the mean loss once, or once per task in the batch and divided by its rows"
    )

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean over oneself and what has arrived; it is the anchor until the next exchange."""
        mean = self.combined(agent, letters)
        agent.become(mean)
        remember(agent, anchor=mean)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty, self.pull),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.mode) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mu/2 times the sum over shared tensors of |w - anchor|^2 (or of |w - anchor|)."""
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            anchor = frame.state[f"anchor.{name}"]
            gap = (frame.free[name][: len(anchor)] - anchor).flatten(1)
            total = total + (gap.square().sum() if self.squared else torch.linalg.vector_norm(gap, dim=1).sum())
        return self.mu / 2 * frame.state["on"] * total * scale(self.scaling, frame.batch)

    def pull(self, frame: Frame) -> Tensors:
        factor, found = self.mu / 2 * frame.state["on"] * scale(self.scaling, frame.batch), {}
        for name in frame.model.body:
            anchor = frame.state[f"anchor.{name}"]
            gap = frame.free[name][: len(anchor)] - anchor
            if self.squared:
                found[name] = factor * (2 * gap)
            else:
                length = torch.linalg.vector_norm(gap.flatten(1), dim=1).view(-1, *[1] * (gap.ndim - 1))
                found[name] = factor * (gap / length).where(length > 0, 0)
        return found
