"""Teaching: an agent that a user holds learns rows that have come since, alone, by its own learner and net.

It is the way of a fleet of one, in memory: a world of one lane whose earlier tasks have no rows, and its stack. What an
agent of a fleet that shares nothing would come to, it comes to.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.agents import memory, received
from shoal.agents.lanes import NAMES, Held, Split
from shoal.agents.stack import CLOCK, RECORD, Stack
from shoal.agents.world import World
from shoal.agents.worlds import device_of
from shoal.data.bank import Bank
from shoal.data.by_rows import piece_of
from shoal.data.rows import Source
from shoal.data.scenarios import by_name
from shoal.data.sites import names
from shoal.data.sources import arrays
from shoal.data.tasks import NAMED, NO_ROWS, Stream, Task
from shoal.errors import UserError
from shoal.fleet import health
from shoal.fleet.here import learned
from shoal.fleet.lessons import begin, end, learn_epoch
from shoal.fleet.run import one_thread
from shoal.keep.going import widened
from shoal.learners.joint import Joint
from shoal.models.heads import OPEN
from shoal.models.table import MODELS, build
from shoal.own_code import told_apart
from shoal.runs.kept import Met
from shoal.settings.groups import Settings, Tasks
from shoal.units import listed

if TYPE_CHECKING:
    from shoal.keep.agent import Agent

ALONE = ("network", "clock", "presence", "faulty", "policy", "kinds")  # settings that mean something among others only


@dataclass(frozen=True, eq=False)
class Past(World):
    """A world whose earlier tasks have no rows any more: which outputs they have is known all the same."""

    known: Tensor | None = None  # bool [L, T, K]

    @property
    def open(self) -> Tensor:
        assert self.known is not None
        return self.known


def learn(agent: "Agent", x: Any, y: Any, more: bool) -> "Agent":
    """What an agent is once it has learned some rows: as a new task, or as more rows of its last one."""
    refused(agent, more)
    raw = agent.source.rows(x, agent.name)
    bank, source = filled(agent.source, raw, y, agent)
    at = len(agent.told.tasks) - more
    settings = settings_for(agent, max(agent.settings.tasks.count, at + 1))
    task = task_for(agent, bank, settings, at, more)
    world = world_for(agent, bank, settings, at, task, more)
    stack = stack_for(agent, world, at)
    with one_thread(), told_apart():
        taught(agent, world, stack, at)
    state = {name: tensor[0].clone() for name, tensor in stack.tensors.items()}
    tasks = [*agent.told.tasks[:at], Met(task.outputs, (), 0)]
    rows = [met.rows for met in agent.told.tasks[: at + 1]] + [0] * (not more)
    rows[at] += len(task.train)
    # A head for all classes tells them apart whatever the task; one of its own has the outputs that it had.
    outputs = [task.outputs if by_name(settings.tasks) else met.outputs for met in tasks]
    now = world.opened(at).get(OPEN)
    known = [tuple(range(len(one))) if now is None else where(now[0, n]) for n, one in enumerate(outputs)]
    made = tuple(Met(*one) for one in zip(outputs, known, rows, strict=True))
    return replace(agent, settings=settings, source=source, told=replace(agent.told, tasks=made), state=state)


def diverged(agent: "Agent") -> str:
    """When and why an agent diverged in its run, and what to do; empty: it did not."""
    record = agent.state.get(f"{RECORD}/ended")
    if record is None:
        return ""
    stack = Stack.made([agent.told.lane], {f"{RECORD}/ended": record[None]})
    if not (found := health.told(stack, names(agent.source.sites, agent.settings.agents))):
        return ""
    return f"{found[0]}; it cannot be used: take out another, or run it again with a lower learner.rate"


def where(marks: Tensor) -> tuple[int, ...]:
    """The places of what is true."""
    return tuple(marks.nonzero()[:, 0].tolist())


def remembered(agent: "Agent", at: int) -> int:
    """How many rows of a task an agent has in its memory."""
    return int(agent.of(memory.OWNER)["fill"][at])


def refused(agent: "Agent", more: bool) -> None:
    """Raise for agents that cannot learn so."""
    settings, name, count = agent.settings, agent.name, len(agent.told.tasks)
    tasks, scenario, learner = settings.tasks, agent.scenario, settings.learner
    if agent.ended:
        raise UserError(agent.ended)
    if not agent.whole:
        raise UserError(
            f"{name} was saved without its memory, and cannot learn without it; save it from its run with memory=True"
        )
    if getattr(scenario, "view", None) is not None or (tasks.heads == "one" and getattr(scenario, "places", False)):
        raise UserError(
            f'tasks.scenario = "{tasks.scenario}" makes all tasks of the same rows, so {name} cannot be given others; '
            "run all tasks at once"
        )
    if isinstance(learner, Joint):
        raise UserError(
            f"the learner `{learner.method}` learns from all rows of all tasks, which {name} does not keep; run all "
            "tasks at once"
        )
    if more and count <= tasks.initial and tasks.initial > 1:
        raise UserError(
            f"{name} has learned its {tasks.initial} initial tasks together, so that more rows of the last of them "
            "cannot be learned alone; give them as a new task, or run all rows at once"
        )
    if not more and count + 1 > tasks.count:
        parts = (
            ("model", settings.model, MODELS.find(settings.model).fixed),
            ("learner", learner.method, learner.fixed),
        )
        for noun, word, why in parts:
            if why:
                raise UserError(
                    f"the {noun} `{word}` cannot go on with more tasks, because {why}; run all tasks at once, or give "
                    "more rows of the last one (more=True)"
                )


def filled(source: Source, raw: NDArray[Any], y: Any, agent: "Agent") -> tuple[Bank, Source]:
    """A bank of the rows that have come, and what rows are like with them; a class that is new comes last."""
    count = len(raw)
    if not count:
        raise UserError(f"there are no rows for {agent.name} to learn from; give at least four")
    at = np.full(count, max(agent.told.lane.agent, 0) % len(source.sites), np.int64)
    if source.numeric:
        labels, targets = np.zeros(count, np.int64), source.numbers(y, count).astype(np.float32)
    else:
        values, targets = arrays.one_each(y, "y", count), None
        if values.dtype.kind == "f" and np.isfinite(values).all() and (values % 1).any():
            raise UserError(
                f"y has numbers with a fraction, and {agent.name} tells classes apart; give one for each row"
            )
        ids, names = arrays.named(values, "y")
        new = tuple(name for name in names if name not in source.classes)
        source = replace(source, classes=(*source.classes, *new))
        labels = np.array([source.classes.index(name) for name in names], np.int64)[ids]
    bank = source.bank(raw)
    held = arrays.held_out(labels, at, None, None)
    return replace(bank, labels=labels, source=at, test=held, targets=targets), source


def settings_for(agent: "Agent", count: int) -> Settings:
    """The settings of an agent that learns alone, with room for so many tasks, which are given to it."""
    old = agent.settings.tasks
    said = {name: getattr(old, name) for name in Tasks.model_fields}
    tasks = Tasks(**{**said, "scenario": NAMED, "common": False, "blur": 0.0, "count": count})
    plain = {name: Settings.model_fields[name].default for name in ALONE}
    return agent.settings.model_copy(update={**plain, "tasks": tasks, "seeds": 1})


def task_for(agent: "Agent", bank: Bank, settings: Settings, at: int, more: bool) -> Task:
    """The rows that have come as a task, split as in a run."""
    share = settings.model_copy(update={"agents": 1})
    found = piece_of(bank, np.arange(len(bank)), agent.told.lane, at, share, 0)
    for rows, what in ((found.train, "to learn from"), (found.validation, "to validate on")):
        if not len(rows):
            raise UserError(
                f"of {len(bank)} rows none is left {what}, because a fifth of every class is for testing, and of the "
                f"others for validation; give {agent.name} more rows"
            )
    if settings.tasks.heads != "task" and not agent.source.numeric:
        return replace(found, outputs=tuple(range(len(bank.classes))))
    before = agent.told.tasks[at].outputs if more else ()
    outputs = (*before, *(one for one in found.classes if one not in before))
    if not agent.source.numeric and (len(outputs) > settings.tasks.classes or len(outputs) < 2):
        names = listed([bank.classes[one] for one in outputs])
        raise UserError(
            f"a task of {agent.name} has from two to {settings.tasks.classes} classes (tasks.classes), and this one "
            f"has {len(outputs)}: {names}; leave out rows, or run all tasks at once with another tasks.classes"
        )
    return replace(found, outputs=outputs)


def world_for(agent: "Agent", bank: Bank, settings: Settings, at: int, task: Task, more: bool) -> World:
    """The world of one lane: the rows that have come and, of the task that they are more of, what it remembers."""
    told, model, device = agent.told, build(settings, bank), device_of(settings)
    inputs = agent.encoded(bank.images)
    if told.units is None:
        labels = torch.from_numpy(task.labels(bank, np.arange(len(bank))))
    else:
        assert bank.targets is not None
        labels = torch.from_numpy(((bank.targets - told.units[0]) / told.units[1]).astype(np.float32))
    if more:
        kept, fill = agent.of(memory.OWNER), remembered(agent, at)
        inputs, labels = torch.cat([inputs, kept["x"][at, :fill]]), torch.cat([labels, kept["y"][at, :fill]])
        task = replace(task, train=np.concatenate([task.train, len(bank) + np.arange(fill)]))
    before = [Task(tuple(met.outputs), NO_ROWS, NO_ROWS, NO_ROWS, met.outputs) for met in told.tasks[:at]]
    count = settings.tasks.count
    head = len(bank.classes) if by_name(settings.tasks) else settings.tasks.classes
    known = torch.zeros(1, count, head, dtype=torch.bool)
    for number, met in enumerate(told.tasks[:at]):
        known[0, number, list(met.known)] = True
    if more:
        known[0, at, list(told.tasks[at].known)] = True
    known[0, at, labels.unique() if told.units is None else 0] = True
    if not by_name(settings.tasks) and told.units is None:
        known[0, at, : len(task.outputs)] = True
    stream, lanes = Stream((*before, task)).padded(count), (told.lane,)
    place = bank, model, lanes, (stream,), (told.scaling,), device, Held(lambda most: inputs[:most].to(device))
    train, validation, test = (split(getattr(task, name), labels, at, count, device) for name in NAMES)
    return Past(settings, settings, lanes, *place, train, validation, test, known=known.to(device))


def split(rows: NDArray[np.int64], labels: Tensor, at: int, count: int, device: torch.device) -> Split:
    """Some rows of a task, where no other task has any."""
    here, sizes = torch.from_numpy(rows), torch.zeros(1, count, dtype=torch.int64)
    places = torch.zeros(1, count, len(rows), dtype=torch.int64)
    wanted = torch.zeros(1, count, len(rows), *labels.shape[1:], dtype=labels.dtype)
    places[0, at], wanted[0, at], sizes[0, at] = here, labels[here], len(rows)
    return Split(places.to(device), wanted.to(device), sizes)


def stack_for(agent: "Agent", world: World, at: int) -> Stack:
    """The stack of one agent that is about to learn a task."""
    modes = [mode.owner for mode in world.settings.sharing]  # what others have offered before means nothing now
    kept = {name: tensor for name, tensor in agent.state.items() if name.partition("/")[0] not in modes}
    flat = {name: tensor[None].clone() for name, tensor in kept.items()}
    sent = {name: flat.pop(name) for name in [*flat] if name.startswith(f"{received.OWNER}/")}
    (stack,) = widened([world], [Stack.made(world.lanes, flat)])
    for name, tensor in sent.items():  # what others have sent stays; for a new task nobody has sent anything
        inner, more = name.partition("/")[2], world.settings.tasks.count - tensor.shape[1]
        stack.of(received.OWNER)[inner] = torch.cat([tensor, tensor.new_zeros(1, more, *tensor.shape[2:])], 1)
    stack.task, stack.epoch = at, 0
    stack.of(RECORD)["moved"].fill_(True)
    return stack


def taught(agent: "Agent", world: World, stack: Stack, at: int) -> None:
    """All epochs of a task and its end, with nobody else."""
    begin(world, stack)
    for epoch in range(world.settings.learner.epochs):
        learn_epoch([(world, stack)], epoch)
        learned(world, stack)
        alive(agent, stack)
    end(world, stack)
    health.examine(stack, whole=True)
    alive(agent, stack)
    stack.task, stack.epoch = max(at + 1, int(agent.state[f"{CLOCK}/task"])), 0


def alive(agent: "Agent", stack: Stack) -> None:
    """Raise if an agent has diverged."""
    if told := health.told(stack):
        raise UserError(
            f"{told[0]}; {agent.name} stays as it was before these rows: learner.rate "
            f"({agent.settings.learner.rate!r}) may be too high for them, or they are in other units"
        )
