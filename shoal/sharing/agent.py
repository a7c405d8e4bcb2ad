"""One agent: a window on its lane, through which modes, short forms and people read it and keep things for it."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents import memory
from shoal.agents.engine import parted
from shoal.agents.evaluate import Trained
from shoal.agents.stack import MODEL, Stack
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.data.tasks import Task
from shoal.errors import SettingsError
from shoal.learners.batches import filled
from shoal.models.contract import Model
from shoal.rng import key
from shoal.settings.groups import Settings

ON = "on"  # the agents to which something has come


class Held(NamedTuple):
    """An agent's own images: the training set of its current task and the replay memories of those before."""

    x: Tensor  # [n, ...]: as its model reads them
    rows: np.ndarray  # [n]: where they are in the bank
    labels: np.ndarray  # [n]: global class ids
    task: np.ndarray  # [n]


class Agent:
    """One agent at an exchange, or at the end of a task: what may be read of it, and kept for it. It gives nothing that
    belongs to others."""

    def __init__(self, world: World, stack: Stack, row: int, owner: str) -> None:
        self._world, self._stack, self._row, self._owner = world, stack, row, owner
        self._lane = stack.lanes[row]
        self.task, self.epoch = stack.task, stack.epoch

    @property
    def number(self) -> int:
        """Which agent of its fleet it is."""
        return self._lane.agent

    @property
    def seed(self) -> int:
        """The seed of its fleet."""
        return self._lane.seed

    @property
    def clock(self) -> tuple[int, int]:
        """Its current task, and how many epochs of it are done."""
        return self.task, self.epoch

    @property
    def settings(self) -> Settings:
        """The settings of agents of its kind."""
        return self._world.settings

    @property
    def model(self) -> Model:
        """The functions of its net."""
        return self._world.model

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self._world.device

    # What it has

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """What it has in common with agents of the same model, by name: a copy, the first axis counts units."""
        body = self._world.model.body
        return {name: self._stack.params[name][self._row, :units].clone() for name, units in body.items()}

    def tensor(self, name: str) -> Tensor:
        """What its net has under a name, to read: also what it has in common with nobody."""
        return self._stack.params[name][self._row]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that it has met, the current one last."""
        return tuple(self._world.streams[self._row][: self.task + 1])

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes of its current task, as the data counts them; a label is a place in them."""
        return self._world.streams[self._row][self.task].outputs

    @property
    def every_class(self) -> int:
        """How many classes the data has in all."""
        return len(self._world.bank.classes)

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The training rows of its current task, as its net reads them [n, ...], and their labels [n]."""
        return self.rows_of(self.task)

    def rows_of(self, task: int) -> tuple[Tensor, Tensor]:
        """The training rows of a task that it has met, as its net reads them [n, ...], and their labels [n]."""
        split, size = self._world.train, int(self._world.train.sizes[self._row, task])
        return self._world.inputs[split.rows[self._row, task, :size]], split.labels[self._row, task, :size].clone()

    @cached_property
    def memory(self) -> tuple[Tensor, Tensor]:
        """The rows that it keeps of earlier tasks, as its net reads them [n, ...], and the classes of each [n]."""
        past = len(self.held.rows) - int(self._world.train.sizes[self._row, self.task])
        return self.held.x[:past].clone(), torch.from_numpy(self.held.labels[:past].copy())

    def validation(self, task: int) -> tuple[Tensor, Tensor]:
        """The validation rows of a task that it has met, as its net reads them [n, ...], and their labels [n]."""
        at, labels = self._validates(task)
        return self._world.inputs[at], labels.clone()

    def local(self, task: int, rows: np.ndarray) -> np.ndarray:
        """The labels of rows of a task that it has met."""
        return self.tasks[task].labels(self._world.bank, rows)

    def _validates(self, task: int) -> tuple[Tensor, Tensor]:
        """Where the validation rows of a task are among all inputs, and their labels."""
        split = self._world.validation
        size = int(split.sizes[self._row, task])
        return split.rows[self._row, task, :size], split.labels[self._row, task, :size]

    @cached_property
    def held(self) -> Held:
        """All images that it can send: what it has received is not its own to send on."""
        return held(self._world, self._stack, self._row)

    # What it thinks

    def features(self, x: Tensor) -> Tensor:
        """What the head of its current task reads of rows x[n, ...]: [n, F]."""
        with torch.no_grad():
            return self.net.features(x, self.task)

    def logits(self, x: Tensor) -> Tensor:
        """What that head says of them: [n, K]."""
        with torch.no_grad():
            return self.net.read(x, self.task)

    def predict(self, x: Tensor) -> Tensor:
        """The class that it gives each row, as the data counts them: [n]."""
        return torch.tensor(self.classes)[self.logits(x).argmax(1).cpu()]

    @cached_property
    def net(self) -> Trained:
        """Its net as it is now, without dropout."""
        usage = self._world.usage(self._stack.of(MODEL), self.task)
        return Trained(
            self._world, self._stack, self._row, parted(usage, [1] * len(self._stack.lanes), single=True)[self._row]
        )

    # What it keeps

    def state_of(self, part: str) -> dict[str, Tensor]:
        """What a part of it, such as its learner, keeps of it: to read."""
        return {name: tensor[self._row] for name, tensor in self._stack.of(part).items()}

    def rng(self, *words: str | int) -> np.random.Generator:
        """Its own random numbers, the same in every run."""
        return key(*self._lane, self._owner, self.task, self.epoch, *words)

    @property
    def heard(self) -> bool:
        """Has anything ever come to it that it notes by `keep(on=...)`?"""
        state = self._stack.of(self._owner)
        return ON in state and bool(state[ON][self._row] > 0)

    @property
    def kept(self) -> dict[str, Tensor]:
        """What was kept for it before."""
        return {name: tensor[self._row] for name, tensor in self._stack.of(self._owner).items() if name != ON}

    def keep(self, **tensors: Tensor) -> None:
        """Keep tensors for it, by name and always in the same shape, until others come: in `kept`, and in the `state`
        of a penalty's frame."""
        state = self._stack.of(self._owner)
        for name, tensor in tensors.items():
            put(state, len(self._stack.lanes), self._row, name, tensor)


def held(world: World, stack: Stack, row: int) -> Held:
    """All that a lane can send. What it has received is not its own to send on."""
    task, stream, kept = stack.task, world.streams[row], stack.of(memory.OWNER)
    past, place = filled(kept["fill"][row, :task], kept["rows"].shape[2]).nonzero(as_tuple=True)
    now = stream[task].train
    rows = np.concatenate([kept["rows"][row, past, place].numpy(), now])
    at = past.to(world.device), place.to(world.device)
    x = torch.cat([kept["x"][row][at], world.inputs[world.train.rows[row, task, : len(now)]]])
    origin = np.concatenate([past.numpy(), np.full(len(now), task)])
    return Held(x, rows, world.bank.labels[world.bank.base(rows)], origin)


def put(state: State, lanes: int, row: int, name: str, tensor: Tensor) -> None:
    """Write a row of a tensor in a state, which is zero where nobody has written yet."""
    if name not in state:
        state[name] = tensor.new_zeros(lanes, *tensor.shape)
    if state[name].shape[1:] != tensor.shape:
        raise SettingsError(
            f"`{name}` was kept with shape {list(state[name].shape[1:])}, and now has {list(tensor.shape)}; keep it in "
            "the same shape always"
        )
    state[name][row] = tensor
