"""The world: all that never changes in a run, stacked over lanes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.data import Bank
from shoal.data.scenarios import streams
from shoal.data.tasks import JOINT, Lane, Stream
from shoal.errors import SettingsError
from shoal.fleet.engine import THREADS
from shoal.models.contract import Model
from shoal.models.table import build
from shoal.network.edges import Edge, edges
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.sharing.contract import Sharing

NAMES = ("train", "validation", "test")


class Place(NamedTuple):
    """Where a seed's images are in World.inputs: bank row rows[i] is at first + i."""

    first: int
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """The train, validation or test images of all tasks of all lanes."""

    rows: Tensor  # int64 [L, T, n] into World.inputs
    labels: Tensor  # int64 [L, T, n], local
    sizes: Tensor  # int64 [L, T], on the host: the first so many of the n are real, the rest is padding

    def piece(self, rows: Sequence[int]) -> "Split":
        at = torch.tensor(rows)
        return Split(self.rows[at.to(self.rows.device)], self.labels[at.to(self.rows.device)], self.sizes[at])


@dataclass(frozen=True, eq=False)
class World:
    """Settings, data and model of a set of lanes: those of one kind, among all lanes of a fleet."""

    settings: Settings  # of this kind
    fleet: Settings  # of all kinds
    peers: tuple[Lane, ...]  # all lanes of the fleet, those that are here too
    bank: Bank
    model: Model
    lanes: tuple[Lane, ...]
    streams: tuple[Stream, ...]
    device: torch.device
    inputs: Tensor  # [N, ...]: what the model reads, each image once
    train: Split
    validation: Split
    test: Split

    @property
    def engine(self) -> str:
        """What maps the functions of one agent over lanes: `vmap` makes one kernel of all, `loop` takes one by one."""
        chosen = self.settings.machine.engine
        if chosen != "auto":
            return chosen
        return self.model.engine if self.device.type == "cpu" else "vmap"

    @cached_property
    def row(self) -> dict[Lane, int]:
        """Where each lane is in the stack."""
        return {lane: row for row, lane in enumerate(self.lanes)}

    @cached_property
    def agents(self) -> dict[int, Settings]:
        """The settings of every agent of the fleet."""
        kinds = ((self.fleet.of(name), agents) for name, agents in self.fleet.members().items())
        return {agent: settings for settings, agents in kinds for agent in agents}

    def of(self, lane: Lane) -> Settings:
        """The settings of a lane, here or elsewhere in the fleet."""
        return self.agents[lane.agent]

    @cached_property
    def edges(self) -> dict[tuple[Lane, Lane], Edge]:
        """The directed edges, by (sender, receiver), between all lanes of the fleet. Seeds never meet."""
        seeds, there = sorted({lane.seed for lane in self.peers}), set(self.peers)
        network, agents = self.fleet.network, self.fleet.agents
        every = ((seed, edge) for seed in seeds for edge in edges(network, agents, seed))
        ends = ((Lane(seed, edge.sender), Lane(seed, edge.receiver), edge) for seed, edge in every)
        return {(a, b): edge for a, b, edge in ends if a in there and b in there}

    @cached_property
    def receivers(self) -> dict[Lane, list[Lane]]:
        """Whom each lane can send to."""
        found: dict[Lane, list[Lane]] = {}
        for sender, receiver in self.edges:
            found.setdefault(sender, []).append(receiver)
        return found

    def neighbours(self, mode: "Sharing") -> dict[Lane, list[Lane]]:
        """Whom each lane that is here can send to by a mode."""
        if mode not in self.ways:
            self.ways[mode] = {
                lane: [other for other in self.receivers.get(lane, []) if mode.uses(self, lane, other)]
                for lane in self.lanes
            }
        return self.ways[mode]

    @cached_property
    def ways(self) -> "dict[Sharing, dict[Lane, list[Lane]]]":
        """What `neighbours` has found."""
        return {}

    def images(self, rows: np.ndarray) -> Tensor:
        """Raw images of the bank, as they are sent: bytes [n, ...]."""
        return torch.from_numpy(self.bank.images[rows])

    def encode(self, images: Tensor, seed: int) -> Tensor:
        """What the model of a lane of `seed` reads of raw images."""
        return self.model.encode(images.cpu().numpy(), self.bank.peak, seed).to(self.device)

    @cached_property
    def pieces(self) -> tuple["World", ...]:
        """The lanes in as many pieces as threads pay for: convolutions need a lane each, small matrices many."""
        count = min(self.settings.machine.threads or THREADS, max(1, len(self.lanes) // self.model.least))
        if count == 1 or self.device.type != "cpu":
            return (self,)
        bounds = [len(self.lanes) * i // count for i in range(count + 1)]
        return tuple(self.piece(range(*pair)) for pair in pairwise(bounds))

    def piece(self, rows: Sequence[int]) -> "World":
        """The same world with the lanes in some rows, a lane as often as its row; it shares the images."""
        return replace(
            self,
            lanes=tuple(self.lanes[row] for row in rows),
            streams=tuple(self.streams[row] for row in rows),
            train=self.train.piece(rows),
            validation=self.validation.piece(rows),
            test=self.test.piece(rows),
        )


def lanes_of(settings: Settings) -> tuple[Lane, ...]:
    """All agents of all seeds; the agents of a seed are neighbours in the stack."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    return tuple(Lane(seed, agent) for seed in seeds for agent in range(settings.agents))


def joint_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """The joint agent of every seed, which learns a common start."""
    return tuple(Lane(seed, JOINT) for seed in sorted({lane.seed for lane in lanes}))


def worlds(
    settings: Settings, bank: Bank, lanes: Sequence[Lane] | None = None, peers: Sequence[Lane] | None = None
) -> tuple[World, ...]:
    """A world for each kind of agents, with its part of `lanes` (all of the settings' lanes if not given), among
    `peers` (these lanes alone, if not given)."""
    lanes = tuple(lanes_of(settings) if lanes is None else lanes)
    peers = lanes if peers is None else tuple(peers)
    found = []
    for name, agents in settings.members().items():
        part = [lane for lane in lanes if lane.agent in agents]
        if part:
            found.append(replace(world(settings.of(name), bank, part), fleet=settings, peers=peers))
    return tuple(found)


def world(settings: Settings, bank: Bank, lanes: Sequence[Lane] | None = None) -> World:
    """The world of `lanes` (all of the settings' lanes if not given), all of one kind."""
    if settings.kinds:
        raise ValueError("agents of several kinds have a world for each kind; use `worlds`")
    lanes = tuple(lanes_of(settings) if lanes is None else lanes)
    device = device_of(settings)
    model = build(settings, bank)
    drawn = streams(bank, settings, lanes)
    inputs, places = read(bank, model, lanes, drawn)
    train, validation, test = (split(bank, name, lanes, drawn, places, device) for name in NAMES)
    place = bank, model, lanes, drawn, device, inputs.to(device)
    return World(settings, settings, lanes, *place, train, validation, test)


def read(bank: Bank, model: Model, lanes: Sequence[Lane], drawn: Sequence[Stream]) -> tuple[Tensor, dict[int, Place]]:
    """What the model reads, each image once, and where the images of a seed are. Seeds share what does not depend on
    the seed."""
    met: dict[int, list[np.ndarray]] = {}
    for lane, stream in zip(lanes, drawn, strict=True):
        met.setdefault(lane.seed, []).extend(getattr(task, name) for task in stream for name in NAMES)
    used = {seed: np.unique(np.concatenate(rows)) for seed, rows in met.items()}
    if not model.seeded:
        together = np.unique(np.concatenate(list(used.values())))
        return model.encode(bank.images[together], bank.peak, 0), dict.fromkeys(used, Place(0, together))
    parts, places, first = [], {}, 0
    for seed, rows in used.items():
        parts.append(model.encode(bank.images[rows], bank.peak, seed))
        places[seed] = Place(first, rows)
        first += len(rows)
    return torch.cat(parts), places


def split(
    bank: Bank,
    name: str,
    lanes: Sequence[Lane],
    drawn: Sequence[Stream],
    places: Mapping[int, Place],
    device: torch.device,
) -> Split:
    """The images `name` of all tasks, padded to the longest."""
    held = [[getattr(task, name) for task in stream] for stream in drawn]
    sizes = torch.tensor([[len(rows) for rows in stream] for stream in held])
    shape = (*sizes.shape, int(sizes.max()))
    rows, labels = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, (lane, stream) in enumerate(zip(lanes, drawn, strict=True)):
        first, known = places[lane.seed]
        for t, task in enumerate(stream):
            n = len(held[i][t])
            rows[i, t, :n] = first + np.searchsorted(known, held[i][t])
            labels[i, t, :n] = task.labels(bank, held[i][t])
    return Split(torch.from_numpy(rows).to(device), torch.from_numpy(labels).to(device), sizes)


def device_of(settings: Settings) -> torch.device:
    """The device the settings name, if this machine has it."""
    name = settings.machine.device
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        have = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise SettingsError(f"machine.device = {name!r} is not on this machine; it has: {', '.join(have)}") from None
    return device
