"""The world: all that never changes in a run, stacked over lanes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from shoal.agents.engine import THREADS
from shoal.agents.events import arrivals, first_of
from shoal.agents.lanes import Held, Split, moment
from shoal.compiled.library import chained, kernel, unsuited
from shoal.data import Bank
from shoal.data.draws import source_of
from shoal.data.scaling import Scaling
from shoal.data.scenarios import by_name, even, streams
from shoal.data.tasks import Lane, Stream
from shoal.letters.links import Links
from shoal.letters.terms import Terms, terms
from shoal.models.contract import Model, Usage, described
from shoal.models.heads import OPEN, sizes
from shoal.network.edges import Edge, edges, moves, version
from shoal.network.roads import Roads
from shoal.settings.conditions import Interval
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.learners.batches import Pool
    from shoal.sharing.contract import Sharing

T = TypeVar("T")
PAYS = 2  # lanes for which a thread pays, where the kernel takes the steps
PICKED = 256  # pieces of a world that are kept
# What a piece knows of the fleet because the whole does.
SHARED = "places", "edges", "receivers", "agents", "begins", "begun", "far_ends", "instant", "even", "named"


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
    scales: tuple[Scaling | None, ...]  # how each lane scales what it reads; None: as the bank says for all
    device: torch.device
    held: Held  # what the model reads
    train: Split
    validation: Split
    test: Split
    epoch: int = 0  # since the first task: the graph is as it is then
    late: bool = False  # may mail come late, whatever edges say? Between hosts it may

    @property
    def inputs(self) -> Tensor:
        """[N, ...]: what the model reads, each image once."""
        return self.held.inputs

    def at(self, task: int, epoch: int) -> "World":
        """This world with the graph that it has when so many epochs of a task are done."""
        if self.once(("still",), lambda: not self.fleet.network.changes and not moves(self.fleet.network)):
            return self
        when = version(self.fleet.network, moment(self.settings, task, epoch))
        if when == self.epoch:
            return self
        if when not in self.later:
            self.later.clear()  # time does not go back
            self.later[when] = replace(self, epoch=when)
        return self.later[when]

    @cached_property
    def later(self) -> "dict[int, World]":
        """What `at` has found last."""
        return {}

    @cached_property
    def taught(self) -> "dict[tuple[int, int], Pool]":
        """What `shoal.learners.batches.trained` has found, by the first and the last task."""
        return {}

    @cached_property
    def most_heard(self) -> int:
        """How many agents can send to one at the start of a task, at most."""
        starts = {self.at(task, 0).epoch: task for task in range(self.settings.tasks.count)}
        found = [Counter(receiver for _, receiver in self.at(task, 0).edges) for task in sorted(starts.values())]
        return max((max(heard.values(), default=0) for heard in found), default=0)

    @cached_property
    def even(self) -> bool:
        """Have all tasks of all lanes the same number of training images, by the settings alone?"""
        return even(self.settings.tasks)

    @cached_property
    def named(self) -> bool:
        """Do the outputs of heads stand for the classes of the data, whatever the task?"""
        return by_name(self.settings.tasks)

    @cached_property
    def ends(self) -> Tensor:
        """int64 [L], on the host: how many tasks each lane has."""
        return torch.tensor([stream.end for stream in self.streams])

    @cached_property
    def far_ends(self) -> dict[Lane, int]:
        """How many tasks every lane of the fleet has, here or elsewhere, as far as its rows are here: on a host of its
        own, an agent has those of no other."""
        here, sources = dict(zip(self.lanes, self.ends.tolist(), strict=True)), np.unique(self.bank.source).tolist()
        others = [lane for lane in self.peers if lane not in here and not self.even]
        away = [lane for lane in others if source_of(self.bank, lane) in sources]
        there = zip(away, streams(self.bank, self.fleet, away), strict=True)
        return dict.fromkeys(self.peers, self.settings.tasks.count) | here | {lane: one.end for lane, one in there}

    @cached_property
    def arrivals(self) -> np.ndarray:
        """float64 [L, T]: when each task of each lane comes (shoal/agents/events.py)."""
        return np.stack([arrivals(self.fleet, lane) for lane in self.lanes])

    @cached_property
    def begins(self) -> dict[Lane, float]:
        """When every lane of the fleet begins, here or elsewhere."""
        return {lane: first_of(self.fleet, lane) for lane in self.peers}

    @cached_property
    def begun(self) -> float:
        """When all of them have begun."""
        return max(self.begins.values())

    @cached_property
    def validates(self) -> np.ndarray:
        """Which rows of the bank the validation images of all tasks of all lanes are: int64 [L, T, n], as in
        `validation`."""
        found = np.zeros(self.validation.rows.shape, np.int64)
        for row, stream in enumerate(self.streams):
            for at, task in enumerate(stream):
                found[row, at, : len(task.validation)] = task.validation
        return found

    @cached_property
    def outputs(self) -> np.ndarray:
        """Which output stands for each class in each task of each lane, int16 [L, T, classes]; -1: it has no such
        class."""
        found = np.full((len(self.lanes), self.settings.tasks.count, len(self.bank.classes)), -1, np.int16)
        for row, stream in enumerate(self.streams):
            for at, task in enumerate(stream):
                found[row, at, list(task.classes)] = [task.outputs.index(one) for one in task.classes]
        return found

    @cached_property
    def open(self) -> Tensor:
        """Which outputs of each task's head have a class, bool [L, T, K]; where they stand for all classes of the
        data, those of the task."""
        _, outputs = sizes(self.settings, self.bank)
        found = torch.zeros(len(self.lanes), self.settings.tasks.count, outputs, dtype=torch.bool)
        for row, stream in enumerate(self.streams):
            for at, task in enumerate(stream):
                known = np.unique(task.labels(self.bank, task.train)) if self.named else np.arange(len(task.classes))
                found[row, at, torch.from_numpy(known)] = True
        return found.to(self.device)

    def opened(self, task: int) -> Usage:
        """Which outputs count by the time of a task; nothing, where all do."""
        tasks = self.settings.tasks
        if self.bank.targets is not None or (self.even and not self.named):
            return {}
        if not self.named:
            return {OPEN: self.open}
        if tasks.heads == "one" or tasks.outputs == "all":
            return {}
        until = max(task, tasks.initial - 1)  # the initial tasks are learned together
        return {OPEN: self.open[:, : until + 1].any(1, keepdim=True).expand_as(self.open)}

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        """How all lanes use their nets by the time of a task; `kept` is what their models keep."""
        return {**self.model.usage(kept, task), **self.opened(task)}

    @property
    def engine(self) -> str:
        """What maps the functions of one agent over lanes: `vmap` makes one kernel of all, `loop` takes one by one."""
        chosen = self.settings.machine.engine
        if chosen != "auto":
            return chosen
        return self.model.engine if self.device.type == "cpu" or self.model.bound else "vmap"

    @cached_property
    def uncompiled(self) -> str:
        """Why torch takes the steps, and not the compiled kernel; empty: the kernel does."""
        usual = self.model.engine
        engine = "" if self.engine == usual else f"it takes the place of the engine {usual}, and not of {self.engine}"
        return self.unknown or engine

    @cached_property
    def unread(self) -> str:
        """Why torch reads trained nets, and not the compiled kernel; empty: the kernel does. It reads one lane after
        the other, so it does not matter how the engine maps them."""
        return self.unknown or ("it takes steps of such nets, and does not read them" if chained(self.model) else "")

    @cached_property
    def unknown(self) -> str:
        """Why the compiled kernel does not know the net; empty: it does."""
        if self.settings.machine.kernel == "torch":
            return "machine.kernel says so"
        return unsuited(self.model, self.device.type, self.held.dtype) or ("" if kernel().library else kernel().about)

    @cached_property
    def compiled(self) -> bool:
        """Does the compiled kernel take the steps?"""
        return not self.uncompiled

    @cached_property
    def recurrent(self) -> bool:
        """Does the kernel take the steps of GRUs, in a net whose other parts are torch's?"""
        wanted = self.device.type == "cpu" and self.settings.machine.kernel != "torch"
        return wanted and bool(getattr(self.model, "recurrent", ())) and kernel().library is not None

    @property
    def kernel(self) -> str:
        """What takes the steps and reads trained nets, as far as last bits depend on it."""
        if self.recurrent:
            return f"torch, GRUs compiled by {kernel().about}"
        if self.unread:
            return f"compiled by {kernel().about}, read by torch" if self.compiled else "torch"
        return f"compiled by {kernel().about}" if self.compiled else f"torch, read by what {kernel().about} compiled"

    @cached_property
    def about(self) -> str:
        """What its model is and what runs it, in a sentence."""
        steps = f"are {self.kernel}" if self.compiled else f"go through torch: {self.uncompiled}"
        steps += f"; those of its GRUs are compiled by {kernel().about}" if self.recurrent else ""
        return f"{described(self.model, self.settings.model, self.engine)}; its steps {steps}"

    @cached_property
    def row(self) -> dict[Lane, int]:
        """Where each lane is in the stack."""
        return {lane: row for row, lane in enumerate(self.lanes)}

    @cached_property
    def places(self) -> dict[Lane, int]:
        """Where each lane of the fleet is among all of them."""
        return {lane: at for at, lane in enumerate(self.peers)}

    @cached_property
    def spots(self) -> np.ndarray:
        """The place of every lane that is here among all lanes of the fleet: int64 [L]."""
        return np.array([self.places[lane] for lane in self.lanes], np.int64)

    @cached_property
    def rows(self) -> np.ndarray:
        """The row here of every lane of the fleet, by its place; -1: it is elsewhere. int64 [peers]."""
        found = np.full(len(self.peers), -1)
        found[self.spots] = np.arange(len(self.spots))
        return found

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
        every = ((seed, edge) for seed in seeds for edge in edges(network, agents, seed, self.epoch))
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

        every = ((lane, self.receivers.get(lane, [])) for lane in self.lanes)
        return self.once(
            ("neighbours", mode),
            lambda: {lane: [other for other in some if mode.uses(self, lane, other)] for lane, some in every},
        )

    def links(self, mode: "Sharing") -> Links:
        """The edges from each lane that is here to its `neighbours` by a mode, as arrays."""
        return self.once(
            ("links", mode), lambda: self.arrays((a, b) for a, some in self.neighbours(mode).items() for b in some)
        )

    def roads(self, mode: "Sharing") -> Roads:
        """What each of the `links` of a mode carries, and what becomes of it."""
        return self.once(
            ("roads", mode), lambda: Roads([(a.seed, self.edges[a, b]) for a, b in self.links(mode).pairs])
        )

    def once(self, what: tuple[object, ...], find: Callable[[], T]) -> T:
        """What is found but once."""
        if what not in self.noted:
            self.noted[what] = find()
        found: T = self.noted[what]
        return found

    @cached_property
    def noted(self) -> dict[tuple[object, ...], Any]:
        """What `once` has found."""
        return {}

    def arrays(self, pairs: Iterable[tuple[Lane, Lane]]) -> Links:
        """Edges as arrays."""
        found = np.array([(self.places[a], self.places[b]) for a, b in pairs], np.int64).reshape(-1, 2)
        return Links(self.peers, *found.T.copy())

    def terms(self, sender: Lane, receiver: Lane) -> Terms | None:
        """What may leave over an edge; None: anything."""
        if not self.fleet.policy:
            return None
        ends = sender.agent, receiver.agent
        return self.once(("terms", *ends), lambda: terms(self.fleet, self.bank, *ends))

    @cached_property
    def prompt(self) -> bool:
        """Does all mail that comes at all come at once?"""
        waits = self.fleet.presence.mail == "waits" and bool(self.gaps)
        return not (self.late or waits) and all(edge.delay == 0 for edge in self.edges.values())

    @cached_property
    def gaps(self) -> dict[int, tuple[Interval, ...]]:
        """When each agent of the fleet is absent, if it ever is."""
        return self.fleet.presence.away(self.settings.learner.epochs)

    def absent(self, when: int) -> frozenset[Lane]:
        """The lanes of the fleet that are absent in an epoch since the first task."""
        if not self.gaps:
            return frozenset()
        return frozenset(lane for lane in self.peers if self.back(lane, when) != when)

    def back(self, lane: Lane, when: int) -> int:
        """The first epoch from `when` on in which a lane is there; NEVER: it does not come back."""
        return next((last for first, last in self.gaps.get(lane.agent, ()) if first <= when < last), when)

    @cached_property
    def instant(self) -> bool:
        """Is all mail there as soon as it is sent, by all edges?"""
        return all(edge.bandwidth is None and not edge.latency for edge in self.edges.values())

    def images(self, rows: np.ndarray) -> Tensor:
        """Raw images of the bank, as they are sent: bytes or floats [n, ...]."""
        return torch.from_numpy(self.bank.take(rows))

    def encode(self, images: Tensor, lane: Lane) -> Tensor:
        """What the model of a lane that is here reads of raw images."""
        raw, scale = images.cpu().numpy(), self.scales[self.row[lane]]
        seen = raw if scale is None else scale.apply(raw)
        return self.model.encode(seen, self.bank.peak, lane.seed).to(self.device)

    @cached_property
    def pieces(self) -> tuple["World", ...]:
        """The lanes in as many pieces as threads pay for: convolutions need a lane each, small matrices many."""
        least = min(PAYS, self.model.least) if self.compiled else self.model.least
        count = min(self.settings.machine.threads or THREADS, max(1, len(self.lanes) // least))
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
            scales=tuple(self.scales[row] for row in rows),
            train=self.train.piece(rows),
            validation=self.validation.piece(rows),
            test=self.test.piece(rows),
        )

    def some(self, rows: Sequence[int]) -> "World":
        """The piece with the lanes in some rows, which knows of links what the whole does; it is made once, as long as
        there are few of them."""
        if len(rows) == len(self.lanes):
            return self
        name = tuple(rows)
        if name not in self.picked:
            if len(self.picked) >= PICKED:
                self.picked.clear()
            found = self.piece(rows)
            vars(found).update({name: getattr(self, name) for name in SHARED})
            self.picked[name] = found
        return self.picked[name]

    @cached_property
    def picked(self) -> "dict[tuple[int, ...], World]":
        """What `some` has made."""
        return {}
