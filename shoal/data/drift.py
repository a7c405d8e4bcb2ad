"""Drift: an agent's rows come as one stream, and its tasks end where a detector says that the stream has changed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from shoal.data.bank import Bank, View
from shoal.data.detectors import made
from shoal.data.draws import private
from shoal.data.labelled import with_label
from shoal.data.sites import named
from shoal.data.tasks import Lane, Stream, Task
from shoal.errors import SettingsError
from shoal.own_code import running
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks

if TYPE_CHECKING:
    import polars as pl

KINDS = ("train", "validation", "test")
UNKNOWN = ("time",)  # scenarios whose own cuts are no change that anybody knows of
FLAT = 1e-9  # rows that vary less do not vary
COLUMNS = {"seed": int, "agent": int, "row": int, "what": str, "delay": int, "rows": int}


class Line(NamedTuple):
    """All rows of a lane as they come: which of the bank, of what kind, of which of the tasks that the file or the
    scenario knows, and where the detector saw a change, as numbers of rows that are not for testing."""

    rows: np.ndarray
    kinds: np.ndarray  # places in KINDS
    tasks: np.ndarray
    found: tuple[int, ...]  # places in the line


class Drift(Tasks):
    """Tasks end where a detector on the agent's own stream says so, and not where the file does. The stream is that of
    another scenario, `tasks.of`, row after row; nobody tells the detector where its tasks end."""

    detector: str = Field(
        "page-hinkley",
        description="what says that the stream has changed: page-hinkley, adwin or kswin (of the package river), or "
        "your own as package.module:Name",
    )
    of: str = Field("time", description="the scenario whose rows come as one stream")
    watch: Literal["rows", "errors"] = Field(
        "rows",
        description="what the detector sees: how far a row lies from the first ones of the task, or whether the "
        "nearest mean of a class is wrong about it (rows with labels alone)",
    )
    least: PositiveInt = Field(30, description="rows of a task before its end is looked for: what is usual in it")

    @staticmethod
    def view(bank: Bank, tasks: Any) -> View | None:
        """How a bank is seen: as by the scenario whose rows these are."""
        inner = inside(tasks)
        look = getattr(scenario(tasks.of), "view", None)
        found: View | None = None if look is None else look(bank, inner)
        return found

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        lines = self.lines(bank, settings, lanes)
        return tuple(Stream(tuple(pieces(bank, line, lane))) for lane, line in zip(lanes, lines, strict=True))

    def lines(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> list[Line]:
        """The streams of some lanes before they are cut, and where."""
        from shoal.data.scenarios import dealt  # which has this in its table

        private(self)
        if self.of == self.scenario:
            raise SettingsError('tasks.of = "drift" would look for drift in itself; name another scenario')
        if self.watch == "errors" and bank.targets is not None:
            raise SettingsError(
                f'tasks.watch = "errors" counts wrong classes, and `{bank.name}` has numbers to predict; say '
                'tasks.watch="rows"'
            )
        whole = dealt(scenario(self.of), bank, settings.model_copy(update={"tasks": inside(self)}), lanes)
        return [self.line(bank, lane, stream) for lane, stream in zip(lanes, whole, strict=True)]

    def line(self, bank: Bank, lane: Lane, stream: Stream) -> Line:
        """A lane's stream, row after row: those of a task in the order of time or, where there is none, at random."""
        rows, kinds, tasks = [], [], []
        for at, task in enumerate(stream):
            parts = [getattr(task, name) for name in KINDS]
            mine = np.concatenate(parts)
            kind = np.repeat(np.arange(len(KINDS)), [len(part) for part in parts])
            order = key(*lane, "drift", at).permutation(len(mine))
            if bank.time is not None:
                order = np.argsort(bank.time[bank.base(mine)], kind="stable")
            rows.append(mine[order])
            kinds.append(kind[order])
            tasks.append(np.full(len(mine), at))
        every = Line(np.concatenate(rows), np.concatenate(kinds), np.concatenate(tasks), ())
        return every._replace(found=self.changes(bank, lane, every))

    def changes(self, bank: Bank, lane: Lane, line: Line) -> tuple[int, ...]:
        """Where the detector sees the stream change. It starts anew at each change; rows for testing it does not see.
        Every part has rows of all kinds; after `tasks.count` parts nobody looks any more."""
        seen = np.flatnonzero(line.kinds != KINDS.index("test"))
        known = with_label(bank, self, lane, line.rows[seen])
        found: list[int] = []
        begun = 0  # in `seen`
        while len(found) < self.count - 1:
            signal = self.signal(bank, line.rows[seen[begun:]], known[begun:])
            at = first_change(self.detector, signal)
            while at is not None and not parted(line, found[-1] if found else 0, int(seen[begun + at])):
                at = at + 1 if begun + at + 1 < len(seen) else None
            if at is None:
                break
            begun += at
            found.append(int(seen[begun]))
        return tuple(found)

    def signal(self, bank: Bank, rows: np.ndarray, known: np.ndarray) -> Iterator[tuple[int, float]]:
        """What the detector is told of rows in their order, from 0 to 1, with their places; nothing of the first."""
        if self.watch == "errors":
            yield from self.errors(bank, rows, known)
        if self.watch == "errors" or len(rows) <= self.least:
            return
        x = bank.take(rows[: self.least]).reshape(self.least, -1).astype(np.float64)
        mean = x.mean(0)
        usual = np.square(x - mean).sum(1)
        # Rows that made the mean lie nearer to it than others, by a part of one in their number.
        middle, spread = usual.mean() * (len(x) + 1) / max(1, len(x) - 1), usual.std() + FLAT * (1 + usual.mean())
        for start in range(self.least, len(rows), 256):
            some = bank.take(rows[start : start + 256]).astype(np.float64).reshape(-1, len(mean))
            far = (np.square(some - mean).sum(1) - middle) / spread
            for at, one in enumerate(1 / (1 + np.exp(-far.clip(-30, 30)))):
                yield start + at, float(one)

    def errors(self, bank: Bank, rows: np.ndarray, known: np.ndarray) -> Iterator[tuple[int, float]]:
        """Whether the mean of another class is nearest, row after row; then the row counts for the mean of its own."""
        sums, counts = dict[int, np.ndarray](), dict[int, int]()
        for at, (row, there) in enumerate(zip(rows, known, strict=True)):
            if not there:
                continue
            x, label = bank.take(row[None]).ravel().astype(np.float64), int(bank.labels[bank.base(row)])
            if len(counts) > 1 and at >= self.least:
                near = min(sums, key=lambda one: float(np.square(x - sums[one] / counts[one]).sum()))
                yield at, float(near != label)
            sums[label] = sums.get(label, 0) + x
            counts[label] = counts.get(label, 0) + 1


def scenario(name: str) -> Any:
    """The scenario whose rows come as one stream."""
    from shoal.data.scenarios import SCENARIOS

    return SCENARIOS.find(name)


def inside(tasks: Drift) -> Tasks:
    """The settings of that scenario: what is said of all tasks, and its own as they usually are."""
    from shoal.data.scenarios import kind_of

    kind = kind_of(tasks.of)
    said = {name: getattr(tasks, name) for name in Tasks.model_fields if name != "scenario"}
    return kind.model_validate({**said, "scenario": tasks.of})


def first_change(detector: str, signal: Iterator[tuple[int, float]]) -> int | None:
    """The place of the first number at which a fresh detector says that something has changed."""
    watcher = made(detector)
    with running(type(watcher), f"the detector `{detector}`"):
        for at, one in signal:
            watcher.update(one)
            if watcher.drift_detected:
                return at
    return None


def parted(line: Line, begin: int, at: int) -> bool:
    """Have the rows before and behind a place all kinds of rows?"""
    before, behind = line.kinds[begin:at], line.kinds[at:]
    return all((part == kind).any() for part in (before, behind) for kind in range(len(KINDS)))


def pieces(bank: Bank, line: Line, lane: Lane) -> Iterator[Task]:
    """The tasks of a lane, cut where the detector said."""
    cuts = [0, *line.found, len(line.rows)]
    for begin, end in pairwise(cuts):
        rows, kinds = line.rows[begin:end], line.kinds[begin:end]
        parts = [rows[kinds == kind] for kind in range(len(KINDS))]
        if not all(len(part) for part in parts):
            raise SettingsError(
                f"the stream of {named(bank.sources, lane.agent)} of seed {lane.seed} in `{bank.name}` has no "
                f"{KINDS[[len(part) for part in parts].index(0)]} rows; give it more"
            )
        yield Task(tuple(int(one) for one in np.unique(bank.labels[bank.base(rows)])), *parts)


def boundaries(bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> "pl.DataFrame":
    """A row per boundary of each lane's stream: where it was `detected` or, where that is known, is `true`, counted in
    rows that are not for testing; after how many of them a true one was found (null: not before the next), and how many
    rows the stream has. A detected one that found nothing is a `false alarm`."""
    tasks, rows = settings.tasks, []
    assert isinstance(tasks, Drift)
    for lane, line in zip(lanes, tasks.lines(bank, settings, lanes), strict=True):
        shown = line.kinds != KINDS.index("test")
        place = shown.cumsum() - shown
        total, length = int(shown.sum()), len(line.rows)
        true = [] if tasks.of in UNKNOWN else (np.flatnonzero(np.diff(line.tasks)) + 1).tolist()
        hits: set[int] = set()
        for one, next_ in zip(true, [*true[1:], length], strict=False):
            hit = next((at for at in line.found if one <= at < next_), None)
            hits |= {hit} if hit is not None else set()
            delay = None if hit is None else int(place[hit] - place[one])
            rows.append((lane.seed, lane.agent, int(place[one]), "true", delay, total))
        for at in line.found:
            what = "detected" if at in hits or tasks.of in UNKNOWN else "false alarm"
            rows.append((lane.seed, lane.agent, int(place[at]), what, None, total))
    import polars as pl  # a list of scenarios does not wait for it

    return pl.DataFrame(rows, schema=COLUMNS, orient="row")
