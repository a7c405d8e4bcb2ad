"""Compressed mail: what every mode that averages models can be told about how it sends them.

Two forms keep the mean of the fleet where it is. In the *difference* form an agent compares what came with what it has
sent itself: x_i + sum_j w_ij (Q(x_j) - Q(x_i)). With *copies* (CHOCO, Koloskova et al. 2019) both ends of an edge keep
what the receiver knows of the sender, and only the difference to that is sent: q = Q(x_i - copy_ij), copy_ij += q, and
then x_i + gamma sum_j w_ij (copy_ji - copy_ij). There are two copies for every directed edge, because an edge may
refuse or lose what another carries. A sender adds to its copy what a receipt has confirmed, and until then sends the
same again; mail says which copy it is to be added to, so that it may come twice, or never.

`power` (PowerGossip) is in shoal/sharing/power.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Gt, Le
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.fisher import snapshot
from shoal.learners.step import Tensors
from shoal.letters.mail import Expected, Mail
from shoal.letters.quote import fitting
from shoal.mail.post import Post
from shoal.models.contract import Model, body_shapes, body_units
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.settings.part import LATER
from shoal.sharing.codecs import BUILT_IN, CODECS, NONE, POWER, Codec
from shoal.sharing.contract import Sharing
from shoal.sharing.mixing import Gap, degree, told
from shoal.weakly import weakly

COPIES, DIFFERENCE = "copies", "difference"
KEPT = ("version", "holds", "owes", "turn", "mine.", "theirs.", "out.", "in.")  # what copies are kept under
COARSE = 0.01  # agents that cannot come nearer to their mean than this share of their weights do not agree
MANY = 2**30  # more mails than an edge ever carries


class Compressing(Sharing):
    """The settings of a mode whose mail can be compressed."""

    compress: str = Field(
        NONE,
        description=f"how weights are made small: none, {', '.join(BUILT_IN)}, or power (low rank); biases go as "
        "they are",
        json_schema_extra=LATER,
    )
    ratio: Annotated[float, Gt(0), Le(1)] = Field(
        0.1, description="the share of weights that topk and randk send", json_schema_extra=LATER
    )
    form: Literal["auto", "difference", "copies"] = Field(
        "auto",
        description="what is coded: weights, compared with what one has sent oneself, or the difference to copies that "
        "both ends keep; auto: difference for int8, copies for others",
        json_schema_extra=LATER,
    )
    gamma: Annotated[float, Gt(0), Le(1)] | Literal["auto"] = Field(
        "auto",
        description="the step towards neighbours, of which too large a one diverges; auto: what the codec stands",
        json_schema_extra=LATER,
    )
    rank: PositiveInt = Field(1, description="of what compress = power sends", json_schema_extra=LATER)

    @property
    def way(self) -> str:
        """In which form mail is: none, difference, copies or power."""
        if self.compress in (NONE, POWER):
            return self.compress
        return (DIFFERENCE if self.compress == "int8" else COPIES) if self.form == "auto" else self.form

    @property
    def step(self) -> float:
        """The step towards neighbours."""
        if self.gamma != "auto":
            return self.gamma
        return 1.0 if self.way in (NONE, POWER, DIFFERENCE) else codec_of(self).gamma(self.ratio)

    @property
    def doubt(self) -> str:
        """Why its step may be too large or its codec too coarse, in a sentence; empty: it has been seen to converge."""
        if self.way == DIFFERENCE and (floor := codec_of(self).floor) > COARSE:
            return (
                f'sharing.{self.mode}.form = "difference" stalls with compress = {self.compress}: agents have been '
                f"seen to stay {100 * floor:.0f} % of the size of their weights away from their mean, and to move that "
                'far apart if they were nearer; use form = "copies", which has been seen to reach it'
            )
        if self.way != COPIES or self.step <= (most := codec_of(self).gamma(self.ratio)):
            return ""
        return (
            f"sharing.{self.mode}.gamma = {self.step:g} may diverge: with compress = {self.compress} and ratio = "
            f"{self.ratio:g} steps up to {most:g} have been seen to converge"
        )


def codec_of(mode: Compressing) -> Codec:
    return CODECS.find(mode.compress)


def possible(mode: Compressing, settings: Settings) -> None:
    """Raise for settings that cannot work."""
    if mode.compress not in (NONE, POWER):
        codec = CODECS.find(mode.compress)
        if mode.way == DIFFERENCE and not codec.apart:
            raise SettingsError(
                f'sharing.{mode.mode}.form = "difference" compares coded weights number by number, which '
                f'{mode.compress} does not leave; use form = "copies", or randk, int8 or int4'
            )
    elif mode.form != "auto" or (mode.gamma != "auto" and mode.compress == POWER):
        what = "form" if mode.form != "auto" else "gamma"
        raise SettingsError(
            f"sharing.{mode.mode}.{what} means nothing with compress = {mode.compress}; drop it, or use a codec: "
            f"{', '.join(CODECS)}"
        )


def matrices(model: Model) -> dict[str, tuple[int, int]]:
    """What of a module is coded: rows and columns of its weights, by name; vectors go as they are."""
    shapes = body_shapes(model).items()
    return {name: (shape[0], prod(shape[1:])) for name, shape in shapes if len(shape) > 1}


@weakly
def suited(model: Model, mode: Compressing) -> dict[str, tuple[int, int]]:
    """`matrices` of a net that the mode can serve; or why it cannot."""
    found = matrices(model)
    if mode.compress != NONE and not found:
        raise SettingsError(
            f"sharing.{mode.mode}.compress = {mode.compress} codes matrices, and what agents have in common here has "
            "none; use compress = none"
        )
    least = min((min(shape) for shape in found.values()), default=0)
    if mode.compress == POWER and mode.rank > least:
        raise SettingsError(
            f"sharing.{mode.mode}.rank = {mode.rank} is more than the smallest matrix has, {least}; use a rank of at "
            f"most {least}, or another codec"
        )
    return found


def layout(mode: Compressing, model: Model, prefix: str = "") -> dict[str, Expected]:
    """What coded modules look like."""
    found: dict[str, Expected] = {}
    matrix = suited(model, mode)
    for name, shape in body_shapes(model).items():
        if name in matrix:
            parts = codec_of(mode).layout(prod(shape), mode.ratio)
            found |= {f"{prefix}{name}.{part}": one for part, one in parts.items()}
        else:
            found[prefix + name] = Expected(torch.float32, (None, *shape))
    return found


def coded(mode: Compressing, values: Tensors, who: Sequence[int | str], where: Sequence[int | str]) -> Tensors:
    """One agent's modules, tensors [U, ...] by name, as they are sent; `who` names its own random numbers, `where`
    those that both ends draw."""
    found: Tensors = {}
    for name, tensor in values.items():
        if tensor.ndim < 3:
            found[name] = tensor
            continue
        draws = (path_of(path, name) for path in (who, where))
        parts = codec_of(mode).encode(tensor.flatten(1), mode.ratio, *draws)
        found |= {f"{name}.{part}": one for part, one in parts.items()}
    return found


def path_of(path: Sequence[int | str], name: str) -> np.random.Generator:
    """The generator of one tensor."""
    seed, *rest = path
    assert isinstance(seed, int)
    return key(seed, *rest, name)


def decoded(
    mode: Compressing, model: Model, payload: Mapping[str, Tensor], where: Sequence[int | str], prefix: str = ""
) -> Tensors:
    """What a receiver makes of it, tensors [u, ...] by name."""
    found: Tensors = {}
    for name, shape in body_shapes(model).items():
        whole = prefix + name
        if whole in payload:
            found[name] = payload[whole]
            continue
        parts = {key.rpartition(".")[2]: one for key, one in payload.items() if key.startswith(f"{whole}.")}
        found[name] = codec_of(mode).decode(parts, prod(shape), path_of(where, whole)).unflatten(1, shape)
    return found


# The difference form


def moment(mode: Sharing, seed: int, task: int, epoch: int) -> tuple[int | str, ...]:
    """The name of the random numbers that all agents of a seed draw at an exchange."""
    return seed, mode.mode, "places", task, epoch


def coded_now(post: Post, mode: Compressing, values: Tensors) -> Tensors:
    """All lanes' modules, [L, U, ...] by name, as they are sent now."""

    def find() -> Tensors:
        rows = []
        for row, lane in enumerate(post.world.lanes):
            who = (*lane, mode.mode, "rounding", post.stack.task, post.stack.epoch)
            where = moment(mode, lane.seed, post.stack.task, post.stack.epoch)
            rows.append(coded(mode, {name: tensor[row].cpu() for name, tensor in values.items()}, who, where))
        return {name: torch.stack([one[name] for one in rows]) for name in rows[0]}

    return post.once(("coded", *values), post, find)


def opened(post: Post, mode: Compressing, answers: Sequence[Mail]) -> list[Mail]:
    """Mail as if it had come whole."""

    def whole(mail: Mail) -> dict[str, Tensor]:
        where = moment(mode, mail.sender.seed, mail.task, mail.epoch)
        found = decoded(mode, post.world.model, mail.payload, where)
        if any(name.startswith("fisher.") for name in mail.payload):
            more = decoded(mode, post.world.model, mail.payload, where, "fisher.")
            found |= {f"fisher.{name}": tensor for name, tensor in more.items()}
        rest = {name: mail.payload[name] for name in ("modules", "degree") if name in mail.payload}
        return found | rest

    found = [(mail, post.once(("opened",), mail.payload, partial(whole, mail))) for mail in answers]
    return [replace(mail, payload=payload) for mail, payload in found]


def as_sent(post: Post, mode: Compressing) -> Tensors:
    """What lanes have said of themselves at this exchange, [L, U, ...] by name."""
    now = coded_now(post, mode, snapshot(post.world, post.stack))
    rows = []
    for row, lane in enumerate(post.world.lanes):
        where = moment(mode, lane.seed, post.stack.task, post.stack.epoch)
        rows.append(decoded(mode, post.world.model, {name: one[row] for name, one in now.items()}, where))
    return {name: torch.stack([one[name] for one in rows]) for name in post.world.model.body}


# Pairs of agents that both keep something of each other


@weakly
def slots(world: World, mode: Sharing) -> tuple[dict[Lane, dict[Lane, int]], int]:
    """The neighbours of every lane that is here, each with its place among them, and the most that any lane of the
    fleet has."""
    near: dict[Lane, list[Lane]] = {}
    for sender, receiver in world.edges:
        if mode.uses(world, sender, receiver):
            near.setdefault(sender, []).append(receiver)
    most = max((len(others) for others in near.values()), default=0)
    return {lane: {other: at for at, other in enumerate(sorted(near.get(lane, [])))} for lane in world.lanes}, most


def there_and_back(world: World, sender: Lane, receiver: Lane) -> bool:
    return (receiver, sender) in world.edges


def begun_alike(world: World, other: Lane) -> bool:
    """Has an agent elsewhere begun as a copy of the same joint agent?"""
    return world.settings.tasks.common and world.of(other) == world.settings


# Copies


def start_of(mode: Compressing, world: World, stack: Stack) -> dict[str, Tensor]:
    """What is remembered of how agents begin, where they begin alike: copies begin there too."""
    if mode.way != COPIES:
        return {}
    return {f"start.{name}": tensor for name, tensor in snapshot(world, stack).items()}


def copies(post: Post, mode: Compressing) -> dict[str, Tensor]:
    """What lanes keep for each neighbour, [L, slots, ...]: `mine`, what it surely knows of me, and `out`, what is under
    way to it; `theirs`, what it surely knows that I know of it, and `in`, what has come since; how often each was
    added to (`version`), which modules are in `out` and `in` (`holds`), whether a receipt is due (`owes`), and the
    module to go on with (`turn`)."""
    state, world = post.stack.of(mode.owner), post.world
    if "version" in state:
        return dict(state)
    near, most = slots(world, mode)
    lanes, count = len(world.lanes), body_units(world.model)
    found: dict[str, Tensor] = {
        "version": torch.zeros(lanes, most, 2, dtype=torch.int64),
        "holds": torch.zeros(lanes, most, 2, count, dtype=torch.bool),
        "owes": torch.zeros(lanes, most, dtype=torch.bool),
        "turn": torch.zeros(lanes, most, dtype=torch.int64),
    }
    for name, shape in body_shapes(world.model).items():
        begin = torch.zeros(lanes, most, count, *shape)
        if f"start.{name}" in state:
            for lane, others in near.items():
                for other, at in others.items():
                    if begun_alike(world, other):
                        begin[world.row[lane], at] = state[f"start.{name}"][world.row[lane]].cpu()
        found |= {f"mine.{name}": begin, f"theirs.{name}": begin.clone()}
    for name, want in layout(mode, world.model).items():
        sizes = [count if size is None else size for size in want.shape]
        empty = torch.zeros(lanes, most, *sizes, dtype=want.dtype)
        found |= {f"out.{name}": empty, f"in.{name}": empty.clone()}
    return found


class Edge:
    """One lane and one of its neighbours, and what both keep: rows of `copies`, which are read and, in `absorb`,
    written."""

    def __init__(self, post: Post, mode: Compressing, kept: Mapping[str, Tensor], lane: Lane, other: Lane) -> None:
        self.post, self.mode, self.lane, self.other = post, mode, lane, other
        at = post.world.row[lane], slots(post.world, mode)[0][lane][other]
        self.kept = {name: tensor[at] for name, tensor in kept.items() if name.startswith(KEPT)}

    def holds(self, which: int) -> bool:
        return bool(self.kept["holds"][which].any())

    def version(self, which: int) -> int:
        return int(self.kept["version"][which])

    def where(self, which: int, version: int) -> tuple[int | str, ...]:
        """The name of the random numbers that both ends draw for a mail."""
        ends = (self.lane, self.other) if which == 0 else (self.other, self.lane)
        return ends[0].seed, ends[0].agent, ends[1].agent, self.mode.mode, "places", version

    def known(self, which: int) -> Tensors:
        """What the neighbour knows of me (0), or I of it (1), with what is under way or has come."""
        base, more = ("mine", "out") if which == 0 else ("theirs", "in")
        found = {name: self.kept[f"{base}.{name}"].clone() for name in self.post.world.model.body}
        if not self.holds(which):
            return found
        at = self.kept["holds"][which].nonzero()[:, 0]
        payload = {name: self.kept[f"{more}.{name}"][at] for name in layout(self.mode, self.post.world.model)}
        for name, value in self.decoded(which, payload, self.version(which)).items():
            found[name][at] += value
        return found

    def decoded(self, which: int, payload: Mapping[str, Tensor], version: int) -> Tensors:
        return decoded(self.mode, self.post.world.model, payload, self.where(which, version))

    def fold(self, which: int) -> None:
        """Both ends know it now."""
        base = "mine" if which == 0 else "theirs"
        for name, value in self.known(which).items():
            self.kept[f"{base}.{name}"].copy_(value)
        self.kept["version"][which] += 1
        self.kept["holds"][which] = False

    def put(self, which: int, payload: Mapping[str, Tensor]) -> None:
        """Something is under way, or has come."""
        more, at = ("out" if which == 0 else "in"), payload["modules"].long()
        for name in layout(self.mode, self.post.world.model):
            self.kept[f"{more}.{name}"][at] = payload[name]
        self.kept["holds"][which] = False
        self.kept["holds"][which, at] = True

    def confirmed(self, receipt: Mail) -> bool:
        """Does a receipt say that what is under way has come?"""
        return self.holds(0) and int(receipt.payload["version"]) == self.version(0) + 1

    def said(self, payload: Mapping[str, Tensor]) -> str:
        """What a mail is to what has come before: the next one, the same again, or nothing that fits."""
        version, has = int(payload["version"]), self.version(1)
        return "next" if version == has + 1 and self.holds(1) else "again" if version == has else ""


def receipts_of(post: Post, mode: Compressing) -> list[Mail]:
    """What lanes confirm: how many mails of a neighbour they have added to what they know of it."""
    kept, mails = copies(post, mode), []
    for lane, others in slots(post.world, mode)[0].items():
        for other in post.out(lane):
            row, at = post.world.row[lane], others[other]
            if kept["owes"][row, at]:
                version = kept["version"][row, at, 1:] + 1
                mails.append(post.mail(lane, other, "receipt", {"version": version.int()}, 1))
    return mails


def updates(post: Post, mode: Compressing, receipts: Sequence[Mail], values: Tensors) -> list[Mail]:
    """To every neighbour the difference to what it knows; or, until it has confirmed the last one, that again."""
    world, count, kept, mails = post.world, body_units(post.world.model), copies(post, mode), []
    seen = {(mail.receiver, mail.sender): mail for mail in receipts}
    look = mode.expects(world, "model", world.lanes[0])
    for row, lane in enumerate(world.lanes):
        for other in post.out(lane):
            edge = Edge(post, mode, kept, lane, other)
            known = (lane, other) in seen and edge.confirmed(seen[lane, other])
            version = edge.version(0) + known
            if edge.holds(0) and not known:
                at = edge.kept["holds"][0].nonzero()[:, 0]
                payload = {name: edge.kept[f"out.{name}"][at] for name in layout(mode, world.model)}
            else:
                fits = fitting(count, look, post.left(lane, other))
                first = 0 if fits == count else int(edge.kept["turn"])
                at = torch.arange(first, first + fits) % count
                base = edge.known(0)
                gap = {name: tensor[row, at].cpu() - base[name][at] for name, tensor in values.items()}
                who = (*lane, other.agent, mode.mode, "rounding", version)
                payload = coded(mode, gap, who, edge.where(0, version))
            payload |= {"modules": at.int(), "version": torch.tensor([version], dtype=torch.int32)}
            mails.append(post.mail(lane, other, "model", payload | degrees(post, mode, lane), len(at)))
    return mails


def degrees(post: Post, mode: Sharing, lane: Lane) -> dict[str, Tensor]:
    """What is said of oneself where weights depend on it."""
    if getattr(mode, "weights", "") != "metropolis":
        return {}
    return {"degree": torch.tensor([degree(post, lane)], dtype=torch.int32)}


def copied_gaps(
    post: Post, mode: Compressing, receipts: Sequence[Mail], answers: Sequence[Mail]
) -> dict[Lane, list[Gap]]:
    """Write down what is known now of what neighbours know, and give the gaps to those with whom mail went both ways,
    as far as a sender can know."""
    state, count = post.stack.of(mode.owner), body_units(post.world.model)
    state.update({name: one for name, one in copies(post, mode).items() if name not in state})
    for mail in receipts:
        edge = Edge(post, mode, state, mail.receiver, mail.sender)
        if edge.confirmed(mail):
            edge.fold(0)
    gone = set()
    for mail in post.sent.values():
        edge = Edge(post, mode, state, mail.sender, mail.receiver)
        if mail.kind == "receipt":
            edge.kept["owes"].fill_(False)
            continue
        gone.add((mail.sender, mail.receiver))
        edge.put(0, mail.payload)
        edge.kept["turn"].fill_((int(mail.payload["modules"][-1]) + 1) % count)
    found: dict[Lane, list[Gap]] = {}
    for mail in sorted(answers, key=lambda one: (one.receiver, one.sender, one.task, one.epoch)):
        edge = Edge(post, mode, state, mail.receiver, mail.sender)
        what = edge.said(mail.payload)
        if not what:
            continue
        if what == "next":
            edge.fold(1)
        edge.put(1, mail.payload)
        edge.kept["owes"].fill_(True)
        if (mail.receiver, mail.sender) not in gone:
            continue
        mine, theirs = edge.known(0), edge.known(1)
        values = {name: theirs[name].double() - mine[name].double() for name in mine}
        here = found.setdefault(mail.receiver, [])
        here[:] = [gap for gap in here if gap.sender != mail.sender]  # what was late, and what is new
        here.append(Gap(mail.sender, torch.arange(count), values, told(mail)))
    return found


def known_then(post: Post, mode: Compressing, mail: Mail) -> Tensors:
    """What a receiver would know of a sender, if it took this mail."""
    kept, at = copies(post, mode), mail.payload["modules"].long()
    edge = Edge(post, mode, kept, mail.receiver, mail.sender)
    base = edge.known(1) if edge.said(mail.payload) == "next" else None
    version = int(mail.payload["version"])
    more = edge.decoded(1, mail.payload, version)
    found = {}
    for name in post.world.model.body:
        before = edge.kept[f"theirs.{name}"] if base is None else base[name]
        found[name] = before[at] + more[name]
    return found
