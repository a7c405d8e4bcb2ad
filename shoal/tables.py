"""A run's records as tables, and its summary: views of the stacks, made when they are written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch

from shoal import metrics
from shoal.config import Settings
from shoal.evaluate import Foreign
from shoal.mail import ACCEPTED, AT_REST, COLUMNS, KINDS, OVER_BUDGET, VERDICTS, Ledger
from shoal.stack import Stack, grid
from shoal.tasks import Lane


def accuracies(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per measurement."""

    def one(stack: Stack) -> dict[str, np.ndarray]:
        values = stack.accuracy.numpy()
        lane, task, point, tested = np.nonzero(~np.isnan(values))
        return {
            **names(stack, lane),
            "task": task,
            "epoch": np.array(grid(settings.learner.epochs))[point],
            "tested": tested,
            "accuracy": values[lane, task, point, tested],
        }

    return joined(settings, [one(stack) for stack in stacks])


def growth(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per trial of a module (none in monolithic nets)."""

    def one(kind: Settings, stack: Stack) -> dict[str, np.ndarray]:
        values = stack.trial.numpy()
        lane, task = np.nonzero(~np.isnan(values[:, :, 0]))
        first = kind.net.basis - kind.tasks.initial  # slot of task t: see Modular.slot
        return {
            **names(stack, lane),
            "task": task,
            "with": values[lane, task, 0],
            "without": values[lane, task, 1],
            "kept": stack.alive.cpu().numpy()[lane, first + task] if len(lane) else np.zeros(0, bool),
        }

    kinds = (settings.of(name) for name in settings.members())
    return joined(settings, [one(*pair) for pair in zip(kinds, stacks, strict=True)])


def names(stack: Stack, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Seed and agent of each of some rows of a stack."""
    seeds, agents = np.array(stack.lanes).T
    return {"seed": seeds[rows], "agent": agents[rows]}


def joined(settings: Settings, parts: Sequence[dict[str, np.ndarray]]) -> pl.DataFrame:
    """One table of the columns of all stacks, in the order of lanes; with several kinds, it says of which each is."""
    if not settings.kinds:
        return pl.DataFrame(parts[0])
    kinds = [pl.lit(name).alias("kind") for name in settings.members()]
    tables = [pl.DataFrame(part).with_columns(kind) for part, kind in zip(parts, kinds, strict=True)]
    return pl.concat(tables).sort("seed", "agent", maintain_order=True)


def posted(settings: Settings, ledger: Ledger) -> pl.DataFrame:
    """A row per message, in the order of posting."""
    rows = {name: ledger.column(name) for name in COLUMNS}
    words = {"mode": tuple(mode.mode for mode in settings.sharing), "kind": KINDS, "verdict": VERDICTS}
    columns = {
        name: pl.Series(np.array(words[name])[values] if len(values) else [], dtype=pl.String)
        if name in words
        else pl.Series(values)
        for name, values in rows.items()
    }
    return pl.DataFrame(columns)


def traffic(ledger: Ledger) -> dict[str, Any]:
    """What sharing cost: messages that crossed an edge (their receiver may have refused them), and those that did not.

    Per edge and task: for every edge and every task in which a message was posted on it.
    """
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


def strangers(settings: Settings, unmet: list[Foreign]) -> pl.DataFrame:
    """A row per task that a lane knows from others' streams only."""
    table = pl.DataFrame(
        {
            "seed": [one.lane.seed for one in unmet],
            "agent": [one.lane.agent for one in unmet],
            "other": [one.other for one in unmet],
            "task": [one.task for one in unmet],
            "accuracy": [one.accuracy for one in unmet],
        },
        schema={"seed": pl.Int64, "agent": pl.Int64, "other": pl.Int64, "task": pl.Int64, "accuracy": pl.Float64},
    )
    if not settings.kinds:
        return table
    kind_of = {agent: name for name, agents in settings.members().items() for agent in agents}
    return table.with_columns(pl.Series("kind", [kind_of[one.lane.agent] for one in unmet], dtype=pl.String))


def summarise(settings: Settings, stacks: Sequence[Stack], unmet: list[Foreign]) -> dict[str, Any]:
    """All metrics of a finished run, and what it was."""
    kinds: dict[str, Any] = {}
    for (name, agents), stack in zip(settings.members().items(), stacks, strict=True):
        own = {"agents": list(agents), "model": settings.of(name).model}
        kinds[name] = own | measured(settings, [stack], unmet)
    return {
        "dataset": settings.dataset,
        "model": settings.model,
        "protocol": settings.protocol,
        "agents": settings.agents,
        "seeds": settings.seeds,
        "tasks": settings.tasks.count,
        **measured(settings, stacks, unmet),
        **({"kinds": kinds} if settings.kinds else {}),
        "sharing": [mode.mode for mode in settings.sharing],
        **traffic(stacks[0].ledger),
        "identity": settings.identity(),
    }


def measured(settings: Settings, stacks: Sequence[Stack], unmet: list[Foreign]) -> dict[str, float | None]:
    """The metrics of all lanes of some stacks."""
    rows = sorted((lane, stack, row) for stack in range(len(stacks)) for row, lane in enumerate(stacks[stack].lanes))
    lanes = [lane for lane, _, _ in rows]
    per_lane: dict[Lane, list[float]] = {lane: [] for lane in lanes}
    for one in unmet:
        if one.lane in per_lane:
            per_lane[one.lane].append(one.accuracy)
    padded = np.full((len(lanes), max(map(len, per_lane.values()))), np.nan)
    for at, values in enumerate(per_lane.values()):
        padded[at, : len(values)] = values
    found = metrics.summary(
        torch.stack([stacks[stack].accuracy[row] for _, stack, row in rows]).double().numpy(),
        np.array(grid(settings.learner.epochs)),
        seeds=np.array([lane.seed for lane in lanes]),
        initial=settings.tasks.initial,
        classes=settings.tasks.classes,
        others=padded,
    )
    modules = torch.stack([stacks[stack].alive[row].sum() for _, stack, row in rows])
    return {**found, "modules": float(modules.double().mean())}
