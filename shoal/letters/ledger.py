"""The ledger: the book in which every message of a run is written, and what every edge has carried."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import NamedTuple

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Links, Lot
from shoal.letters.mail import ACCEPTED, UNDER_WAY, UNSENT, Mail, identify

COLUMNS = (
    *("seed", "task", "epoch", "sender", "receiver", "mode", "kind", "items", "floats", "bytes", "verdict"),
    "late",  # how many epochs later its receiver saw it; of what never left: how many more were as this one is
)
COUNTS = tuple(COLUMNS.index(name) for name in ("items", "floats", "bytes"))
VERDICT, LATE = COLUMNS.index("verdict"), COLUMNS.index("late")
WORDS = ("mode", "kind", "verdict")  # columns of words; all others are numbers
SETTLING = Lock()


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


class Settled(NamedTuple):
    """What a receiver says of a mail that has been under way."""

    id: str
    verdict: str
    late: int  # epochs


TALLIES = 8  # sets of edges of which a mode's bundles are counted as arrays


@dataclass
class Tally:
    """What the edges of bundles have carried of one mode, as arrays."""

    links: Links
    last: np.ndarray  # int64 [M]: when; -1: never
    task: np.ndarray  # int64 [M]: then
    carried: np.ndarray  # int64 [M, 2], floats and bytes: at that moment,
    during: np.ndarray  # in that task,
    total: np.ndarray  # and in all

    @classmethod
    def of(cls, links: Links) -> "Tally":
        """Nothing yet."""
        nothing = [np.zeros((len(links), 2), np.int64) for _ in range(3)]
        return cls(links, *np.full((2, len(links)), -1), *nothing)

    def add(self, bundle: Bundle, now: int) -> None:
        """Note that a bundle crosses its edges."""
        at: np.ndarray | slice = slice(None) if bundle.links is self.links else bundle.links.places
        weight = np.stack([bundle.floats, bundle.bytes], 1)
        self.carried[at] = weight + self.carried[at] * (self.last[at] == now)[:, None]
        self.during[at] = weight + self.during[at] * (self.task[at] == bundle.task)[:, None]
        self.total[at] += weight
        self.last[at], self.task[at] = now, bundle.task

    @property
    def uses(self) -> dict[tuple[Lane, Lane], Use]:
        """The same by edge."""
        some = np.flatnonzero(self.last >= 0)
        columns = self.links.senders, self.links.receivers, self.last, self.task, self.carried, self.during, self.total
        peers = self.links.peers
        return {
            (peers[a], peers[b]): Use(last, task, *(Weight(*pair) for pair in weights))
            for a, b, last, task, *weights in zip(*(one[some].tolist() for one in columns), strict=True)
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
        if rows.shape[1] < len(COLUMNS):  # an earlier version knew nothing of late mail
            rows = np.pad(rows, [(0, 0), (0, len(COLUMNS) - rows.shape[1])])
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
        """Write what bundles have carried beside what single mails have, once, whichever thread asks first."""
        if not self.tallies:
            return
        with SETTLING:
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
        tallies, links = self.tallies.setdefault(bundle.mode, []), bundle.links.root
        for tally in tallies:
            if tally.links is links:
                break
        else:
            if len(tallies) == TALLIES:  # of a graph that changes all the time, each moment would have one
                self.settle()
                tallies = self.tallies.setdefault(bundle.mode, [])
            tallies.append(tally := Tally.of(links))
        tally.add(bundle, now)

    def copy(self) -> "Ledger":
        """The same ledger for somebody else to write in."""
        self.settle()
        found = Ledger(list(self.blocks), list(self.words), dict(self.noted), dict(self.parts), totals=self.totals)
        found.latest, found.open = dict(self.latest), dict(self.open)
        return found

    def sent_by(self, lanes: Collection[Lane]) -> "Ledger":
        """A ledger without rows that knows what edges from some lanes have carried, and what has come to these."""
        uses = {ends: use for ends, use in self.uses.items() if ends[0] in lanes}
        parts = {name: use for name, use in self.shares.items() if name[0] in lanes}
        return Ledger(
            noted=uses, parts=parts, latest={name: at for name, at in self.latest.items() if name[1] in lanes}
        )

    @property
    def rows(self) -> np.ndarray:
        """All rows in one block."""
        if len(self.blocks) != 1:
            self.blocks = [np.concatenate(self.blocks) if self.blocks else np.zeros((0, len(COLUMNS)), np.int64)]
        return self.blocks[0]

    def write(self, posted: Iterable[tuple[Mail, str]]) -> None:
        """Write a row for each mail and its verdict; one with their sums for all that never left and are alike, so that
        no sender fills the book."""
        rows: list[list[int]] = []
        copies: dict[tuple[int, ...], list[int]] = {}  # rows of what never left, by all that they have in common
        first = sum(map(len, self.blocks))
        for mail, verdict in posted:
            if verdict == UNDER_WAY:
                self.open[mail.id] = first + len(rows)
            head = mail.sender.seed, mail.task, mail.epoch, mail.sender.agent, mail.receiver.agent
            words, counts = (self.place(mail.mode), self.place(mail.kind)), (mail.items, mail.floats, mail.bytes)
            row = [*head, *words, *counts, self.place(verdict), 0]
            like = copies.setdefault((*head, *words, row[VERDICT]), row) if verdict in UNSENT else row
            if like is row:
                rows.append(row)
                continue
            for at, more in zip(COUNTS, counts, strict=True):
                like[at] += more
            like[LATE] += 1
        if rows:
            self.blocks.append(np.array(rows, np.int64))

    def write_all(self, lot: Lot) -> None:
        """Write a row for each mail of a bundle and its verdict."""
        bundle, links = lot.bundle, lot.bundle.links
        if not len(bundle):
            return
        mode, kind = self.place(bundle.mode), self.place(bundle.kind)
        place = {word: self.place(word) for word in dict.fromkeys(lot.verdicts or [ACCEPTED])}
        verdicts = [place[word] for word in lot.verdicts] if lot.verdicts else place[ACCEPTED]
        ends = links.lanes[links.senders], links.lanes[links.receivers]
        columns = (
            *(ends[0][:, 0], bundle.task, bundle.epoch, ends[0][:, 1], ends[1][:, 1]),
            *(mode, kind, bundle.items, bundle.floats, bundle.bytes, verdicts, 0),
        )
        rows = np.empty((len(bundle), len(COLUMNS)), np.int64)
        for at, column in enumerate(columns):
            rows[:, at] = column
        if UNDER_WAY in place:
            first = sum(map(len, self.blocks))
            self.open |= {bundle.id(at): first + at for at, word in enumerate(lot.verdicts) if word == UNDER_WAY}
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
