"""A run's records as tables, and its summary: views of the stack, made when they are written."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from shoal import metrics
from shoal.config import Settings
from shoal.evaluate import Foreign
from shoal.mail import ACCEPTED, AT_REST, COLUMNS, KINDS, OVER_BUDGET, VERDICTS
from shoal.stack import OFFER, Stack, grid


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
    """A row per trial of a module (none in monolithic nets), with where it came from: the agent and the task of that
    agent it was received from, and those where it once began as a fresh one, so many agents ago."""
    values = stack.trial.numpy()
    lane, task = np.nonzero(~np.isnan(values[:, :, 0]))
    seeds, agents = np.array(stack.lanes).T
    first = settings.net.basis - settings.tasks.initial  # slot of task t: see Modular.slot
    origin = stack.origin.numpy()[lane, task]
    names = list(zip(seeds[lane].tolist(), agents[lane].tolist(), task.tolist(), strict=True))
    came = {name: (name[0], *one) for name, one in zip(names, origin.tolist(), strict=True) if one[0] >= 0}
    paths = [lineage(came, name) for name in names]
    return pl.DataFrame(
        {
            "seed": seeds[lane],
            "agent": agents[lane],
            "task": task,
            "with": values[lane, task, 0],
            "without": values[lane, task, 1],
            "kept": stack.alive.cpu().numpy()[lane, first + task] if len(lane) else np.zeros(0, bool),
            "origin_agent": origin[:, 0],
            "origin_task": origin[:, 1],
            "root_agent": pl.Series([path[-1][1] for path in paths], dtype=pl.Int64),
            "root_task": pl.Series([path[-1][2] for path in paths], dtype=pl.Int64),
            "hops": pl.Series([len(path) - 1 for path in paths], dtype=pl.Int64),
        }
    ).with_columns(pl.when(pl.col("hops") > 0).then(pl.col("origin_agent", "origin_task")))


Grown = tuple[int, int, int]  # seed, agent, task: where a module was tried


def lineage(came: Mapping[Grown, Grown], name: Grown) -> list[Grown]:
    """Where a module has been, itself first and the fresh one last. A sender has grown what it sends, so that the tasks
    only ever get earlier."""
    path = [name]
    while path[-1] in came:
        path.append(came[path[-1]])
    return path


def candidates(settings: Settings, stack: Stack) -> pl.DataFrame:
    """A row per module that an agent was offered before a task: by whom, grown for which task of the sender's, its
    score, its accuracy in a tryout, whether it was tried for real, and whether it was kept."""
    rows = {name: stack.offers.column(name) for name in OFFER}
    whole = {name: pl.Series(rows[name].astype(np.int64)) for name in OFFER[:5]}
    chosen = rows["chosen"] > 0
    grew = growth(settings, stack).select(
        pl.col("seed", "agent", "task"), kept=pl.col("kept") & pl.col("origin_agent").is_not_null()
    )
    tried = pl.Series(rows["tried"], dtype=pl.Float64).fill_nan(None)
    table = pl.DataFrame({**whole, "score": rows["score"], "tried": tried, "chosen": chosen})
    found = table.join(grew, on=["seed", "agent", "task"], how="left", maintain_order="left")
    return found.with_columns(kept=pl.col("chosen") & pl.col("kept"))  # null: the task is still being learned


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
