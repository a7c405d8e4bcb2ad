"""Federated modes without a server: everybody averages the modules that all have with its neighbours
(docs/protocol.md, section 6).

Shared are the layers of a monolithic net and the basis of a modular one, never heads, structures or added modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.fisher import snapshot
from shoal.learners.step import Tensors
from shoal.mail.bundle import Bundle, Links
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver, noted
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models.contract import body_shapes, body_units
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.sharing.body import net_of
from shoal.sharing.bounds import LARGEST, WEIGHTIEST, fresh, largest, sizes_of, too_large
from shoal.sharing.combine import RULES, Heard, averaged
from shoal.sharing.compress import (
    COPIES,
    DIFFERENCE,
    MANY,
    NONE,
    POWER,
    Compressing,
    as_sent,
    coded_now,
    copied_gaps,
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
from shoal.sharing.contract import Carries
from shoal.sharing.mixing import MEAN, METROPOLIS, PUSH_SUM, mixed, offered, plain_gaps, pushed
from shoal.sharing.power import lengths, low_gaps, low_layout, products
from shoal.sharing.turns import receipts_owed, remember_turns, turned


class Federated(Compressing):
    """What modes that average models have in common: everybody sends its modules to its neighbours."""

    between: ClassVar[str] = "agents of the same model, net.width, net.depth and net.basis"
    asking: ClassVar[tuple[str, ...]] = ("receipt",)
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
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
        if settings.frozen:
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
        suited(self, world.model)
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


def combined(post: Post, receipts: Sequence[Mail], answers: Sequence[Mail]) -> tuple[Tensor, Tensors]:
    """What a mode's rule makes of one's own modules and those that have arrived, [R, units, ...], of the rows to which
    something has come.

    In double precision and in the order of agents: agents with the same neighbourhood get the same bits from rules that
    ask nothing else, and what comes of equal weights is these weights.
    """
    world, stack, count, mode = post.world, post.stack, body_units(post.world.model), post.mode
    names = tuple(world.model.body)
    assert isinstance(mode, Federated)
    if mode.way == COPIES:
        return mixed(post, copied_gaps(post, mode, receipts, answers), mode.step)
    if mode.way == POWER:
        return mixed(post, low_gaps(post, mode, answers), 1.0)
    remember_turns(post, receipts, answers, mode.receipts)
    if mode.way == DIFFERENCE:
        own = as_sent(post, mode) if answers else None
        return mixed(post, plain_gaps(post, opened(post, mode, answers), own), mode.step)
    if mode.weights == PUSH_SUM:
        return pushed(post, answers)
    if mode.weights == METROPOLIS:
        return mixed(post, plain_gaps(post, answers), mode.step)
    if isinstance(answers, Bundle):
        return combined_of(post, answers)
    rows: list[int] = []
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for lane, mails in by_receiver(answers).items():
        row = world.row[lane]
        rows.append(row)
        own = {name: stack.params[name][row, :count].cpu() for name in names} | {"modules": torch.arange(count)}
        letters = sorted([(mail.sender, mail.payload) for mail in mails] + [(lane, own)], key=lambda one: one[0])
        here = torch.zeros(len(letters), count, dtype=torch.bool)
        tables = {name: own[name].new_zeros(len(letters), *own[name].shape) for name in names}
        for at, (_, payload) in enumerate(letters):
            which = payload["modules"].long()
            here[at, which] = True
            for name in names:
                tables[name][at, which] = payload[name]
        mine = [sender for sender, _ in letters].index(lane)
        whole = {name: own[name].clone() for name in names}
        for pattern in here.unique(dim=1).T:  # modules that came from the same agents are one model
            units, who = (here == pattern[:, None]).all(0), pattern.nonzero()[:, 0]
            if len(who) == 1:  # nobody has sent these
                continue
            parts = {name: tables[name][who][:, units] for name in names}
            for name, value in made_one(post, parts, int((who == mine).nonzero())).items():
                whole[name][units] = value
        for name in names:
            found[name].append(whole[name])
    now = {name: stack.params[name][:0, :count] for name in names}
    stacked = {name: torch.stack(one).to(world.device) if one else now[name] for name, one in found.items()}
    return torch.tensor(rows, dtype=torch.int64), stacked


def made_one(post: Post, models: Tensors, own: int) -> Tensors:
    """What a mode's rule makes of models, tensors [n, ...] by name of which one is the agent's own: tensors [...]."""
    mode = post.mode
    assert isinstance(mode, Federated)
    flat = torch.cat([tensor.flatten(1) for tensor in models.values()], 1).double().numpy()
    heard = Heard(flat, own, mode.tolerates, None if mode.radius == "adaptive" else mode.radius)
    one = torch.from_numpy(RULES.find(mode.combine).combine(heard)).float()
    parts = one.split([tensor[0].numel() for tensor in models.values()])
    return {name: part.view(tensor.shape[1:]) for part, (name, tensor) in zip(parts, models.items(), strict=True)}


def combined_of(post: Post, bundle: Bundle) -> tuple[Tensor, Tensors]:
    """`combined` of whole models, in the same order of sums. Agents with the same neighbourhood, themselves among it,
    have one sum."""
    world, count = post.world, body_units(post.world.model)
    theirs = {name: [one[name].unflatten(0, (-1, count)) for one in bundle.contents] for name in world.model.body}
    own = {name: post.stack.params[name][:, :count] for name in theirs}
    lanes, sent = len(world.lanes), sum(map(len, next(iter(theirs.values()))))
    # Who has sent its weights as they are is the same in its own mean as in those of others.
    same = torch.full((lanes,), sent == lanes)
    if sent == lanes:
        for name in theirs:
            same &= (bundle.content[name].unflatten(0, (-1, count)) == own[name]).flatten(1).all(1)
    mine = np.where(same.numpy(), 0, sent) + np.arange(lanes)
    tables = {name: held if bool(same.all()) else [*held, own[name]] for name, held in theirs.items()}
    rule = RULES.find(post.mode.combine) if isinstance(post.mode, Federated) else RULES["mean"]
    senders = bundle.first // count
    what = rule.common, senders.tobytes(), mine.tobytes(), world.rows.tobytes()
    who = bundle.links.once(what, lambda: circles(world, bundle.links, senders, mine, rule.common))
    if rule is RULES["mean"]:
        found = {name: averaged(one, who.sets, who.sizes, world.compiled) for name, one in tables.items()}
    else:
        each = [
            made_one(post, {name: torch.cat(table)[one[:size]] for name, table in tables.items()}, int(place))
            for one, size, place in zip(torch.from_numpy(who.sets), who.sizes.tolist(), who.places, strict=True)
        ]
        found = {name: torch.stack([one[name] for one in each]) for name in tables}
    at = torch.from_numpy(who.group)
    return torch.from_numpy(who.rows), {name: tensor[at] for name, tensor in found.items()}


class Circles(NamedTuple):
    """Which models agents combine; those with the same have one circle."""

    rows: np.ndarray  # int64 [R]: the receivers, by their rows here,
    group: np.ndarray  # int64 [R]: and the circle of each
    sets: np.ndarray  # int64 [C, n]: the models of each circle, padded, in the order of agents,
    sizes: np.ndarray  # int64 [C]: how many they are,
    places: np.ndarray  # int64 [C]: and which is the receiver's own, where that matters


def circles(world: World, links: Links, models: np.ndarray, mine: np.ndarray, common: bool) -> Circles:
    """Who combines what: the model that comes over each of some links, and the own one of each lane that is here, which
    matters to rules that are not `common`."""
    receivers = world.rows[links.receivers]
    rows = np.unique(receivers)
    agents = links.lanes[:, 1]
    who = np.concatenate([agents[links.senders], agents[world.spots[rows]]])
    from_, to = np.concatenate([models, mine[rows]]), np.concatenate([receivers, rows])
    order = np.lexsort([who, to])
    sizes = np.diff(np.searchsorted(to[order], rows), append=len(to))
    sets = np.full((len(rows), int(sizes.max())), -1)
    sets[np.arange(sets.shape[1]) < sizes[:, None]] = from_[order]
    places = np.zeros(len(rows), np.int64) if common else np.argmax(sets == mine[rows][:, None], 1)
    known: dict[bytes, int] = {}
    names = (one.tobytes() + at.tobytes() for one, at in zip(sets, places, strict=True))
    group = np.array([known.setdefault(name, len(known)) for name in names])
    _, alike = np.unique(group, return_index=True)
    return Circles(rows, group, sets[alike], sizes[alike], places[alike])


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
