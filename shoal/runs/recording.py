"""What is recorded of a run, table by table, on its way and at its end."""

import io
from collections.abc import Sequence
from typing import Any

import polars as pl

from shoal.agents.evaluate import others, squared_error, within
from shoal.agents.lanes import streams_of
from shoal.agents.predicting import predicted
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.drift import Drift, boundaries
from shoal.data.overlap import mean_iou
from shoal.data.sites import names
from shoal.data.tasks import Lane
from shoal.runs import files
from shoal.runs.conditions import consensus, links
from shoal.runs.files import text
from shoal.runs.record import Record
from shoal.runs.summaries import summarise, told
from shoal.runs.tables import (
    accounts,
    accuracies,
    candidates,
    growth,
    posted,
    spending,
    strangers,
    training,
    validated,
)
from shoal.settings.groups import Settings


def tables(record: Record, stacks: Sequence[Stack]) -> None:
    """Write the records up to now."""
    record.table("accuracy", accuracies(record.settings, stacks))
    record.table("training", training(record.settings, stacks))
    if record.settings.clock.counts:
        record.table("time", spending(record.settings, stacks))
    record.table("growth", growth(record.settings, stacks))
    if any(policy.noise for policy in record.settings.privacy.values()):
        record.table("privacy", accounts(record.settings, stacks))
    if record.settings.sharing:
        record.table("ledger", posted(record.settings, stacks[0].ledger))
        if record.settings.machine.ledger == "messages":
            record.table("links", links(record.settings, stacks[0].ledger, clock(record.settings, stacks[0])))
    if any(mode.offers for mode in record.settings.sharing):
        record.table("candidates", candidates(record.settings, stacks))


def agree(record: Record, worlds: Sequence[World], stacks: Sequence[Stack]) -> None:
    """Add to the records how far agents are from each other at the end of a task. What was written of it and of
    later ones, before a run went on from an earlier checkpoint, is written anew."""
    if not record.settings.sharing:
        return
    found = consensus(record.settings, stacks, [dict(world.model.body) for world in worlds])
    try:
        before = pl.read_parquet(io.BytesIO(files.read_whole(record.folder / "consensus.parquet")))
    except (*files.UNREADABLE, pl.exceptions.PolarsError):
        before = found.clear()
    kept = before.filter(pl.col("task") < stacks[0].task - 1) if before.schema == found.schema else found.clear()
    record.table("consensus", pl.concat([kept, found]))


def predict(record: Record, worlds: Sequence[World], stacks: Sequence[Stack]) -> pl.DataFrame | None:
    """Write what agents say of test rows at the end of a task, if it is to be kept. Joint agents are not asked, nor
    those that diverged."""
    early = stacks[0].task < record.settings.tasks.initial
    if not record.settings.record.predictions or early or stacks[0].lanes != worlds[0].lanes:
        return None
    going = [left(*pair) for pair in zip(worlds, stacks, strict=True) if not pair[1].gone.all()]
    found = predicted(going)
    record.table(f"predictions-{stacks[0].task}", found)
    return found


def finish(record: Record, worlds: Sequence[World], stacks: Sequence[Stack]) -> dict[str, Any]:
    """Write the last records and the summary, which says that the run is finished."""
    record.save(stacks)
    tables(record, stacks)
    agree(record, worlds, stacks)
    silent = frozenset[Lane]().union(*(stack.silent for stack in stacks))
    unmet = [one for one in others(list(zip(worlds, stacks, strict=True))) if one.lane not in silent]
    record.table("others", strangers(record.settings, unmet))
    said = predict(record, worlds, stacks)
    summary = summarise(record.settings, stacks, unmet, said, names(worlds[0].bank.sources, record.settings.agents))
    if said is not None and summary.get("confusion_matrix") is not None:
        summary["classes"] = list(worlds[0].bank.classes)
    going = [left(*pair) for pair in zip(worlds, stacks, strict=True) if not pair[1].gone.all()]
    record.table("validation", validated(going))
    if isinstance(record.settings.tasks, Drift):
        lanes = sorted(streams_of(worlds))
        record.table("drift", boundaries(worlds[0].bank, record.settings, lanes))
    wrong = squared_error(going)
    summary |= {} if wrong is None else {"mean_squared_error": wrong}
    summary |= told(within(going), [lane.seed for _, stack in going for lane in stack.lanes])
    summary["overlap"] = mean_iou(streams_of(worlds))
    summary |= {"seconds": round(record.elapsed(), 1), "out": str(record.folder)}
    record.forget()
    record.write(record.summary.name, text(summary))
    return summary


def clock(settings: Settings, stack: Stack) -> int:
    """How many epochs have passed since the first task."""
    return stack.task * settings.learner.epochs + stack.epoch


def left(world: World, stack: Stack) -> tuple[World, Stack]:
    """The lanes of a stack that have not diverged."""
    rows = (~stack.gone).nonzero().flatten().tolist()
    if len(rows) == len(stack.lanes):
        return world, stack
    return world.piece(rows), stack.take(rows, [stack.lanes[row] for row in rows])
