"""What more communication brings: relative gain over agents alone against the log of the budget B.

B is what the settings allow a directed edge to carry in a task, as in the paper; what it did carry stands beside it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from shoal.runs import metrics
from shoal.study.cells import Row, place_of, scores
from shoal_paper import table1
from shoal_paper.table1 import SMALL, Cell, base_of, bases, row, settings

# Marginal gain (% per unit of ln B) and value of budget (% per float) as printed.
PAPER = {
    ("modular", "modmod"): (1.579, 1.17e-4),
    ("modular", "federated"): (0.332, 2.56e-6),
    ("modular", "data"): (0.139, 9.93e-6),
    ("monolithic", "federated"): (1.263, 1.65e-5),
    ("monolithic", "data"): (1.384, 1.13e-5),
}
ENOUGH = 4  # seeds, below which nothing is said of the error over them
EPOCHS = 100  # of a task
PERIODS = (5, 10, 20, 50, 100)  # of averaging
MODULES = (1, 2, 3, 4)  # that a neighbour sends
# Final accuracies in the authors' notebooks, where they have them, for these budgets in modules or rounds per task.
NOTED = {"modmod": (1, 2, 3, 4), "federated": (20, 10, 5, 2, 1)}
NOTEBOOKS: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("modular", "modmod"): {
        "mnist": (94.08, 94.23, 94.34, 94.33),
        "kmnist": (81.8, 82.2, 82.1, 82.0),
        "fashionmnist": (93.3, 94.0, 94.0, 94.0),
        "combined": (89.5, 89.3, 89.6, 89.5),
    },
    ("monolithic", "federated"): {
        "mnist": (93.6, 93.6, 93.5, 93.4, 92.9),
        "kmnist": (80.6, 80.5, 80.2, 79.7, 78.9),
    },
}
QUERIES, IMAGES = (10, 20, 30), (20, 40, 80)  # of Recv, of Simp
EXCHANGES = {9: 10, 16: 5, 50: 1}  # epochs between exchanges of images: how many the paper counts in a task
VARIED = ("every", "queries", "images", "sent")
GAINS = ("gain", "gain_se", "gain_se_pooled", "gain_vanilla", "base")
OF_A_SEED = ("seed", "final_accuracy", "gain")
Finals = dict[int, float]  # final accuracies, or gains, by seed
Alone = dict[tuple[Any, ...], Finals]  # of agents alone, by problem and method


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The grid of a dataset and a kind of model, and agents alone to compare with; the reduction has none."""
    if dataset == SMALL:
        return []
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
    return found[:1] + [replace(one, varied=found[0].varied) for one in bases(found)] + found[1:]


def federated(dataset: str, model: str, protocol: str, proximal: Iterable[str]) -> tuple[str, Row]:
    """What stands for averaging, and its strength: FedAvg, but the paper took FedProx for modular nets on some data."""
    if protocol == "paper" and model == "modular" and dataset in proximal:
        return "fedprox", {"mu": 0.001}
    return "fedavg", {}


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell and one for each of its seeds; `settled` fills in their gains."""
    own = {name: one for name, one in row(cell, folder).items() if "_gain" not in name and name != "out"}
    head = {name: own[name] for name in ("dataset", "model", "method", "protocol", "draw", *cell.varied, "seeds")}
    sent = own["floats_per_edge_task"]
    return {
        cell.what: [own | dict.fromkeys(GAINS)],
        f"{cell.what}_seeds": [
            {**head, "seed": seed, "final_accuracy": one["final_accuracy"], "gain": None, "floats_per_edge_task": sent}
            for seed, one in scores(place_of(cell, folder)).items()
        ],
    }


def settled(what: str) -> Callable[[dict[str, list[Row]]], dict[str, list[Row]]]:
    """Fill in the gains of a table's rows and seeds over agents alone that begin with the same tasks, as its CSVs have
    them: when these are trained, rows that were there before get their gains too."""

    def made(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        rows, seeds = tables[what], tables[f"{what}_seeds"]
        names = [name for name in seeds[0] if name not in (*OF_A_SEED, "floats_per_edge_task")]
        each = {
            run: {one["seed"]: one["final_accuracy"] for one in same} for run, same in grouped(seeds, names).items()
        }

        def finals(one: Row) -> Finals:
            return each.get(tuple(one[name] for name in names), {})

        alone = {(*problem(one), one["method"]): finals(one) for one in seeds if one["mode"] == "alone"}
        return {
            what: [{**one, **gained(one, finals(one), alone)} for one in rows],
            f"{what}_seeds": [
                {**one, "gain": over(one, finals(one), alone, base(one)).get(one["seed"])} for one in seeds
            ],
        }

    return made


def gained(own: Row, here: Finals, alone: Alone) -> Row:
    """Gain in % of what agents alone reach that begin with the same tasks, its error paired over seeds, and the
    paper's: the run's own, pooled; and the gain over the paper's base."""
    gains, before = (list(over(own, here, alone, name).values()) for name in (base(own), "vanilla"))
    found: Row = dict.fromkeys(GAINS) | {"base": base(own), "gain_vanilla": fmean(before) if before else None}
    if not gains:
        return found
    level = fmean(alone[*problem(own), base(own)].values())
    return found | {
        "gain": fmean(gains),
        "gain_se": float(metrics.error(np.array(gains))) if len(gains) > 1 else None,
        "gain_se_pooled": None if own["final_accuracy_se"] is None else 100 * own["final_accuracy_se"] / level,
    }


def over(own: Row, here: Finals, alone: Alone, method: str) -> Finals:
    """Every seed's gain in % of what agents alone reach in the mean; nothing, if these have not been run."""
    there = alone.get((*problem(own), method), {})
    both = sorted(here.keys() & there.keys())
    return {seed: 100 * (here[seed] - there[seed]) / fmean(there[one] for one in both) for seed in both}


def problem(own: Row) -> tuple[Any, ...]:
    """What has to be the same in a run and in the agents alone that it is compared with."""
    return tuple(own[name] for name in ("protocol", "draw", "seeds", "dataset", "model"))


def base(own: Row) -> str:
    """The agents alone that begin with the same tasks as a run."""
    return base_of(own["protocol"], own["dataset"], own["model"], own["method"])


class Point(NamedTuple):
    """A budget, as allowed and as sent, in floats; the mean over the runs that have it."""

    gain: float
    setting: float
    floats: float


def conclude(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Marginal gain and value of budget of every mode, over all datasets that have every budget and on each of them,
    with errors over seeds where a table has these."""
    names = ("protocol", "draw", "seeds", "model", "mode")
    each = grouped(tables.get("budget_seeds", []), names)
    found = []
    for group, every in grouped(tables["budget"], names).items():
        *_, model, mode = group
        rows = whole([one for one in every if one["floats_per_edge_task"]], setting)
        if (model, mode) not in PAPER or not rows:
            continue
        ran = [name for name in table1.DATASETS if any(one["dataset"] == name for one in rows)]
        head = dict(zip(names, group, strict=True))
        for datasets in [ran, *([name] for name in ran if len(ran) > 1)]:
            here = [one for one in rows if one["dataset"] in datasets]
            seen = [one for one in each.get(group, []) if one["dataset"] in datasets]
            found.append(head | worth(model, mode, here, datasets) | errors(here, seen))
    return {"slopes": found}


def errors(rows: Sequence[Row], each: Sequence[Row]) -> Row:
    """Standard errors over seeds: each seed has a line of its own, and their mean is the line of the means. None, if
    some seeds do not have all the budgets."""
    slopes, values = [], []
    known = [one for one in each if one["floats_per_edge_task"] and one["gain"] is not None]
    for same in grouped(known, ("seed",)).values():
        spots = points(same)
        gains, budgets = [spot.gain for spot in spots], [spot.setting for spot in spots]
        if len(same) == len(rows) and (slope := marginal(gains, budgets)) is not None:
            slopes.append(slope)
            values.append(value(gains, budgets) or 0.0)
    enough = len(slopes) > 1
    return {
        "marginal_gain_se": float(metrics.error(np.array(slopes))) if enough else None,
        "value_of_budget_se": float(metrics.error(np.array(values))) if enough else None,
    }


def worth(model: str, mode: str, rows: Sequence[Row], datasets: Sequence[str]) -> Row:
    """Marginal gain and value of budget on some datasets, beside the paper's."""
    spots = points(rows)
    slope, price = PAPER[model, mode]
    gains = [spot.gain for spot in spots]
    before = [{**one, "gain": one.get("gain_vanilla")} for one in rows]
    known = all(one["gain"] is not None for one in before)
    return {
        "points": len(spots),
        "datasets": " ".join(datasets),
        "marginal_gain": marginal(gains, [spot.setting for spot in spots]),
        "paper_marginal_gain": slope,
        "paper_marginal_gain_here": noted(model, mode, datasets),
        "value_of_budget": value(gains, [spot.setting for spot in spots]),
        "value_of_budget_vanilla": value(*zip(*(spot[:2] for spot in points(before)), strict=True)) if known else None,
        "paper_value_of_budget": price,
        "marginal_gain_floats": marginal(gains, [spot.floats for spot in spots]),
        "value_of_budget_floats": value(gains, [spot.floats for spot in spots]),
    }


def whole(rows: Iterable[Row], varied: Callable[[Row], Any]) -> list[Row]:
    """The rows of datasets that have all that any of them has, as `varied` tells: means over now these, now those
    datasets would show their levels. The budgets of CIFAR-100, with other nets, are others."""
    kept = [{**one, "cifar": one["dataset"] == "cifar100"} for one in rows if one["gain"] is not None]
    found = []
    for same in grouped(kept, ("cifar",)).values():
        every = {varied(one) for one in same}
        for own in grouped(same, ("dataset",)).values():
            found += own if {varied(one) for one in own} == every else []
    return found


def noted(model: str, mode: str, datasets: Sequence[str]) -> float | None:
    """The marginal gain that the authors' notebooks give for these datasets; None unless they have all the numbers.

    Budgets count up to a factor: it moves the line, and leaves its slope.
    """
    known = {name: finals for name, finals in NOTEBOOKS.get((model, mode), {}).items() if name in datasets}
    if len(known) < len(datasets):
        return None
    gains = [
        [metrics.gain(final, table1.PAPER[model, "vanilla"][name][0]) for final in finals]
        for name, finals in known.items()
    ]
    return marginal([sum(same) / len(same) for same in zip(*gains, strict=True)], NOTED[mode])


def points(rows: Sequence[Row]) -> list[Point]:
    """One point per budget of a mode, the mean over all runs that have it, whatever their dataset."""
    names = ("gain", "setting", "floats_per_edge_task")
    return [
        Point(*(sum(one[name] for one in same) / len(same) for name in names))
        for same in grouped([{**one, "setting": setting(one)} for one in rows], ("setting",)).values()
    ]


def setting(row: Row) -> float:
    """The paper's budget of a run: floats that its settings allow an edge in a task, whether they were sent or not."""
    cifar = row["dataset"] == "cifar100"
    module, pixels = (22550, 3072) if cifar else (4160, 784)
    if row["mode"] == "modmod":
        return float(row["sent"] * module)
    if row["mode"] == "federated":
        return float(EPOCHS // row["every"] * 4 * module)
    queries = row["images"] / 5 if cifar else row["queries"]
    return float(queries * 6 * pixels * EXCHANGES[row["every"]])


def marginal(gains: Sequence[float], budgets: Sequence[float]) -> float | None:
    """Slope of the least-squares line of gains (%) on the natural log of budgets; None without two budgets."""
    logs = [math.log(budget) for budget in budgets]
    if len(set(logs)) < 2:
        return None
    x, y = sum(logs) / len(logs), sum(gains) / len(gains)
    slope = sum((a - x) * (b - y) for a, b in zip(logs, gains, strict=True)) / sum((a - x) ** 2 for a in logs)
    return round(slope, 9)  # of equal gains, 0


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
