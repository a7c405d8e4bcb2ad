"""What data of one's own means to a fleet, said before it learns: what the target is, who has how much of it, and what
looks wrong."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import polars as pl

from shoal.data.bank import Bank
from shoal.data.tasks import NOTHING, Lane, Stream
from shoal.units import listed, plural

FEW = 30  # test rows of a task, below which one row moves its accuracy by more than three points
NAMES = 6  # of classes or sites that a sentence has before it counts the rest
LONG = 20  # rows from which a column that counts them is no accident
MOST = 2**28  # bytes of rows that are compared with each other


class Learners(Protocol):
    """Agents of one kind, with what they learn."""

    @property
    def lanes(self) -> Sequence[Lane]: ...

    @property
    def streams(self) -> Sequence[Stream]: ...


def gathered(fleet: Sequence[Learners]) -> tuple[list[Lane], list[Stream]]:
    """The agents of all kinds in their order, and their streams."""
    pairs = [pair for world in fleet for pair in zip(world.lanes, world.streams, strict=True)]
    pairs.sort(key=lambda pair: pair[0])
    return [lane for lane, _ in pairs], [stream for _, stream in pairs]


def overview(bank: Bank, lanes: Sequence[Lane], streams: Sequence[Stream]) -> pl.DataFrame:
    """A row per agent and task of the first seed: whose it is, its classes, and its rows to train, validate and test
    on. Agents and tasks are counted as in tables, from 0 and from 1."""
    rows = []
    for lane, stream in zip(lanes, streams, strict=True):
        if lane.seed != lanes[0].seed:
            continue
        for at, task in enumerate(stream):
            if task is not NOTHING:
                sizes = [len(part) for part in (task.train, task.validation, task.test)]
                rows.append((lane.agent, site(bank, lane.agent), at + 1, len(task.classes), *sizes))
    schema = ["agent", "site", "task", "classes", "training", "validation", "test"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def site(bank: Bank, agent: int) -> str:
    """Where the rows of an agent come from."""
    return bank.sources[agent % len(bank.sources)]


def said(bank: Bank, agents: int, lanes: Sequence[Lane], streams: Sequence[Stream]) -> list[str]:
    """What the data means, and what looks wrong, in sentences."""
    table = overview(bank, lanes, streams)
    return [target(bank), *people(bank, agents), *small(bank, table), *alike(bank), *counting(bank)]


def fleets(bank: Bank, agents: int, fleet: Sequence[Learners]) -> list[str]:
    """The same of the agents of a fleet."""
    return said(bank, agents, *gathered(fleet))


def target(bank: Bank) -> str:
    """What is to be predicted."""
    if bank.targets is not None:
        wide = bank.targets.shape[1]
        low, high = float(bank.targets.min()), float(bank.targets.max())
        return f"to predict: {plural(wide, 'number')} for each row, between {low:g} and {high:g}"
    whole = all(one.lstrip("-").isdigit() for one in bank.classes)
    doubt = '; if these are numbers to predict, say predict="numbers"' if whole and len(bank.classes) > 2 else ""
    return f"to predict: one of {len(bank.classes)} classes ({listed(bank.classes, NAMES)}){doubt}"


def people(bank: Bank, agents: int) -> list[str]:
    """Whether there is an agent for each site."""
    sites = len(bank.sources)
    if sites == 1 or agents == sites:
        return []
    if agents < sites:
        names = listed(bank.sources[agents:], NAMES)
        return [f"{plural(agents, 'agent')} and {sites} sites: nobody has the rows of {names}; say agents={sites}"]
    return [
        f"{agents} agents and {sites} sites: some sites are shared by several agents; say agents={sites} for one each"
    ]


def small(bank: Bank, table: pl.DataFrame) -> list[str]:
    """Tasks of which the accuracy says little: too few test rows, or one class."""
    found = []
    few = table.filter(pl.col("test") < FEW).sort("test")
    if len(few):
        least = few.row(0, named=True)
        found.append(
            f"{len(few)} of {plural(len(table), 'task')} have fewer than {FEW} test rows, the fewest task "
            f"{least['task']} of {whose(bank, least)} with {least['test']}: one row moves its accuracy by "
            f"{100 / least['test']:.0f} points"
        )
    single = table.filter(pl.col("classes") == 1) if bank.targets is None else table.clear()
    if len(single):
        first = single.row(0, named=True)
        found.append(
            f"{plural(len(single), 'task')} with one class, the first task {first['task']} of {whose(bank, first)}: "
            "there is nothing to tell apart in it, and its accuracy says nothing"
        )
    return found


def whose(bank: Bank, row: dict[str, object]) -> str:
    return f"{row['site']}" if len(bank.sources) > 1 else f"agent {row['agent']}"


def alike(bank: Bank) -> list[str]:
    """How many test rows are training rows too."""
    if bank.images.nbytes > MOST or not bank.test.any() or bank.test.all():
        return []
    flat = np.ascontiguousarray(bank.images.reshape(len(bank), -1))
    rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    same = int(np.isin(rows[bank.test], rows[~bank.test]).sum())
    if not same:
        return []
    return [
        f"{same:,} of {int(bank.test.sum()):,} test rows are training rows too, so that accuracy is too high; leave "
        "out what is there twice, or mark both as training or as test"
    ]


def counting(bank: Bank) -> list[str]:
    """Columns that count rows."""
    if bank.images.ndim != 2 or len(bank) < LONG:
        return []
    steps = np.diff(bank.images.astype(np.float64), axis=0)
    found = [column(bank, at) for at in np.flatnonzero((steps == steps[0]).all(0) & (steps[0] != 0)).tolist()]
    if not found:
        return []
    return [
        f"column {', '.join(found)} of what agents read goes up by the same from row to row, like an index; "
        "leave it out, or agents learn the order of the file"
    ]


def column(bank: Bank, at: int) -> str:
    """What a column of what agents read is called: by its name, with its word where words became columns, or else by
    its number, counted from 1."""
    words = [(one.name, word) for one in bank.columns for word in (one.words or ("",))]
    if at >= len(words):
        return str(at + 1)
    name, word = words[at]
    return f"`{name}`" if not word else f"`{name}` = {word}"
