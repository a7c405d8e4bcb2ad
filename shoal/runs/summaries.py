"""What a summary says of a finished run: its metrics, its traffic, what it has spent."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch

from shoal.agents import ends as health
from shoal.agents.evaluate import Foreign
from shoal.agents.stack import RECORD, Stack, grid
from shoal.data.tasks import Lane
from shoal.learners import candidates as grown
from shoal.letters.ledger import Ledger
from shoal.letters.mail import ACCEPTED, UNSENT
from shoal.runs import metrics
from shoal.runs.conditions import weathered
from shoal.runs.counts import COUNTS
from shoal.runs.predicted import Predictions
from shoal.runs.tables import accounts, posted, spending, training, unsettled
from shoal.settings.groups import Settings


def by_the_clock(settings: Settings, stacks: Sequence[Stack]) -> dict[str, float]:
    """What a summary says of the clock of a fleet, means over seeds: seconds until its last agent was done, and joules
    of all agents."""
    if not settings.clock.counts:
        return {}
    last = spending(settings, stacks).group_by("seed", "agent").agg(pl.col("seconds", "joules").max())
    seeds = last.group_by("seed").agg(pl.col("seconds").max(), pl.col("joules").sum())
    return {f"fleet_{name}": float(seeds[name].sum()) / len(seeds) for name in ("seconds", "joules")}


def traffic(settings: Settings, ledger: Ledger) -> dict[str, Any]:
    """What sharing cost: messages that crossed an edge (their receiver may have refused them), and those that did not.

    Per link and task: the mean over every directed link and every task in which a message was posted on it, if only to
    be refused.
    """
    table = posted(settings, ledger)
    table = table if "messages" in table.columns else table.with_columns(messages=pl.lit(1, pl.Int64))
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


def kept_of(said: pl.DataFrame, lanes: Sequence[Lane]) -> Predictions:
    """What some lanes said of test rows, from the table of it."""
    places = pl.DataFrame({"seed": [one.seed for one in lanes], "agent": [one.agent for one in lanes]})
    own = said.join(places.with_row_index("lane"), on=["seed", "agent"], maintain_order="left")
    named = own["label"].dtype
    label, told = (own[name].to_physical().to_numpy().astype(np.int64) if isinstance(named, pl.Enum)
                   else own[name].to_numpy() for name in ("label", "prediction"))  # fmt: skip
    none = np.zeros(len(own), np.int64)
    return Predictions(
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
