"""What more communication brings: relative gain over agents alone against the log of the budget B.

B is what the ledger says was sent per directed edge and task: by the paper's rule, and in true floats beside it.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal import metrics
from shoal.cells import Row, finished, place_of, summary_of
from shoal.reproduce.table1 import Cell, row, settings

# Marginal gain (% per unit of ln B) and value of budget (% per float) as printed.
PAPER = {
    ("modular", "modmod"): (1.579, 1.17e-4),
    ("modular", "federated"): (0.332, 2.56e-6),
    ("modular", "data"): (0.139, 9.93e-6),
    ("monolithic", "federated"): (1.263, 1.65e-5),
    ("monolithic", "data"): (1.384, 1.13e-5),
}
PERIODS = (5, 10, 20, 50, 100)  # of averaging
MODULES = (1, 2, 3, 4)  # that a neighbour sends
QUERIES, IMAGES = (10, 20, 30), (20, 40, 80)  # of Recv, of Simp
EXCHANGES = {9: 10, 16: 5, 50: 1}  # epochs between exchanges of images: how many the paper counts in a task
VARIED = ("every", "queries", "images", "sent")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The grid of a dataset and a kind of model, and agents alone to compare with."""
    paper = protocol == "paper"

    def cell(method: str, mode: str, varied: Row, more: Row | None = None, **groups: Row) -> Cell:
        named = {"modules" if name == "sent" else name: value for name, value in varied.items()}
        found = settings(dataset, model, method, protocol, seeds, {**named, **(more or {})}, **groups)
        blank = dict.fromkeys(VARIED)
        return Cell("budget", dataset, model, method, found, {"mode": mode, **blank, **varied})

    alone = settings(dataset, model, "vanilla", protocol, seeds)
    found = [Cell("budget", dataset, model, "vanilla", alone, {"mode": "alone", **dict.fromkeys(VARIED)})]
    # Images: buffers grow with what comes, and labels are the true ones (these runs differ from Table 1's).
    for every, count in EXCHANGES.items():
        if dataset == "cifar100":
            found += [cell("data", "data", {"every": every, "images": n}, {"memory": 8 * n}) for n in IMAGES]
        else:
            found += [
                cell("data", "data", {"every": every, "queries": n}, {"memory": max(n * count, 32), "labels": "true"})
                for n in QUERIES
            ]
    method, strength = federated(dataset, model, protocol, ("combined", "cifar100"))
    found += [cell(method, "federated", {"every": every}, strength) for every in PERIODS]
    if model == "modular":
        for sent in MODULES:
            # The best of several modules is found by trying them; with one, Table 1's numbers were taken again.
            again = paper and sent == 1 and dataset not in ("combined", "cifar100")
            adapts: dict[str, Row] = {"learner": {"adaptation": "last"}} if paper and dataset == "cifar100" else {}
            choose: Row = {} if again else {"choose": "tryout"}
            found.append(cell("modmod", "modmod", {"sent": sent}, choose, **adapts))
    return found


def federated(dataset: str, model: str, protocol: str, proximal: Iterable[str]) -> tuple[str, Row]:
    """What stands for averaging, and its strength: FedAvg, but the paper took FedProx for modular nets on some data."""
    if protocol == "paper" and model == "modular" and dataset in proximal:
        return "fedprox", {"mu": 0.001}
    return "fedavg", {}


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell, with its gain."""
    own = row(cell, folder)
    return {"budget": [{**{name: one for name, one in own.items() if name != "out"}, **relative(own, cell, folder)}]}


def relative(own: Row, cell: Cell, folder: Path) -> Row:
    """Gain in % of what agents alone reach, its error paired over seeds, and the paper's: the run's own, pooled."""
    if not finished(cell.base, folder):
        return dict.fromkeys(("gain", "gain_se", "gain_se_pooled"))
    base = summary_of(place_of(cell.base, folder))["final_accuracy"]

    def share(value: float | None) -> float | None:
        return None if value is None else 100 * value / base

    return {
        "gain": metrics.gain(own["final_accuracy"], base),
        "gain_se": share(own["final_accuracy_gain_se"]),
        "gain_se_pooled": share(own["final_accuracy_se"]),
    }


class Point(NamedTuple):
    """A budget, the mean over the datasets that have it."""

    gain: float
    paper: float
    floats: float


def conclude(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Marginal gain and value of budget of every mode, beside the paper's."""
    groups = grouped(tables["budget"], ("protocol", "seeds", "model", "mode"))
    found = []
    for (protocol, seeds, model, mode), rows in groups.items():
        if (model, mode) not in PAPER:
            continue
        spots = points(rows)
        slope, worth = PAPER[model, mode]
        gains = [spot.gain for spot in spots]
        found.append(
            {
                "protocol": protocol,
                "seeds": seeds,
                "model": model,
                "mode": mode,
                "points": len(spots),
                "datasets": len({one["dataset"] for one in rows}),
                "marginal_gain": marginal(gains, [spot.paper for spot in spots]),
                "paper_marginal_gain": slope,
                "value_of_budget": value(gains, [spot.paper for spot in spots]),
                "paper_value_of_budget": worth,
                "marginal_gain_floats": marginal(gains, [spot.floats for spot in spots]),
                "value_of_budget_floats": value(gains, [spot.floats for spot in spots]),
            }
        )
    return {"slopes": found}


def points(rows: Sequence[Row]) -> list[Point]:
    """One point per setting of a mode: datasets with images of the same size, and so with the same budget, together."""

    def kind(one: Row) -> bool:
        return bool(one["dataset"] == "cifar100")

    found = []
    for same in grouped([{**one, "cifar": kind(one)} for one in rows], ("cifar", *VARIED)).values():
        there = [one for one in same if one["gain"] is not None and one["paper_floats_per_edge_task"]]
        if there:
            names = ("gain", "paper_floats_per_edge_task", "floats_per_edge_task")
            found.append(Point(*(sum(one[name] for one in there) / len(there) for name in names)))
    return found


def marginal(gains: Sequence[float], budgets: Sequence[float]) -> float | None:
    """Slope of the least-squares line of gains (%) on the natural log of budgets; None without two budgets."""
    logs = [math.log(budget) for budget in budgets]
    if len(set(logs)) < 2:
        return None
    x, y = sum(logs) / len(logs), sum(gains) / len(gains)
    return sum((a - x) * (b - y) for a, b in zip(logs, gains, strict=True)) / sum((a - x) ** 2 for a in logs)


def value(gains: Sequence[float], budgets: Sequence[float]) -> float | None:
    """Mean gain (%) per float."""
    shares = [gain / budget for gain, budget in zip(gains, budgets, strict=True)]
    return sum(shares) / len(shares) if shares else None


def grouped(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that agree in the named columns, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for one in rows:
        found.setdefault(tuple(one.get(name) for name in names), []).append(one)
    return found
