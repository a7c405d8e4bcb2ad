"""Fed-A-GEM: averaging, and no step against what the neighbourhood remembers (Dai et al. 2023, without the server)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, bending, trains_body
from shoal.learners.step import Part, Tensors
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected
from shoal.models.contract import body_shapes
from shoal.settings.groups import Settings
from shoal.sharing.federated import Federated
from shoal.sharing.mode import Draft, Present, Received

STEEPEST = 1e6  # no slope that is sent is larger


class FedAGEM(Federated):
    """Averaging with neighbours, and steps that do not raise the loss on what they and oneself remember.

    *Source:* Fed-A-GEM (Dai et al. 2023).

    *Formula:* as `fedavg`; after averaging everybody takes the gradient of its loss on `samples` (32) of its memories
    and sends it with the next exchange. With g the sum of its own and those that came, a gradient v with v·g < 0
    becomes v − (v·g / g·g) g, before Adam's moments.

    *Price:* twice that of `fedavg`.

    *Changed:* the reference is one exchange old, because it needs the averaged weights.
    """

    example: ClassVar[Mapping[str, Any]] = {"every": 1, "samples": 8}
    mode: Literal["fedagem"] = "fedagem"
    samples: PositiveInt = Field(32, description="remembered rows that the gradient is of")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        if settings.learner.memory == 0:
            raise SettingsError(
                "mode `fedagem` compares steps with what is remembered, but learner.memory = 0 keeps nothing; raise "
                "learner.memory, or share by fedavg"
            )

    def init(self, world: World) -> dict[str, Tensor]:
        """The gradient on one's own memories, and the sum of it and those that came; zero until there are some."""
        lanes, body, shapes = len(world.lanes), world.model.body, body_shapes(world.model)
        return super().init(world) | {
            f"{word}.{name}": torch.zeros(lanes, units, *shapes[name], device=world.device)
            for word in ("own", "sum")
            for name, units in body.items()
        }

    @property
    def letters(self) -> Mapping[str, Letter]:
        return {**super().letters, "slope": Letter(slopes, 1, ("gradients",))}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its weights, and the gradient on its memories as it was after the last averaging."""
        kept = agent.kept
        slope = {name: kept[f"own.{name}"].cpu().clamp(-STEEPEST, STEEPEST) for name in agent.model.body}
        some = any(bool(one.any()) for one in slope.values())
        return {"model": super().answer(agent, question, to), "slope": slope if some else None}

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The mean over oneself and what has arrived; then the gradient there, and the sum of those that came."""
        agent.become(self.combined(agent, [letter for letter in letters if letter.kind == "model"]))
        if not letters:
            return
        # The gradient that was sent is the one that is summed; the new one goes with the next exchange.
        total = {name: agent.kept[f"own.{name}"].clone() for name in agent.model.body}
        for letter in sorted(letters, key=lambda one: one.sender):
            for name in total if letter.kind == "slope" else ():
                total[name] += letter[name].to(agent.device)
        agent.keep(**{f"sum.{name}": one for name, one in total.items()})
        agent.keep(**{f"own.{name}": one for name, one in agent.remembered_slope(self.samples).items()})

    def additions(self) -> tuple[Addition, ...]:
        return (bending(self.bends),)

    def bends(self, world: World, stack: Stack, parts: Mapping[str, Part], found: Tensors) -> Tensors:
        """Every lane's gradients without what points against those of the neighbourhood's memories."""
        if not trains_body(world, parts):
            return found
        body, state = world.model.body, stack.of(self.owner)
        wanted = {name: state[f"sum.{name}"] for name in body if f"sum.{name}" in state}
        if not any(bool(one.any()) for one in wanted.values()):
            return found
        return found | projected({name: found[name] for name in body}, wanted)


def slopes(world: World) -> dict[str, Expected]:
    """What a gradient looks like."""
    shapes, body = body_shapes(world.model), world.model.body.items()
    return {
        name: Expected(torch.float32, (units, *shapes[name]), least=-STEEPEST, most=STEEPEST) for name, units in body
    }


def projected(found: Tensors, wanted: Tensors) -> Tensors:
    """Every lane's gradients without what, in the units that they have in common, points against those `wanted`."""
    changed = {name: one.clone() for name, one in found.items()}
    for row in range(len(next(iter(wanted.values())))):
        mine = [found[name][row, : one.shape[1]].flatten() for name, one in wanted.items()]
        theirs = [one[row].flatten() for one in wanted.values()]
        # Lane by lane: how a sum over all of them is made depends on how many there are.
        both, length = (
            torch.stack([torch.dot(a.clone(), b.clone()) for a, b in zip(one, theirs, strict=True)]).sum()
            for one in (mine, theirs)
        )
        if both < 0:
            for name, one in wanted.items():
                changed[name][row, : one.shape[1]] -= both / length * one[row]
    return changed
