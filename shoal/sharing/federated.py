"""Federated modes without a server: everybody averages the modules that all have with its neighbours
(docs/protocol.md, section 6).

Shared are the layers of a monolithic net and the basis of a modular one, never heads, structures or added modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.fisher import snapshot
from shoal.learners.step import Tensors
from shoal.letters.bundle import Bundle
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, noted
from shoal.letters.quote import Quote, Room, fitting, numbers
from shoal.mail.post import Post
from shoal.models.contract import body_shapes, body_units
from shoal.models.families import is_frozen
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.settings.policies import Carries
from shoal.sharing.body import net_of
from shoal.sharing.bounds import LARGEST, WEIGHTIEST, fresh, largest, sizes_of, too_large
from shoal.sharing.codecs import NONE, POWER
from shoal.sharing.combine import RULES
from shoal.sharing.compress import (
    COPIES,
    DIFFERENCE,
    MANY,
    Compressing,
    coded_now,
    degrees,
    known_then,
    layout,
    opened,
    possible,
    receipts_of,
    start_of,
    suited,
    there_and_back,
    updates,
)
from shoal.sharing.mixing import MEAN, METROPOLIS, PUSH_SUM, offered
from shoal.sharing.power import lengths, low_layout, products
from shoal.sharing.turns import receipts_owed, turned


class Federated(Compressing):
    """What modes that average models have in common: everybody sends its modules to its neighbours."""

    between: ClassVar[str] = "agents of the same model, net.width, net.depth and net.basis"
    asking: ClassVar[tuple[str, ...]] = ("receipt",)
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    bounds_weights: ClassVar[bool] = True
    copies: ClassVar[int] = 1  # numbers sent for each weight
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    receipts: bool = Field(
        False,
        description="receivers confirm by mail what they accepted; modules that do not fit wait for that",
        json_schema_extra=LATER,
    )
    combine: str = Field(
        "mean",
        description="what is made of one's own model and those that came: see `shoal list rules`",
        json_schema_extra=LATER,
    )
    tolerates: NonNegativeInt = Field(
        1, description="how many liars among what an agent hears the rule is to bear", json_schema_extra=LATER
    )
    radius: PositiveFloat | Literal["adaptive"] = Field(
        "adaptive",
        description="how far combine = clipped goes towards a neighbour; adaptive: as far as to the farthest one, "
        "`tolerates` left out",
        json_schema_extra=LATER,
    )

    weights: Literal["mean", "metropolis", "push-sum"] = Field(
        "mean",
        description="how much each neighbour weighs: all the same, by the larger number of neighbours of the two "
        "(keeps the fleet's mean), or by masses that are sent along (keeps it on directed graphs)",
        json_schema_extra=LATER,
    )

    def suits(self, settings: Settings) -> None:
        """Weights, codecs and receipts must go together."""
        RULES.find(self.combine)
        if is_frozen(settings):
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

    def begins(self, world: World, stack: Stack) -> dict[str, Tensor]:
        return start_of(self, world, stack)

    def uses(self, world: World, sender: Lane, receiver: Lane) -> bool:
        """Where both ends keep something of each other, an edge must lead back."""
        back = self.way not in (COPIES, POWER) or there_and_back(world, sender, receiver)
        return back and super().uses(world, sender, receiver)

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only modules of the same shape in the same place can be averaged."""
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def carries(self, kind: str) -> Carries | None:
        what = ("models", "gradients") if self.copies == 2 else ("models",)
        return {"receipt": Carries(("questions",)), "model": Carries(what)}.get(kind)

    def ask(self, post: Post) -> list[Mail]:
        """Receipts for what has come at earlier exchanges, if they are wanted."""
        return receipts_of(post, self) if self.way == COPIES else receipts_owed(post)

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        return models(post, questions, snapshot(post.world, post.stack))

    def objects(self, post: Post, mail: Mail) -> str:
        """Nobody sends a module twice, or none, or weights far larger than the receiver's own."""
        if mail.kind == "receipt":
            return ACCEPTED
        model = post.world.model
        if self.way == POWER:
            return OUT_OF_RANGE if len(mail.payload["low"]) not in lengths(self, model) else ACCEPTED
        modules = mail.payload["modules"]
        if not 0 < len(modules) == len(modules.unique()):
            return OUT_OF_RANGE
        if self.weights == PUSH_SUM and not (mail.payload["mass"] > 0).all():
            return OUT_OF_RANGE
        if self.way == COPIES:
            mail = replace(mail, payload=known_then(post, self, mail))
        elif self.way == DIFFERENCE:
            (mail,) = opened(post, self, [mail])
            if any(float(one.min()) < 0 for name, one in mail.payload.items() if name.startswith("fisher.")):
                return OUT_OF_RANGE
        return TOO_LARGE if too_large(post, mail, model.body) else ACCEPTED

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        """Bundles are of whole models."""
        plain = self.way == NONE and self.weights == MEAN
        if type(self).objects is not Federated.objects or bundle.kind != "model" or not plain:
            return False
        if not whole_models(post, bundle):
            return False
        count = body_units(post.world.model)
        largest_module = sizes_of(bundle, tuple(post.world.model.body), count)[torch.from_numpy(bundle.first // count)]
        if bool((largest_module <= LARGEST * fresh(post.world.model)).all()):  # whatever the receivers' own are like
            return True
        rows = torch.from_numpy(post.rows(bundle.links.receivers))
        return bool((largest_module <= largest(post)[rows]).all())

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        count, agents = body_units(world.model), world.fleet.agents
        if kind == "receipt":
            version = {"version": Expected(torch.int32, (1,), MANY)}
            return version if self.way == COPIES else {"last": Expected(torch.int32, (1,), count)}
        degree = {"degree": Expected(torch.int32, (1,), agents)} if self.weights == METROPOLIS else {}
        if self.way == POWER:
            return low_layout(self, world.model) | degree
        if self.way == NONE:
            found = {name: Expected(torch.float32, (None, *shape)) for name, shape in body_shapes(world.model).items()}
            matter = {f"fisher.{name}": one._replace(least=0.0, most=WEIGHTIEST) for name, one in found.items()}
        else:
            found, matter = layout(self, world.model), {}
            for name, one in layout(self, world.model, "fisher.").items():
                whole = not one.dtype.is_floating_point
                matter[name] = one if whole else one._replace(least=0.0, most=WEIGHTIEST)
        found |= matter if self.copies == 2 else {}
        found["modules"] = Expected(torch.int32, (None,), count)
        if self.way == COPIES:
            found["version"] = Expected(torch.int32, (1,), MANY)
        if self.weights == PUSH_SUM:
            found["mass"] = Expected(torch.float64, (None,), least=0.0, most=float(agents))
        return found | degree

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        suited(world.model, self)
        look = self.expects(world, "model", world.lanes[0])
        if self.way == POWER:
            most = max(lengths(self, world.model))
            return [Quote("model", most, numbers(look, most))]
        count = fitting(body_units(world.model), look, room)
        receipts = [Quote("receipt", 1, 1)] if self.receipts or self.way == COPIES else []
        return [*receipts, Quote("model", count, numbers(look, count))]


def models(
    post: Post, receipts: Sequence[Mail], values: Tensors, matters: Tensors | None = None, word: str = "fisher"
) -> Sequence[Mail]:
    """Everybody's modules to all its neighbours.

    If not all fit the budget, some go; others at the next exchange, so that in turn all are averaged.
    """
    world, count, mails, mode = post.world, body_units(post.world.model), [], post.mode
    assert isinstance(mode, Federated)
    if mode.way == COPIES:
        return updates(post, mode, receipts, values)
    if mode.way == POWER:
        return products(post, mode)
    content = values | {f"{word}.{name}": tensor for name, tensor in (matters or {}).items()}
    if mode.way == DIFFERENCE:
        content = coded_now(post, mode, content)
    if post.free and not mode.receipts and mode.way == NONE and mode.weights == MEAN:
        flat = {name: tensor.flatten(0, 1) for name, tensor in content.items()}
        flat["modules"] = torch.arange(count, dtype=torch.int32).repeat(len(world.lanes))
        begin = post.rows(post.links.senders) * count
        return post.bundle("model", flat, begin, np.full(len(begin), count))
    layout = post.mode.expects(world, "model", world.lanes[0])
    turns = turned(post, receipts, mode.receipts)
    for row, lane in enumerate(world.lanes):
        letters: dict[tuple[int, int], Tensors] = {}
        for other in post.out(lane):
            fits = fitting(count, layout, post.left(lane, other))
            first = 0 if turns is None or fits == count else int(turns[row, other.agent])
            if (first, fits) not in letters:
                at = torch.arange(first, first + fits) % count
                chosen = {name: tensor[row, at].cpu() for name, tensor in content.items()}
                if mode.weights == PUSH_SUM:
                    chosen["mass"] = offered(post, row, lane)[at]
                letters[first, fits] = chosen | {"modules": at.int()} | degrees(post, mode, lane)
            mails.append(post.mail(lane, other, "model", letters[first, fits], fits))
    return mails


def whole_models(post: Post, bundle: Bundle) -> bool:
    """Does a bundle hold nothing but whole models, all modules in their order?"""
    count = body_units(post.world.model)
    if (bundle.items != count).any() or (bundle.first % count).any():
        return False

    def find(modules: Tensor) -> bool:
        every = torch.arange(count, dtype=torch.int32).repeat(len(modules) // count)
        return torch.equal(modules, every)

    whole = (noted(one, ("whole", count), lambda one=one: find(one["modules"])) for one in bundle.contents)  # type: ignore[misc]
    return all(whole)
