"""The stack: all that changes in a run, one row per lane. A checkpoint is this object and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.world import World
from shoal.mail.ledger import Ledger
from shoal.mail.mail import Mail
from shoal.models import Modular
from shoal.rng import key

GRID = 10  # epochs between two evaluations
# Counters and results stay on the host, whatever the device.
HOST = (
    "memory_rows", "shared_marks", "shared_fill", "shared_seen", "moved", "accuracy", "trial", "origin",
)  # fmt: skip


class Offered(NamedTuple):
    """A module that a lane was offered for its coming task."""

    seed: int
    agent: int
    task: int
    sender: int
    source: int  # the sender's task that it was grown for
    score: float  # how well it promises to transfer
    tried: float  # its accuracy on validation data in a tryout; NaN: it was not tried
    chosen: bool


def grid(epochs: int) -> list[int]:
    """The epochs at which test accuracy is measured: 0, 1, 11, 21, ..., and epochs + 1 at the end (protocol 4)."""
    return [0, *range(1, epochs + 1, GRID), epochs + 1]


@dataclass
class Stack:
    """The state of all lanes. `learn` and `grow` write it, `run` between tasks, in exchanges the post and `absorb`."""

    lanes: tuple[Lane, ...]
    task: int  # the clock: the task being learned,
    epoch: int  # and how many of its epochs are done
    params: dict[str, Tensor]  # [L, units, ...]; a unit (slot, task) trains or is frozen as a whole
    first: dict[str, Tensor]  # Adam's moments, shaped as params
    second: dict[str, Tensor]
    steps: dict[str, Tensor]  # int64 [L, units]: Adam's step count of each unit
    alive: Tensor  # bool [L, C]: which slots hold a module (all, in a monolithic net)
    frozen: Tensor  # bool [L, C]: which of them stay as they are until the end of the task
    choice: Tensor  # int64 [L, initial, D]: modules of the initial tasks (empty in a monolithic net)
    memory: Tensor  # [L, T, memory, ...]: replayed inputs of each finished task
    memory_labels: Tensor  # int64 [L, T, memory]
    memory_rows: Tensor  # int64 [L, T, memory]: which images of the bank these are, on the host
    shared: Tensor  # [L, T, room, ...]: received inputs for each task, as far as `shared_fill` says
    shared_labels: Tensor  # int64 [L, T, room]
    shared_marks: Tensor  # int64 [L, T, room]: a digest of each received image
    shared_fill: Tensor  # int64 [L, T]: how many there are
    shared_seen: Tensor  # int64 [L, T]: how many there have been
    kept: dict[str, Tensor]  # [L, ...]: what a sharing mode remembers from exchange to exchange
    silent: Tensor  # bool [L]: dropout has leaked off (only `leak` of recv and modmod does that)
    moved: Tensor  # bool [L]: something that earlier tasks use has changed since they were last tested
    accuracy: Tensor  # [L, T, G, T]: while learning task, at grid point, tested on task; NaN: not measured
    trial: Tensor  # [L, T, 2]: validation accuracy with and without the candidate, at the end of the task
    origin: Tensor  # int64 [L, T, 2]: agent and task that the task's candidate was received from; -1: a fresh one
    ledger: Ledger  # every message so far, of all stacks of the fleet
    offers: list[Offered] = field(default_factory=list)  # every module that lanes were offered
    inbox: list[Mail] = field(default_factory=list)  # what lanes have accepted and not yet absorbed, as it came

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by a flat name; row l of each is lane l's."""
        flat: dict[str, Tensor] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Tensor):
                flat[one.name] = value
            elif isinstance(value, dict):
                flat |= {f"{one.name}/{name}": tensor for name, tensor in value.items()}
        return flat

    @classmethod
    def of(
        cls, lanes: Sequence[Lane], task: int, epoch: int, flat: dict[str, Tensor], ledger: Ledger | None = None
    ) -> "Stack":
        """The stack whose `tensors` are `flat`."""
        parts: dict[str, dict[str, Tensor]] = {"kept": {}}
        for name, tensor in flat.items():
            group, slash, inner = name.partition("/")
            if slash:
                parts.setdefault(group, {})[inner] = tensor
        single = {name: tensor for name, tensor in flat.items() if "/" not in name}
        return cls(tuple(lanes), task, epoch, ledger=ledger or Ledger(), **parts, **single)  # type: ignore[arg-type]

    def take(self, rows: Sequence[int], lanes: Sequence[Lane]) -> "Stack":
        """A new stack of copies of some rows, renamed to `lanes`."""
        index = torch.tensor(rows)
        flat = {name: tensor[index.to(tensor.device)] for name, tensor in self.tensors.items()}
        found = Stack.of(lanes, self.task, self.epoch, flat)
        found.inbox = [
            replace(mail, receiver=lane)
            for row, lane in zip(rows, lanes, strict=True)
            for mail in self.inbox
            if mail.receiver == self.lanes[row]
        ]
        return found

    def pieces(self, world: World) -> list[tuple[World, "Stack"]]:
        """The world's pieces, each with its rows of this stack; what is written to a piece is written here."""
        found, first = [], 0
        for piece in world.pieces:
            rows = slice(first, first + len(piece.lanes))
            # As `data`, because autograd would take what another thread writes to its rows for a change of these.
            flat = {name: tensor.data[rows] for name, tensor in self.tensors.items()}
            own = Stack.of(piece.lanes, self.task, self.epoch, flat)
            own.inbox = self.inbox
            found.append((piece, own))
            first = rows.stop
        return found

    def forget_moments(self) -> None:
        """A new Adam for everything."""
        for group in (self.first, self.second, self.steps):
            for tensor in group.values():
                tensor.zero_()


def start(world: World) -> Stack:
    """The stack before anything is learned; every lane draws its own weights."""
    settings, model, lanes = world.settings, world.model, world.lanes
    drawn = [model.start(key(*lane, "weights")) for lane in lanes]
    params = {name: torch.stack([one[name] for one in drawn]).to(world.device) for name in drawn[0]}
    count, tasks = len(lanes), settings.tasks.count
    slots = params["module.weight"].shape[1]
    if isinstance(model, Modular):
        rule = settings.net.initial_structure
        choice = torch.stack([model.choose(key(*lane, "structure"), rule) for lane in lanes])
        alive = torch.arange(slots) < model.basis
    else:
        choice = torch.zeros(count, 0, settings.net.depth, dtype=torch.int64)
        alive = torch.ones(slots, dtype=torch.bool)
    points = len(grid(settings.learner.epochs))
    kept = (count, tasks, settings.learner.memory)
    room = (count, tasks, max((mode.room for mode in settings.sharing), default=0))
    inputs = world.inputs
    return Stack(
        lanes=lanes,
        task=0,
        epoch=0,
        params=params,
        first={name: torch.zeros_like(tensor) for name, tensor in params.items()},
        second={name: torch.zeros_like(tensor) for name, tensor in params.items()},
        steps={
            name: torch.zeros(tensor.shape[:2], dtype=torch.int64, device=world.device)
            for name, tensor in params.items()
        },
        alive=alive.expand(count, slots).clone().to(world.device),
        frozen=torch.zeros(count, slots, dtype=torch.bool, device=world.device),
        choice=choice.to(world.device),
        memory=torch.zeros(*kept, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        memory_labels=torch.zeros(kept, dtype=torch.int64, device=world.device),
        memory_rows=torch.zeros(kept, dtype=torch.int64),
        shared=torch.zeros(*room, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        shared_labels=torch.zeros(room, dtype=torch.int64, device=world.device),
        shared_marks=torch.zeros(room, dtype=torch.int64),
        shared_fill=torch.zeros(room[:2], dtype=torch.int64),
        shared_seen=torch.zeros(room[:2], dtype=torch.int64),
        kept={},
        silent=torch.zeros(count, dtype=torch.bool, device=world.device),
        moved=torch.ones(count, dtype=torch.bool),
        accuracy=torch.full((count, tasks, points, tasks), np.nan),
        trial=torch.full((count, tasks, 2), np.nan),
        origin=torch.full((count, tasks, 2), -1),
        ledger=Ledger(),
    )


def remember(world: World, stack: Stack, task: int) -> None:
    """Fill the replay memory of a finished task: distinct training images, uniformly at random (protocol 3)."""
    size = stack.memory.shape[2]
    if size == 0:
        return
    rows, labels = world.train.rows[:, task], world.train.labels[:, task]
    held = rows.shape[1]
    picks = np.stack([key(*lane, "memory", task).permutation(held)[:size] for lane in stack.lanes])
    pick = torch.from_numpy(picks).to(rows.device)
    stack.memory[:, task] = world.inputs[rows.gather(1, pick)]
    stack.memory_labels[:, task] = labels.gather(1, pick)
    for row, stream in enumerate(world.streams):
        stack.memory_rows[row, task] = torch.from_numpy(stream[task].train[picks[row]])
