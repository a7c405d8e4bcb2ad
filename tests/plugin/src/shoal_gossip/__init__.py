"""A mode in the long form, and a learner in the short one."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt

import shoal
from shoal.agents.world import World
from shoal.learners.step import Frame
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected
from shoal.sharing.mode import Draft, Mode, Present, Received


class Gossip(Mode):
    """Everybody tells its neighbours the biases of its heads, and believes a part of what it hears."""

    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["gossip"] = "gossip"
    every: PositiveInt = Field(4, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    trust: float = Field(0.5, ge=0, le=1, description="how much of what is heard is believed")

    @property
    def letters(self) -> Mapping[str, Letter]:
        return {"rumour": Letter({"bias": biases}, 1, ())}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        return {"bias": agent.tensor("head.bias")}

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        for letter in letters:
            own = agent.tensor("head.bias")
            agent.become({"head.bias": own.lerp(letter["bias"].to(own.device), self.trust)})


def biases(world: World) -> Expected:
    """What the biases of all heads look like."""
    return Expected(torch.float32, (world.settings.tasks.count, world.settings.tasks.classes))


@shoal.penalty
def steady(frame: Frame, strength: float = 0.1) -> torch.Tensor:
    """Weights stay near where the last task has left them.

    strength: how hard they are held
    """
    total = frame.batch.weight.new_zeros(())
    for name, old in frame.state.items():
        total = total + (frame.free[name] - old).square().sum()
    return strength * total


def murmur(word: str) -> None:
    """Say something softly."""
    print(f"psst, {word}")


def quiet(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> dict[str, Any]:
    """Modes act at every third epoch."""
    return {"tasks": {}, "net": {}, "learner": {}, "sharing": {mode: {"every": 3} for mode in modes}}
