"""The ledger: the book in which every message of a run is written, and what every edge has carried."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.mail.mail import UNSENT, Mail

COLUMNS = ("seed", "task", "epoch", "sender", "receiver", "mode", "kind", "items", "floats", "bytes", "verdict")
WORDS = ("mode", "kind", "verdict")  # columns of words; all others are numbers


class Use(NamedTuple):
    """What a directed edge has carried."""

    last: int = -1  # when, in epochs since the first task; -1: never
    carried: int = 0  # floats, then
    total: int = 0  # floats, in all

    def then(self, floats: int, now: int) -> "Use":
        """The same edge when it has carried so many floats more."""
        return Use(now, floats + (self.carried if self.last == now else 0), self.total + floats)


UNUSED = Use()


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS, where a word is its place in `words`.

    All stacks of a fleet write to one ledger. It knows what every directed edge (sender, receiver) has carried.
    """

    blocks: list[np.ndarray] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    uses: dict[tuple[Lane, Lane], Use] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: np.ndarray, words: Sequence[str], epochs: int) -> "Ledger":
        """The ledger that has these rows and words, of a run with so many epochs per task."""
        if not len(rows):
            return cls(words=list(words))
        ledger = cls([rows], list(words))
        crossed = ledger.crossed
        ends = [ledger.column(name)[crossed] for name in ("seed", "sender", "receiver")]
        agents = 1 + max(int(ledger.column("sender").max()), int(ledger.column("receiver").max()))
        # One number for each edge: a run can have a million rows, and sorting rows takes seconds.
        edges, first, edge = np.unique(
            (ends[0] * agents + ends[1]) * agents + ends[2], return_index=True, return_inverse=True
        )
        floats = ledger.column("floats")[crossed]
        now = (ledger.column("task") * epochs + ledger.column("epoch"))[crossed]
        last = np.full(len(edges), -1)
        np.maximum.at(last, edge, now)
        carried, total = np.zeros((2, len(edges)), np.int64)
        np.add.at(total, edge, floats)
        np.add.at(carried, edge, np.where(now == last[edge], floats, 0))
        there = zip(*(end[first].tolist() for end in ends), strict=True)
        names = ((Lane(seed, sender), Lane(seed, receiver)) for seed, sender, receiver in there)
        found = zip(last.tolist(), carried.tolist(), total.tolist(), strict=True)
        ledger.uses = {name: Use(*use) for name, use in zip(names, found, strict=True)}
        return ledger

    def use(self, sender: Lane, receiver: Lane) -> Use:
        """What an edge has carried so far."""
        return self.uses.get((sender, receiver), UNUSED)

    def carry(self, mail: Mail, now: int) -> None:
        """Note that a message crosses its edge."""
        self.uses[mail.sender, mail.receiver] = self.use(mail.sender, mail.receiver).then(mail.floats, now)

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
