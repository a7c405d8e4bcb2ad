"""Copies (CHOCO, Koloskova et al. 2019): both ends of an edge keep what the receiver knows of the sender, and only the
difference to that is sent: q = Q(x_i - copy_ij), copy_ij += q, and then x_i + gamma sum_j w_ij (copy_ji - copy_ij).

That keeps the mean of the fleet where it is. There are two copies for every directed edge, because an edge may refuse
or lose what another carries. A sender adds to its copy what a receipt has confirmed, and until then sends the same
again; mail says which copy it is to be added to, so that it may come twice, or never.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shoal.agents.slots import slots
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.learners.step import Tensors
from shoal.models.contract import body_shapes, body_units
from shoal.sharing.compress import COPIES, Compressing, coded, decoded, layout
from shoal.sharing.mixing import Gap, degrees, told
from shoal.sharing.mode import Draft, Present, Received

KEPT = ("version", "holds", "owes", "turn", "mine.", "theirs.", "out.", "in.")  # what copies are kept under


def copies(mode: Compressing, world: World) -> dict[str, Tensor]:
    """What lanes keep for each neighbour, [L, slots, ...]: `mine`, what it surely knows of me, and `out`, what is under
    way to it; `theirs`, what it surely knows that I know of it, and `in`, what has come since; how often each was
    added to (`version`), which modules are in `out` and `in` (`holds`), whether a receipt is due (`owes`), and the
    module to go on with (`turn`)."""
    lanes, most, count = len(world.lanes), slots(world).most, body_units(world.model)
    found: dict[str, Tensor] = {
        "version": torch.zeros(lanes, most, 2, dtype=torch.int64),
        "holds": torch.zeros(lanes, most, 2, count, dtype=torch.bool),
        "owes": torch.zeros(lanes, most, dtype=torch.bool),
        "turn": torch.zeros(lanes, most, dtype=torch.int64),
    }
    for name, shape in body_shapes(world.model).items():
        found |= {f"{word}.{name}": torch.zeros(lanes, most, count, *shape) for word in ("mine", "theirs")}
    for name, want in layout(mode, world.model).items():
        sizes = [count if size is None else size for size in want.shape]
        found |= {f"{word}.{name}": torch.zeros(lanes, most, *sizes, dtype=want.dtype) for word in ("out", "in")}
    return found


def alike_from_the_start(mode: Compressing, world: World, stack: Stack) -> dict[str, Tensor]:
    """What lanes keep of neighbours that have begun as copies of the same: that both know what both are."""
    if mode.way != COPIES:
        return {}
    found = {
        f"{word}.{name}": stack.of(mode.owner)[f"{word}.{name}"]
        for word in ("mine", "theirs")
        for name in world.model.body
    }
    for row, lane in enumerate(world.lanes):
        for other, at in slots(world).places.get((lane.seed, lane.agent), {}).items():
            # Also an agent elsewhere has begun as a copy of the same joint agent.
            if world.settings.tasks.common and world.of(Lane(lane.seed, other)) == world.settings:
                for name, units in world.model.body.items():
                    for word in ("mine", "theirs"):
                        found[f"{word}.{name}"][row, at] = stack.params[name][row, :units].cpu()
    return found


class Edge:
    """An agent and one of its neighbours, and what it keeps for it: rows of `copies`, which are read and, when it
    absorbs, written."""

    def __init__(self, mode: Compressing, agent: Present, kept: Mapping[str, Tensor], other: int) -> None:
        self.mode, self.agent, self.other = mode, agent, other
        self.kept = {name: tensor[agent.slot(other)] for name, tensor in kept.items() if name.startswith(KEPT)}

    def holds(self, which: int) -> bool:
        return bool(self.kept["holds"][which].any())

    def version(self, which: int) -> int:
        return int(self.kept["version"][which])

    def where(self, which: int, version: int) -> tuple[int | str, ...]:
        """The name of the random numbers that both ends draw for a mail."""
        ends = (self.agent.number, self.other) if which == 0 else (self.other, self.agent.number)
        return self.agent.seed, *ends, self.mode.mode, "places", version

    def known(self, which: int) -> Tensors:
        """What the neighbour knows of me (0), or I of it (1), with what is under way or has come."""
        base, more = ("mine", "out") if which == 0 else ("theirs", "in")
        found = {name: self.kept[f"{base}.{name}"].clone() for name in self.agent.model.body}
        if not self.holds(which):
            return found
        at = self.kept["holds"][which].nonzero()[:, 0]
        payload = {name: self.kept[f"{more}.{name}"][at] for name in layout(self.mode, self.agent.model)}
        for name, value in self.decoded(which, payload, self.version(which)).items():
            found[name][at] += value
        return found

    def decoded(self, which: int, payload: Mapping[str, Tensor], version: int) -> Tensors:
        return decoded(self.mode, self.agent.model, payload, self.where(which, version))

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
        for name in layout(self.mode, self.agent.model):
            self.kept[f"{more}.{name}"][at] = payload[name]
        self.kept["holds"][which] = False
        self.kept["holds"][which, at] = True

    @property
    def confirmed(self) -> bool:
        """Does a receipt that has come now say that what is under way has come?"""
        receipt = self.agent.told.get(self.other)
        return receipt is not None and self.holds(0) and int(receipt["version"]) == self.version(0) + 1

    def said(self, letter: Received) -> str:
        """What a letter is to what has come before: the next one, the same again, or nothing that fits."""
        version, has = int(letter["version"]), self.version(1)
        return "next" if version == has + 1 and self.holds(1) else "again" if version == has else ""


def receipts(agent: Present) -> dict[int, Draft]:
    """What an agent confirms: how many letters of a neighbour it has added to what it knows of it."""
    kept = agent.kept
    due = [other for other in agent.neighbours if kept["owes"][agent.slot(other)]]
    return {other: {"version": kept["version"][agent.slot(other), 1:] + 1} for other in due}


def update(mode: Compressing, agent: Present, to: int, weights: Tensors) -> Draft:
    """To a neighbour the difference to what it knows; or, until it has confirmed the last one, that again."""
    edge, count = Edge(mode, agent, agent.kept, to), body_units(agent.model)
    version = edge.version(0) + edge.confirmed
    if edge.holds(0) and not edge.confirmed:
        at = edge.kept["holds"][0].nonzero()[:, 0]
        found = {name: edge.kept[f"out.{name}"][at] for name in layout(mode, agent.model)}
    else:
        fits = agent.fits("model", to)
        first = 0 if fits == count else int(edge.kept["turn"])
        at = torch.arange(first, first + fits) % count
        base = edge.known(0)
        gap = {name: tensor[at].cpu() - base[name][at] for name, tensor in weights.items()}
        who = agent.seed, agent.number, to, mode.mode, "rounding", version
        found = coded(mode, gap, who, edge.where(0, version))
    return found | {"modules": at.int(), "version": torch.tensor([version])} | degrees(mode, agent)


def copied_gaps(mode: Compressing, agent: Present, letters: Sequence[Received]) -> list[Gap]:
    """Write down what is known now of what neighbours know, and give the gaps to those with whom mail went both ways,
    as far as a sender can know."""
    kept, count = agent.kept, body_units(agent.model)
    for other in agent.told:
        edge = Edge(mode, agent, kept, other)
        if edge.confirmed:
            edge.fold(0)
    for other in agent.sent("receipt"):
        Edge(mode, agent, kept, other).kept["owes"].fill_(False)
    gone = agent.sent("model")
    for other, sent in gone.items():
        edge = Edge(mode, agent, kept, other)
        edge.put(0, sent.tensors)
        edge.kept["turn"].fill_((int(sent.tensors["modules"][-1]) + 1) % count)
    found: dict[int, Gap] = {}  # of what was late, and what is new, the new
    for letter in sorted(letters, key=lambda one: (one.sender, one.clock)):
        edge = Edge(mode, agent, kept, letter.sender)
        what = edge.said(letter)
        if not what:
            continue
        if what == "next":
            edge.fold(1)
        edge.put(1, letter.tensors)
        edge.kept["owes"].fill_(True)
        if letter.sender in gone:
            mine, theirs = edge.known(0), edge.known(1)
            values = {name: theirs[name].double() - mine[name].double() for name in mine}
            found[letter.sender] = Gap(letter.sender, torch.arange(count), values, told(letter.tensors))
    return list(found.values())


def known_then(mode: Compressing, agent: Present, letter: Received) -> Tensors:
    """What a receiver would know of a sender, if it took this letter."""
    at, edge = letter["modules"].long(), Edge(mode, agent, agent.kept, letter.sender)
    base = edge.known(1) if edge.said(letter) == "next" else None
    more = edge.decoded(1, letter.tensors, int(letter["version"]))
    found = {}
    for name in agent.model.body:
        before = edge.kept[f"theirs.{name}"] if base is None else base[name]
        found[name] = before[at] + more[name]
    return found
