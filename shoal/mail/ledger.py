"""The ledger: the book in which every message of a run is written, and what every edge has carried."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.mail.mail import UNSENT, Mail

COLUMNS = ("seed", "task", "epoch", "sender", "receiver", "mode", "kind", "items", "floats", "bytes", "verdict")
WORDS = ("mode", "kind", "verdict")  # columns of words; all others are numbers


class Weight(NamedTuple):
    """How much was carried, in numbers and in bytes."""

    floats: int = 0
    bytes: int = 0

    def plus(self, mail: Mail) -> "Weight":
        return Weight(self.floats + mail.floats, self.bytes + mail.bytes)


NOTHING = Weight()


class Use(NamedTuple):
    """What a directed edge has carried, of all modes or of one."""

    last: int = -1  # when, in epochs since the first task; -1: never
    task: int = -1  # then, by the clock of the sender
    carried: Weight = NOTHING  # then
    during: Weight = NOTHING  # in that task
    total: Weight = NOTHING

    def then(self, mail: Mail, now: int) -> "Use":
        """The same edge when it has carried one mail more."""
        carried, during = self.at(now), self.within(mail.task)
        return Use(now, mail.task, carried.plus(mail), during.plus(mail), self.total.plus(mail))

    def at(self, now: int) -> Weight:
        """What it has carried at a moment that is not past."""
        return self.carried if self.last == now else NOTHING

    def within(self, task: int) -> Weight:
        """What it has carried in a task that is not past."""
        return self.during if self.task == task else NOTHING


UNUSED = Use()


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS, where a word is its place in `words`.

    All stacks of a fleet write to one ledger. It knows what every directed edge (sender, receiver) has carried, in all
    and by each mode.
    """

    blocks: list[np.ndarray] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    uses: dict[tuple[Lane, Lane], Use] = field(default_factory=dict)
    shares: dict[tuple[Lane, Lane, str], Use] = field(default_factory=dict)  # of one mode

    @classmethod
    def of(cls, rows: np.ndarray, words: Sequence[str], epochs: int) -> "Ledger":
        """The ledger that has these rows and words, of a run with so many epochs per task."""
        if not len(rows):
            return cls(words=list(words))
        ledger = cls([rows], list(words))
        crossed = rows[ledger.crossed]
        ledger.uses = {
            (Lane(seed, sender), Lane(seed, receiver)): use
            for (seed, sender, receiver), use in used(crossed, ("seed", "sender", "receiver"), epochs)
        }
        ledger.shares = {
            (Lane(seed, sender), Lane(seed, receiver), ledger.words[mode]): use
            for (seed, sender, receiver, mode), use in used(crossed, ("seed", "sender", "receiver", "mode"), epochs)
        }
        return ledger

    def use(self, sender: Lane, receiver: Lane) -> Use:
        """What an edge has carried so far."""
        return self.uses.get((sender, receiver), UNUSED)

    def share(self, sender: Lane, receiver: Lane, mode: str) -> Use:
        """What it has carried so far of one mode."""
        return self.shares.get((sender, receiver, mode), UNUSED)

    def carry(self, mail: Mail, now: int) -> None:
        """Note that a message crosses its edge."""
        ends = mail.sender, mail.receiver
        self.uses[ends] = self.use(*ends).then(mail, now)
        self.shares[*ends, mail.mode] = self.share(*ends, mail.mode).then(mail, now)

    def sent_by(self, lanes: Collection[Lane]) -> "Ledger":
        """A ledger without rows that knows what edges from some lanes have carried."""
        uses = {ends: use for ends, use in self.uses.items() if ends[0] in lanes}
        return Ledger(uses=uses, shares={name: use for name, use in self.shares.items() if name[0] in lanes})

    @property
    def rows(self) -> np.ndarray:
        """All rows in one block."""
        if len(self.blocks) != 1:
            self.blocks = [np.concatenate(self.blocks) if self.blocks else np.zeros((0, len(COLUMNS)), np.int64)]
        return self.blocks[0]

    def write(self, posted: Iterable[tuple[Mail, str]]) -> None:
        """Write a row for each mail and its verdict."""
        rows = [
            (
                *(mail.sender.seed, mail.task, mail.epoch, mail.sender.agent, mail.receiver.agent),
                *(self.place(mail.mode), self.place(mail.kind)),
                *(mail.items, mail.floats, mail.bytes, self.place(verdict)),
            )
            for mail, verdict in posted
        ]
        if rows:
            self.blocks.append(np.array(rows, np.int64))

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
    def crossed(self) -> np.ndarray:
        """Which messages left over their edge and were paid for, whatever their receivers said: bool."""
        found: np.ndarray = ~self.among("verdict", UNSENT)
        return found

    def __len__(self) -> int:
        return len(self.rows)


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
