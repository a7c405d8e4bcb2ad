"""Table 1 of the paper: its cells, what it prints for them, and ours."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    ("monolithic", "vanilla"): {
        "cifar100": (63.108, 65.598),
        "combined": (86.589, 87.695),
        "fashionmnist": (92.467, 93.271),
        "kmnist": (78.227, 79.418),
        "mnist": (91.959, 93.102),
    },
}
DATASETS = ("mnist", "kmnist", "fashionmnist", "combined", "cifar100")
MODELS = ("monolithic", "modular")
METHODS = ("vanilla",)


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
        Cell(dataset, model, method, settings(dataset, model, protocol, seeds)) for dataset, model, method in wanted
    ]


def settings(dataset: str, model: str, protocol: str, seeds: int) -> Settings:
    """The paper's settings for a dataset (protocol 1)."""
    cifar = dataset == "cifar100"
    block = "cnn" if cifar else "mlp"
    raw: dict[str, Any] = {
        "dataset": dataset,
        "model": f"modular-{block}" if model == "modular" else block,
        "protocol": protocol,
        "agents": 20 if dataset == "combined" else 8,
        "seeds": seeds,
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
            name: summary[name]
            for name in (
                "seeds",
                "final_accuracy",
                "final_accuracy_se",
                "final_accuracy_se_seeds",
                "auc",
                "auc_se",
                "auc_se_seeds",
                "modules",
                "seconds",
            )
        },
        "paper_final_accuracy": final,
        "paper_auc": auc,
        "identity": summary["identity"],
        "commit": content(place / "about.json").get("commit"),
        "out": str(place),
    }


def write(rows: list[dict[str, Any]], folder: Path) -> Path:
    """All rows as CSV, to be kept: runs are large, this is what they came to."""
    table = folder / "table1.csv"
    columns = [name for name in rows[0] if name != "out"]
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            values = (row[name] for name in columns)
            writer.writerow(round(value, 3) if isinstance(value, float) else value for value in values)
    return table
