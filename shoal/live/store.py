"""What an agent on a host of its own must not forget: letters to be sent, letters that have come, and its journal.

One SQLite file. A letter that has come is acknowledged when it is in here, and its number with it, so that none is
taken twice. What is done with letters is written in the journal before it is done: the last checkpoint and the journal
after it give the agent as it was, bit for bit, and so does the first one and all of it.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import UserError

TABLES = """
CREATE TABLE IF NOT EXISTS links (peer INTEGER PRIMARY KEY, sent INTEGER NOT NULL DEFAULT 0,
  come INTEGER NOT NULL DEFAULT 0, acknowledged INTEGER NOT NULL DEFAULT 0, bytes_sent INTEGER NOT NULL DEFAULT 0,
  bytes_come INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS outbox (peer INTEGER, number INTEGER, what TEXT, keep TEXT, frame BLOB,
  PRIMARY KEY (peer, number));
CREATE TABLE IF NOT EXISTS inbox (at INTEGER PRIMARY KEY, peer INTEGER, number INTEGER, slip TEXT, body BLOB,
  taken INTEGER NOT NULL DEFAULT 0, UNIQUE (peer, number));
CREATE INDEX IF NOT EXISTS waiting ON inbox (taken, at);
CREATE TABLE IF NOT EXISTS journal (n INTEGER PRIMARY KEY, turn TEXT, what TEXT, letters TEXT);
CREATE TABLE IF NOT EXISTS points (task INTEGER, epoch INTEGER, state TEXT, PRIMARY KEY (task, epoch));
CREATE TABLE IF NOT EXISTS refused (at REAL, peer INTEGER, why TEXT, count INTEGER, PRIMARY KEY (peer, why));
CREATE TABLE IF NOT EXISTS tasks (task INTEGER PRIMARY KEY, rows INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS given_up (peer INTEGER, number INTEGER, why TEXT, PRIMARY KEY (peer, number));
"""
NEWEST, EACH, QUESTION = "newest", "each", "question"  # what is kept of letters that wait: see `Store.put`
FAREWELL = "farewell"  # the last letter: its sender has learned its stream
FULL = "outbox full"
OFTEN = 1.0  # seconds between two writings of what was refused
OVERTAKEN = "overtaken"
SOME = 200  # letters that are emptied at once, so that an agent at work need not wait for long


class Entry(NamedTuple):
    """A line of the journal: at which turn what was done with which letters, by their places in the inbox."""

    n: int
    turn: str
    what: str
    letters: tuple[int, ...]


class Waiting(NamedTuple):
    """A letter that is to be sent."""

    peer: int
    number: int
    frame: bytes


class Come(NamedTuple):
    """A letter that has come, as it lies in the inbox."""

    at: int
    peer: int
    number: int
    slip: dict[str, Any]
    body: bytes


class Store:
    """The file. Threads may use it at the same time."""

    def __init__(self, file: Path | str, room: int = 64 * 2**20, safe: bool = True) -> None:
        self.file, self.room = file, room  # room: bytes that wait for one neighbour, at most
        self.lock = threading.RLock()
        self.noted: dict[tuple[int, str], int] = {}  # refusals that are not written yet
        self.flushed = 0.0
        try:
            self.base = sqlite3.connect(file, check_same_thread=False, isolation_level=None, timeout=10)
            self.base.execute("PRAGMA journal_mode=WAL")
            self.base.execute(f"PRAGMA synchronous={'FULL' if safe else 'OFF'}")
            self.base.executescript(TABLES)
        except sqlite3.Error as error:
            raise UserError(f"cannot open {file}: {error}; make room or repair it, nothing was lost") from None

    def close(self) -> None:
        with self.lock:
            if self.noted:
                self.flush(time.time())
            self.base.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All of what is written inside is kept, or nothing."""
        with self.lock:
            try:
                self.base.execute("BEGIN IMMEDIATE")
                try:
                    yield self.base
                except BaseException:
                    if self.base.in_transaction:  # a full disk has ended it already
                        self.base.execute("ROLLBACK")
                    raise
                self.base.execute("COMMIT")
            except sqlite3.Error as error:
                raise UserError(
                    f"cannot write {self.file}: {error}; what was written before is whole: make room, then start the "
                    "agent again"
                ) from None

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.lock:
            return self.base.execute(query, values).fetchall()

    # Letters to be sent

    def put(self, letters: Sequence[tuple[int, int, str, str, bytes]]) -> list[tuple[int, int]]:
        """Keep letters (neighbour, number, what they are, what is kept of such, frame) until they are acknowledged.
        Those that were put before a crash are known by their numbers. Of what is of use only when new, a newer one
        takes the place of one that still waits; a new question takes the place of an old one. Returns the letters that
        are given up for that, or because there is no room."""
        gone: list[tuple[int, int]] = []
        with self.writing() as base:
            for peer, number, what, keep, frame in letters:
                base.execute("INSERT OR IGNORE INTO links (peer) VALUES (?)", (peer,))
                ((high,),) = base.execute("SELECT sent FROM links WHERE peer = ?", (peer,)).fetchall()
                if number <= high:
                    continue
                if keep in (NEWEST, QUESTION):
                    old = base.execute(
                        "SELECT number FROM outbox WHERE peer = ? AND what = ? AND keep = ?", (peer, what, keep)
                    ).fetchall()
                    gone += [(peer, one) for (one,) in old]
                    base.executemany(
                        "DELETE FROM outbox WHERE peer = ? AND number = ?", [(peer, one) for (one,) in old]
                    )
                    base.executemany(
                        "INSERT OR IGNORE INTO given_up VALUES (?, ?, ?)", [(peer, one, OVERTAKEN) for (one,) in old]
                    )
                base.execute("UPDATE links SET sent = ? WHERE peer = ?", (number, peer))
                ((waiting,),) = base.execute(
                    "SELECT COALESCE(SUM(LENGTH(frame)), 0) FROM outbox WHERE peer = ?", (peer,)
                ).fetchall()
                if keep and waiting + len(frame) > self.room:
                    base.execute("INSERT OR IGNORE INTO given_up VALUES (?, ?, ?)", (peer, number, FULL))
                    gone.append((peer, number))
                    continue
                base.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", (peer, number, what, keep, frame))
        return gone

    def next(self, peer: int) -> Waiting | None:
        """The first letter that waits for a neighbour."""
        found = self.rows("SELECT peer, number, frame FROM outbox WHERE peer = ? ORDER BY number LIMIT 1", peer)
        return Waiting(*found[0]) if found else None

    def acknowledged(self, letter: Waiting, refused: str = "") -> None:
        """A letter has come to its receiver, who keeps it, or refuses it with a word."""
        with self.writing() as base:
            base.execute("DELETE FROM outbox WHERE peer = ? AND number = ?", (letter.peer, letter.number))
            if refused:
                base.execute("INSERT OR IGNORE INTO given_up VALUES (?, ?, ?)", (letter.peer, letter.number, refused))
            else:
                base.execute(
                    "UPDATE links SET acknowledged = MAX(acknowledged, ?), bytes_sent = bytes_sent + ? WHERE peer = ?",
                    (letter.number, len(letter.frame), letter.peer),
                )

    def owed(self) -> set[int]:
        """The neighbours for whom something waits that they need: who has learned its stream needs a farewell alone."""
        needed = "what = ? OR peer NOT IN (SELECT peer FROM links WHERE done)"
        return {peer for (peer,) in self.rows(f"SELECT DISTINCT peer FROM outbox WHERE {needed}", FAREWELL)}

    # Letters that have come

    def keep(self, peer: int, number: int, slip: str, body: bytes, done: bool) -> bool:
        """Keep a letter that has come, with its number; False: one of this number or a later one has come before."""
        with self.writing() as base:
            base.execute("INSERT OR IGNORE INTO links (peer) VALUES (?)", (peer,))
            ((high,),) = base.execute("SELECT come FROM links WHERE peer = ?", (peer,)).fetchall()
            if number <= high:
                return False
            base.execute("INSERT INTO inbox (peer, number, slip, body) VALUES (?, ?, ?, ?)", (peer, number, slip, body))
            base.execute(
                "UPDATE links SET come = ?, bytes_come = bytes_come + ?, done = MAX(done, ?) WHERE peer = ?",
                (number, len(body), int(done), peer),
            )
        return True

    def held(self, peer: int) -> tuple[int, int]:
        """The bytes of a neighbour's letters that nobody has taken yet, and how many they are."""
        ((size, count),) = self.rows(
            "SELECT COALESCE(SUM(LENGTH(body) + LENGTH(slip)), 0), COUNT(*) FROM inbox WHERE taken = 0 AND peer = ?",
            peer,
        )
        return size, count

    def refused(self, places: Sequence[int]) -> None:
        """Forget what letters held that are refused: they are refused again when all is done again."""
        with self.writing() as base:
            base.executemany("UPDATE inbox SET body = x'' WHERE at = ?", [(at,) for at in places])

    def untaken(self) -> list[Come]:
        """The letters that nobody has taken yet, as they came, without their bodies."""
        found = self.rows("SELECT at, peer, number, slip FROM inbox WHERE taken = 0 ORDER BY at")
        return [Come(at, peer, number, json.loads(slip), b"") for at, peer, number, slip in found]

    def letters(self, places: Sequence[int]) -> list[Come]:
        """Letters by their places in the inbox, in this order."""
        found = []
        for place in places:
            ((at, peer, number, slip, body),) = self.rows(
                "SELECT at, peer, number, slip, body FROM inbox WHERE at = ?", place
            )
            found.append(Come(at, peer, number, json.loads(slip), body))
        return found

    def slips(self) -> list[dict[str, Any]]:
        """What all letters say that have come, in their order."""
        return [json.loads(slip) for (slip,) in self.rows("SELECT slip FROM inbox ORDER BY at")]

    def done(self) -> set[int]:
        """The neighbours who have said that their streams are learned."""
        return {peer for (peer,) in self.rows("SELECT peer FROM links WHERE done = 1")}

    # The journal

    def entry(self, n: int) -> Entry | None:
        """A line of the journal."""
        found = self.rows("SELECT n, turn, what, letters FROM journal WHERE n = ?", n)
        if not found:
            return None
        at, turn, what, letters = found[0]
        return Entry(at, turn, what, tuple(json.loads(letters)))

    def write(self, n: int, turn: str, what: str, letters: Sequence[int]) -> None:
        """Write a line of the journal, and that its letters are taken."""
        with self.writing() as base:
            base.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", (n, turn, what, json.dumps(list(letters))))
            base.executemany("UPDATE inbox SET taken = 1 WHERE at = ?", [(at,) for at in letters])

    def mark(self, task: int, epoch: int, state: dict[str, Any]) -> None:
        """Note what is counted beside a checkpoint of a point of the stream."""
        with self.writing() as base:
            base.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", (task, epoch, json.dumps(state)))

    def marked(self, task: int, epoch: int) -> dict[str, Any] | None:
        """What was counted at a point of the stream."""
        found = self.rows("SELECT state FROM points WHERE task = ? AND epoch = ?", task, epoch)
        return dict(json.loads(found[0][0])) if found else None

    # Rows

    def tasks(self) -> list[tuple[int, str]]:
        """From how many rows each task so far was taken, and their digest."""
        return self.rows("SELECT rows, digest FROM tasks ORDER BY task")

    def take_tasks(self, tasks: Sequence[tuple[int, int, str]]) -> None:
        """Note tasks as taken: their numbers, how many rows they have, and their digests."""
        with self.writing() as base:
            base.executemany("INSERT INTO tasks VALUES (?, ?, ?)", tasks)

    def empty(self, until: int) -> tuple[int, int]:
        """Forget what letters held that lines of the journal before one have taken. Returns how many they are, and
        their bytes; the file keeps its size, and letters to come have the room."""
        named = [
            at for (said,) in self.rows("SELECT letters FROM journal WHERE n < ?", until) for at in json.loads(said)
        ]
        count = freed = 0
        for first in range(0, len(named), SOME):
            places = [(at,) for at in named[first : first + SOME]]
            with self.writing() as base:
                for place in places:
                    found = base.execute(
                        "SELECT LENGTH(body) FROM inbox WHERE at = ? AND body != x''", place
                    ).fetchone()
                    count, freed = count + (found is not None), freed + (found[0] if found else 0)
                base.executemany("UPDATE inbox SET body = x'' WHERE at = ?", places)
        return count, freed

    # Notes

    def refuse(self, peer: int, why: str, at: float) -> None:
        """Note that something of a neighbour was refused. How often is counted and written now and then, so that nobody
        fills the disk or keeps it busy."""
        with self.lock:
            self.noted[peer, why] = self.noted.get((peer, why), 0) + 1
            if time.monotonic() - self.flushed > OFTEN:
                self.flush(at)

    def flush(self, at: float) -> None:
        """Write how often something was refused."""
        with self.lock:
            noted, self.noted, self.flushed = self.noted, {}, time.monotonic()
            with self.writing() as base:
                base.executemany(
                    "INSERT INTO refused VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (peer, why) DO UPDATE SET count = count + excluded.count, at = excluded.at",
                    [(at, peer, why, count) for (peer, why), count in noted.items()],
                )

    def refusals(self) -> list[tuple[int, str, int]]:
        """What was refused of whom, why and how often."""
        if self.noted:
            self.flush(time.time())
        return [(peer, why, count) for peer, why, count in self.rows("SELECT peer, why, count FROM refused")]
