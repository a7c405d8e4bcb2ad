"""The stack: all that changes in a run, one row per lane. A checkpoint is this object and nothing else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from shoal.agents import events, memory, received, released
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.data.tasks import NAMED, Lane
from shoal.errors import SettingsError
from shoal.letters.inbox import Inbox
from shoal.letters.ledger import Ledger
from shoal.models import dropout, heads
from shoal.models.heads import OPEN
from shoal.rng import key

CUTS = 64  # pieces of which views are kept
GRID = 10  # epochs between two evaluations
# What every stack has, whoever learns in it: the clock, the parameters, Adam's moments and steps, and the records.
CLOCK, PARAMS, MEAN, VAR, STEPS, RECORD = CORE = ("clock", "params", "mean", "var", "steps", "record")
BETAS, EPSILON = (0.9, 0.999), 1e-8  # how Adam blends its moments, and what keeps it from dividing by zero
MODEL = "model"  # what a model keeps that is not trained


def grid(epochs: int) -> list[int]:
    """The epochs at which test accuracy is measured: 0, 1, 11, 21, ..., and epochs + 1 at the end
    (docs/protocol.md, section 4)."""
    return [0, *range(1, epochs + 1, GRID), epochs + 1]


@dataclass
class Stack:
    """The state of all lanes: their clocks, parameters, Adam's state and records, and what every owner keeps.

    An owner (the model, a learner, a memory, a sharing mode) declares its tensors once, and reads and writes its own.
    Nothing here knows what they mean.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> settings = shoal.Settings(dataset="digits", agents=2, tasks=tasks, learner={"epochs": 2, "memory": 4})
    >>> stack = shoal.simulate(*shoal.prepare(settings))
    >>> stack.task, stack.lanes
    (2, (Lane(seed=0, agent=0), Lane(seed=0, agent=1)))
    """

    lanes: tuple[Lane, ...]
    states: dict[str, State]
    ledger: Ledger = field(default_factory=Ledger)  # every message so far, of all stacks of the fleet
    inbox: Inbox = field(default_factory=Inbox)  # what lanes have accepted and not yet absorbed, as it came
    # The views of pieces that were cut: lanes with clocks of their own are cut out again and again.
    cuts: dict[tuple[int, int, int], dict[str, State]] = field(default_factory=dict, init=False, repr=False)

    def of(self, owner: str) -> State:
        """What an owner keeps."""
        if owner not in self.states:
            self.states[owner] = State(len(self.lanes))
        return self.states[owner]

    @property
    def task(self) -> int:
        """The clock: the task being learned. Lanes that learn together have one clock."""
        return int(self.states[CLOCK]["task"][0])

    @task.setter
    def task(self, task: int) -> None:
        self.states[CLOCK]["task"].fill_(task)

    @property
    def epoch(self) -> int:
        """How many epochs of the task are done."""
        return int(self.states[CLOCK]["epoch"][0])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.states[CLOCK]["epoch"].fill_(epoch)

    @property
    def clock(self) -> State:
        """The clocks of all lanes: their `task` and `epoch`, and what `shoal.agents.events` keeps."""
        return self.states[CLOCK]

    @property
    def params(self) -> State:
        """The parameters, [L, units, ...]; a unit (a slot, a task, a whole tensor) trains or is frozen as a whole."""
        return self.states[PARAMS]

    @property
    def accuracy(self) -> Tensor:
        """[L, T, G, T]: while learning a task, at a grid point, tested on a task; NaN: not measured."""
        return self.states[RECORD]["accuracy"]

    @property
    def ended(self) -> Tensor:
        """int64 [L, 3]: in which task (counted from 1) a lane diverged, after how many epochs, and the number of the
        cause; zeros: it goes on."""
        found = self.states[RECORD].get("ended")
        return torch.zeros(len(self.lanes), 3, dtype=torch.int64) if found is None else found

    @property
    def gone(self) -> Tensor:
        """bool [L]: which lanes have ended (shoal/fleet/health.py)."""
        return self.ended[:, 0] > 0

    @property
    def silent(self) -> frozenset[Lane]:
        """The lanes that have ended."""
        return frozenset(self.lanes[row] for row in self.ended[:, 0].nonzero().flatten().tolist())

    @property
    def moved(self) -> Tensor:
        """bool [L]: something that earlier tasks use has changed since they were last tested."""
        return self.states[RECORD]["moved"]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by a flat name, `owner/name`; row l of each is lane l's."""
        return {f"{owner}/{name}": tensor for owner, state in self.states.items() for name, tensor in state.items()}

    @classmethod
    def made(cls, lanes: Sequence[Lane], flat: Mapping[str, Tensor], ledger: Ledger | None = None) -> "Stack":
        """The stack whose `tensors` are `flat`."""
        found = cls(tuple(lanes), {}, ledger or Ledger())
        for name, tensor in flat.items():
            owner, _, inner = name.partition("/")
            found.of(owner)[inner] = tensor
        return found

    def take(self, rows: Sequence[int], lanes: Sequence[Lane]) -> "Stack":
        """A new stack of copies of some rows, renamed to `lanes`."""
        found = Stack(tuple(lanes), {owner: state.take(rows) for owner, state in self.states.items()})
        found.inbox = Inbox(
            replace(mail, receiver=lane)
            for row, lane in zip(rows, lanes, strict=True)
            for mail in self.inbox
            if mail.receiver == self.lanes[row]
        )
        return found

    def pieces(self, world: World) -> list[tuple[World, "Stack"]]:
        """The world's pieces, each with its rows of this stack; what is written to a piece is written here."""
        if len(world.pieces) == 1:
            return [(world, self)]
        found, first = [], 0
        for piece in world.pieces:
            count = len(piece.lanes)
            found.append((piece, self.cut(piece, slice(first, first + count))))
            first += count
        return found

    def cut(self, piece: World, rows: slice) -> "Stack":
        """The rows of a piece of the world; what is written to them is written here."""
        place = rows.indices(len(self.lanes))
        known = self.cuts.pop(place, {})
        cut = {owner: state.cut(rows, known.get(owner)) for owner, state in self.states.items()}
        if len(self.cuts) >= CUTS:
            self.cuts.clear()
        self.cuts[place] = cut
        return Stack(piece.lanes, Cut(cut, self, rows), self.ledger, self.inbox)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "cuts": {}}  # a copy cuts its own pieces

    @contextmanager
    def lent(self, world: World, rows: Sequence[int]) -> Iterator[tuple[World, "Stack"]]:
        """Some rows, wherever they lie, as a stack of their own in their piece of the world. What is written to it is
        written here, at the latest when it comes back."""
        piece = world.some(rows)
        if piece is world:
            yield world, self
            return
        apart = rows[1] - rows[0] if len(rows) > 1 else 1
        if apart > 0 and list(rows) == list(range(rows[0], rows[-1] + 1, apart)):  # such as one agent of every seed
            yield piece, self.cut(piece, slice(rows[0], rows[-1] + 1, apart))
            return
        made = Stack(piece.lanes, {owner: state.take(rows) for owner, state in self.states.items()})
        made.ledger, made.inbox = self.ledger, self.inbox
        try:
            yield piece, made
        finally:
            for owner, state in made.states.items():
                for name, tensor in state.items():
                    self.of(owner).put(name, tensor, rows)

    def renew(self, owners: Iterable[tuple[str, Mapping[str, Tensor]]]) -> None:
        """Let owners begin anew."""
        for owner, tensors in owners:
            self.states[owner] = State(len(self.lanes), tensors)

    def forget_moments(self) -> None:
        """A new Adam for everything."""
        for owner in (MEAN, VAR, STEPS):
            for tensor in self.states[owner].values():
                tensor.zero_()


class Cut(dict[str, State]):
    """The states of a piece: an owner that is new to it is new to the stack that it was cut from."""

    def __init__(self, states: Mapping[str, State], whole: Stack, rows: slice) -> None:
        super().__init__(states)
        self.whole, self.rows = whole, rows

    def __setitem__(self, owner: str, state: State) -> None:
        super().__setitem__(owner, State(state.lanes, {}, self.whole.of(owner), self.rows))


def joined(parts: Sequence[Stack], lanes: Sequence[Lane]) -> Stack:
    """One stack of the rows of several, in the order of `lanes`. A name that some parts lack is zero in their rows."""
    there = [lane for part in parts for lane in part.lanes]
    order = torch.tensor([there.index(lane) for lane in lanes], dtype=torch.int64)
    shapes = {name: tensor for part in parts for name, tensor in part.tensors.items()}
    flat = {}
    for name, like in shapes.items():
        rows = [
            part.tensors[name] if name in part.tensors else like.new_zeros(len(part.lanes), *like.shape[1:])
            for part in parts
        ]
        flat[name] = torch.cat(rows)[order.to(like.device)]
    found = Stack.made(lanes, flat, parts[0].ledger)
    for part in parts:
        found.inbox.add(part.inbox)
    return found


def stacked(drawn: Sequence[Mapping[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
    """The tensors of single agents with a lane axis."""
    return {name: torch.stack([one[name] for one in drawn]).to(device) for name in drawn[0]}


def drawn(world: World, *path: int | str, rng: np.random.Generator | None = None) -> dict[str, Tensor]:
    """One agent's first parameters, by a named path; heads of later tasks may begin at zero (`net.head`).

    Where the data names its tasks, more may come later: every head is drawn by a path of its own, so that the first
    ones do not depend on how many there are.
    """
    model = world.model
    params = model.start(key(*path) if rng is None else rng)  # type: ignore[arg-type]
    if world.settings.tasks.scenario == NAMED and all(name in params for name in heads.NAMES):
        count, outputs = params["head.bias"].shape
        for at in range(count):
            own = key(*path, "head", at)  # type: ignore[arg-type]
            one = heads.start(own, 1, outputs, model.read, model.xavier)
            for name in heads.NAMES:
                params[name][at] = one[name][0]
    for name in heads.NAMES if world.settings.net.head == "zero" else ():
        if name in params:
            params[name][world.settings.tasks.initial :] = 0
    return params


def start(world: World) -> Stack:
    """The stack before anything is learned; every lane draws its own weights."""
    settings, model, lanes, device = world.settings, world.model, world.lanes, world.device
    params = stacked([drawn(world, *lane, "weights") for lane in lanes], device)
    count, tasks = len(lanes), settings.tasks.count
    points = len(grid(settings.learner.epochs))
    states: dict[str, dict[str, Tensor]] = {
        CLOCK: {name: torch.zeros(count, dtype=torch.int64) for name in ("task", "epoch")} | events.init(world),
        PARAMS: params,
        MEAN: {name: torch.zeros_like(tensor) for name, tensor in params.items()},
        VAR: {name: torch.zeros_like(tensor) for name, tensor in params.items()},
        STEPS: {
            name: torch.zeros(tensor.shape[:2], dtype=torch.int64, device=device) for name, tensor in params.items()
        },
        RECORD: {
            "accuracy": torch.full((count, tasks, points, tasks), np.nan),
            "classes": class_counts(world),
            "ended": torch.zeros(count, 3, dtype=torch.int64),
            "training": torch.full((count, tasks, 3), np.nan),
            "moved": torch.ones(count, dtype=torch.bool),
            **counters(world),
        },
    }
    owners = [
        (MODEL, stacked([model.keeps(key(*lane, "structure")) for lane in lanes], device)),
        (memory.OWNER, memory.init(world)),
        (dropout.OWNER, dropout.init(count, device)),
        (settings.learner.owner, settings.learner.init(world)),
        *sharing_state(world),
        *([(released.OWNER, released.begun(world, params))] if world.fleet.privacy else []),
    ]
    for owner, tensors in owners:
        if owner in states and (tensors or owner in CORE):
            raise SettingsError(
                f"two owners of state are called `{owner}`; give the learner or the sharing mode another name"
            )
        for name, tensor in tensors.items():
            if tensor.shape[:1] != (count,):
                raise SettingsError(
                    f"the state `{name}` of `{owner}` must have a row for each of the {count} lanes, "
                    f"got shape {list(tensor.shape)}"
                )
        states.setdefault(owner, {}).update(tensors)
    return Stack(lanes, {owner: State(count, tensors) for owner, tensors in states.items()})


def counters(world: World) -> dict[str, Tensor]:
    """Where seconds are counted: how many `steps` each lane has taken, and what it has `spent` at each measurement,
    [L, T, G, 3]: seconds, joules and bytes that it has sent."""
    settings, count = world.settings, len(world.lanes)
    if not world.fleet.clock.counts:
        return {}
    points = count, settings.tasks.count, len(grid(settings.learner.epochs)), 3
    return {
        "steps": torch.zeros(count, dtype=torch.int64),
        "spent": torch.full(points, np.nan, dtype=torch.float64),
    }


def class_counts(world: World) -> Tensor:
    """int64 [L, T]: among how many classes a task is guessed, its own or, where one head has all classes, those that
    count by then; none, where a stream has ended."""
    tasks = world.settings.tasks
    own = torch.tensor([[len(task.classes) for task in stream.padded(tasks.count)] for stream in world.streams])
    if not world.named or world.bank.targets is not None:
        return own
    if tasks.heads == "one" or tasks.outputs == "all":
        return torch.full_like(own, len(world.bank.classes)).where(own > 0, 0)
    known = torch.stack([world.opened(task)[OPEN][:, task].sum(1) for task in range(tasks.count)], 1).cpu()
    return known.where(own > 0, 0)


def sharing_state(world: World) -> list[tuple[str, dict[str, Tensor]]]:
    """What belongs to sharing before anything is shared: buffers for what will be received, and what modes keep."""
    modes = ((mode.owner, mode.init(world)) for mode in world.settings.sharing)
    return [(received.OWNER, received.init(world)), *modes]
