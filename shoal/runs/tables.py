"""A run's records as tables, and its summary: views of the stacks, made when they are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch

from shoal.agents import released
from shoal.agents.evaluate import Foreign, accuracy
from shoal.agents.stack import RECORD, Stack, grid
from shoal.agents.world import World
from shoal.fleet.health import WORDS as CAUSES
from shoal.learners import candidates as grown
from shoal.letters.ledger import COLUMNS, WORDS, Ledger
from shoal.mail import privacy
from shoal.runs.counts import COUNTS, counted
from shoal.settings.groups import Settings


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


def spending(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per measurement: the seconds that have passed for an agent by then, its joules, and the bytes it has
    sent."""

    def one(stack: Stack) -> dict[str, np.ndarray]:
        values = stack.of(RECORD)["spent"].numpy()
        lane, task, point = np.nonzero(~np.isnan(values[..., 0]))
        seconds, joules, sent = values[lane, task, point].T
        spent = {"seconds": seconds, "joules": joules, "bytes": sent.astype(np.int64)}
        return {**names(stack, lane), "task": task, "epoch": np.array(grid(settings.learner.epochs))[point], **spent}

    return joined(settings, [one(stack) for stack in stacks])


def growth(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per trial of a module (none in monolithic nets), with where it came from: the agent and the task of that
    agent it was received from, and those where it once began as a fresh one, so many agents ago."""

    def one(kind: Settings, stack: Stack) -> dict[str, np.ndarray]:
        values, came, alive = grown.trials(stack, kind.tasks.count)
        tried = ~np.isnan(values[:, :, 0]) & going(stack, kind.tasks.count)
        lane, task = np.nonzero(tried)
        first = getattr(kind.net, "basis", 0) - kind.tasks.initial  # slot of task t: see Modular.slot
        origin = came[lane, task]
        return {
            **names(stack, lane),
            "task": task,
            "with": values[lane, task, 0],
            "without": values[lane, task, 1],
            "kept": alive[lane, first + task],
            "origin_agent": origin[:, 0],
            "origin_task": origin[:, 1],
        }

    kinds = (settings.of(name) for name in settings.members())
    return with_roots(joined(settings, [one(*pair) for pair in zip(kinds, stacks, strict=True)]))


def training(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per task that an agent has learned: its training loss at the end, that of guessing, and the norm of its
    weights; or, if it diverged there, after how many epochs it ended and why. Null: not measured."""

    def one(stack: Stack) -> dict[str, np.ndarray]:
        state, ended = stack.of(RECORD), stack.ended.numpy()
        empty = torch.full((len(stack.lanes), settings.tasks.count, 3), np.nan)
        values = state.get("training", empty).numpy()
        here = ended[:, :1] == np.arange(1, settings.tasks.count + 1)  # [L, T]: where a lane has ended
        lane, task = np.nonzero(here | ~np.isnan(values[:, :, 1]))
        measured = dict(zip(("loss", "guessing", "norm"), values[lane, task].T, strict=True))
        epoch, why = (np.where(here[lane, task], ended[lane, at], -1) for at in (1, 2))
        return {**names(stack, lane), "task": task, **measured, "ended": epoch, "why": why}

    table = joined(settings, [one(stack) for stack in stacks])
    words = pl.Series("why", [CAUSES[at] if at > 0 else None for at in table["why"]], dtype=pl.String)
    gaps = pl.when(pl.col("ended") >= 0).then(pl.col("ended"))
    return table.with_columns(words, ended=gaps).with_columns(pl.col("loss", "guessing", "norm").fill_nan(None))


Grown = tuple[int, int, int]  # seed, agent, task: where a module was tried


def with_roots(grew: pl.DataFrame) -> pl.DataFrame:
    """The table of growth with the beginning of every module."""
    names = grew.select("seed", "agent", "task").rows()
    origins = grew.select("seed", "origin_agent", "origin_task").rows()
    came = {name: origin for name, origin in zip(names, origins, strict=True) if origin[1] >= 0}
    paths = [lineage(came, name) for name in names]
    found = grew.with_columns(
        pl.Series("root_agent", [path[-1][1] for path in paths], dtype=pl.Int64),
        pl.Series("root_task", [path[-1][2] for path in paths], dtype=pl.Int64),
        pl.Series("hops", [len(path) - 1 for path in paths], dtype=pl.Int64),
    )
    return found.with_columns(pl.when(pl.col("hops") > 0).then(pl.col("origin_agent", "origin_task")))


def lineage(came: Mapping[Grown, Grown], name: Grown) -> list[Grown]:
    """Where a module has been, itself first and the fresh one last. A sender has grown what it sends, so that the tasks
    only ever get earlier."""
    path = [name]
    while path[-1] in came:
        path.append(came[path[-1]])
    return path


def candidates(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per module that an agent was offered before a task: by whom, grown for which task of the sender's, its
    score, its accuracy in a tryout, whether it was tried for real, and whether it was kept."""
    types = {
        **dict.fromkeys(("seed", "agent", "task", "sender", "source"), pl.Int64),
        **dict.fromkeys(("score", "tried"), pl.Float64),
        "chosen": pl.Boolean,
    }
    owners = [mode.owner for mode in settings.sharing if mode.offers]
    rows = [row for stack in stacks for owner in owners for row in offered(stack, owner)]
    rows.sort(key=lambda row: (row[2], row[0], row[1]))
    table = pl.DataFrame(rows, types, orient="row")
    grew = growth(settings, stacks).select(
        pl.col("seed", "agent", "task"), kept=pl.col("kept") & pl.col("origin_agent").is_not_null()
    )
    found = table.join(grew, on=["seed", "agent", "task"], how="left", maintain_order="left")
    found = with_kinds(settings, found)
    # Null: the task is still being learned.
    return found.with_columns(pl.col("tried").fill_nan(None), kept=pl.col("chosen") & pl.col("kept"))


def offered(stack: Stack, owner: str) -> list[tuple[Any, ...]]:
    """Seed, agent, task, sender, the sender's task, score, accuracy in a tryout, chosen: of every module that lanes
    were offered by a mode, which keeps them in `offers` [L, T, most, 5]."""
    state = stack.of(owner)
    if "offers" not in state:
        return []
    told = state["offers"]
    found = []
    for row, task, at in (~told[..., 0].isnan()).nonzero().tolist():
        sender, source, score, tried, chosen = told[row, task, at].tolist()
        found.append((*stack.lanes[row], task, int(sender), int(source), score, tried, bool(chosen)))
    return found


def going(stack: Stack, tasks: int) -> np.ndarray:
    """Which lanes went on beyond which tasks: bool [L, T]."""
    ended = stack.ended.numpy()[:, :1]
    found: np.ndarray = (ended == 0) | (np.arange(1, tasks + 1) < ended)
    return found


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
    """A row per message, in the order of posting; a row for those that never left and are alike, or of a ledger of
    totals for all that are alike, and how many they are."""
    if settings.machine.ledger == "totals" or ledger.totals is not None:
        return summed_up(settings, ledger)
    columns: dict[str, pl.Series] = {}
    for name in COLUMNS:
        if name == "late" and not can_be_late(settings):
            continue
        if name == "verdict":
            columns |= {other: pl.Series(values) for other, values in counted(settings, ledger).items()}
        # Without rows, polars would not know that these are words.
        columns[name] = pl.Series(ledger.column(name), dtype=pl.String if name in WORDS else pl.Int64)
    if "late" in columns:
        columns["late"] = pl.Series(np.where(ledger.crossed, ledger.column("late"), 0))
    if (many := ledger.messages).max(initial=1) > 1:
        columns["messages"] = pl.Series(many)
    return pl.DataFrame(columns)


def summed_up(settings: Settings, ledger: Ledger) -> pl.DataFrame:
    """The table of a ledger of totals; messages of the last tasks may still have a row each."""
    names = (*COLUMNS, "messages", *COUNTS)
    plain = np.column_stack([ledger.rows, ledger.messages, *counted(settings, ledger).values()])
    every = dict(
        zip(names, np.concatenate([plain[:0] if ledger.totals is None else ledger.totals, plain]).T, strict=True)
    )
    words = np.array(ledger.words, np.str_)
    order = [name for name in COLUMNS if name not in ("verdict", "late")] + [*COUNTS, "verdict", "messages"]
    return pl.DataFrame(
        {
            name: pl.Series(
                words[every[name]] if name in WORDS and len(words) else every[name],
                dtype=pl.String if name in WORDS else pl.Int64,
            )
            for name in order
        }
    )


def can_be_late(settings: Settings) -> bool:
    """Can mail come later than it was sent?"""
    network = settings.network
    delays = network.delay, *(link.delay for link in network.edges)
    return any(delays) or (settings.presence.mail == "waits" and bool(settings.presence.named))


def unsettled(settings: Settings) -> bool:
    """Can anything befall mail, or agents?"""
    network = settings.network
    single = any(one is not None for link in network.edges for one in (link.loss, link.delay, link.down))
    return bool(network.loss or network.delay or network.down or single or settings.presence.named)


def unposted() -> pl.DataFrame:
    """The table of a run whose agents shared nothing."""
    at = COLUMNS.index("verdict")
    names = (*COLUMNS[:at], *COUNTS, COLUMNS[at])
    return pl.DataFrame(schema={name: pl.String if name in WORDS else pl.Int64 for name in names})


def validated(fleet: Sequence[tuple[World, Stack]]) -> pl.DataFrame:
    """A row per lane that has not diverged and task: the accuracy on its validation rows, with the net as it is."""
    rows = []
    for world, stack in fleet:
        found = accuracy(world, stack, "validation", range(world.settings.tasks.count)).tolist()
        for lane, own in zip(stack.lanes, found, strict=True):
            rows += [(*lane, task, one) for task, one in enumerate(own) if one == one]  # nan: there is no such task
    schema = {"seed": pl.Int64, "agent": pl.Int64, "task": pl.Int64, "accuracy": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def strangers(settings: Settings, unmet: list[Foreign]) -> pl.DataFrame:
    """A row per task that a lane knows from others' streams only."""
    rows = [(*one.lane, one.other, one.task, one.accuracy) for one in unmet]
    schema = {**dict.fromkeys(("seed", "agent", "other", "task"), pl.Int64), "accuracy": pl.Float64}
    table = pl.DataFrame(rows, schema, orient="row")
    return with_kinds(settings, table)


def with_kinds(settings: Settings, table: pl.DataFrame) -> pl.DataFrame:
    """A table that says of which kind agents are, where there are several."""
    if not settings.kinds:
        return table
    kinds = {agent: name for name, agents in settings.members().items() for agent in agents}
    return table.with_columns(pl.Series("kind", [kinds[agent] for agent in table["agent"]], dtype=pl.String))


def accounts(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per agent whose models leave with noise: how often they have left, and what privacy that has spent."""
    rows = [
        (*lane, int(stack.of(released.OWNER)["releases"][row]), policy)
        for stack in stacks
        for row, lane in enumerate(stack.lanes)
        if (policy := settings.privacy.get(lane.agent)) is not None and policy.noise
    ]
    found = [
        (seed, agent, count, privacy.epsilon(policy.noise, policy.delta, count), policy.delta, policy.epsilon)
        for seed, agent, count, policy in sorted(rows, key=lambda row: row[:2])
    ]
    names = {"seed": pl.Int64, "agent": pl.Int64, "releases": pl.Int64}
    numbers = {"epsilon": pl.Float64, "delta": pl.Float64, "allowed": pl.Float64}
    return pl.DataFrame(found, {**names, **numbers}, orient="row")
