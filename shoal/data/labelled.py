"""Few labels: which of an agent's training rows have one. The others are there for whatever looks at no label."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.data.bank import Bank
from shoal.data.tasks import NOTHING, Lane, Stream, Task
from shoal.rng import key
from shoal.settings.groups import Tasks


def luck(bank: Bank, lane: Lane) -> np.ndarray:
    """A number between 0 and 1 for every row of a bank, a lane's own; the smallest have labels first."""
    return key(*lane, "labelled").random(len(bank))


def with_label(bank: Bank, tasks: Tasks, lane: Lane, rows: np.ndarray) -> np.ndarray:
    """Which of some rows have a label."""
    found: np.ndarray = luck(bank, lane)[bank.base(rows)] < tasks.labelled
    return found | (tasks.labelled == 1)


def labelled(bank: Bank, tasks: Tasks, lanes: Sequence[Lane], streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """Streams whose tasks train on rows with labels alone, one of every class at least."""
    if tasks.labelled == 1:
        return tuple(streams)
    made = []
    for lane, stream in zip(lanes, streams, strict=True):
        drawn = luck(bank, lane)
        made.append(Stream(tuple(one if one is NOTHING else parted(bank, tasks, drawn, one) for one in stream)))
    return tuple(made)


def parted(bank: Bank, tasks: Tasks, drawn: np.ndarray, task: Task) -> Task:
    """A task whose training rows are those that have a label; the others are `unlabelled`."""
    base = bank.base(task.train)
    has = drawn[base] < tasks.labelled
    for one in np.unique(bank.labels[base]):
        same = np.flatnonzero(bank.labels[base] == one)
        has[same[drawn[base[same]].argmin()]] = True
    return replace(task, train=task.train[has], unlabelled=task.train[~has])
