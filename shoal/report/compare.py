"""Runs beside each other: groups, names, baselines, gains, and the small tables that charts are drawn from."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import atan2, degrees, dist, sqrt
from typing import Any, NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import polars as pl

from shoal import metrics
from shoal.config import Network
from shoal.errors import UserError
from shoal.network.edges import edges
from shoal.network.graphs import DRAWN
from shoal.network.picture import Point, arrange
from shoal.paired import Gain, Scores, paired
from shoal.report.read import ALONE, ORIGIN, Array, Run, area, final

Row = dict[str, Any]
ALL = "all"  # agents, tasks or seeds
ROWS = 60_000  # that one chart may hold: beyond, it shows all agents together only
EDGES = 3_000  # that one picture of a network may hold
UNSENT = ("edge at rest", "over budget")  # verdicts on mail that never left its sender


class Score(NamedTuple):
    """A mean over lanes with both standard errors; NaN where there is none."""

    mean: float
    pooled: float
    seeds: float


@dataclass(eq=False)
class Entry:
    """A run in its group: its name there, and the run it is compared with."""

    run: Run
    label: str
    base: "Entry | None" = None

    @property
    def megabytes(self) -> float:
        """What crossed the wire, per lane; NaN if nobody knows any more."""
        lanes = len(self.run.seeds)
        if not self.run.modes:
            return 0.0
        if "ledger" in self.run.tables:
            ledger = self.run.tables["ledger"]
            return float(ledger.filter(~pl.col("verdict").is_in(UNSENT))["bytes"].sum()) / lanes / 1e6
        said = self.run.summary.get("bytes_total")
        return said / lanes / 1e6 if isinstance(said, int | float) else float("nan")

    def score(self, name: str) -> Score:
        values = SCORES[name](self.run)
        return Score(values.mean(), float(metrics.error(values)), float(metrics.error(values, self.run.seeds)))

    def gain(self, name: str) -> Gain | None:
        """Paired with the baseline; None for a baseline itself."""
        if self.base is None:
            return None
        return paired(by_seed(self.run), by_seed(self.base.run), name)


SCORES = {"final": final, "auc": area}


@dataclass(eq=False)
class Group:
    """Runs of one dataset, model and protocol."""

    dataset: str
    model: str
    protocol: str
    entries: list[Entry]

    @property
    def name(self) -> str:
        """For titles and folders."""
        return re.sub(r"[^\w.-]+", "-", f"{self.dataset}-{self.model}-{self.protocol}")

    @property
    def complete(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.run.complete]


def groups(runs: Sequence[Run]) -> list[Group]:
    """Runs by dataset, model and protocol, those that share nothing first, each with a name and a baseline."""
    result = []
    for kind in dict.fromkeys(run.kind for run in runs):
        here = sorted((run for run in runs if run.kind == kind), key=lambda run: bool(run.modes))
        entries = [Entry(run, label) for run, label in zip(here, labels(here), strict=True)]
        for entry in entries:
            entry.base = baseline(entry, entries)
        result.append(Group(*kind, entries))
    return sorted(result, key=lambda group: (group.dataset, group.model, group.protocol))


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its method, and where that is not enough, as few settings as tell it from the others."""
    names = [run.method for run in runs]
    for name, count in Counter(names).items():
        if count == 1:
            continue
        here = [at for at, run in enumerate(runs) if run.method == name]
        flat = [dict(flatten(runs[at].settings)) for at in here]
        for at, words in zip(here, told_apart(flat), strict=True):
            names[at] = ", ".join([name, *words])
    twice = {name for name, count in Counter(names).items() if count > 1}
    names = [f"{name}, {run.folder.name}" if name in twice else name for name, run in zip(names, runs, strict=True)]
    twice = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name} ({at})" if name in twice else name for at, name in enumerate(names)]


def told_apart(flat: Sequence[dict[str, str]]) -> list[list[str]]:
    """Words for each of several settings: of those that differ, the one that tells most apart, then the next."""
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if not key.startswith("machine.")]
    keys = [key for key in keys if len({one.get(key) for one in flat}) > 1]
    chosen: list[str] = []

    def kinds(more: Sequence[str]) -> int:
        return len({tuple(one.get(key) for key in more) for one in flat})

    while keys and kinds(chosen) < min(len(flat), kinds(keys)) and len(chosen) < 4:
        chosen.append(max(keys, key=lambda key: kinds([*chosen, key])))
    brief = Counter(key.rpartition(".")[2] for key in chosen)
    short_names = [key.rpartition(".")[2] if brief[key.rpartition(".")[2]] == 1 else key for key in chosen]
    return [[f"{said} {one[key]}" for key, said in zip(chosen, short_names, strict=True) if key in one] for one in flat]


def flatten(content: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Settings as `tasks.count`, `10`. The settings of several modes are numbered."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from flatten(value, f"{path}.{name}" if path else name)
    elif path == "sharing" and isinstance(content, list):
        for at, mode in enumerate(content):
            yield from flatten(mode, "sharing" if len(content) == 1 else f"sharing.{at}")
    else:
        yield path, content if isinstance(content, str) else json.dumps(content)


def baseline(entry: Entry, entries: Sequence[Entry]) -> Entry | None:
    """The run without sharing that has the same agents, tasks and seeds; else the first such run; None for itself.

    Of several without sharing it is the one with the fewest other settings.
    """

    def like(run: Run) -> tuple[Any, ...]:
        tasks = run.settings["tasks"]
        return run.settings["agents"], tasks["count"], tasks["initial"], tasks.get("classes"), run.epochs[-1]

    run = entry.run
    if not run.complete:
        return None
    fit = [one for one in entries if one.run.complete and like(one.run) == like(run)]
    fit = [one for one in fit if set(one.run.seeds) & set(run.seeds)]
    alone = [one for one in fit if not one.run.modes]
    if not run.modes or not alone:
        first = (alone or fit)[0]
        return None if first is entry else first
    own = set(flatten({**run.settings, "sharing": [], "machine": {}, "network": {}}))

    def distance(one: Entry) -> tuple[int, int]:
        other = set(flatten({**one.run.settings, "sharing": [], "machine": {}, "network": {}}))
        return len(own ^ other), -len(set(one.run.seeds) & set(run.seeds))

    return min(alone, key=distance)


def by_seed(run: Run) -> Scores:
    """Every score's mean over the agents of each seed."""
    found = {name: score(run) for name, score in SCORES.items()}
    return {
        int(seed): {name: float(values[run.seeds == seed].mean()) for name, values in found.items()}
        for seed in np.unique(run.seeds)
    }


def curves(group: Group) -> list[Row]:
    """Learning curves: mean test accuracy over the tasks so far, in %, with its standard error over seeds.

    By agent (or all of them) and by the task being learned (or all after the initial ones, of complete runs).
    """
    rows: list[Row] = []
    sizes = [len(set(e.run.agents)) * max(e.run.done - e.run.initial, 0) * len(e.run.epochs) for e in group.entries]
    single = sum(sizes) <= ROWS
    for entry in group.entries:
        run = entry.run
        means = 100 * metrics.seen(run.accuracy)
        lines: dict[str, Array] = {str(task): means[:, task] for task in range(run.initial, run.done)}
        if run.complete and run.tasks > run.initial:
            lines = {ALL: 100 * metrics.curve(run.accuracy, run.initial), **lines}
        for agent, there in who(run, single):
            for task, values in lines.items():
                mean, error = metrics.mean(values[there]), metrics.error(values[there], run.seeds[there])
                for epoch, middle, wide in zip(run.epochs.tolist(), mean.tolist(), error.tolist(), strict=True):
                    band = {"low": short(middle - wide), "high": short(middle + wide)}
                    rows.append(
                        {"run": entry.label, "agent": agent, "task": task, "epoch": epoch, "mean": short(middle)} | band
                    )
    return rows


LEVEL, MORE = "accuracy", "gain over the baseline"  # what a matrix can show


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
            shown = {LEVEL: ends(run, there)}
            if base is not None:
                same = np.isin(run.seeds, list(both)) & there
                other = np.isin(base.seeds, list(both))
                if agent != ALL:
                    other &= base.agents == int(agent)
                shown[MORE] = ends(run, same) - ends(base, other)
            for show, values in shown.items():
                for task in range(run.done):
                    for tested in range(task + 1):
                        own = {"run": entry.label, "agent": agent, "show": show, "task": task, "tested": tested}
                        rows.append({**own, "mean": short(float(values[task, tested]))})
    return rows


def ends(run: Run, lanes: npt.NDArray[np.bool_]) -> Array:
    """Mean accuracy of some lanes in %, at the end of each task, on each task: [T, T]."""
    means: Array = run.accuracy[lanes][:, : run.done, -1, : run.done].mean(0)
    return 100 * means


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
        score, sent = entry.score(name), entry.megabytes
        if np.isnan(sent) or np.isnan(score.mean):
            continue
        spread = {"low": short(score.mean - score.seeds), "high": short(score.mean + score.seeds)}
        rows.append({"run": entry.label, "sent": short(sent, 6), "mean": short(score.mean)} | spread)
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


def front(rows: Iterable[Row]) -> list[Row]:
    """The runs than which none is both cheaper (or as cheap) and better, from the cheapest on."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["sent"], -row["mean"])):
        if not best or row["mean"] > best[-1]["mean"]:
            best.append(row)
    return best


class Picture(NamedTuple):
    """Networks of a group: agents and directed edges in pixels, by run and seed."""

    agents: list[Row]
    edges: list[Row]
    cut: bool  # some edges are not drawn


def pictures(group: Group, width: float, height: float) -> Picture:
    """The network of each run that shares: who sent how much to whom, and what was refused.

    Graphs that are drawn anew for every seed have a picture per seed, others one, with the mean over seeds.
    """
    nodes: list[Row] = []
    lines: list[Row] = []
    cut = False
    mails: dict[tuple[str, int | None], dict[tuple[int, int], Row]] = {}
    for entry in group.entries:
        run = entry.run
        if not run.modes or "ledger" not in run.tables:
            continue
        graph = run.settings["network"].get("graph")
        ledger, seeds = run.tables["ledger"], sorted(set(run.seeds.tolist()))
        if graph in DRAWN:
            for seed in seeds:
                mails[entry.label, seed] = posted(ledger.filter(pl.col("seed") == seed), 1)
        else:
            mails[entry.label, None] = posted(ledger, len(seeds))
    # One scale for all pictures, so that runs can be compared.
    most = max((one["bytes"] for mail in mails.values() for one in mail.values()), default=0.0)
    for entry in group.entries:
        run = entry.run
        for seed in (seed for label, seed in mails if label == entry.label):
            mail = mails[entry.label, seed]
            pairs = linked(run, seed if seed is not None else int(run.seeds.min())) | mail.keys()
            if len(pairs) > EDGES:
                cut = True
                pairs = set(sorted(pairs, key=lambda pair: -mail.get(pair, {"bytes": 0})["bytes"])[:EDGES])
            places = layout(pairs, run.agents, width, height)
            own = {"run": entry.label, "seed": ALL if seed is None else str(seed)}
            nodes += [
                {**own, "agent": str(agent), "x": short(x, 5), "y": short(y, 5)} for agent, (x, y) in places.items()
            ]
            lines += [{**own, **line} for line in drawn_edges(pairs, places, mail, most)]
    return Picture(nodes, lines, cut)


def posted(ledger: pl.DataFrame, seeds: int) -> dict[tuple[int, int], Row]:
    """What was posted on each directed edge, per seed; mail that never left costs nothing."""
    sent = ~pl.col("verdict").is_in(UNSENT)
    refused = pl.col("verdict") != "accepted"
    table = ledger.group_by("sender", "receiver").agg(
        (pl.col("bytes") * sent).sum().alias("bytes"),
        sent.sum().alias("messages"),
        refused.sum().alias("refused"),
        pl.col("verdict").filter(refused).mode().sort().first().alias("why"),
    )
    return {
        (row["sender"], row["receiver"]): {
            "bytes": row["bytes"] / seeds, "messages": row["messages"] / seeds, "refused": row["refused"] / seeds,
            "why": row["why"],
        }
        for row in table.to_dicts()
    }  # fmt: skip


def linked(run: Run, seed: int) -> set[tuple[int, int]]:
    """The edges that the settings give a seed, with mail or without; none if this version does not know the graph."""
    try:
        network = Network.model_validate(run.settings["network"])
        return {edge[:2] for edge in edges(network, int(run.settings["agents"]), seed)}
    except (UserError, ValueError):
        return set()


def layout(pairs: Iterable[tuple[int, int]], agents: Iterable[int], width: float, height: float) -> dict[int, Point]:
    """Places of agents in a picture of a given size."""
    graph = nx.empty_graph(0)
    graph.add_nodes_from(sorted({int(agent) for agent in agents}))
    graph.add_edges_from(pairs)
    places = arrange(graph)
    (left, right), (top, bottom) = ((min(axis), max(axis)) for axis in zip(*places.values(), strict=True))
    rim = 24.0
    scale = min((width - 2 * rim) / max(right - left, 1e-9), (height - 2 * rim) / max(bottom - top, 1e-9), 2.5)
    across, down = (width - scale * (right - left)) / 2, (height - scale * (bottom - top)) / 2
    return {agent: (across + scale * (x - left), down + scale * (y - top)) for agent, (x, y) in places.items()}


def drawn_edges(
    pairs: Iterable[tuple[int, int]], places: dict[int, Point], mail: dict[tuple[int, int], Row], most: float
) -> Iterator[Row]:
    """Edges as lines from rim to rim, as thick as their traffic; there and back lie beside each other."""
    pairs = sorted(pairs)
    both = set(pairs)
    radius = node_radius(len(places))
    thickest = min(4.0, 26 / sqrt(len(both) + 1))  # thinner than the head of an arrow
    for sender, receiver in pairs:
        one = mail.get((sender, receiver), {"bytes": 0.0, "messages": 0.0, "refused": 0.0, "why": None})
        (x, y), (x2, y2) = places[sender], places[receiver]
        length = dist((x, y), (x2, y2)) or 1.0
        dx, dy = (x2 - x) / length, (y2 - y) / length
        wide = 0.5 + thickest * one["bytes"] / most if one["bytes"] else 0.8
        aside = radius * 0.27 if (receiver, sender) in both else 0.0
        near, far = radius + 1, radius + 6
        start = x + dx * near - dy * aside, y + dy * near + dx * aside
        end = x2 - dx * far - dy * aside, y2 - dy * far + dx * aside
        share = one["refused"] / (one["refused"] + one["messages"]) if one["refused"] else 0.0
        yield {
            "sender": str(sender), "receiver": str(receiver),
            "x": short(start[0], 5), "y": short(start[1], 5), "x2": short(end[0], 5), "y2": short(end[1], 5),
            "xm": short((start[0] + end[0]) / 2, 5), "ym": short((start[1] + end[1]) / 2, 5),
            "angle": round(degrees(atan2(dy, dx)) + 90), "width": short(wide, 3), "silent": not one["bytes"],
            "megabytes": short(one["bytes"] / 1e6, 4), "messages": short(one["messages"], 4),
            "refused": short(one["refused"], 4), "share": short(100 * share, 3), "why": one["why"] or "",
        }  # fmt: skip


def node_radius(agents: int) -> float:
    return 15.0 if agents <= 12 else 11.0 if agents <= 30 else 7.0


HOME, GIVEN, DROPPED = "kept, home-grown", "kept, from another agent", "dropped"


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
                        own = {"run": entry.label, "agent": agent, "task": task, "outcome": outcome}
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
            found.setdefault((agent, origin), []).append(f"{task}" + f" ({count} times)" * (count > 1))
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


def differing(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """Settings in which runs differ, with the value of each; a dash where a run has no such setting."""
    flat = [dict(flatten(entry.run.settings)) for entry in entries]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    rows = [(key, [one.get(key, "–") for one in flat]) for key in keys]  # noqa: RUF001
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def short(value: float, digits: int = 5) -> float | None:
    """A number for a chart: few digits, None for NaN."""
    return None if np.isnan(value) else float(f"{value:.{digits}g}")


def method_order(groups: Sequence[Group]) -> list[str]:
    """All names of runs on a page, agents alone first: a name has one colour, wherever it stands."""
    entries = [entry for group in groups for entry in group.entries]
    plain = sorted({entry.run.method for entry in entries}, key=lambda name: (name != ALONE, name))
    return list(dict.fromkeys([*plain, *(entry.label for entry in entries)]))
