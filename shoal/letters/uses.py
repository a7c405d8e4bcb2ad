"""What directed edges have carried, of all modes or of one: arrays with a row for each edge."""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.links import Links, Numbers

Ends = tuple[Lane, Lane]  # sender and receiver
GROWING = Lock()
KNOWN = 256  # sets of links whose rows are remembered


class Weight(NamedTuple):
    """How much was carried, in numbers and in bytes."""

    floats: int = 0
    bytes: int = 0


NOTHING = Weight()


class Use(NamedTuple):
    """What a directed edge has carried."""

    last: int = -1  # when, in epochs since the first task; -1: never
    task: int = -1  # then, by the clock of the sender
    carried: Weight = NOTHING  # then
    during: Weight = NOTHING  # in that task
    total: Weight = NOTHING


class Used(NamedTuple):
    """The same of many edges, a row each."""

    last: Numbers  # int64 [M]
    task: Numbers  # int64 [M]
    carried: Numbers  # int64 [M, 2], floats and bytes
    during: Numbers
    total: Numbers

    @classmethod
    def of(cls, uses: Iterable[Use]) -> "Used":
        """Several uses as arrays."""
        every = list(uses)
        pairs = (np.array([one[at] for one in every], np.int64).reshape(-1, 2) for at in (2, 3, 4))
        return cls(*(np.array([one[at] for one in every], np.int64) for at in (0, 1)), *pairs)

    def at(self, now: int) -> Numbers:
        """What each has carried at a moment that is not past."""
        found: Numbers = self.carried * (self.last == now)[:, None]
        return found

    def within(self, task: int) -> Numbers:
        """What each has carried in a task that is not past."""
        found: Numbers = self.during * (self.task == task)[:, None]
        return found

    def take(self, at: Numbers) -> "Used":
        """Some of these edges."""
        return Used(*(column[at] for column in self))


class Uses:
    """What each edge has carried so far; an edge gets a row when it is first asked for."""

    def __init__(self, uses: Mapping[Ends, Use] | None = None) -> None:
        self.rows: dict[Ends, int] = {ends: row for row, ends in enumerate(uses or ())}
        self.table = Used.of((uses or {}).values())
        self.known: dict[int, tuple[Links, Numbers]] = {}  # the rows of links, by the id of these

    def where(self, links: Links) -> Numbers:
        """The rows of some links, int64 [M]."""
        of, found = self.known.get(id(links), (None, None))
        if of is not links or found is None:
            found = self.grown(links.pairs)
            if len(self.known) >= KNOWN:  # of a graph that changes all the time, each moment would have one
                self.known.clear()
            self.known[id(links)] = links, found
        return found

    def grown(self, pairs: Iterable[Ends]) -> Numbers:
        """The rows of some edges; new ones get one, whichever thread asks first."""
        with GROWING:
            found = np.array([self.rows.setdefault(ends, len(self.rows)) for ends in pairs], np.int64)
            if new := len(self.rows) - len(self.table.last):
                last = np.full((2, new), -1)
                more = Used(*last, *np.zeros((3, new, 2), np.int64))
                self.table = Used(*map(np.concatenate, zip(self.table, more, strict=True)))
        return found

    def add(self, rows: Numbers, weights: Numbers, now: int, task: int) -> None:
        """Note that edges carry so much more, floats and bytes [M, 2], one of them perhaps several times."""
        last, then, carried, during, total = self.table
        carried[rows[last[rows] != now]] = 0
        during[rows[then[rows] != task]] = 0
        for sums in (carried, during, total):
            np.add.at(sums, rows, weights)
        last[rows], then[rows] = now, task

    def of(self, links: Links, at: Numbers | slice = slice(None)) -> Used:
        """What some links have carried, or those of them at some places."""
        rows = self.where(links)[at]
        return self.table.take(rows)

    def one(self, ends: Ends) -> Use:
        """What an edge has carried."""
        row = self.rows.get(ends)
        if row is None:
            return Use()
        last, task, *pairs = (column[row].tolist() for column in self.table)
        return Use(last, task, *(Weight(*pair) for pair in pairs))

    def each(self) -> dict[Ends, Use]:
        """What every edge has carried that has carried anything."""
        return {ends: use for ends in self.rows if (use := self.one(ends)).last >= 0}
