"""A run's records as tables, and its summary: views of the stack, made when they are written."""

from typing import Any

import numpy as np
import polars as pl

from shoal import metrics
from shoal.config import Settings
from shoal.evaluate import Foreign
from shoal.mail import ACCEPTED, AT_REST, COLUMNS, KINDS, OVER_BUDGET, VERDICTS
from shoal.stack import Stack, grid


def accuracies(settings: Settings, stack: Stack) -> pl.DataFrame:
    """A row per measurement."""
    values = stack.accuracy.numpy()
    lane, task, point, tested = np.nonzero(~np.isnan(values))
    seeds, agents = np.array(stack.lanes).T
    return pl.DataFrame(
        {
            "seed": seeds[lane],
            "agent": agents[lane],
            "task": task,
            "epoch": np.array(grid(settings.learner.epochs))[point],
            "tested": tested,
            "accuracy": values[lane, task, point, tested],
        }
    )


def growth(settings: Settings, stack: Stack) -> pl.DataFrame:
    """A row per trial of a module (none in monolithic nets)."""
    values = stack.trial.numpy()
    lane, task = np.nonzero(~np.isnan(values[:, :, 0]))
    seeds, agents = np.array(stack.lanes).T
    first = settings.net.basis - settings.tasks.initial  # slot of task t: see Modular.slot
    return pl.DataFrame(
        {
            "seed": seeds[lane],
            "agent": agents[lane],
            "task": task,
            "with": values[lane, task, 0],
            "without": values[lane, task, 1],
            "kept": stack.alive.cpu().numpy()[lane, first + task] if len(lane) else np.zeros(0, bool),
        }
    )


def posted(settings: Settings, stack: Stack) -> pl.DataFrame:
    """A row per message, in the order of posting."""
    rows = {name: stack.ledger.column(name) for name in COLUMNS}
    words = {"mode": tuple(mode.mode for mode in settings.sharing), "kind": KINDS, "verdict": VERDICTS}
    columns = {
        name: pl.Series(np.array(words[name])[values] if len(values) else [], dtype=pl.String)
        if name in words
        else pl.Series(values)
        for name, values in rows.items()
    }
    return pl.DataFrame(columns)


def traffic(stack: Stack) -> dict[str, Any]:
    """What sharing cost: messages that crossed an edge (their receiver may have refused them), and those that did not.

    Per edge and task: for every edge and every task in which a message was posted on it.
    """
    ledger = stack.ledger
    verdict = ledger.column("verdict")
    crossed = ~np.isin(verdict, (AT_REST, OVER_BUDGET))
    uses = len(np.unique(np.stack([ledger.column(name) for name in ("seed", "sender", "receiver", "task")], 1), axis=0))
    total = {name: int(ledger.column(name)[crossed].sum()) for name in ("floats", "bytes", "paper")}
    return {
        "messages": int(crossed.sum()),
        "refused": int((verdict != ACCEPTED).sum()),
        "floats_per_edge_task": total["floats"] / uses if uses else 0.0,
        "paper_floats_per_edge_task": total["paper"] / uses if uses else 0.0,
        "bytes_total": total["bytes"],
    }


def strangers(stack: Stack, unmet: list[Foreign]) -> pl.DataFrame:
    """A row per task that a lane knows from others' streams only."""
    return pl.DataFrame(
        {
            "seed": [stack.lanes[one.lane].seed for one in unmet],
            "agent": [stack.lanes[one.lane].agent for one in unmet],
            "other": [one.other for one in unmet],
            "task": [one.task for one in unmet],
            "accuracy": [one.accuracy for one in unmet],
        },
        schema={"seed": pl.Int64, "agent": pl.Int64, "other": pl.Int64, "task": pl.Int64, "accuracy": pl.Float64},
    )


def summarise(settings: Settings, stack: Stack, unmet: list[Foreign]) -> dict[str, Any]:
    """All metrics of a finished run, and what it was."""
    per_lane: list[list[float]] = [[] for _ in stack.lanes]
    for one in unmet:
        per_lane[one.lane].append(one.accuracy)
    padded = np.full((len(per_lane), max(map(len, per_lane))), np.nan)
    for row, values in enumerate(per_lane):
        padded[row, : len(values)] = values
    found = metrics.summary(
        stack.accuracy.double().numpy(),
        np.array(grid(settings.learner.epochs)),
        seeds=np.array([lane.seed for lane in stack.lanes]),
        initial=settings.tasks.initial,
        classes=settings.tasks.classes,
        others=padded,
    )
    return {
        "dataset": settings.dataset,
        "model": settings.model,
        "protocol": settings.protocol,
        "agents": settings.agents,
        "seeds": settings.seeds,
        "tasks": settings.tasks.count,
        **found,
        "modules": float(stack.alive.sum(1).double().mean()),
        "sharing": [mode.mode for mode in settings.sharing],
        **traffic(stack),
        "identity": settings.identity(),
    }
