"""What a run directory says of its agents beside their weights, so that each can be taken out without the data.

source.json       what rows are like: shape, columns, units, names of classes and sites
agents.parquet    a row per agent: seed, agent, its site and kind, the classes that the outputs of each task stand for,
                  which of these count, training rows, how it scales what it reads and the numbers that it predicts
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.agents.world import World
from shoal.agents.worlds import judged, units
from shoal.data.rows import Source
from shoal.data.scaling import Scaling
from shoal.data.sites import site_of
from shoal.data.tasks import Lane
from shoal.models.heads import OPEN
from shoal.runs import files
from shoal.runs.files import RecordError, content, of_today, reason, text
from shoal.runs.record import Record

SOURCE, AGENTS = "source.json", "agents.parquet"
NUMBERS, LISTS = pl.List(pl.Float64), pl.List(pl.List(pl.Int64))
SCHEMA: dict[str, Any] = {
    "seed": pl.Int64, "agent": pl.Int64, "kind": pl.String, "site": pl.String, "outputs": LISTS, "known": LISTS,
    "rows": pl.List(pl.Int64), "shift": NUMBERS, "spread": NUMBERS, "target_shift": NUMBERS, "target_spread": NUMBERS,
}  # fmt: skip


@dataclass(frozen=True)
class Met:
    """A task that an agent has learned: the classes that the outputs of its head stand for, which of these outputs
    count, and how many rows it was trained on."""

    outputs: tuple[int, ...]
    known: tuple[int, ...]
    rows: int


@dataclass(frozen=True, eq=False)
class Told:
    """What is known of an agent beside its weights."""

    lane: Lane
    kind: str
    site: str
    tasks: tuple[Met, ...]
    scaling: Scaling | None  # of what it reads; None: as the source says for all
    units: tuple[np.ndarray, np.ndarray] | None  # by which numbers to predict are moved and stretched


def note(record: Record, fleet: Sequence[World]) -> None:
    """Write what there is to say of all agents, once."""
    if (record.folder / AGENTS).exists():
        return
    record.write(SOURCE, text(Source.of(fleet[0].bank, record.settings.dataset).about()))
    names = list(record.settings.members()) if record.settings.kinds else [""]
    rows = [row_of(one) for kind, world in zip(names, fleet, strict=True) for one in told_by(world, kind)]
    record.table(AGENTS.removesuffix(".parquet"), pl.DataFrame(rows, SCHEMA, orient="row").sort("seed", "agent"))


def row_of(told: Told) -> tuple[Any, ...]:
    """What there is to say of an agent, in the order of the table."""
    scale = told.scaling
    return (
        *told.lane,
        told.kind,
        told.site,
        [list(task.outputs) for task in told.tasks],
        [list(task.known) for task in told.tasks],
        [task.rows for task in told.tasks],
        [] if scale is None else scale.shift.ravel().tolist(),
        [] if scale is None else scale.spread.ravel().tolist(),
        [] if told.units is None else told.units[0].tolist(),
        [] if told.units is None else told.units[1].tolist(),
    )


def told_by(world: World, kind: str = "") -> Iterator[Told]:
    """What a world says of each of its lanes."""
    open_, bank = world.opened(world.settings.tasks.count).get(OPEN), world.bank
    for at, (lane, stream, scale) in enumerate(zip(world.lanes, world.streams, world.scales, strict=True)):
        met = []
        for number, task in enumerate(stream[: stream.end]):
            known = range(len(task.outputs)) if open_ is None else open_[at, number].nonzero()[:, 0].tolist()
            met.append(Met(task.outputs, tuple(known), len(task.train)))
        aims = None if bank.targets is None else units(bank, judged(world.settings, stream))
        yield Told(lane, kind, site_of(bank.sources, lane.agent), tuple(met), scale, aims)


def read(folder: Path) -> tuple[Source, list[Told]]:
    """What a run directory says of its agents."""
    of_today(folder)
    source = Source.read(content(folder / SOURCE))
    try:
        table = pl.read_parquet(io.BytesIO(files.read_whole(folder / AGENTS, files.TABLE)))
        return source, [told(source, row) for row in table.iter_rows(named=True)]
    except (*files.UNREADABLE, pl.exceptions.PolarsError, KeyError, TypeError) as error:
        raise RecordError(f"cannot read {folder / AGENTS}: {error}; restore it, or run it again") from None


def told(source: Source, row: dict[str, Any]) -> Told:
    """What a row of the table says."""
    shape = (-1, *[1] * (len(source.shape) - 1))
    scale = [np.array(row[name], np.float64).reshape(shape) for name in ("shift", "spread")] if row["shift"] else None
    tasks = zip(row["outputs"], row["known"], row["rows"], strict=True)
    return Told(
        Lane(row["seed"], row["agent"]),
        row["kind"],
        row["site"],
        tuple(Met(tuple(outputs), tuple(known), rows) for outputs, known, rows in tasks),
        None if scale is None else Scaling(source.scale, sum(row["rows"]), *scale),
        None if not source.numeric else tuple(np.array(row[f"target_{one}"]) for one in ("shift", "spread")),  # type: ignore[arg-type]
    )


def predictions_of(folder: Path, task: int) -> pl.DataFrame:
    """What agents said of test rows at the end of a task, counted from 1."""
    there = sorted(int(one.stem.partition("-")[2]) for one in folder.glob("predictions-*.parquet"))
    if not there:
        raise RecordError(
            f"{folder} keeps no predictions; run it again with record.predictions = true, in another folder"
        )
    if isinstance(task, bool) or task not in there:
        raise RecordError(f"{folder} keeps predictions of the ends of tasks {there[0]} to {there[-1]}, got {task!r}")
    place = folder / f"predictions-{task}.parquet"
    try:
        return pl.read_parquet(io.BytesIO(files.read_whole(place, files.TABLE)))
    except (*files.UNREADABLE, pl.exceptions.PolarsError) as error:
        raise RecordError(f"cannot read {place}: {reason(error)}; restore it, or run it again") from None
