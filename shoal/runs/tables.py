"""A run's records as tables, and its summary: views of the stacks, made when they are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch

from shoal.agents import ends as health
from shoal.agents import released
from shoal.agents.evaluate import Foreign, accuracy
from shoal.agents.stack import RECORD, Stack, grid
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.fleet.health import WORDS as CAUSES
from shoal.learners import candidates as grown
from shoal.letters.ledger import COLUMNS, WORDS, Ledger
from shoal.letters.mail import ACCEPTED, UNSENT
from shoal.mail import privacy
from shoal.runs import metrics
from shoal.runs.conditions import weathered
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


def by_the_clock(settings: Settings, stacks: Sequence[Stack]) -> dict[str, float]:
    """What a summary says of the clock of a fleet, means over seeds: seconds until its last agent was done, and joules
    of all agents."""
    if not settings.clock.counts:
        return {}
    last = spending(settings, stacks).group_by("seed", "agent").agg(pl.col("seconds", "joules").max())
    seeds = last.group_by("seed").agg(pl.col("seconds").max(), pl.col("joules").sum())
    return {f"fleet_{name}": float(seeds[name].sum()) / len(seeds) for name in ("seconds", "joules")}


def growth(settings: Settings, stacks: Sequence[Stack]) -> pl.DataFrame:
    """A row per trial of a module (none in monolithic nets), with where it came from: the agent and the task of that
    agent it was received from, and those where it once began as a fresh one, so many agents ago."""

    def one(kind: Settings, stack: Stack) -> dict[str, np.ndarray]:
        values, came, alive = grown.trials(stack, kind.tasks.count)
        tried = ~np.isnan(values[:, :, 0]) & going(stack, kind.tasks.count)
        lane, task = np.nonzero(tried)
        first = kind.net.basis - kind.tasks.initial  # slot of task t: see Modular.slot
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
    if settings.kinds:
        kind_of = {agent: name for name, agents in settings.members().items() for agent in agents}
        found = found.with_columns(kind=pl.Series([kind_of[agent] for agent in found["agent"]], dtype=pl.String))
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


def traffic(settings: Settings, ledger: Ledger) -> dict[str, Any]:
    """What sharing cost: messages that crossed an edge (their receiver may have refused them), and those that did not.

    Per link and task: the mean over every directed link and every task in which a message was posted on it, if only to
    be refused.
    """
    if settings.machine.ledger == "totals" or ledger.totals is not None:
        return traffic_of(posted(settings, ledger))
    crossed = ledger.crossed
    uses = len(np.unique(np.stack([ledger.column(name) for name in ("seed", "sender", "receiver", "task")], 1), axis=0))
    total = {name: int(ledger.column(name)[crossed].sum()) for name in ("floats", "bytes")}
    others = {name: int(values[crossed].sum()) for name, values in counted(settings, ledger).items()}
    return {
        "messages": int(crossed.sum()),
        "refused": int(ledger.messages[~ledger.among("verdict", [ACCEPTED])].sum()),
        "floats_per_edge_task": total["floats"] / uses if uses else 0.0,
        **{f"{name}_floats_per_edge_task": floats / uses if uses else 0.0 for name, floats in others.items()},
        "bytes_per_link_task": total["bytes"] / uses if uses else 0.0,
        "bytes_total": total["bytes"],
    }


def traffic_of(table: pl.DataFrame) -> dict[str, Any]:
    """The same of a table with numbers of messages."""
    uses = table.select("seed", "sender", "receiver", "task").n_unique() if len(table) else 0
    crossed = table.filter(~pl.col("verdict").is_in(UNSENT))
    total = {name: int(crossed[name].sum()) for name in ("floats", "bytes", *COUNTS)}
    each = {name: number / uses if uses else 0.0 for name, number in total.items()}
    return {
        "messages": int(crossed["messages"].sum()),
        "refused": int(table.filter(pl.col("verdict") != ACCEPTED)["messages"].sum()),
        "floats_per_edge_task": each["floats"],
        **{f"{name}_floats_per_edge_task": each[name] for name in COUNTS},
        "bytes_per_link_task": each["bytes"],
        "bytes_total": total["bytes"],
    }


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


def summarise(
    settings: Settings,
    stacks: Sequence[Stack],
    unmet: list[Foreign],
    said: pl.DataFrame | None = None,
    sites: Sequence[str] = (),
) -> dict[str, Any]:
    """All metrics of a finished run, and what it was. Agents that diverged are left out of all means, and named."""
    trained = training(settings, stacks)
    kinds: dict[str, Any] = {}
    for (name, agents), stack in zip(settings.members().items(), stacks, strict=True):
        own = {"agents": list(agents), "model": settings.of(name).model}
        kinds[name] = own | metrics_of(settings, [stack], unmet, said)
    return {
        "dataset": settings.dataset,
        "model": " + ".join(dict.fromkeys(settings.of(name).model for name in settings.members())),
        "protocol": settings.protocol,
        "agents": settings.agents,
        "seeds": settings.seeds,
        "tasks": settings.tasks.count,
        **metrics_of(settings, stacks, unmet, said),
        "ended": [end._asdict() for end in health.ends_in(trained)],
        "warnings": health.sentences(trained, sites),
        **({"sites": list(sites)} if sites else {}),
        **({"kinds": kinds} if settings.kinds else {}),
        "sharing": [mode.mode for mode in settings.sharing],
        **traffic(settings, stacks[0].ledger),
        **by_the_clock(settings, stacks),
        **spent(settings, stacks),
        **(weathered(settings, stacks[0].ledger) if settings.sharing and unsettled(settings) else {}),
        "identity": settings.identity(),
    }


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


def spent(settings: Settings, stacks: Sequence[Stack]) -> dict[str, Any]:
    """What a summary says of privacy: what every agent has spent of epsilon, in the seed in which it is most, and the
    largest delta at which that is counted."""
    table = accounts(settings, stacks)
    if not len(table):
        return {}
    most: dict[str, float] = {}
    for agent, value in zip(table["agent"].to_list(), table["epsilon"].to_list(), strict=True):
        most[str(agent)] = round(max(value, most.get(str(agent), 0.0)), 4)
    return {"epsilon": most, "delta": max(table["delta"].to_list())}


def kept_of(said: pl.DataFrame, lanes: Sequence[Lane]) -> metrics.Predictions:
    """What some lanes said of test rows, from the table of it."""
    places = pl.DataFrame({"seed": [one.seed for one in lanes], "agent": [one.agent for one in lanes]})
    own = said.join(places.with_row_index("lane"), on=["seed", "agent"], maintain_order="left")
    named = own["label"].dtype
    label, told = (own[name].to_physical().to_numpy().astype(np.int64) if isinstance(named, pl.Enum)
                   else own[name].to_numpy() for name in ("label", "prediction"))  # fmt: skip
    none = np.zeros(len(own), np.int64)
    return metrics.Predictions(
        own["lane"].to_numpy().astype(np.int64),
        own["tested"].to_numpy(),
        own["output"].to_physical().to_numpy().astype(np.int64) if "output" in own.columns else none,
        label,
        told,
        own["confidence"].to_numpy() if "confidence" in own.columns else none * np.nan,
        tuple(named.categories) if isinstance(named, pl.Enum) else (),
    )


def metrics_of(
    settings: Settings, stacks: Sequence[Stack], unmet: list[Foreign], said: pl.DataFrame | None = None
) -> dict[str, Any]:
    """The metrics of all lanes of some stacks that have not diverged."""
    rows = sorted(
        (lane, at, row)
        for at, stack in enumerate(stacks)
        for row, lane in enumerate(stack.lanes)
        if lane not in stack.silent
    )
    if not rows:  # a kind of which none is left
        ends = ("", "_se", "_se_seeds")
        return {**{f"{name}{end}": None for name in metrics.METRICS for end in ends}, "modules": None}
    lanes = [lane for lane, _, _ in rows]
    per_lane: dict[Lane, list[float]] = {lane: [] for lane in lanes}
    for one in unmet:
        if one.lane in per_lane:
            per_lane[one.lane].append(one.accuracy)
    padded = np.full((len(lanes), max(map(len, per_lane.values()))), np.nan)
    for at, values in enumerate(per_lane.values()):
        padded[at, : len(values)] = values
    classes = torch.stack([stacks[stack].of(RECORD)["classes"][row] for _, stack, row in rows]).numpy()
    count = int(classes.any(0).sum())  # tasks of the longest stream of these lanes
    found = metrics.summary(
        torch.stack([stacks[stack].accuracy[row, :count, :, :count] for _, stack, row in rows]).double().numpy(),
        np.array(grid(settings.learner.epochs)),
        seeds=np.array([lane.seed for lane in lanes]),
        initial=settings.tasks.initial,
        classes=classes[:, :count] if settings.tasks.classes > 1 else None,  # where numbers are predicted, none
        others=padded,
        predictions=None if said is None else kept_of(said, lanes),
    )
    counted = [grown.modules(stack) for stack in stacks]
    modules = [int(counted[stack][row]) for _, stack, row in rows if len(counted[stack])]
    return {**found, "modules": sum(modules) / len(modules) if modules else None}


def told(right: np.ndarray | None, seeds: Sequence[int]) -> dict[str, float | None]:
    """What a summary says of lanes whose one head grows, if they are told the task of every image: `right` [L]."""
    if right is None:
        return {}
    found = 100 * right
    values = {"": metrics.mean(found), "_se": metrics.error(found), "_se_seeds": metrics.error(found, seeds)}
    return {f"task_accuracy{end}": None if np.isnan(value) else float(value) for end, value in values.items()}
