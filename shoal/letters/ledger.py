"""The ledger: the book in which every message of a run is written, and what every edge has carried."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.links import Links
from shoal.letters.mail import ACCEPTED, UNDER_WAY, UNSENT, Mail, identify
from shoal.letters.posted import Posted
from shoal.letters.uses import Ends, Use, Uses, Weight

COLUMNS = (
    *("seed", "task", "epoch", "sender", "receiver", "mode", "kind", "items", "floats", "bytes", "verdict"),
    "late",  # how many epochs later its receiver saw it; of what never left: how many more were as this one is
)
COUNTS = tuple(COLUMNS.index(name) for name in ("items", "floats", "bytes"))
VERDICT, LATE = COLUMNS.index("verdict"), COLUMNS.index("late")
WORDS = ("mode", "kind", "verdict")  # columns of words; all others are numbers


class Settled(NamedTuple):
    """What a receiver says of a mail that has been under way."""

    id: str
    verdict: str
    late: int  # epochs


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS, where a word is its place in `words`.

    All stacks of a fleet write to one ledger. It knows what every directed edge (sender, receiver) has carried, in all
    and by each mode.
    """

    blocks: list[np.ndarray] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    every: Uses = field(default_factory=Uses)  # what edges have carried,
    parts: dict[str, Uses] = field(default_factory=dict)  # and of each mode
    latest: dict[tuple[Lane, Lane, str, str], int] = field(default_factory=dict)  # when the newest mail of a mode and
    # kind was sent that a receiver has accepted; it is noted where mail can be late
    open: dict[str, int] = field(default_factory=dict)  # the rows of mail that is under way, by its id
    totals: np.ndarray | None = None  # what messages of earlier tasks came to (runs/totals.py): COLUMNS, of how many
    # messages, and their floats counted in other ways; those messages are in no block

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        words: Sequence[str],
        epochs: int,
        totals: np.ndarray | None = None,
        under_way: Iterable[Mail] = (),
    ) -> "Ledger":
        """The ledger that has these rows and words, of a run with so many epochs per task; some mail is under way."""
        if totals is not None:
            ledger = cls.of(np.concatenate([totals[:, : len(COLUMNS)], rows]), words, epochs)
            ledger.blocks, ledger.totals = [rows], totals
            return ledger
        if not len(rows):
            return cls(words=list(words))
        ledger = cls([rows], list(words))
        crossed = rows[ledger.crossed]
        edge, shares = ("seed", "sender", "receiver"), dict[str, dict[Ends, Use]]()
        every = used(crossed, edge, epochs)
        ledger.every = Uses({(Lane(seed, one), Lane(seed, other)): use for (seed, one, other), use in every})
        for (seed, one, other, mode), use in used(crossed, (*edge, "mode"), epochs):
            shares.setdefault(ledger.words[mode], {})[Lane(seed, one), Lane(seed, other)] = use
        ledger.parts = {mode: Uses(uses) for mode, uses in shares.items()}
        ledger.latest = {
            (Lane(seed, sender), Lane(seed, receiver), ledger.words[mode], ledger.words[kind]): use.last
            for (seed, sender, receiver, mode, kind), use in used(
                rows[ledger.among("verdict", [ACCEPTED])], ("seed", "sender", "receiver", "mode", "kind"), epochs
            )
        }
        waiting: dict[str, list[int]] = {}
        for at in np.flatnonzero(ledger.among("verdict", [UNDER_WAY])).tolist():
            seed, task, epoch, sender, receiver, mode, kind = rows[at, :7].tolist()
            ends = Lane(seed, sender), Lane(seed, receiver)
            name = identify(*ends, ledger.words[mode], ledger.words[kind], task, epoch)
            waiting.setdefault(name, []).append(at)
        # Several mails of a kind from one point of the sender's stream were written in the order in which they wait.
        for mail in under_way:
            name = identify(mail.sender, mail.receiver, mail.mode, mail.kind, mail.task, mail.epoch)
            ledger.open[mail.id] = waiting[name].pop(0)
        return ledger

    @property
    def uses(self) -> dict[Ends, Use]:
        """What every edge has carried so far."""
        return self.every.each()

    @property
    def shares(self) -> dict[tuple[Lane, Lane, str], Use]:
        """What every edge has carried so far of each mode."""
        return {(*ends, mode): use for mode, uses in self.parts.items() for ends, use in uses.each().items()}

    def share(self, mode: str) -> Uses:
        """What edges have carried so far of one mode."""
        return self.parts.setdefault(mode, Uses())

    def carry(
        self, mode: str, links: Links, weights: np.ndarray, now: int, task: int, at: np.ndarray | slice = slice(None)
    ) -> None:
        """Note that mail of a mode crosses some links, or those of them at some places, of so many floats and bytes
        [M, 2]."""
        for uses in (self.every, self.share(mode)):
            uses.add(uses.where(links)[at], weights, now, task)

    def copy(self) -> "Ledger":
        """The same ledger for somebody else to write in."""
        found = Ledger(list(self.blocks), list(self.words), Uses(self.uses), totals=self.totals)
        found.parts = {mode: Uses(uses.each()) for mode, uses in self.parts.items()}
        found.latest, found.open = dict(self.latest), dict(self.open)
        return found

    def sent_by(self, lanes: Collection[Lane]) -> "Ledger":
        """A ledger without rows that knows what edges from some lanes have carried, and what has come to these."""

        def theirs(uses: Uses) -> Uses:
            return Uses({ends: use for ends, use in uses.each().items() if ends[0] in lanes})

        found = Ledger(every=theirs(self.every), parts={mode: theirs(uses) for mode, uses in self.parts.items()})
        found.latest = {name: at for name, at in self.latest.items() if name[1] in lanes}
        return found

    @property
    def rows(self) -> np.ndarray:
        """All rows in one block."""
        if len(self.blocks) != 1:
            self.blocks = [np.concatenate(self.blocks) if self.blocks else np.zeros((0, len(COLUMNS)), np.int64)]
        return self.blocks[0]

    def write(self, posted: Posted | Iterable[tuple[Mail, str]]) -> None:
        """Write a row for each mail and its verdict; one with their sums for all that never left and are alike, so that
        no sender fills the book."""
        posted = posted if isinstance(posted, Posted) else Posted.of(posted)
        if not len(posted):
            return
        table, links, verdicts = posted.table, posted.table.links, posted.verdicts.tolist()
        said = dict.fromkeys(zip(table.mode.tolist(), table.kind.tolist(), verdicts, strict=True))
        place = {word: self.place(word) for three in said for word in three}
        mode, kind, verdict = (
            place[column[0]] if len(said) == 1 else [place[word] for word in column.tolist()]
            for column in (table.mode, table.kind, posted.verdicts)
        )
        ends = links.lanes[links.senders], links.lanes[links.receivers]
        head = ends[0][:, 0], table.task, table.epoch, ends[0][:, 1], ends[1][:, 1], mode, kind
        rows = np.zeros((len(table), len(COLUMNS)), np.int64)
        for at, column in enumerate((*head, table.items, *table.weights.T, verdict)):
            rows[:, at] = column
        rows, kept = merged(rows, [place[word] for word in UNSENT if word in place])
        if UNDER_WAY in place:
            waiting = np.flatnonzero(rows[:, VERDICT] == place[UNDER_WAY]).tolist()
            self.open |= {table.id(kept[at]): len(self) + at for at in waiting}
        self.blocks.append(rows)

    def seen(self, settled: Iterable[Settled]) -> None:
        """Write what receivers said of mail that had been under way, each where it was written when it left."""
        starts = [0, *accumulate(map(len, self.blocks))]
        for one in settled:
            at = self.open.pop(one.id)
            block = bisect_right(starts, at) - 1
            row = self.blocks[block][at - starts[block]]
            row[VERDICT], row[LATE] = self.place(one.verdict), one.late

    def place(self, word: str) -> int:
        """Where a word is in `words`; a new one comes last."""
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def column(self, name: str) -> np.ndarray:
        """A column: numbers, or words."""
        found: np.ndarray = self.rows[:, COLUMNS.index(name)]
        return np.array(self.words, np.str_)[found] if name in WORDS else found

    def among(self, name: str, words: Iterable[str]) -> np.ndarray:
        """In which rows a column of words has one of these: bool. (Comparing a million words would take seconds.)"""
        known = [self.words.index(word) for word in words if word in self.words]
        found: np.ndarray = np.isin(self.rows[:, COLUMNS.index(name)], known)
        return found

    @property
    def messages(self) -> np.ndarray:
        """How many messages each row stands for, [N]: several, where they never left and were alike."""
        found: np.ndarray = np.where(self.crossed, 1, self.rows[:, LATE] + 1)
        return found

    @property
    def crossed(self) -> np.ndarray:
        """Which messages left over their edge and were paid for, whatever their receivers said: bool."""
        found: np.ndarray = ~self.among("verdict", UNSENT)
        return found

    @property
    def sent(self) -> tuple[int, int]:
        """How many messages have crossed their edges so far, and their bytes."""
        bytes_, crossed = COLUMNS.index("bytes"), self.crossed
        messages, weight = int(crossed.sum()), int(self.rows[crossed, bytes_].sum())
        if self.totals is not None:
            unsent = [self.words.index(word) for word in UNSENT if word in self.words]
            gone = self.totals[~np.isin(self.totals[:, VERDICT], unsent)]
            messages, weight = messages + int(gone[:, len(COLUMNS)].sum()), weight + int(gone[:, bytes_].sum())
        return messages, weight

    def __len__(self) -> int:
        return sum(map(len, self.blocks))


def merged(rows: np.ndarray, unsent: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """Rows of which those that never left, by these verdicts, and are alike have become one with their sums; and which
    of the rows these are."""
    counts, gone = [*COUNTS], list[int]()
    first: dict[tuple[int, ...], int] = {}
    for at in np.flatnonzero(np.isin(rows[:, VERDICT], unsent)).tolist():
        like = first.setdefault((*rows[at, : COUNTS[0]].tolist(), int(rows[at, VERDICT])), at)
        if like != at:
            rows[like, counts] += rows[at, counts]
            rows[like, LATE] += 1
            gone.append(at)
    kept = np.delete(np.arange(len(rows)), gone)
    return rows[kept], kept.tolist()


def used(rows: np.ndarray, names: Sequence[str], epochs: int) -> Iterator[tuple[list[int], Use]]:
    """What rows that crossed come to, for each combination of what they have in some columns."""
    column = {name: rows[:, at] for at, name in enumerate(COLUMNS)}
    # One number for each combination: a run can have a million rows, and sorting rows takes seconds.
    number = np.zeros(len(rows), np.int64)
    for name in names:
        number = number * (1 + int(column[name].max(initial=0))) + column[name]
    found, first, group = np.unique(number, return_index=True, return_inverse=True)
    now = column["task"] * epochs + column["epoch"]
    last, task = np.full((2, len(found)), -1)
    np.maximum.at(last, group, now)
    np.maximum.at(task, group, column["task"])
    sums = []
    for counted in (now == last[group], column["task"] == task[group], np.full(len(rows), True)):
        weights = np.zeros((len(found), 2), np.int64)
        for at, name in enumerate(("floats", "bytes")):
            np.add.at(weights[:, at], group, np.where(counted, column[name], 0))
        sums.append([Weight(*pair) for pair in weights.tolist()])
    there = np.stack([column[name][first] for name in names], 1).tolist()
    yield from zip(there, map(Use, last.tolist(), task.tolist(), *sums), strict=True)
