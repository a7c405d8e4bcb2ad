"""Federated modes without a server: everybody averages the modules that all have with its neighbours
(docs/protocol.md, section 6).

Shared are the layers of a monolithic net and the basis of a modular one, never heads, structures or added modules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.stack import Stack
from shoal.fleet.state import State
from shoal.fleet.world import World
from shoal.learners.batches import Batch
from shoal.learners.fisher import fisher, snapshot
from shoal.learners.step import Frame, Part, Tensors, tangent, trains_body
from shoal.mail.bundle import Bundle, Links
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver, identify, noted
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models.contract import body_shapes, body_units
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.sharing.bounds import LARGEST, WEIGHTIEST, fresh, largest, sizes_of, too_large
from shoal.sharing.codecs import NONE, POWER
from shoal.sharing.combine import RULES, Heard, averaged
from shoal.sharing.compress import (
    COPIES,
    DIFFERENCE,
    MANY,
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

AT_ONCE = 256  # lanes whose weights are mixed at once


class Federated(Compressing):
    """What the four have in common: everybody sends its modules to everybody's neighbours."""

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
        if self.way == COPIES:
            return receipts_of(post, self)
        owed, mails = post.stack.of(self.owner).get("owed"), []
        if owed is None:
            return []
        for row, lane in enumerate(post.world.lanes):
            for other in post.out(lane):
                task, epoch, last = owed[row, other.agent].tolist()
                if last >= 0:
                    model = identify(other, lane, self.mode, "model", task, epoch)
                    payload = {"last": torch.tensor([last], dtype=torch.int32)}
                    mails.append(post.mail(lane, other, "receipt", payload, 1, model))
        return mails

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


class FedAvg(Federated):
    """Averaging with neighbours (McMahan et al. 2017, without the server)."""

    mode: Literal["fedavg"] = "fedavg"

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived."""
        rows, mean = combined(post, questions, answers)
        write_all(post.stack, rows, mean)


class FedProx(Federated):
    """Averaging, and a pull back to the average while learning (Li et al. 2020)."""

    mode: Literal["fedprox"] = "fedprox"
    mu: NonNegativeFloat = Field(0.01, description="strength of the pull")
    squared: bool = Field(True, description="mu/2 times the squared distance, as published, or the plain one")
    scaling: Literal["once", "task"] = Field(
        "once", description="added to the mean loss once, or once per task in the batch and divided by its images"
    )

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived; it is the anchor until the next exchange."""
        state = remembered(post, ("anchor",))
        rows, mean = combined(post, questions, answers)
        write_all(post.stack, rows, mean)
        state["on"][rows] = 1
        for name, value in mean.items():
            state[f"anchor.{name}"][rows] = value

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


class FedCurv(Federated):
    """Averaging, and a pull to each neighbour's weights where they matter to it (Shoham et al. 2019)."""

    copies: ClassVar[int] = 2
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedcurv"] = "fedcurv"
    mu: NonNegativeFloat = Field(1.0, description="strength of the pull")
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per image, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="images that fisher = sample looks at")
    scaling: Literal["once", "task"] = Field(
        "once", description="added to the mean loss once, or once per task in the batch and divided by its images"
    )

    def suits(self, settings: Settings) -> None:
        """What matters is sent once, and means something only if all of it is."""
        if self.compress not in (NONE, "int8") or self.way == COPIES:
            raise SettingsError(
                f"mode `fedcurv` can send what matters as int8 in the difference form or as it is, got compress = "
                f"{self.compress} in form {self.way}; use compress = int8, or another mode"
            )
        super().suits(settings)

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """Everybody's modules, and how much each weight matters to it, to everybody's neighbours."""
        matters = fisher(post.world, post.stack, self.fisher, self.samples)
        return models(post, questions, snapshot(post.world, post.stack), matters)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived; and sum_j F_j and sum_j F_j w_j, which is all that the sum over
        neighbours of F_j (w - w_j)^2 needs for its gradient. What came earlier is forgotten."""
        state = remembered(post, ("sum", "moment"))
        write_all(post.stack, *combined(post, questions, answers))
        if isinstance(answers, Bundle):
            self.remember_all(post, answers, state)
            return
        if self.way == DIFFERENCE:
            answers = opened(post, self, answers)
        for lane, mails in by_receiver(answers).items():
            row = post.world.row[lane]
            state["on"][row] = 1
            for name in post.world.model.body:
                total, moment = state[f"sum.{name}"][row].zero_(), state[f"moment.{name}"][row].zero_()
                for mail in mails:
                    at = mail.payload["modules"].long()
                    matters, value = mail.payload[f"fisher.{name}"], mail.payload[name]
                    total[at] += matters
                    moment[at] += matters * value

    def remember_all(self, post: Post, bundle: Bundle, state: State) -> None:
        """The same of a bundle: of every receiver the first mail, then the second, and so on."""
        count = body_units(post.world.model)
        senders, receivers = torch.from_numpy(bundle.first // count), post.rows(bundle.links.receivers)
        turns = [torch.from_numpy(turn) for turn in in_turn(receivers)]
        rows = torch.from_numpy(receivers)
        state["on"][rows] = 1
        for name in post.world.model.body:
            value, matters = (bundle.content[key].unflatten(0, (-1, count)) for key in (name, f"fisher.{name}"))
            weighed = matters * value
            for word, what in (("sum", matters), ("moment", weighed)):
                total = state[f"{word}.{name}"]
                total[rows] = 0
                for turn in turns:
                    total[rows[turn]] += what[senders[turn]]

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


class FedFish(Federated):
    """Averaging that spares what matters to oneself (Le et al. 2024): w <- F w + (1 - F) mean. F stays one's own."""

    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedfish"] = "fedfish"
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per image, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="images that fisher = sample looks at")
    norm: Literal["rank", "max", "softmax"] = Field(
        "rank", description="F in 0..1 by rank in its tensor, by its tensor's largest, or softmax over all (inert)"
    )
    temperature: PositiveFloat = Field(0.01, description="of the softmax")

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Between one's own weights and the mean over oneself and what has arrived."""
        matters = fisher(post.world, post.stack, self.fisher, self.samples) if answers else {}
        own = snapshot(post.world, post.stack)
        every, means_ = combined(post, questions, answers)
        for some in torch.arange(len(every)).split(AT_ONCE):
            rows, values = every[some], {}
            kept = normalised({name: one[rows] for name, one in matters.items()}, self.norm, self.temperature)
            for name, share in kept.items():
                mine, mean = own[name][rows], means_[name][some]
                # Where both are the same, so is what lies between them: rounding must not move it.
                values[name] = torch.where(mine == mean, mean, share * mine + (1 - share) * mean)
            write_all(post.stack, rows, values)


def net_of(settings: Settings) -> tuple[str, int, int, int]:
    """What two agents that average their modules have in common."""
    return settings.model, settings.net.width, settings.net.depth, settings.net.basis


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
    if post.free and not confirms(post) and mode.way == NONE and mode.weights == MEAN:
        flat = {name: tensor.flatten(0, 1) for name, tensor in content.items()}
        flat["modules"] = torch.arange(count, dtype=torch.int32).repeat(len(world.lanes))
        begin = post.rows(post.links.senders) * count
        return post.bundle("model", flat, begin, np.full(len(begin), count))
    layout = post.mode.expects(world, "model", world.lanes[0])
    turns = turned(post, receipts)
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


def confirms(post: Post) -> bool:
    """Do receivers confirm what they accept?"""
    return isinstance(post.mode, Federated) and post.mode.receipts


def turned(post: Post, receipts: Sequence[Mail]) -> Tensor | None:
    """With which module every edge goes on over which not all went, [L, agents]: that after the last one that has left
    or, if receivers confirm what they accept, after the last one confirmed. None: with the first."""
    count, turns = body_units(post.world.model), post.stack.of(post.mode.owner).get("turn")
    if confirms(post):
        gone = [(mail.receiver, mail.sender, int(mail.payload["last"])) for mail in receipts]
    else:
        models = [mail for mail in post.sent.values() if mail.kind == "model" and post.fault(mail) == ACCEPTED]
        left = [mail for mail in models if 0 < len(mail.payload["modules"]) < count]
        gone = [(mail.sender, mail.receiver, int(mail.payload["modules"][-1])) for mail in left]
    if not gone:
        return turns
    if turns is None:
        turns = torch.zeros(len(post.stack.lanes), post.world.settings.agents, dtype=torch.int64)
    turns = turns.clone()
    for sender, receiver, last in gone:
        turns[post.world.row[sender], receiver.agent] = (last + 1) % count
    return turns


def remember_turns(post: Post, receipts: Sequence[Mail], answers: Sequence[Mail]) -> None:
    """Remember with which module every edge goes on and, if receipts are wanted, what is to be confirmed."""
    turns, state = turned(post, receipts), post.stack.of(post.mode.owner)
    if turns is not None:
        state["turn"] = turns
    if confirms(post):
        state["owed"] = owed(post, answers)


def owed(post: Post, answers: Sequence[Mail]) -> Tensor:
    """What every lane has still to confirm, [L, agents, 3]: task and epoch of the sender's mail, and the last module in
    it; -1: nothing."""
    found = post.stack.of(post.mode.owner).get("owed")
    if found is None:
        found = torch.full((len(post.stack.lanes), post.world.settings.agents, 3), -1)
    for mail in post.sent.values():
        if mail.kind == "receipt":
            found[post.world.row[mail.sender], mail.receiver.agent] = -1
    for mail in answers:
        what = torch.tensor([mail.task, mail.epoch, int(mail.payload["modules"][-1])])
        found[post.world.row[mail.receiver], mail.sender.agent] = what
    return found


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
    remember_turns(post, receipts, answers)
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


def in_turn(receivers: np.ndarray) -> list[np.ndarray]:
    """Places of the first mail of every receiver, of the second, and so on."""
    order = np.argsort(receivers, kind="stable")
    sorted_ = receivers[order]
    turn = np.arange(len(order)) - np.searchsorted(sorted_, sorted_)
    return [order[turn == at] for at in range(int(turn.max(initial=-1)) + 1)]


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


def write(stack: Stack, row: int, values: Tensors) -> None:
    """Replace a lane's shared modules, and remember whether that changed anything. Adam's moments stay."""
    for name, value in values.items():
        now = stack.params[name][row, : len(value)]
        if not torch.equal(now, value):
            stack.moved[row] = True
            now.copy_(value)


def write_all(stack: Stack, rows: Tensor, values: Tensors) -> None:
    """`write` of some rows at once."""
    every = len(rows) == len(stack.lanes) and torch.equal(rows, torch.arange(len(rows)))
    for name, value in values.items():
        whole = stack.params[name][:, : value.shape[1]]
        other = ((whole if every else whole[rows]) != value).flatten(1).any(1)
        if every and other.all():
            stack.moved[:] = True
            whole.copy_(value)
        elif other.any():
            stack.moved[rows[other]] = True
            whole[rows[other]] = value[other]


def remembered(post: Post, words: Sequence[str]) -> State:
    """A mode's own state, for each word tensors shaped as what agents have in common; zero until something has
    arrived."""
    world, stack = post.world, post.stack
    state = stack.of(post.mode.mode)
    if "on" not in state:
        state["on"] = torch.zeros(len(stack.lanes), device=world.device)
        for word in words:
            for name, units in world.model.body.items():
                state[f"{word}.{name}"] = torch.zeros_like(stack.params[name][:, :units])
    return state


def scale(rule: str, batch: Batch) -> Tensor | float:
    """How a penalty is added to the mean loss of a batch: once; or, as the paper's code does, once for each of its
    tasks and divided by the number of its images."""
    if rule == "once":
        return 1.0
    real = batch.weight > 0
    same = (batch.task[:, None] == batch.task[None]) & real
    tasks = (real / same.sum(1).clamp(min=1)).sum()  # every image counts for its part of a task
    return tasks / batch.weight.sum().clamp(min=1)


def normalised(matters: Tensors, rule: str, temperature: float) -> Tensors:
    """How much of its own weights each lane keeps, in 0..1, by how much they matter, [L, units, ...]."""
    if rule == "softmax":
        flat = torch.cat([tensor.flatten(1) for tensor in matters.values()], 1)
        parts = (flat / temperature).softmax(1).split([tensor[0].numel() for tensor in matters.values()], 1)
        return {name: part.reshape(tensor.shape) for part, (name, tensor) in zip(parts, matters.items(), strict=True)}
    found = {}
    for name, tensor in matters.items():
        rows = tensor.flatten(2)  # a module's weights are a tensor of their own
        if rule == "max":
            share = rows / rows.max(2, keepdim=True).values.clamp(min=torch.finfo(rows.dtype).tiny)
        else:
            share = ranks(rows) / max(1, rows.shape[2] - 1)
        found[name] = share.view_as(tensor)
    return found


def ranks(rows: Tensor) -> Tensor:
    """The rank of each number along the last axis, int64 from 0 on; equal ones have the lowest of theirs."""
    values = rows.cpu().numpy()
    order = values.argsort(-1)  # quicker than torch's sort
    placed = np.take_along_axis(values, order, -1)
    first = np.ones(values.shape, bool)
    first[..., 1:] = placed[..., 1:] != placed[..., :-1]
    place = np.maximum.accumulate(np.where(first, np.arange(values.shape[-1]), 0), -1)
    found = np.empty(values.shape, np.int64)
    np.put_along_axis(found, order, place, -1)
    return torch.from_numpy(found).to(rows.device)
