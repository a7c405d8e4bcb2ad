"""The ledger: the book in which every message of a run is written, and what every edge has carried."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.mail.bundle import Bundle, Links, Lot
from shoal.mail.mail import ACCEPTED, UNSENT, Mail

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

    def beside(self, other: "Use") -> "Use":
        """What an edge has carried of both, if neither is part of the other."""
        last, task = max(self.last, other.last), max(self.task, other.task)
        carried, during = [self.at(last), other.at(last)], [self.within(task), other.within(task)]
        return Use(last, task, *(added(*pair) for pair in (carried, during, (self.total, other.total))))


def added(one: Weight, other: Weight) -> Weight:
    return Weight(one.floats + other.floats, one.bytes + other.bytes)


UNUSED = Use()


@dataclass
class Tally:
    """What the edges of bundles have carried of one mode, as arrays."""

    links: Links
    last: int
    task: int
    carried: np.ndarray  # int64 [M, 2], floats and bytes: at that moment,
    during: np.ndarray  # in that task,
    total: np.ndarray  # and in all

    def add(self, bundle: Bundle, now: int) -> None:
        """Note that a bundle crosses its edges."""
        weight = np.stack([bundle.floats, bundle.bytes], 1)
        self.carried = weight + (self.carried if self.last == now else 0)
        self.during = weight + (self.during if self.task == bundle.task else 0)
        self.total = self.total + weight
        self.last, self.task = now, bundle.task

    @property
    def uses(self) -> dict[tuple[Lane, Lane], Use]:
        """The same by edge."""
        ends = zip(self.links.senders.tolist(), self.links.receivers.tolist(), strict=True)
        weights = zip(*(one.tolist() for one in (self.carried, self.during, self.total)), strict=True)
        peers, clock = self.links.peers, (self.last, self.task)
        return {
            (peers[a], peers[b]): Use(*clock, *(Weight(*pair) for pair in found))
            for (a, b), found in zip(ends, weights, strict=True)
        }


@dataclass
class Ledger:
    """Every message of a run, in the order of posting: int64 rows of COLUMNS, where a word is its place in `words`.

    All stacks of a fleet write to one ledger. It knows what every directed edge (sender, receiver) has carried, in all
    and by each mode.
    """

    blocks: list[np.ndarray] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    noted: dict[tuple[Lane, Lane], Use] = field(default_factory=dict)  # what single mails have come to,
    parts: dict[tuple[Lane, Lane, str], Use] = field(default_factory=dict)  # of one mode,
    tallies: dict[str, list[Tally]] = field(default_factory=dict)  # and bundles, of one mode

    @classmethod
    def of(cls, rows: np.ndarray, words: Sequence[str], epochs: int) -> "Ledger":
        """The ledger that has these rows and words, of a run with so many epochs per task."""
        if not len(rows):
            return cls(words=list(words))
        ledger = cls([rows], list(words))
        crossed = rows[ledger.crossed]
        ledger.noted = {
            (Lane(seed, sender), Lane(seed, receiver)): use
            for (seed, sender, receiver), use in used(crossed, ("seed", "sender", "receiver"), epochs)
        }
        ledger.parts = {
            (Lane(seed, sender), Lane(seed, receiver), ledger.words[mode]): use
            for (seed, sender, receiver, mode), use in used(crossed, ("seed", "sender", "receiver", "mode"), epochs)
        }
        return ledger

    @property
    def uses(self) -> dict[tuple[Lane, Lane], Use]:
        """What every edge has carried so far."""
        self.settle()
        return self.noted

    @property
    def shares(self) -> dict[tuple[Lane, Lane, str], Use]:
        """What every edge has carried so far of each mode."""
        self.settle()
        return self.parts

    def settle(self) -> None:
        """Write what bundles have carried beside what single mails have."""
        for mode, tallies in self.tallies.items():
            for tally in tallies:
                for ends, use in tally.uses.items():
                    self.noted[ends] = self.noted.get(ends, UNUSED).beside(use)
                    self.parts[*ends, mode] = self.parts.get((*ends, mode), UNUSED).beside(use)
        self.tallies.clear()

    def use(self, sender: Lane, receiver: Lane) -> Use:
        """What an edge has carried so far."""
        return self.uses.get((sender, receiver), UNUSED)

    def share(self, sender: Lane, receiver: Lane, mode: str) -> Use:
        """What it has carried so far of one mode."""
        return self.shares.get((sender, receiver, mode), UNUSED)

    def carry(self, mail: Mail, now: int) -> None:
        """Note that a message crosses its edge."""
        ends = mail.sender, mail.receiver
        self.noted[ends] = self.use(*ends).then(mail, now)
        self.parts[*ends, mail.mode] = self.share(*ends, mail.mode).then(mail, now)

    def carry_all(self, bundle: Bundle, now: int) -> None:
        """Note that a bundle crosses its edges."""
        tallies, nothing = self.tallies.setdefault(bundle.mode, []), np.zeros((len(bundle), 2), np.int64)
        for tally in tallies:
            if tally.links is bundle.links:
                break
        else:
            tallies.append(tally := Tally(bundle.links, -1, -1, nothing, nothing, nothing))
        tally.add(bundle, now)

    def sent_by(self, lanes: Collection[Lane]) -> "Ledger":
        """A ledger without rows that knows what edges from some lanes have carried."""
        uses = {ends: use for ends, use in self.uses.items() if ends[0] in lanes}
        return Ledger(noted=uses, parts={name: use for name, use in self.shares.items() if name[0] in lanes})

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

    def write_all(self, lot: Lot) -> None:
        """Write a row for each mail of a bundle and its verdict."""
        bundle, links = lot.bundle, lot.bundle.links
        if not len(bundle):
            return
        mode, kind = self.place(bundle.mode), self.place(bundle.kind)
        verdicts = [self.place(word) for word in lot.verdicts] if lot.verdicts else self.place(ACCEPTED)
        ends = links.lanes[links.senders], links.lanes[links.receivers]
        columns = (
            *(ends[0][:, 0], bundle.task, bundle.epoch, ends[0][:, 1], ends[1][:, 1]),
            *(mode, kind, bundle.items, bundle.floats, bundle.bytes, verdicts),
        )
        rows = np.empty((len(bundle), len(COLUMNS)), np.int64)
        for at, column in enumerate(columns):
            rows[:, at] = column
        self.blocks.append(rows)

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
