"""The small tables that charts are drawn from. They count tasks from 1, as people do; records count from 0."""

from collections import Counter
from collections.abc import Iterator, Sequence

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import polars as pl

from shoal.report.compare import Group, Row
from shoal.runs import metrics
from shoal.runs.checked import ORIGIN, Array
from shoal.runs.pareto import on_front
from shoal.runs.read import Run
from shoal.units import carried

ALL = "all"  # agents, tasks or seeds


ROWS = 60_000  # that one chart may hold: beyond, it shows all agents together only


LEVEL, MORE = "accuracy", "gain over the baseline"  # what a matrix can show


HOME, GIVEN, DROPPED = "kept, home-grown", "kept, from another agent", "dropped"


def short(value: float, digits: int = 5) -> float | None:
    """A number for a chart: few digits, None for NaN."""
    return None if np.isnan(value) else float(f"{value:.{digits}g}")


def curves(group: Group) -> list[Row]:
    """Learning curves: mean test accuracy over the tasks so far, in %, with its standard error over seeds.

    By agent (or all of them) and by the task being learned (or all after the initial ones, of complete runs).
    """
    rows: list[Row] = []
    sizes = [len(set(e.run.agents)) * max(e.run.done - e.run.initial, 0) * len(e.run.epochs) for e in group.entries]
    single = sum(sizes) <= ROWS
    for entry in group.entries:
        run = entry.run
        means, last = 100 * metrics.seen(run.accuracy), int(run.settings["learner"]["epochs"])
        lines: dict[str, Array] = {str(task + 1): means[:, task] for task in range(run.initial, run.done)}
        if run.complete and run.tasks > run.initial:
            lines = {ALL: 100 * metrics.curve(run.accuracy, run.initial), **lines}
        for agent, there in who(run, single):
            for task, values in lines.items():
                mean, error = metrics.mean(values[there]), metrics.error(values[there], run.seeds[there])
                for epoch, middle, wide in zip(run.epochs.tolist(), mean.tolist(), error.tolist(), strict=True):
                    band = {"low": short(middle - wide), "high": short(middle + wide)}
                    own = {"run": entry.label, "agent": agent, "task": task, "epoch": min(epoch, last)}
                    rows.append({**own, "mean": short(middle), **band})  # the last label is after all epochs
    return rows


def matrices(group: Group) -> list[Row]:
    """Accuracy on each task at the end of each, in %, and how many points it is above the baseline's.

    The baseline's mean is over the seeds that both have.
    """
    rows: list[Row] = []
    single = sum(len(set(entry.run.agents)) * entry.run.done**2 for entry in group.entries) <= ROWS
    for entry in group.entries:
        run, base = entry.run, entry.base.run if entry.base else None
        both = set(run.seeds) & set(base.seeds) if base else set()
        for agent, there in who(run, single):
            looks = {LEVEL: ends(run, there)}
            if base is not None:
                same = np.isin(run.seeds, list(both)) & there
                other = np.isin(base.seeds, list(both))
                if agent != ALL:
                    other &= base.agents == int(agent)
                looks[MORE] = ends(run, same) - ends(base, other)
            for show, values in looks.items():
                for task in range(run.done):
                    for tested in range(task + 1):
                        own = {"run": entry.label, "agent": agent, "show": show, "task": task + 1, "tested": tested + 1}
                        rows.append({**own, "mean": short(float(values[task, tested]))})
    return rows


def ends(run: Run, lanes: npt.NDArray[np.bool_]) -> Array:
    """Mean accuracy of some lanes in %, at the end of each task, on each task: [T, T]."""
    return 100 * metrics.mean(run.accuracy[lanes][:, : run.done, -1, : run.done])


def who(run: Run, single: bool) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """All lanes, and those of each agent."""
    yield ALL, np.ones(len(run.agents), bool)
    if single:
        for agent in np.unique(run.agents):
            yield str(agent), run.agents == agent


def costs(group: Group, name: str) -> list[Row]:
    """A score and what it cost, for every complete run."""
    rows: list[Row] = []
    for entry in group.complete:
        score, sent = entry.score(name), entry.paid
        if np.isnan(sent) or np.isnan(score.mean):
            continue
        spread = {"low": short(score.mean - score.seeds), "high": short(score.mean + score.seeds)}
        own = {"run": entry.label, "sent": short(sent, 6), "said": carried(sent), "mean": short(score.mean)}
        rows.append(own | spread)
    return rows


def together(rows: Sequence[Row]) -> list[list[str]]:
    """Runs whose symbols in a chart of costs lie on each other: as dear to 2 %, as good to 3 % of the chart."""
    high = max((row["mean"] for row in rows), default=0.0) - min((row["mean"] for row in rows), default=0.0)
    near = nx.empty_graph(len(rows))
    near.add_edges_from(
        (one, two)
        for two, row in enumerate(rows)
        for one, other in enumerate(rows[:two])
        if abs(row["sent"] - other["sent"]) <= 0.02 * max(row["sent"], other["sent"])
        and abs(row["mean"] - other["mean"]) <= 0.03 * high
    )
    return [[rows[at]["run"] for at in sorted(part)] for part in nx.connected_components(near) if len(part) > 1]


def front(rows: Sequence[Row]) -> list[Row]:
    """The runs than which none is both cheaper (or as cheap) and better, from the cheapest on."""
    best = on_front([row["sent"] for row in rows], [row["mean"] for row in rows])
    return sorted((row for row, here in zip(rows, best, strict=True) if here), key=lambda row: float(row["sent"]))


def grown(group: Group) -> list[Row]:
    """Of the modules tried for each task: how many in a hundred lanes were kept, where they started, and dropped."""
    rows: list[Row] = []
    single = sum(len(set(entry.run.agents)) * entry.run.tasks for entry in group.entries) * 3 <= ROWS
    for entry in group.entries:
        trials = entry.run.tables.get("growth")
        if trials is None or trials.is_empty():
            continue
        trials = trials.with_columns(came(trials).alias("given"))
        for agent, _ in who(entry.run, single):
            part = trials if agent == ALL else trials.filter(pl.col("agent") == int(agent))
            for (task,), here in part.sort("task").group_by("task", maintain_order=True):
                kept, given = here["kept"], here["given"]
                counts = {HOME: (kept & ~given).sum(), GIVEN: (kept & given).sum(), DROPPED: (~kept).sum()}
                for outcome, number in counts.items():
                    if number:
                        share = short(100 * int(number) / len(here), 4)
                        own = {"run": entry.label, "agent": agent, "task": task + 1, "outcome": outcome}
                        rows.append({**own, "share": share, "number": int(number), "trials": len(here)})
    return rows


def came(trials: pl.DataFrame) -> pl.Series:
    """Did each tried module start as another agent's?"""
    if not lineage(trials):
        return pl.Series([False] * len(trials), dtype=pl.Boolean)
    return trials[ORIGIN[0]].fill_null(-1) >= 0


def lineage(trials: pl.DataFrame) -> bool:
    """Do the records say where modules came from?"""
    return all(name in trials.columns and trials[name].dtype.is_numeric() for name in ORIGIN)


def origins(group: Group) -> list[Row]:
    """How many kept modules each agent has from each other, over all seeds and tasks, and from which tasks."""
    rows: list[Row] = []
    for entry in group.entries:
        trials = entry.run.tables.get("growth")
        if trials is None or not lineage(trials):
            continue
        given = trials.filter(pl.col("kept") & came(trials))
        table = given.group_by("agent", *ORIGIN).len().sort("agent", *ORIGIN)
        found: dict[tuple[int, int], list[str]] = {}
        number: Counter[tuple[int, int]] = Counter()
        for agent, origin, task, count in table.iter_rows():
            number[agent, origin] += count
            found.setdefault((agent, origin), []).append(f"{task + 1}" + f" ({count} times)" * (count > 1))
        rows += [
            {"run": entry.label, "agent": str(agent), "origin": str(origin), "number": number[agent, origin],
             "tasks": ", ".join(words)}
            for (agent, origin), words in found.items()
        ]  # fmt: skip
    return rows


def offers(group: Group) -> list[Row]:
    """Modules that came by mail: how many were offered, chosen for a trial, and kept."""
    rows = []
    for entry in group.entries:
        table = entry.run.tables.get("candidates")
        if table is not None and not table.is_empty():
            trials = entry.run.tables.get("growth")
            rows.append(
                {
                    "run": entry.label,
                    "offered": len(table),
                    "chosen": int(table["chosen"].sum()),
                    "kept": int((table["chosen"] & table["kept"]).sum()),
                    "trials": 0 if trials is None else len(trials),
                }
            )
    return rows
