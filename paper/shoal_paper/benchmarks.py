"""Published benchmarks of single learners: one agent, MNIST two digits at a time.

`sequential-mnist` has the settings of Buzzega et al. 2020 (arXiv:2004.07211), `three-scenarios` those of van de Ven et
al. (arXiv:1904.07734; doi:10.1038/s42256-022-00568-3): rates, strengths and memories are the authors', none was chosen
here. Digits of `three-scenarios` come in an order that the seed draws, as the authors' do for every seed but the first.
Differs: a hundredth of the training images is held out, because streams need validation data.
"""

from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from shoal.configure.reading import resolve
from shoal.runs.paired import SURE, critical, student
from shoal.settings.groups import Settings
from shoal.study.cells import Row, place_of, summary_of
from shoal_paper.table1 import Cell

SEQUENTIAL, SCENARIOS = "sequential-mnist", "three-scenarios"
CLOSE = 2.0  # points of accuracy that do not matter
REPEATED = {SEQUENTIAL: 10, SCENARIOS: 20}  # runs that a published mean is over
STREAM: Row = {
    "scenario": "split", "count": 5, "classes": 2, "train": "all", "validation": "all", "held_out": 0.01,
    "replacement": False, "initial": 1, "common": False,
}  # fmt: skip

# Learners of `sequential-mnist`, with memories per task, and accuracies over all ten classes and among a task's two.
ONLINE: dict[str, tuple[Row, tuple[float, float] | None]] = {
    "sgd": ({"method": "none", "rate": 0.03}, (19.60, 94.94)),
    "oewc": (
        # There lambda has no half before it, hence 2 x 90, and F the term of the true label alone.
        {"method": "ewc", "rate": 0.03, "online": True, "strength": 180.0, "labels": "true", "samples": 1000},
        (20.46, 98.39),
    ),
    "si": ({"method": "si", "rate": 0.1, "strength": 1.0, "damping": 0.9, "clip": 1.0}, (19.27, 96.00)),
    "er-200": ({"method": "er", "rate": 0.01, "memory": 40, "replayed": 10}, (80.43, 97.86)),
    "agem-200": ({"method": "agem", "rate": 0.1, "memory": 40, "reference": 128}, (45.72, 98.61)),
    "der-200": ({"method": "der", "rate": 0.03, "memory": 40, "replayed": 10, "alpha": 0.2}, (84.55, 98.80)),
    "derpp-200": (
        {"method": "derpp", "rate": 0.03, "memory": 40, "replayed": 128, "alpha": 0.2, "beta": 1.0},
        (85.61, 98.76),
    ),
    "er-ace-200": ({"method": "er-ace", "rate": 0.03, "memory": 40, "replayed": 10}, None),
    "er-500": ({"method": "er", "rate": 0.1, "memory": 100, "replayed": 10}, (86.12, 99.04)),
    "derpp-500": (
        {"method": "derpp", "rate": 0.03, "memory": 100, "replayed": 10, "alpha": 1.0, "beta": 0.5},
        (91.00, 98.94),
    ),
    "joint": ({"method": "joint", "rate": 0.03, "fresh": True}, (95.57, 99.51)),
}

HEADS = {"task": "task", "domain": "one", "class": "grow"}
Three = tuple[float, float, float]  # task-, domain- and class-incremental
# Learners of `three-scenarios`, the strength in each, and final accuracies of 2019 and of 2022.
OFFLINE: dict[str, tuple[Row, Three | None, Three | None, Three]] = {
    "none": ({"method": "none"}, None, (87.19, 59.21, 19.90), (84.3, 60.1, 19.9)),
    "ewc": ({"method": "ewc", "samples": 500}, (1e5, 1e10, 1e9), (98.64, 63.95, 20.01), (99.1, 63.0, 20.6)),
    "si": ({"method": "si", "damping": 0.1}, (10.0, 5e4, 5e3), (99.09, 65.36, 19.99), (99.2, 66.9, 21.2)),
    "lwf": ({"method": "lwf"}, None, (99.57, 71.50, 23.85), (99.6, 72.0, 21.9)),
    "er": (
        {"method": "er", "memory": 200, "replayed": 128, "keep": "task", "mix": "tasks"},
        None,
        None,
        (99.0, 93.8, 88.8),
    ),
    "agem": ({"method": "agem", "memory": 200, "reference": 128}, None, None, (98.6, 87.0, 65.0)),
    "joint": ({"method": "joint"}, None, (99.66, 98.42, 97.94), (99.7, 98.6, 98.2)),
}

# Standard errors of 2019, in the three scenarios. Those of EWC are as others quote the first version of that table; the
# rest are as remembered, and still to be compared with it.
ERRORS: dict[str, Three] = {
    "none": (0.94, 2.04, 0.02),
    "ewc": (0.22, 1.90, 0.06),
    "si": (0.15, 1.57, 0.06),
    "lwf": (0.02, 1.63, 0.44),
    "joint": (0.02, 0.06, 0.03),
}


def settings(
    seeds: int, learner: Mapping[str, Any], width: int, tasks: Mapping[str, Any], net: Mapping[str, Any]
) -> Settings:
    """One agent on split MNIST, with a plain net of two layers."""
    return resolve(
        {
            "dataset": "mnist",
            "model": "plain-mlp",
            "agents": 1,
            "seeds": seeds,
            "tasks": {**STREAM, **tasks},
            "net": {"width": width, "depth": 2, "dropout": 0.0, "head": "random", **net},
            "learner": learner,
        }
    )


def online(method: str, seeds: int) -> Settings:
    """A row of `sequential-mnist`: one pass in batches of ten, one head over all ten digits from the start."""
    learner = {"epochs": 1, "batch": 10, "optimiser": "sgd", **ONLINE[method][0]}
    return settings(seeds, learner, 100, {"heads": "grow", "outputs": "all"}, {"weights": "xavier"})


def offline(method: str, scenario: str, seeds: int, shuffled: bool = True) -> Settings:
    """A row of `three-scenarios`: 2,000 steps of 128 images per task; `shuffled`, with digits in an order that the seed
    draws, or else in that of the numbers."""
    own, strengths, _, _ = OFFLINE[method]
    learner = {"epochs": 4, "iterations": 2000, "batch": 128, "rate": 1e-3, **own}
    if strengths is not None:
        learner["strength"] = strengths[list(HEADS).index(scenario)]
    tasks = {"heads": HEADS[scenario], **({"scenario": "parity"} if scenario == "domain" else {})}
    return settings(seeds, learner, 400, {**tasks, "shuffled": True} if shuffled else tasks, {})


def sequential(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The cells of `sequential-mnist`, a learner each."""
    if (dataset, model) != ("mnist", "monolithic"):
        return []
    return [Cell(SEQUENTIAL, dataset, model, method, online(method, seeds)) for method in ONLINE]


def scenarios(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The cells of `three-scenarios`, a learner and a scenario each; first the scenario in which it matters most which
    digits make a pair."""
    if (dataset, model) != ("mnist", "monolithic"):
        return []
    return [
        Cell(
            SCENARIOS,
            dataset,
            model,
            method,
            offline(method, scenario, seeds),
            {"scenario": scenario, "digits": "drawn"},
        )
        for scenario in ("domain", "class", "task")
        for method in OFFLINE
    ]


def row(cell: Cell, folder: Path) -> Row:
    """A finished cell beside what was published."""
    summary = summary_of(place_of(cell, folder))
    spread = summary["seeds"] ** 0.5

    def measured(name: str, column: str) -> Row:
        error = summary[f"{name}_se_seeds"]
        return {column: summary[name], f"{column}_sd": None if error is None else error * spread}

    head = {"method": cell.method, **cell.varied, "seeds": summary["seeds"]}
    if cell.what == SEQUENTIAL:
        both = ONLINE[cell.method][1] or (None, None)
        found = measured("final_accuracy", "class_il") | measured("task_accuracy", "task_il")
        theirs: Row = {"published_class_il": both[0], "published_task_il": both[1]}
    else:
        _, _, before, after = OFFLINE[cell.method]
        at = list(HEADS).index(cell.varied["scenario"])
        found = measured("final_accuracy", "accuracy")
        theirs = {"published_2019": before and before[at], "published_2022": after[at]}
    end = {"seconds": summary["seconds"], "identity": cell.settings.identity(), "commit": summary["commit"]}
    return {**head, **found, **theirs, **end}


class Gap(NamedTuple):
    """How far our mean is from a published one: a two-sample t-test, Welch's."""

    mean: float
    error: float
    freedom: int

    @property
    def p(self) -> float:
        return student(self.mean / self.error, self.freedom)

    @property
    def reach(self) -> float:
        """How far the 95 % interval goes to either side."""
        return self.error * critical(self.freedom)

    @property
    def word(self) -> str:
        """`close`, if all of the interval is within so many points that do not matter; `far`, if it is further and
        told apart; `open`, if the seeds do not say."""
        if abs(self.mean) + self.reach <= CLOSE:
            return "close"
        return "far" if abs(self.mean) > CLOSE and self.p < SURE else "open"


def gap(ours: float, spread: float, seeds: int, published: float, error: float | None, repeated: int) -> Gap:
    """How far the mean of so many seeds, with this standard deviation, is from a published mean of so many runs. Where
    its error was not printed, or is not known to us, their runs count as scattered as ours."""
    here, there = spread / sqrt(seeds), spread / sqrt(repeated) if error is None else error
    whole = here**4 / (seeds - 1) + there**4 / (repeated - 1)
    freedom = int((here**2 + there**2) ** 2 / whole) if whole else seeds - 1
    return Gap(ours - published, max(hypot(here, there), 1e-9), max(1, freedom))


def gaps(row: Row, printed: Mapping[str, Three] = ERRORS) -> list[Gap]:
    """How far a row is from each number that was published for it, of 2019 with these errors."""
    if row["seeds"] < 2:
        return []
    known: list[tuple[float | None, float | None]]
    if "scenario" not in row:
        known = [(row["published_class_il"], None)]
        ours, what = (row["class_il"], row["class_il_sd"]), SEQUENTIAL
    else:
        errors = printed.get(row["method"])
        error = errors and errors[list(HEADS).index(row["scenario"])]
        known = [(row["published_2019"], error), (row["published_2022"], None)]
        ours, what = (row["accuracy"], row["accuracy_sd"]), SCENARIOS
    return [gap(*ours, row["seeds"], number, error, REPEATED[what]) for number, error in known if number is not None]


def verdict(row: Row, printed: Mapping[str, Three] = ERRORS) -> str:
    """Is a row close to a number that was published for it? The better word, where there are two numbers; nothing, if
    there is none or one seed."""
    words = [one.word for one in gaps(row, printed)]
    return next((word for word in ("close", "open", "far") if word in words), "")


def hanging(rows: Sequence[Row]) -> str:
    """Which verdicts hang on the errors of 2019: they would be others if those runs were scattered as ours are."""
    found = [
        f"{row['method']} {row['scenario']}-incremental ({now}, would be {then})"
        for row in rows
        for now, then in [(verdict(row), verdict(row, {}))]
        if now != then
    ]
    return (
        "The errors of 2019 are as remembered but for EWC's; with ours in their place "
        f"{'other verdicts: ' + ', '.join(found) if found else 'all verdicts are the same'}."
    )


def latest(rows: Sequence[Row]) -> list[Row]:
    """Of several runs of a learner in a scenario, that with the most seeds."""
    return list({(row["method"], row["scenario"]): row for row in sorted(rows, key=lambda row: row["seeds"])}.values())


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell."""
    return {cell.what: [row(cell, folder)]}
