"""Federated modes without a server: everybody averages the modules that all have with its neighbours
(docs/protocol.md, section 6).

Shared are the layers of a monolithic net and the basis of a modular one, never heads, structures or added modules.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.step import Tensors
from shoal.letters.letter import Letter, Quote, Room
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected
from shoal.models.contract import body_units
from shoal.models.families import family
from shoal.models.table import FROZEN
from shoal.settings.groups import Settings
from shoal.sharing.body import WEIGHTIEST, far_larger, net_of
from shoal.sharing.codecs import NONE, POWER
from shoal.sharing.combine import RULES, Heard
from shoal.sharing.compress import (
    COPIES,
    DIFFERENCE,
    MANY,
    Compressing,
    as_sent,
    coded_now,
    layout,
    opened,
    possible,
    suited,
)
from shoal.sharing.copies import alike_from_the_start, copied_gaps, copies, known_then, receipts, update
from shoal.sharing.mixing import (
    MEAN,
    METROPOLIS,
    PUSH_SUM,
    degrees,
    gap_to,
    mixed,
    offered,
    pushed,
    receipts_owed,
    remember_turns,
    turn_of,
)
from shoal.sharing.mode import Draft, Present, Received
from shoal.sharing.power import Pair, directions, lengths, low_gaps


class Federated(Compressing):
    """What modes that average models have in common: everybody sends its modules to its neighbours."""

    between: ClassVar[str] = "agents of the same model, net.width, net.depth and net.basis"
    asking: ClassVar[tuple[str, ...]] = ("receipt",)
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    bounds_weights: ClassVar[bool] = True
    beside: ClassVar[str] = ""  # what is sent of every weight beside it
    least: ClassVar[float] = 0.0  # and how small that may be
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    receipts: bool = Field(
        False, description="receivers confirm by mail what they accepted; modules that do not fit wait for that"
    )
    combine: str = Field(
        "mean", description="what is made of one's own model and those that came: see `shoal list rules`"
    )
    tolerates: NonNegativeInt = Field(1, description="how many liars among what an agent hears the rule is to bear")
    radius: PositiveFloat | Literal["adaptive"] = Field(
        "adaptive",
        description="how far combine = clipped goes towards a neighbour; adaptive: as far as to the farthest one, "
        "`tolerates` left out",
    )

    weights: Literal["mean", "metropolis", "push-sum"] = Field(
        "mean",
        description="how much each neighbour weighs: all the same, by the larger number of neighbours of the two "
        "(keeps the fleet's mean), or by masses that are sent along (keeps it on directed graphs)",
    )

    def suits(self, settings: Settings) -> None:
        """Weights, codecs and receipts must go together."""
        RULES.find(self.combine)
        if family(settings) == FROZEN:
            raise SettingsError(
                f"mode `{self.mode}` averages weights, and those of `{settings.model}` are frozen and the same in all "
                "agents; share by another mode, or use another model"
            )
        possible(self, settings)
        if self.combine != "mean" and (self.compress != NONE or self.weights != MEAN):
            what = "compress" if self.compress != NONE else "weights"
            raise SettingsError(
                f"sharing.{self.mode}.combine = {self.combine} needs whole models that weigh the same, got {what} = "
                f"{getattr(self, what)}; drop one of the two"
            )
        if self.compress != NONE and self.weights == PUSH_SUM:
            raise SettingsError(
                f'sharing.{self.mode}.weights = "push-sum" needs whole weights, got compress = {self.compress}; use '
                'weights = "metropolis", or compress = none'
            )
        if self.receipts and self.way in (COPIES, POWER):
            raise SettingsError(
                f"sharing.{self.mode}.receipts means nothing with compress = {self.compress}, which confirms what has "
                "come by itself; drop it"
            )

    @property
    def whole(self) -> bool:
        """Does it send whole models as they are, which all weigh the same?"""
        return self.way == NONE and self.weights == MEAN

    def init(self, world: World) -> dict[str, Tensor]:
        if self.way == COPIES:
            return copies(self, world)
        if self.way == POWER:
            return directions(self, world)
        units = body_units(world.model)
        return {"mass": torch.ones(len(world.lanes), units).double()} if self.weights == PUSH_SUM else {}

    def begins(self, world: World, stack: Stack) -> dict[str, Tensor]:
        return alike_from_the_start(self, world, stack)

    def uses(self, world: World, sender: Lane, receiver: Lane) -> bool:
        """Where both ends keep something of each other, an edge must lead back."""
        back = self.way not in (COPIES, POWER) or (receiver, sender) in world.edges
        return back and super().uses(world, sender, receiver)

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only modules of the same shape in the same place can be averaged."""
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    @property
    def letters(self) -> Mapping[str, Letter]:
        """Modules, the next ones first; and receipts for what has come, if they are wanted."""
        last = {"last": lambda world: Expected(torch.int32, (1,), body_units(world.model))}
        version = {"version": Expected(torch.int32, (1,), MANY)}
        receipt = Letter(version if self.way == COPIES else last, 1, ("questions",))
        holds = ("models", "gradients") if self.beside else ("models",)
        model = Letter(self.look, self.most, holds, cut=self.way not in (COPIES, POWER))
        return ({"receipt": receipt} if self.receipts or self.way == COPIES else {}) | {"model": model}

    def most(self, world: World) -> int:
        """How many modules, or of products how many numbers, a letter has at most."""
        return max(lengths(self, world.model)) if self.way == POWER else body_units(world.model)

    def look(self, world: World) -> dict[str, Expected]:
        """What modules look like."""
        model, agents = world.model, world.fleet.agents
        degree = {"degree": Expected(torch.int32, (1,), agents)} if self.weights == METROPOLIS else {}
        if self.way == POWER:
            # The products of all matrices and all vectors in a row, the step that they are for, and their sender's.
            step = Expected(torch.int32, (2,), MANY)
            return {"low": Expected(torch.float32, (None,)), "step": step} | degree
        found = layout(self, model)
        for name, one in layout(self, model, f"{self.beside}.").items() if self.beside else ():
            found[name] = one._replace(least=self.least, most=WEIGHTIEST) if one.dtype.is_floating_point else one
        found["modules"] = Expected(torch.int32, (None,), body_units(model))
        if self.way == COPIES:
            found["version"] = Expected(torch.int32, (1,), MANY)
        if self.weights == PUSH_SUM:
            found["mass"] = Expected(torch.float64, (None,), least=0.0, most=float(agents))
        return found | degree

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        """Products go whole, or not at all."""
        suited(world.model, self)
        return super().quote(world, Room() if self.way == POWER else room, other)

    def ask(self, agent: Present) -> Mapping[int, Draft]:
        """Receipts for what has come at earlier exchanges, if they are wanted."""
        return receipts(agent) if self.way == COPIES else receipts_owed(agent)

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its weights."""
        return self.modules_of(agent, to, agent.weights)

    def modules_of(self, agent: Present, to: int, weights: Tensors, beside: Tensors | None = None) -> Draft:
        """Weights, and what else there is of each, as they are sent to a neighbour. Where not all fit, some go; others
        at the next exchange, so that in turn all are averaged."""
        if self.way == COPIES:
            return update(self, agent, to, weights)
        if self.way == POWER:
            return Pair(self, agent, agent.kept, to).letter(weights) | degrees(self, agent)
        count, first = body_units(agent.model), turn_of(agent, to)
        if first and agent.fits("model", to) == count:
            first = 0

        def find() -> Draft:
            content = weights | {f"{self.beside}.{name}": tensor for name, tensor in (beside or {}).items()}
            if self.way == DIFFERENCE:
                content = coded_now(self, agent, content)
            if self.weights == PUSH_SUM:
                content = content | {"mass": offered(agent)}
            at = torch.arange(first, first + count) % count
            return {name: one.cpu()[at] for name, one in content.items()} | {"modules": at} | degrees(self, agent)

        return agent.once(f"modules from {first}", find)

    def judge(self, agent: Present, letter: Received) -> str:
        """Nobody sends a module twice, or none, or weights far larger than the receiver's own."""
        if letter.kind != "model":
            return ACCEPTED
        if self.way == POWER:
            return OUT_OF_RANGE if len(letter["low"]) not in lengths(self, agent.model) else ACCEPTED
        modules, weights = letter["modules"], letter.tensors
        if not 0 < len(modules) == len(modules.unique()):
            return OUT_OF_RANGE
        if self.weights == PUSH_SUM and not (letter["mass"] > 0).all():
            return OUT_OF_RANGE
        if self.way == COPIES:
            weights = known_then(self, agent, letter)
        elif self.way == DIFFERENCE:
            weights = opened(self, agent, letter)
            if any(float(one.min()) < 0 for name, one in weights.items() if name.startswith("fisher.")):
                return OUT_OF_RANGE
        return TOO_LARGE if far_larger(agent, weights, agent.model.body) else ACCEPTED

    def combined(self, agent: Present, letters: Sequence[Received], own: Tensors | None = None) -> Tensors:
        """What its rule makes of an agent's own weights and those that have come; nothing, if none have."""
        if agent.mean is not None:
            return agent.mean
        own = agent.weights if own is None else own
        if self.way in (COPIES, POWER):  # what is kept of neighbours is written down also if nothing has come
            gaps = (copied_gaps if self.way == COPIES else low_gaps)(self, agent, letters)
            return mixed(agent, own, gaps, self.step if self.way == COPIES else 1.0)
        remember_turns(agent, letters, self.receipts)
        if self.weights == PUSH_SUM:
            return pushed(agent, own, letters)
        if self.way == DIFFERENCE:
            said = as_sent(self, agent, own) if letters else own
            gaps = [gap_to(letter, opened(self, agent, letter), said) for letter in letters]
            return mixed(agent, own, gaps, self.step)
        if self.weights == METROPOLIS:
            return mixed(agent, own, [gap_to(letter, letter.tensors, own) for letter in letters], self.step)
        return by_rule(self, agent, letters, own) if letters else {}


def by_rule(mode: Federated, agent: Present, letters: Sequence[Received], own: Tensors) -> Tensors:
    """What a mode's rule makes of modules.

    In double precision and in the order of agents: agents with the same neighbourhood get the same bits from rules that
    ask nothing else, and what comes of equal weights is these weights.
    """
    count = body_units(agent.model)
    mine = {name: tensor.cpu() for name, tensor in own.items()} | {"modules": torch.arange(count)}
    every = sorted([(one.sender, one.tensors) for one in letters] + [(agent.number, mine)], key=lambda one: one[0])
    here = torch.zeros(len(every), count, dtype=torch.bool)
    tables = {name: mine[name].new_zeros(len(every), *mine[name].shape) for name in own}
    for at, (_, tensors) in enumerate(every):
        which = tensors["modules"].long()
        here[at, which] = True
        for name in own:
            tables[name][at, which] = tensors[name]
    place = [sender for sender, _ in every].index(agent.number)
    found = {name: mine[name].clone() for name in own}
    for pattern in here.unique(dim=1).T:  # modules that came from the same agents are one model
        units, who = (here == pattern[:, None]).all(0), pattern.nonzero()[:, 0]
        if len(who) > 1:  # somebody has sent these
            parts = {name: table[who][:, units] for name, table in tables.items()}
            for name, value in made_one(mode, parts, int((who == place).nonzero())).items():
                found[name][units] = value
    return {name: tensor.to(agent.device) for name, tensor in found.items()}


def made_one(mode: Federated, models: Tensors, own: int) -> Tensors:
    """What a mode's rule makes of models, tensors [n, ...] by name of which one is the agent's own: tensors [...]."""
    flat = torch.cat([tensor.flatten(1) for tensor in models.values()], 1).double().numpy()
    heard = Heard(flat, own, mode.tolerates, None if mode.radius == "adaptive" else mode.radius)
    one = torch.from_numpy(RULES.find(mode.combine).combine(heard)).float()
    parts = one.split([tensor[0].numel() for tensor in models.values()])
    return {name: part.view(tensor.shape[1:]) for part, (name, tensor) in zip(parts, models.items(), strict=True)}
