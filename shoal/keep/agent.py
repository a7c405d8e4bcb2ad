"""`Agent`: one agent of a finished run, as a thing that a user holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import shoal
from shoal.agents.engine import parted
from shoal.agents.evaluate import correct
from shoal.agents.stack import CLOCK, MODEL, PARAMS, Stack
from shoal.data.rows import Source
from shoal.data.scenarios import SCENARIOS
from shoal.data.sites import called
from shoal.errors import UserError
from shoal.models.contract import Model, Usage
from shoal.models.table import build
from shoal.runs import checkpoints, kept
from shoal.runs.kept import Told
from shoal.runs.tables import accuracies
from shoal.settings.groups import REST, Settings
from shoal.units import listed

if TYPE_CHECKING:
    from shoal.data.bank import Numbers


class Learned(NamedTuple):
    """A task that an agent has learned: its number, counted from 1, the classes that it tells apart (none where numbers
    are predicted), and how many rows it was trained on."""

    number: int
    classes: tuple[Any, ...]
    rows: int


@dataclass(eq=False, repr=False)
class Agent:
    """One agent of a finished run: it predicts from raw rows, can be saved, exported, and taught more.

    `Result.agent` gives one, `Agent.load` reads one from a file. Rows are given in the units and columns of the data
    that it learned from, as arrays or frames, and classes come back by their names.

    >>> import numpy as np, shoal
    >>> x = np.random.default_rng(0).normal(size=(80, 3))
    >>> data = shoal.Data.from_arrays(x, np.where(x[:, 0] > 0, "up", "down"), agent=["north", "south"] * 40)
    >>> result = shoal.Fleet(data, learner={"epochs": 20}).run()
    >>> agent = result.agent("north")
    >>> agent
    Agent north: modular-mlp, 2 tasks of down and up
    >>> agent.predict([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]).tolist()
    ['up', 'down']
    >>> agent.save("north.safetensors").name
    'north.safetensors'
    >>> shoal.Agent.load("north.safetensors").score(x, np.where(x[:, 0] > 0, "up", "down")) > 0.8
    True
    """

    settings: Settings  # of its kind
    source: Source
    told: Told
    state: Mapping[str, Tensor] = field(repr=False)  # its row of every tensor of the run, by `owner/name`
    about: Mapping[str, Any] = field(default_factory=dict)  # what made it
    whole: bool = True  # is its memory here too?

    @cached_property
    def ended(self) -> str:
        """If it diverged in its run, when and why; then it has no weights to be used."""
        from shoal.keep.taught import diverged

        return diverged(self)

    @property
    def name(self) -> str:
        """Its site, or its number where sites have no names."""
        return called(self.source.sites, self.settings.agents, self.told.lane.agent)

    @property
    def seed(self) -> int:
        """The seed of the run that it is of."""
        return self.told.lane.seed

    @property
    def tasks(self) -> list[Learned]:
        """The tasks that it has learned, in their order."""
        count = range(len(self.told.tasks))
        return [Learned(at + 1, tuple(self.classes(at + 1)), self.told.tasks[at].rows) for at in count]

    def classes(self, task: int | None = None) -> list[Any]:
        """The classes that it tells apart in a task, in the order of `probabilities`; none where numbers are
        predicted."""
        if self.source.numeric:
            return []
        met, spoken = self.told.tasks[self.place(task)], self.source.spoken
        return [spoken[met.outputs[at]] for at in met.known]

    def place(self, task: int | None) -> int:
        """Where a task is among its tasks; where nobody says which, the last."""
        count = len(self.told.tasks)
        if task is None:
            return count - 1
        if isinstance(task, bool) or not isinstance(task, int) or not 1 <= task <= count:
            raise UserError(f"{self.name} has learned {count} task{'s' * (count > 1)}, counted from 1, got {task!r}")
        return task - 1

    @cached_property
    def model(self) -> Model:
        """The arithmetic of its net. How it is best run is found out with slopes, whoever asks first: another way
        would have other last bits."""
        with torch.inference_mode(False), torch.enable_grad():
            return build(self.settings, self.source.bank())

    @cached_property
    def usage(self) -> Usage:
        """How it uses its net."""
        held = {name: tensor[None] for name, tensor in self.of(MODEL).items()}
        clock = int(self.state[f"{CLOCK}/task"])
        found: Usage = parted(self.model.usage(held, clock), [1], single=True)[0]
        return found

    def of(self, owner: str) -> dict[str, Tensor]:
        """What an owner keeps."""
        head = f"{owner}/"
        return {name.removeprefix(head): tensor for name, tensor in self.state.items() if name.startswith(head)}

    @property
    def weights(self) -> dict[str, Tensor]:
        """Copies of its parameters, by name; the first axis of each counts units: layers, modules, or tasks."""
        return {name: tensor.clone() for name, tensor in self.of(PARAMS).items()}

    @property
    def history(self) -> pl.DataFrame:
        """How well it did while it learned: a row per measurement, as in `Result.accuracy`."""
        stack = Stack.made([self.told.lane], {name: tensor[None] for name, tensor in self.state.items()})
        found = accuracies(self.settings.model_copy(update={"kinds": ()}), [stack])
        return found.with_columns(pl.col("task", "tested") + 1)

    def predict(self, x: Any, task: int | None = None) -> NDArray[Any]:
        """What it says of raw rows: the names of classes [n], or numbers in their units, [n] or [n, D].

        Rows are arrays, lists, tensors, or frames with the columns of the data; `task` is the number of the task whose
        head answers, the last one where nobody says which.

        >>> import numpy as np, shoal
        >>> x = np.random.default_rng(0).normal(size=(60, 2))
        >>> agent = shoal.Fleet(shoal.Data.from_arrays(x, x[:, 0] * 3 + 1.5), learner={"epochs": 2}).run().agent(0)
        >>> agent.predict(x[:4]).shape
        (4,)
        """
        logits = self.logits(x, task)
        if self.source.numeric:
            found = logits.numpy()
            return found[:, 0] if found.shape[1] == 1 else found
        met = self.told.tasks[self.place(task)]
        ids = np.array([met.outputs[at] for at in met.known])
        return self.source.labels(ids[logits.argmax(1).numpy()])

    def probabilities(self, x: Any, task: int | None = None) -> NDArray[np.float64]:
        """How likely it finds each of its `classes`, [n, classes]; rows sum to one."""
        if self.source.numeric:
            raise UserError(f"{self.name} predicts numbers, which have no probabilities; use predict(x)")
        found: NDArray[np.float64] = self.logits(x, task).double().softmax(1).numpy()
        return found

    def score(self, x: Any, y: Any, task: int | None = None) -> float:
        """The share of rows whose class it names, from 0 to 1; where numbers are predicted, R2."""
        logits = self.logits(x, task)
        if self.source.numeric:
            wanted = torch.from_numpy(self.source.numbers(y, len(logits)))
            return float(correct(logits.double(), wanted)) / len(logits)
        met = self.told.tasks[self.place(task)]
        wanted_ids = self.source.ids(y, len(logits), self.name)
        ids = np.array([met.outputs[at] for at in met.known])
        return float((ids[logits.argmax(1).numpy()] == wanted_ids).mean())

    def learn(self, x: Any, y: Any, more: bool = False) -> "Agent":
        """Let it learn rows that have come since, alone, by its own learner and net: as a new task or, with `more`, as
        more rows of its last one, beside those of it that it remembers. It returns itself.

        Of the rows a fifth is for testing and, of the others, a fifth for validation, as in a run; `history` goes on.
        What does not share anything comes to what `Result.continue_with` comes to. If it diverges, it stays as it was.

        >>> import numpy as np, shoal
        >>> x = np.random.default_rng(0).normal(size=(80, 3))
        >>> learner = {"epochs": 40, "rate": 0.01}
        >>> agent = shoal.Fleet((x, x[:, 0] > 0), agents=1, model="mlp", learner=learner).run().agent(0)
        >>> agent.learn(x, x[:, 1] > 0).score(x, x[:, 1] > 0) > 0.8
        True
        >>> len(agent.tasks)  # two parts of the rows, and what it learned now
        3
        """
        from shoal.keep.taught import learn

        made = learn(self, x, y, more)
        self.__dict__ = {one.name: getattr(made, one.name) for one in fields(made)}  # what was found before is gone
        return self

    @torch.inference_mode()
    def logits(self, x: Any, task: int | None = None) -> Tensor:
        """Logits [n, classes] of raw rows, or numbers [n, D] in their units."""
        if self.ended:
            raise UserError(self.ended)
        at = self.place(task)
        read = self.encoded(self.seen(self.source.rows(x, self.name), at))
        params, usage = self.model.composed(self.answering(at), self.usage, at)
        parts = read.split(self.model.chunk) if len(read) else (read,)
        found = torch.cat([self.model.logits(params, part, at, **usage) for part in parts])
        if self.told.units is not None:
            shift, spread = (torch.from_numpy(one) for one in self.told.units)
            return found.double() * spread + shift
        return found[:, list(self.told.tasks[at].known)]

    @property
    def scenario(self) -> Any:
        """What made its tasks."""
        return SCENARIOS.find(self.settings.tasks.scenario)

    def seen(self, raw: "Numbers", at: int) -> "Numbers":
        """Raw rows as a task sees them."""
        view = getattr(self.scenario, "view", None)
        return raw if view is None or not at else view(self.source.bank(), self.settings.tasks)(raw, at)

    def encoded(self, raw: "Numbers") -> Tensor:
        """What its net reads of raw rows."""
        scaled = raw if self.told.scaling is None else self.told.scaling.apply(raw)
        return self.model.encode(scaled, self.source.peak, self.seed)

    def answering(self, at: int) -> Any:
        """The parameters with which it answers for a task."""
        learner = self.settings.learner
        return learner.answering(self.of(PARAMS), self.of(learner.owner), at)

    def module(self, task: int | None = None) -> nn.Module:
        """Its net for a task as a plain `nn.Module`, with scaling and head inside, that needs no shoal to run: from raw
        rows [B, ...] to logits of its `classes`, or to numbers in their units.

        >>> import torch, shoal
        >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
        >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner={"epochs": 2, "batch": 8, "memory": 4})
        >>> net = fleet.run().agent(0).module()
        >>> net(torch.zeros(5, 8, 8)).shape
        torch.Size([5, 2])
        """
        from shoal.keep.plain import module

        return module(self, task)

    def export(self, file: str | Path, task: int | None = None) -> Path:
        """Write its net for a task as a file for other programs, by the end of its name: `.onnx` for ONNX runtimes
        (which is checked; needs `pip install "shoal[export]"`), `.pt2` for `torch.export.load`, `.safetensors` for
        plain tensors."""
        from shoal.keep.plain import export

        return export(self, Path(file), task)

    def save(self, file: str | Path, memory: bool = False) -> Path:
        """Write all of it to one file, which `Agent.load` reads. With `memory` also what it needs to go on learning,
        among it rows of its data."""
        from shoal.keep.files import save

        return save(self, Path(file), memory)

    @classmethod
    def load(cls, file: str | Path, model: Any = None, trust: bool = False) -> "Agent":
        """The agent that a file holds. Nothing in the file is run: a net of one's own is given as `model`, or, where
        the file is from somebody that one trusts (`trust`), imported by the name that it has there."""
        from shoal.keep.files import load

        return load(Path(file), model, trust)

    def __repr__(self) -> str:
        count, numbers = len(self.told.tasks), self.source.predicts
        what = f"{numbers} number{'s' * (numbers > 1)}" if numbers else spoken(self.classes())
        head = self.name.removeprefix("agent ")
        if self.ended:
            return f"Agent {head}: {self.ended}"
        return f"Agent {head}: {self.settings.model}, {count} task{'s' * (count > 1)} of {what}"


def spoken(names: list[Any]) -> str:
    """A few names in words."""
    words = [str(one) for one in names]
    return f"{len(words)} classes" if len(words) > 4 else " and ".join([", ".join(words[:-1]), words[-1]][-2:])


def agents_of(folder: Path, settings: Settings) -> list[Agent]:
    """All agents of a finished run, those of the first seed first."""
    source, everybody = kept.read(folder)
    place = folder / "checkpoint.safetensors"
    try:
        saved = checkpoints.opened(place, torch.device("cpu"))
    except checkpoints.DamagedError as error:
        raise UserError(f"{place} is damaged ({error}); restore it, or make the run again") from None
    stacks = saved.stacks(settings.learner.epochs)
    rows = {lane: (stack, row) for stack in stacks for row, lane in enumerate(stack.lanes)}
    about = {"shoal": shoal.__version__, "run": settings.identity()}
    found = []
    for told in everybody:
        stack, row = rows[told.lane]
        state = {name: tensor[row] for name, tensor in stack.tensors.items()}
        own = settings.of(told.kind or REST)
        shape = tuple(mode for mode in own.sharing if mode.spare)  # all that its net knows of sharing
        found.append(Agent(own.model_copy(update={"sharing": shape}), source, told, state, about))
    return found


def chosen(agents: list[Agent], name: str | int, seed: int | None) -> Agent:
    """The agent of a site, or of a number, of one seed."""
    seeds = sorted({agent.seed for agent in agents})
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        raise UserError(f"there is no seed {seed!r} in this run; it has {listed([str(one) for one in seeds])}")
    here = [agent for agent in agents if agent.seed == seed]
    if isinstance(name, str):
        found = [agent for agent in here if name in (agent.name, agent.told.site)]
        if len(found) > 1:
            numbers = listed([str(agent.told.lane.agent) for agent in found])
            raise UserError(f"site {name!r} has several agents, {numbers}; give one of these numbers")
        if found:
            return found[0]
        number = name.removeprefix("agent ")
        if not number.isdigit():
            raise UserError(f"there is no agent {name!r}; there are {listed([agent.name for agent in here])}")
        name = int(number)
    if isinstance(name, bool) or not isinstance(name, int) or not 0 <= name < len(here):
        raise UserError(
            f"there is no agent {name!r}; agents are counted from 0 to {len(here) - 1}, or called "
            f"{listed([agent.name for agent in here])}"
        )
    return here[name]
