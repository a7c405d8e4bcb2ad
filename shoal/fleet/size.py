"""How large a run will be: its memory and, roughly, its time, told from settings and data before anything is made."""

from math import prod
from typing import NamedTuple

import numpy as np

from shoal.agents.engine import THREADS
from shoal.data.bank import Bank
from shoal.data.by_rows import DEALT
from shoal.data.tasks import NAMED
from shoal.errors import SettingsError
from shoal.machine import free
from shoal.models.contract import Model
from shoal.models.table import build
from shoal.network import edges
from shoal.settings.groups import Settings
from shoal.units import shown

FLOAT, WHOLE = 4, 8  # bytes
MOST = 10**30  # bytes: beyond, it does not matter
PROGRAM = 300 * 10**6  # bytes of what shoal is made of
DEEP = 1000
HELD = 0.2  # of the rows that are dealt, for validation
LAYERS, MANY, MAKING = 10_000, 5_000, 1e-3  # layers at most; agents that one is told of, and seconds for each
ROW = 80  # bytes of a measurement while its table is made
EDGE = 1200  # bytes of a directed edge: its limits, its ends, what it has carried
MESSAGE = 250  # bytes of a message in the ledger and its table
STEP, SPEED, EXCHANGE = 2e-3, 3e9, 2e-4  # seconds of a step; multiplications a second on a core; seconds of a message
YEAR = 365 * 24 * 3600
PATIENCE = 10 * YEAR  # who wants to wait longer has to say so


class Size(NamedTuple):
    """What a run needs: bytes by what they are for, which is right to a factor of two, and seconds, which is a
    guess."""

    parts: dict[str, int]
    seconds: float

    @property
    def bytes(self) -> int:
        return min(sum(self.parts.values()), MOST)

    @property
    def memory(self) -> str:
        """In words: `1.2 GB of memory (nets 700 MB, data 500 MB)`."""
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        parts = ", ".join(f"{name} {shown(min(size, MOST))}" for name, size in largest[:3] if size)
        return f"{shown(self.bytes)} of memory ({parts})"

    def timed(self, seconds: float) -> str:
        """The same, with a time that is no guess."""
        return f"about {self._replace(seconds=seconds)}, by the time of the first steps"

    def __str__(self) -> str:
        return f"{self.memory} and {lasting(self.seconds)}"


def share(settings: Settings, bank: Bank, part: float) -> int:
    """Bytes that a worker with a part of all lanes needs: it holds all links, and none of what is written of mail."""
    whole = size(settings, bank).parts
    links = edges.count(settings.network, settings.agents) * settings.seeds * EDGE if settings.sharing else 0
    own = sum(one for name, one in whole.items() if name not in ("program", "links", "dataset"))
    return min(int(whole["program"] + whole["dataset"] + links + part * min(own, MOST)), MOST)


def size(settings: Settings, bank: Bank) -> Size:
    """What a run of these settings on this data needs. No graph is drawn, no net is made but one of somebody else."""
    parts = {
        "program": PROGRAM,
        "nets": 0,
        "work": 0,
        "data": 0,
        "memories": 0,
        "measurements": 0,
        "links": links(settings),
        "dataset": held(bank),
    }
    messages = exchanges(settings) * edges.count(settings.network, settings.agents) * settings.seeds
    seconds = bounded(messages) * EXCHANGE
    taken = sum(len(kind.agents) for kind in settings.kinds)
    counts = {kind.name: len(kind.agents) for kind in settings.kinds}
    for name in settings.names:
        kind = settings.of(name)
        model = build(kind, bank)
        lanes = counts.get(name, settings.agents - taken) * settings.seeds
        for part, wanted in of_kind(kind, bank, model, lanes).items():
            parts[part] += wanted
        seconds += learning(kind, bank, model, lanes)
    return Size(parts, seconds)


def of_kind(settings: Settings, bank: Bank, model: Model, lanes: int) -> dict[str, int]:
    """Bytes of so many lanes of one kind."""
    tasks, learner = settings.tasks, settings.learner
    row = read(bank, model)
    # With Adam's two moments; and who adds to the loss keeps what weights are compared with.
    copies = 3 + 2 * (bool(learner.additions()) + sum(bool(mode.additions()) for mode in settings.sharing))
    nets = lanes * (model.numbers * FLOAT * copies + learner.holds(settings, model))
    longest = each(settings, bank)
    images = sum(longest.values())
    mine = min(met(settings, bank), tasks.count * images)
    used = min(len(bank), lanes * mine) * (settings.seeds if model.seeded else 1)
    seen = lanes * mine if bank.scale == "standard" else used
    threads = settings.machine.threads or THREADS
    rows = WHOLE * (5 if threads > 1 else 3)  # bank row, place and label of an image, and the last two for each thread
    room = learner.memory + max((mode.room for mode in settings.sharing), default=0)
    memories = lanes * tasks.count * room * (row + 3 * WHOLE)
    offers = sum(5 * WHOLE * getattr(mode, "modules", 1) for mode in settings.sharing if mode.offers)
    offers *= lanes * tasks.count * heard(settings)
    points = 3 + (learner.epochs - 1) // 10  # of the grid of a task's measurements
    measured = lanes * points * tasks.count * tasks.count
    batch = min(learner.batch, len(bank))
    deep = settings.net.depth > DEEP  # a list of its layers would be long already
    passing = settings.net.depth * model.read if deep else sum(map(prod, model.mask_shapes(1)))
    passing = (4 * FLOAT * passing + row) * batch
    busy = lanes if engine(settings, model) == "vmap" else min(lanes, threads)
    pool = lanes * (longest["train"] + tasks.count * room) * (row + 2 * WHOLE)
    step = busy * (passing + 2 * FLOAT * model.numbers) + pool
    reading = seen * row  # what is read stands there twice while it is put together
    return {
        "nets": nets,
        "work": step + reading + 2 * (nets + memories),  # to write a checkpoint takes two copies of all that changes
        "data": seen * row + lanes * tasks.count * images * rows,
        "memories": memories + offers,
        "measurements": measured * (FLOAT + ROW // 2),  # half of them are of tasks that are not met yet
    }


def held(bank: Bank) -> int:
    """Bytes of a dataset, which is in memory before a run begins."""
    known = (bank.images, bank.labels, bank.source, bank.test, bank.task, bank.time, bank.targets)
    return sum(array.nbytes for array in known if array is not None)


def read(bank: Bank, model: Model) -> int:
    """Bytes of what a model reads of an image."""
    shape: tuple[int, ...] = bank.images.shape[1:]
    return model.read * FLOAT if model.seeded else prod(shape) * bank.images.itemsize


def each(settings: Settings, bank: Bank) -> dict[str, int]:
    """Rows of the longest task, about, by what they are for: where rows are dealt, of the share of one agent."""
    tasks, dealt = settings.tasks, settings.tasks.scenario in DEALT
    hands = shares(settings, bank)
    parts, cut = (tasks.count, 1) if dealt and bank.targets is not None else (1, min(tasks.classes, len(bank.classes)))
    groups, kinds = bank.labels, len(bank.classes)
    if tasks.scenario == NAMED and bank.task is not None:
        groups, kinds, cut, parts = bank.task, int(bank.task.max()) + 1, 1, 1
    elif tasks.scenario == "time":
        groups, kinds, cut, parts = np.zeros_like(bank.labels), 1, 1, tasks.count

    def largest(there: np.ndarray) -> np.ndarray:
        found = np.bincount(bank.source[there] * kinds + groups[there], minlength=len(bank.sources) * kinds)
        sums: np.ndarray = np.sort(found.reshape(-1, kinds), axis=1)[: len(hands), -cut:].sum(1)
        return sums / bounded(parts)

    train, test = largest(~bank.test) / (hands if dealt else 1), largest(bank.test)
    held = HELD if dealt else tasks.held_out
    most = {"train": (1 - held) * train.max(), "validation": held * train.max(), "test": test.max()}
    said = {} if dealt else {"train": tasks.train, "validation": tasks.validation}
    wanted = {name: one * tasks.classes for name, one in said.items() if isinstance(one, int)}
    return {name: min(int(one) + 1, wanted.get(name, MOST)) for name, one in most.items()}


def met(settings: Settings, bank: Bank) -> int:
    """Rows that an agent meets in all its tasks, at most: those of its source, or its share of them."""
    hands = shares(settings, bank)
    train, test = (np.bincount(bank.source[one], minlength=len(bank.sources)) for one in (~bank.test, bank.test))
    mine = train[: len(hands)] / (hands if settings.tasks.scenario in DEALT else 1) + test[: len(hands)]
    return int(mine.mean()) + 1


def shares(settings: Settings, bank: Bank) -> np.ndarray:
    """How many agents each source has, of those that have some."""
    agents, sources = settings.agents, len(bank.sources)
    return np.array([bounded((agents - 1 - at) // sources + 1) for at in range(min(agents, sources))])


def engine(settings: Settings, model: Model) -> str:
    """What will map the functions of one agent over lanes."""
    return model.engine if settings.machine.engine == "auto" else settings.machine.engine


def heard(settings: Settings) -> int:
    """From how many an agent hears, at most, about."""
    several = settings.network.graph in ("server", "complete")
    mean = edges.count(settings.network, settings.agents) // settings.agents
    return settings.agents - 1 if several else min(2 * mean + 8, settings.agents - 1)


def exchanges(settings: Settings) -> int:
    """How often an edge carries something in a run, at most."""
    later, epochs = settings.tasks.count - settings.tasks.initial + 1, settings.learner.epochs
    return sum(later * (1 if mode.every == "task" else epochs // mode.every) for mode in settings.sharing)


def links(settings: Settings) -> int:
    """Bytes of all edges and all that is written of what they carry."""
    if not settings.sharing:
        return 0
    number = edges.count(settings.network, settings.agents) * settings.seeds
    messages, tasks = exchanges(settings), settings.tasks.count
    if settings.machine.ledger == "totals":  # a row of each kind per task, and the messages of the last two tasks
        messages = min(messages, 2 * len(settings.sharing) * tasks + 2 * -(-messages // tasks))
    return number * (EDGE + MESSAGE * messages)


def learning(settings: Settings, bank: Bank, model: Model, lanes: int) -> float:
    """Seconds of learning, about."""
    tasks, learner = settings.tasks, settings.learner
    images = each(settings, bank)["train"] + tasks.count // 2 * learner.memory
    steps = max(1, images // learner.batch) * learner.epochs * (tasks.count - tasks.initial + 1)
    alone = lanes if engine(settings, model) == "loop" else 1
    passes = 3 * min(learner.batch, images) * model.work  # there, and twice as much back
    return bounded(steps * alone) * STEP + bounded(steps * lanes * passes) / SPEED / THREADS


def bounded(number: int) -> float:
    """A number that floats can hold."""
    return float(min(number, MOST))


def sensible(settings: Settings) -> None:
    """Raise for nets of so many layers that to make one would take hours, from the numbers alone."""
    depth = max(settings.of(name).net.depth for name in settings.names)
    if depth > LAYERS:
        raise SettingsError(
            f"net.depth = {depth:,} is more than anything learns through, at most {LAYERS:,} are made; lower it, "
            "or say --yes (in Python, run(yes=True)) if you mean it"
        )


def word(settings: Settings, bank: Bank) -> str:
    """What to say before worlds are made, if that takes a while; from the numbers alone."""
    lanes = settings.agents * settings.seeds
    if lanes < MANY:
        return ""
    making = lasting(bounded(lanes) * MAKING)
    return (
        f"{lanes:,} agents of all seeds are made first, which takes about {making}; the run needs about "
        f"{size(settings, bank)}"
    )


def affordable(settings: Settings, bank: Bank) -> None:
    """Raise for a run that this machine has no memory for, or that would take years."""
    wanted, there = size(settings, bank), free()
    short = there is not None and wanted.bytes - wanted.parts["dataset"] > there
    if not short and wanted.seconds < PATIENCE:
        return
    sized = {f"net.{name}": one for name, one in settings.net.shape.items() if isinstance(one, int)}
    said = {
        "agents": settings.agents, "seeds": settings.seeds, "tasks.count": settings.tasks.count,
        "numbers in a row": int(np.prod(bank.images.shape[1:])), **sized, "learner.epochs": settings.learner.epochs,
    }  # fmt: skip
    counts = ", ".join(f"{name} = {f'{one:,}' if one < MOST else 'beyond all'}" for name, one in said.items())
    have = f", and {shown(there)} are free here" if there is not None else ""
    raise SettingsError(
        f"this run needs about {wanted}{have}; lower what is large ({counts}), or say --yes (in Python, "
        "run(yes=True)) if you mean it"
    )


def lasting(seconds: float) -> str:
    """A time for people."""
    for name, long in {"year": YEAR, "day": 24 * 3600, "hour": 3600, "minute": 60}.items():
        if seconds >= 2 * long:
            return f"{seconds / long:,.0f} {name}s" if seconds < 1e6 * YEAR else "a million years or more"
    return f"{max(1, seconds):.0f} second{'s' * (seconds >= 1.5)}"
