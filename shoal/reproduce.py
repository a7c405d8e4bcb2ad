"""Table 1 of the paper: its cells, what it prints for them, and ours."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal import metrics
from shoal.config import Settings, SettingsError, resolve
from shoal.record import Record, content, create, reopen

# Final accuracy and AUC of Table 1, with more digits where the authors' notebooks have them.
PAPER = {
    ("modular", "vanilla"): {
        "cifar100": (70.035, 71.831),
        "combined": (88.585, 88.045),
        "fashionmnist": (92.801, 92.030),
        "kmnist": (80.632, 80.623),
        "mnist": (93.467, 92.679),
    },
    ("modular", "data"): {
        "cifar100": (71.863, 73.420),
        "combined": (89.032, 89.483),
        "fashionmnist": (93.557, 92.967),
        "kmnist": (82.595, 82.038),
        "mnist": (94.595, 93.894),
    },
    ("modular", "fedavg"): {
        "cifar100": (70.990, 73.958),
        "combined": (88.453, 87.993),
        "fashionmnist": (92.457, 91.956),
        "kmnist": (80.038, 80.095),
        "mnist": (93.569, 92.815),
    },
    ("modular", "fedprox"): {
        "cifar100": (71.815, 73.846),
        "combined": (88.469, 88.021),
        "fashionmnist": (92.927, 92.067),
        "kmnist": (80.485, 80.203),
        "mnist": (93.927, 93.053),
    },
    ("modular", "fedcurv"): {
        "cifar100": (71.107, 73.941),
        "combined": (88.454, 87.985),
        "fashionmnist": (93.057, 92.321),
        "kmnist": (80.340, 80.142),
        "mnist": (93.784, 92.759),
    },
    ("modular", "fedfish"): {
        "cifar100": (71.10, 73.967),
        "combined": (88.46, 87.988),
        "fashionmnist": (93.08, 92.332),
        "kmnist": (80.32, 80.126),
        "mnist": (93.77, 92.755),
    },
    ("monolithic", "vanilla"): {
        "cifar100": (63.108, 65.598),
        "combined": (86.589, 87.695),
        "fashionmnist": (92.467, 93.271),
        "kmnist": (78.227, 79.418),
        "mnist": (91.959, 93.102),
    },
    ("monolithic", "data"): {
        "cifar100": (65.181, 67.235),
        "combined": (87.815, 88.594),
        "fashionmnist": (94.016, 94.717),
        "kmnist": (80.702, 81.008),
        "mnist": (94.202, 94.543),
    },
    ("monolithic", "fedavg"): {
        "cifar100": (67.045, 69.109),
        "combined": (86.566, 86.761),
        "fashionmnist": (93.676, 93.596),
        "kmnist": (80.553, 80.490),
        "mnist": (93.864, 93.758),
    },
    ("monolithic", "fedprox"): {
        "cifar100": (67.177, 69.091),
        "combined": (86.857, 87.162),
        "fashionmnist": (93.900, 93.993),
        "kmnist": (80.260, 80.465),
        "mnist": (93.736, 93.650),
    },
    ("monolithic", "fedcurv"): {
        "cifar100": (66.793, 68.928),
        "combined": (86.619, 86.866),
        "fashionmnist": (93.740, 93.852),
        "kmnist": (80.392, 80.398),
        "mnist": (93.661, 93.369),
    },
    ("monolithic", "fedfish"): {
        "cifar100": (66.85, 68.91),
        "combined": (86.55, 86.82),
        "fashionmnist": (93.64, 93.84),
        "kmnist": (80.39, 80.38),
        "mnist": (93.65, 93.37),
    },
}
DATASETS = ("mnist", "kmnist", "fashionmnist", "combined", "cifar100")
MODELS = ("monolithic", "modular")
METHODS = ("vanilla", "data", "fedavg", "fedprox", "fedcurv", "fedfish")


@dataclass(frozen=True)
class Cell:
    """One cell of the table: a run."""

    dataset: str
    model: str
    method: str
    settings: Settings

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.model}-{self.method}-{self.settings.protocol}"


def choose(
    what: str,
    datasets: list[str] | None,
    models: list[str] | None,
    methods: list[str] | None,
    protocol: str,
    seeds: int,
) -> list[Cell]:
    """The cells that the words select; all but cifar100, which takes days on a CPU, if they do not say."""
    if what != "table1":
        raise SettingsError(f"cannot reproduce `{what}`; allowed: table1")
    wanted = [
        (dataset, model, method)
        for dataset in datasets or DATASETS[:-1]
        for model in models or MODELS
        for method in methods or METHODS
    ]
    for dataset, model, method in wanted:
        for name, value, allowed in (
            ("dataset", dataset, DATASETS), ("model", model, MODELS), ("method", method, METHODS)
        ):  # fmt: skip
            if value not in allowed:
                raise SettingsError(f"Table 1 has no {name} `{value}`; allowed: {', '.join(allowed)}")
    return [
        Cell(dataset, model, method, settings(dataset, model, method, protocol, seeds))
        for dataset, model, method in wanted
    ]


def settings(dataset: str, model: str, method: str, protocol: str, seeds: int) -> Settings:
    """The paper's settings for a dataset (protocol 1) and a method: `data` is Simp on cifar100 and Recv elsewhere."""
    cifar = dataset == "cifar100"
    block = "cnn" if cifar else "mlp"
    raw: dict[str, Any] = {
        "dataset": dataset,
        "model": f"modular-{block}" if model == "modular" else block,
        "protocol": protocol,
        "agents": 20 if dataset == "combined" else 8,
        "seeds": seeds,
        "sharing": {"vanilla": "none", "data": "simp" if cifar else "recv"}.get(method, method),
    }
    if cifar:
        raw["tasks"] = {"count": 20, "classes": 5, "train": 256, "validation": "all", "replacement": False}
        raw["net"] = {"width": 50}
    return resolve(raw)


def finished(cell: Cell, folder: Path) -> bool:
    """Was the cell finished earlier?"""
    return (place_of(cell, folder) / "summary.json").exists()


def place_of(cell: Cell, folder: Path) -> Path:
    return folder / f"{cell.name}-{cell.settings.identity()}"


def open_cell(cell: Cell, folder: Path) -> Record:
    """The cell's run directory, new or as it was left."""
    place = place_of(cell, folder)
    return reopen(place) if (place / "settings.toml").exists() else create(place, cell.settings)


def row(cell: Cell, folder: Path) -> dict[str, Any]:
    """A finished cell beside the paper's numbers."""
    final, auc = PAPER[cell.model, cell.method][cell.dataset]
    place = place_of(cell, folder)
    summary = content(place / "summary.json")
    return {
        "what": "table1",
        "dataset": cell.dataset,
        "model": cell.model,
        "method": cell.method,
        "protocol": summary["protocol"],
        **{
            name: summary.get(name)  # a cell finished by an earlier version may lack some
            for name in (
                "seeds",
                "final_accuracy",
                "final_accuracy_se",
                "final_accuracy_se_seeds",
                "auc",
                "auc_se",
                "auc_se_seeds",
                "modules",
                "messages",
                "refused",
                "floats_per_edge_task",
                "paper_floats_per_edge_task",
                "bytes_total",
                "seconds",
            )
        },
        **gains(cell, folder),
        "paper_final_accuracy": final,
        "paper_auc": auc,
        "identity": summary["identity"],
        "commit": content(place / "about.json").get("commit"),
        "out": str(place),
    }


def gains(cell: Cell, folder: Path) -> dict[str, float | None]:
    """What a cell gains over agents that learn alone under the same protocol, paired over seeds, with standard errors;
    nothing, if that cell is not finished or this is it."""
    names = ("final_accuracy", "auc")
    found: dict[str, float | None] = {f"{name}_gain{end}": None for name in names for end in ("", "_se")}
    own = cell.settings
    base = settings(cell.dataset, cell.model, "vanilla", own.protocol, own.seeds)
    alone = Cell(cell.dataset, cell.model, "vanilla", base)
    if cell.method == "vanilla" or not finished(alone, folder):
        return found
    here, there = by_seed(place_of(cell, folder)), by_seed(place_of(alone, folder))
    for name in names:
        gain = here[name] - there[name]
        found[f"{name}_gain"] = float(gain.mean())
        if len(gain) > 1:
            found[f"{name}_gain_se"] = float(metrics.error(gain))
    return found


def by_seed(place: Path) -> dict[str, np.ndarray]:
    """Final accuracy (%) and AUC of a finished run, the mean over the agents of each seed."""
    import torch

    from shoal.stack import grid

    record = reopen(place)
    stacks = record.load(torch.device("cpu"))
    if stacks is None:
        raise SettingsError(f"{place} has lost its checkpoint; remove the folder and reproduce the cell again")
    (stack,) = stacks
    accuracy, epochs = stack.accuracy.double().numpy(), grid(record.settings.learner.epochs)
    curves = metrics.curve(accuracy, record.settings.tasks.initial)
    lanes = {"final_accuracy": 100 * metrics.final(accuracy), "auc": metrics.area(curves, epochs)}
    seeds = np.array([lane.seed for lane in stack.lanes])
    return {name: np.array([values[seeds == one].mean() for one in np.unique(seeds)]) for name, values in lanes.items()}


def write(rows: list[dict[str, Any]], folder: Path) -> Path:
    """All rows as CSV, to be kept: runs are large, this is what they came to. Rows of earlier commands stay."""
    table = folder / "table1.csv"
    columns = [name for name in rows[0] if name != "out"]
    said = [
        {name: round(row[name], 3) if isinstance(row[name], float) else row[name] for name in columns} for row in rows
    ]
    before: list[dict[str, Any]] = []
    if table.exists():
        with table.open(newline="") as file:
            before = [row for row in csv.DictReader(file) if place(row)]
    every = {place(row): row for row in [*before, *said]}
    aside = table.with_suffix(".part")
    with aside.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(every[key] for key in sorted(every))
    aside.replace(table)
    return table


def place(row: dict[str, Any]) -> tuple[int, ...]:
    """Where a row belongs in the table; nowhere, if it is none of its rows."""
    orders = {"protocol": ("paper", "fair"), "dataset": DATASETS, "model": MODELS, "method": METHODS}
    try:
        return (*(order.index(row[name]) for name, order in orders.items()), int(row["seeds"]))
    except (KeyError, ValueError):
        return ()
