"""Federated modes without a server: everybody averages the modules that all have with its neighbours
(docs/protocol.md, section 6).

Shared are the layers of a monolithic net and the basis of a modular one, never heads, structures or added modules.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.stack import Stack
from shoal.fleet.state import State
from shoal.fleet.world import World
from shoal.learners.batches import Batch
from shoal.learners.fisher import fisher, snapshot
from shoal.learners.step import Frame, Part, Tensors, trains_body
from shoal.mail.bundle import Bundle
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver, identify
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models.contract import body_shapes, body_units
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.sharing.bounds import WEIGHTIEST, largest, size, too_large
from shoal.sharing.contract import Sharing

CHUNK = 2**17  # numbers that are summed at once: they should stay in a core's cache


class Federated(Sharing):
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

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only modules of the same shape in the same place can be averaged."""
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def ask(self, post: Post) -> list[Mail]:
        """Receipts for what has come at earlier exchanges, if they are wanted."""
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
        modules = mail.payload["modules"]
        if not 0 < len(modules) == len(modules.unique()):
            return OUT_OF_RANGE
        return TOO_LARGE if too_large(post, mail, post.world.model.body) else ACCEPTED

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        """Bundles are of whole models."""
        if type(self).objects is not Federated.objects or bundle.kind != "model" or not whole_models(post, bundle):
            return False
        count = body_units(post.world.model)
        found = size({name: bundle.content[name].unflatten(0, (-1, count)) for name in post.world.model.body})
        rows = torch.from_numpy(post.rows(bundle.links.receivers))
        return bool((found[torch.from_numpy(bundle.first // count)] <= largest(post)[rows]).all())

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        if kind == "receipt":
            return {"last": Expected(torch.int32, (1,), body_units(world.model))}
        found = {name: Expected(torch.float32, (None, *shape)) for name, shape in body_shapes(world.model).items()}
        matter = {f"fisher.{name}": one._replace(least=0.0, most=WEIGHTIEST) for name, one in found.items()}
        fisher = matter if self.copies == 2 else {}
        return found | fisher | {"modules": Expected(torch.int32, (None,), body_units(world.model))}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        layout = self.expects(world, "model", world.lanes[0])
        count = fitting(body_units(world.model), layout, room)
        receipts = [Quote("receipt", 1, 1)] if self.receipts else []
        return [*receipts, Quote("model", count, numbers(layout, count))]


class FedAvg(Federated):
    """Averaging with neighbours (McMahan et al. 2017, without the server)."""

    mode: Literal["fedavg"] = "fedavg"

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived."""
        rows, mean = means(post, questions, answers)
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
        rows, mean = means(post, questions, answers)
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

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """Everybody's modules, and how much each weight matters to it, to everybody's neighbours."""
        matters = fisher(post.world, post.stack, self.fisher, self.samples)
        return models(post, questions, snapshot(post.world, post.stack), matters)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived; and sum_j F_j and sum_j F_j w_j, which is all that the sum over
        neighbours of F_j (w - w_j)^2 needs for its gradient. What came earlier is forgotten."""
        state = remembered(post, ("sum", "moment"))
        write_all(post.stack, *means(post, questions, answers))
        if isinstance(answers, Bundle):
            self.remember_all(post, answers, state)
            return
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
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            matters, moment = frame.state[f"sum.{name}"], frame.state[f"moment.{name}"]
            value = frame.free[name][: len(matters)]
            slope = matters * value.detach() - moment
            total = total + (value * slope).sum()
        return 2 * self.mu * frame.state["on"] * total * scale(self.scaling, frame.batch)


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
        own = snapshot(post.world, post.stack)
        matters = fisher(post.world, post.stack, self.fisher, self.samples) if answers else {}
        rows, means_ = means(post, questions, answers)
        for at, row in enumerate(rows.tolist()):
            mean = {name: tensor[at] for name, tensor in means_.items()}
            kept = normalised({name: matters[name][row] for name in own}, self.norm, self.temperature)
            mixed = {name: kept[name] * own[name][row] + (1 - kept[name]) * mean[name] for name in own}
            # Where both are the same, so is what lies between them: rounding must not move it.
            same = {name: own[name][row] == mean[name] for name in own}
            write(post.stack, row, {name: torch.where(same[name], mean[name], mixed[name]) for name in own})


def net_of(settings: Settings) -> tuple[str, int, int, int]:
    """What two agents that average their modules have in common."""
    return settings.model, settings.net.width, settings.net.depth, settings.net.basis


def models(post: Post, receipts: Sequence[Mail], values: Tensors, matters: Tensors | None = None) -> Sequence[Mail]:
    """Everybody's modules to all its neighbours.

    If not all fit the budget, some go; others at the next exchange, so that in turn all are averaged.
    """
    world, count, mails = post.world, body_units(post.world.model), []
    content = values | {f"fisher.{name}": tensor for name, tensor in (matters or {}).items()}
    if post.free and not confirms(post):
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
                letters[first, fits] = chosen | {"modules": at.int()}
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


def means(post: Post, receipts: Sequence[Mail], answers: Sequence[Mail]) -> tuple[Tensor, Tensors]:
    """The unweighted mean over oneself and the neighbours whose modules have arrived, [R, units, ...], of the rows to
    which something has come.

    In double precision and in the order of agents: agents with the same neighbourhood get the same bits, and the mean
    of equal weights is these weights.
    """
    world, stack, count = post.world, post.stack, body_units(post.world.model)
    names = tuple(world.model.body)
    remember_turns(post, receipts, answers)
    if isinstance(answers, Bundle):
        return means_of(post, answers)
    rows: list[int] = []
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for lane, mails in by_receiver(answers).items():
        row = world.row[lane]
        rows.append(row)
        own = {name: stack.params[name][row, :count].cpu() for name in names} | {"modules": torch.arange(count)}
        letters = sorted([(mail.sender, mail.payload) for mail in mails] + [(lane, own)], key=lambda one: one[0])
        for name in names:
            total, heard = torch.zeros_like(own[name], dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
            for _, payload in letters:
                total[payload["modules"].long()] += payload[name]
                heard[payload["modules"].long()] += 1
            found[name].append((total / heard.view(-1, *[1] * (total.ndim - 1))).float())
    now = {name: stack.params[name][:0, :count] for name in names}
    stacked = {name: torch.stack(one).to(world.device) if one else now[name] for name, one in found.items()}
    return torch.tensor(rows, dtype=torch.int64), stacked


def means_of(post: Post, bundle: Bundle) -> tuple[Tensor, Tensors]:
    """`means` of whole models, in the same order of sums. Agents with the same neighbourhood, themselves among it, have
    one sum."""
    world, count = post.world, body_units(post.world.model)
    theirs = {name: bundle.content[name].unflatten(0, (-1, count)) for name in world.model.body}
    own = {name: post.stack.params[name][:, :count] for name in theirs}
    lanes, sent = len(world.lanes), len(next(iter(theirs.values())))
    # Who has sent its weights as they are is the same in its own mean as in those of others.
    same = torch.full((lanes,), sent == lanes)
    if sent == lanes:
        for name, tensor in theirs.items():
            same &= (tensor == own[name]).flatten(1).all(1)
    mine = np.where(same.numpy(), 0, sent) + np.arange(lanes)
    tables = theirs if bool(same.all()) else {name: torch.cat([theirs[name], own[name]]) for name in theirs}
    receivers = post.rows(bundle.links.receivers)
    rows = np.unique(receivers)
    agents, alone = bundle.links.lanes[:, 1], post.rows_here
    who = np.concatenate([agents[bundle.links.senders], agents[alone[rows]]])
    from_ = np.concatenate([bundle.first // count, mine[rows]])
    to = np.concatenate([receivers, rows])
    order = np.lexsort([who, to])
    sizes = np.diff(np.searchsorted(to[order], rows), append=len(to))
    # One row for each receiver, padded: whose models it averages, in the order of agents.
    sets = np.full((len(rows), int(sizes.max())), -1)
    sets[np.arange(sets.shape[1]) < sizes[:, None]] = from_[order]
    known: dict[bytes, int] = {}
    group = np.array([known.setdefault(one.tobytes(), len(known)) for one in sets])
    _, alike = np.unique(group, return_index=True)
    at = torch.from_numpy(group)
    found = {name: averaged(table, sets[alike], sizes[alike]) for name, table in tables.items()}
    return torch.from_numpy(rows), {name: tensor[at] for name, tensor in found.items()}


def averaged(table: Tensor, sets: np.ndarray, sizes: np.ndarray) -> Tensor:
    """The mean of the first so many rows of a table[N, ...] that each of some sets names, one row after the other."""
    flat = table.flatten(1)
    found = flat.new_empty(len(sets), flat.shape[1])
    order = np.argsort(-sizes, kind="stable")  # the largest first: those that go on are always the first
    step = max(1, CHUNK // max(1, flat.shape[1]))
    for start in range(0, len(sets), step):
        here = order[start : start + step]
        at, many = torch.from_numpy(sets[here].T.copy()), sizes[here]
        total = flat[at[0]].double()
        for turn in range(1, int(many[0])):
            on = int((many > turn).sum())
            total[:on] += flat[at[turn, :on]]
        found[torch.from_numpy(here)] = (total / torch.from_numpy(many)[:, None]).float()
    return found.view(len(sets), *table.shape[1:])


def in_turn(receivers: np.ndarray) -> list[np.ndarray]:
    """Places of the first mail of every receiver, of the second, and so on."""
    order = np.argsort(receivers, kind="stable")
    sorted_ = receivers[order]
    turn = np.arange(len(order)) - np.searchsorted(sorted_, sorted_)
    return [order[turn == at] for at in range(int(turn.max(initial=-1)) + 1)]


def whole_models(post: Post, bundle: Bundle) -> bool:
    """Does a bundle hold nothing but whole models, all modules in their order?"""
    count = body_units(post.world.model)
    modules = bundle.content["modules"]
    if len(modules) % count or (bundle.items != count).any() or (bundle.first % count).any():
        return False
    return torch.equal(modules, torch.arange(count, dtype=torch.int32).repeat(len(modules) // count))


def write(stack: Stack, row: int, values: Tensors) -> None:
    """Replace a lane's shared modules, and remember whether that changed anything. Adam's moments stay."""
    for name, value in values.items():
        now = stack.params[name][row, : len(value)]
        if not torch.equal(now, value):
            stack.moved[row] = True
            now.copy_(value)


def write_all(stack: Stack, rows: Tensor, values: Tensors) -> None:
    """`write` of some rows at once."""
    for name, value in values.items():
        now = stack.params[name][rows, : value.shape[1]]
        other = (now != value).flatten(1).any(1)
        if other.any():
            stack.moved[rows[other]] = True
            stack.params[name][rows[other], : value.shape[1]] = value[other]


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
    """How much of one's own weights to keep, in 0..1, by how much they matter."""
    if rule == "softmax":
        flat = torch.cat([tensor.flatten() for tensor in matters.values()])
        parts = (flat / temperature).softmax(0).split([tensor.numel() for tensor in matters.values()])
        return {name: part.view_as(tensor) for part, (name, tensor) in zip(parts, matters.items(), strict=True)}
    found = {}
    for name, tensor in matters.items():
        rows = tensor.flatten(1)  # a module's weights are a tensor of their own
        if rule == "max":
            share = rows / rows.max(1, keepdim=True).values.clamp(min=torch.finfo(rows.dtype).tiny)
        else:  # equal weights have equal rank, the lowest
            share = torch.searchsorted(rows.sort(1).values, rows) / max(1, rows.shape[1] - 1)
        found[name] = share.view_as(tensor)
    return found
