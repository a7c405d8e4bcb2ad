"""Table 1 of the paper: its cells, what it prints for them, and ours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from shoal.configure.reading import resolve
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.runs.paired import paired
from shoal.settings.groups import Settings
from shoal.study.cells import Row, finished, place_of, scores, summary_of

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
    ("modular", "modmod"): {
        "cifar100": (76.766, 76.799),
        "combined": (89.650, 89.619),
        "fashionmnist": (93.281, 93.256),
        "kmnist": (81.834, 81.777),
        "mnist": (94.079, 93.941),
    },
    ("modular", "hybrid"): {
        "cifar100": (77.048, 77.074),
        "combined": (90.315, 90.409),
        "fashionmnist": (94.105, 94.427),
        "kmnist": (82.934, 82.895),
        "mnist": (94.566, 94.745),
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
    ("monolithic", "hybrid"): {
        "cifar100": (70.047, 69.152),
        "combined": (88.277, 88.755),
        "fashionmnist": (94.662, 94.967),
        "kmnist": (81.061, 81.007),
        "mnist": (94.546, 94.901),
    },
}
MLP = ("mnist", "kmnist", "fashionmnist", "combined")  # datasets of small MLPs: hours on a CPU
SMALL = "cifar100-small"  # a reduction of the last column for CPUs, ours: the paper has no numbers for it
DATASETS = (*MLP, "cifar100", SMALL)
# The reduction: fewer agents, tasks, images, epochs and channels; exchanges come closer together, as epochs are fewer.
REDUCED: dict[str, Any] = {
    "agents": 4,
    "tasks": {"count": 8, "classes": 5, "train": 64, "validation": "all", "replacement": False},
    "net": {"width": 24},
    "learner": {"epochs": 10, "batch": 32, "rate": 2e-3},
}
RHYTHM = {"simp": 2, "modmod": "task"}  # of the reduction, in epochs; models are averaged after every epoch
MODELS = ("monolithic", "modular")
# Agents that share nothing and begin as those rows do that begin otherwise than vanilla: with a common start, or
# without. They are not in the paper.
ALONE = "alone"
FORMER = "agent"  # how shoal 0.1 drew tasks
METHODS = ("vanilla", ALONE, "data", "fedavg", "fedprox", "fedcurv", "fedfish", "modmod", "hybrid")
SHOWN = (
    "seeds", "final_accuracy", "final_accuracy_se", "final_accuracy_se_seeds", "auc", "auc_se", "auc_se_seeds",
    "modules", "messages", "refused", "floats_per_edge_task", "paper_floats_per_edge_task",
    "bytes_per_link_task", "bytes_total", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One cell of a table or figure: a run, and what distinguishes it from the run of Table 1."""

    what: str
    dataset: str
    model: str
    method: str
    settings: Settings
    varied: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.model}-{self.method}-{self.settings.protocol}"

    @property
    def vanilla(self) -> "Cell":
        """The paper's base: agents that learn alone under the same protocol, whatever they begin with."""
        own = self.settings
        alone = redrawn(settings(self.dataset, self.model, "vanilla", own.protocol, own.seeds), own.tasks.draw)
        return Cell("table1", self.dataset, self.model, "vanilla", alone)

    @property
    def base(self) -> "Cell":
        """Agents that learn alone and begin with the same tasks: a gain over others would compare different tasks."""
        own, vanilla = self.settings, self.vanilla
        if own.tasks.common == vanilla.settings.tasks.common:
            return vanilla
        alone = redrawn(settings(self.dataset, self.model, ALONE, own.protocol, own.seeds), own.tasks.draw)
        return Cell("table1", self.dataset, self.model, ALONE, alone)


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The cells of a dataset and a kind of model: the paper's, and agents alone as each of them begins."""
    found = [
        Cell("table1", dataset, model, method, settings(dataset, model, method, protocol, seeds))
        for method in METHODS
        if (model, method) in PAPER
    ]
    return found[:1] + bases(found) + found[1:]


def bases(cells: Sequence[Cell]) -> list[Cell]:
    """Agents alone with another start than vanilla's, if some of these cells have to be compared with them."""
    wanted = {cell.base.method: replace(cell.base, what=cell.what) for cell in cells}
    return [wanted[ALONE]] if ALONE in wanted else []


def modes(dataset: str, model: str, method: str) -> list[str]:
    """What a method shares: `data` is Simp on cifar100 and Recv elsewhere; `hybrid` all there is for the model."""
    data = "simp" if dataset in ("cifar100", SMALL) else "recv"
    hybrid = [data, "modmod", "fedavg"] if model == "modular" else [data, "fedavg"]
    return {"vanilla": [], ALONE: [], "data": [data], "hybrid": hybrid}.get(method, [method])


def settings(
    dataset: str,
    model: str,
    method: str,
    protocol: str,
    seeds: int,
    mode: Mapping[str, Any] | None = None,
    **groups: Mapping[str, Any],
) -> Settings:
    """The paper's settings for a dataset (docs/protocol.md, section 1) and a method; `mode` changes settings of what is
    shared, `groups` those of the network, the learner and so on."""
    block = "mlp" if dataset in MLP else "cnn"
    raw: dict[str, Any] = {
        "dataset": dataset.removesuffix("-small"),
        "model": f"modular-{block}" if model == "modular" else block,
        "protocol": protocol,
        "agents": 20 if dataset == "combined" else 8,
        "seeds": seeds,
    }
    rhythms: dict[str, Any] = {}
    if dataset == "cifar100":
        raw["tasks"] = {"count": 20, "classes": 5, "train": 256, "validation": "all", "replacement": False}
        raw["net"] = {"width": 50}
    elif dataset == SMALL:
        raw |= REDUCED
        rhythms = {name: {"every": RHYTHM.get(name, 1)} for name in modes(dataset, model, method)}
    if method == ALONE:
        vanilla = settings(dataset, model, "vanilla", protocol, seeds)
        raw["tasks"] = {**raw.get("tasks", {}), "common": not vanilla.tasks.common}
    for name, group in groups.items():
        raw[name] = {**raw.get(name, {}), **group}
    raw["sharing"] = [{"mode": name, **rhythms.get(name, {}), **(mode or {})} for name in modes(dataset, model, method)]
    return resolve(raw)


@cache
def base_of(protocol: str, dataset: str, model: str, method: str) -> str:
    """The method that a row has to be compared with."""
    return Cell("table1", dataset, model, method, settings(dataset, model, method, protocol, 1)).base.method


def redrawn(fleet: Settings, draw: str) -> Settings:
    """The same fleet, with tasks that are drawn otherwise."""
    return fleet.model_copy(update={"tasks": fleet.tasks.model_copy(update={"draw": draw})})


def former(row: Row) -> bool:
    """Was every agent of a row still splitting and drawing for itself, as in shoal 0.1?"""
    return row.get("draw") == FORMER


def alike(rows: Iterable[Row]) -> list[Row]:
    """Rows that may be compared: of a protocol, a dataset and a model only those of one draw, because another draw is
    other tasks. It is the one that has the most rows of those that share, and the newer if two have as many."""
    found: dict[tuple[Any, ...], dict[Any, list[Row]]] = {}
    for one in rows:
        group = found.setdefault(tuple(one.get(name) for name in ("protocol", "dataset", "model")), {})
        group.setdefault(one.get("draw"), []).append(one)

    def weight(draw: Any, same: list[Row]) -> tuple[int, bool]:
        return sum(one["method"] != ALONE for one in same), draw != FORMER

    return [one for group in found.values() for one in max(group.items(), key=lambda item: weight(*item))[1]]


def row(cell: Cell, folder: Path) -> Row:
    """A finished cell beside the paper's numbers, if the paper has any for it."""
    summary = summary_of(place_of(cell, folder))
    own = cell.settings
    usual = settings(cell.dataset, cell.model, cell.method, own.protocol, own.seeds)
    same = own.identity() == redrawn(usual, own.tasks.draw).identity()
    final, auc = PAPER.get((cell.model, cell.method), {}).get(cell.dataset, (None, None)) if same else (None, None)
    return {
        "what": cell.what,
        "dataset": cell.dataset,
        "model": cell.model,
        "method": cell.method,
        "protocol": summary["protocol"],
        "draw": own.tasks.draw,
        **cell.varied,
        **{name: summary.get(name) for name in SHOWN},  # a cell finished by an earlier version may lack some
        **({} if family(cell.settings) == GROWTH else {"modules": None}),  # where an earlier version counted layers
        **gains(cell, folder),
        "paper_final_accuracy": final,
        "paper_auc": auc,
        "identity": own.identity(),  # a cell finished by an earlier version may have another name for the same
        "commit": summary["commit"],
        "out": str(place_of(cell, folder)),
    }


def gains(cell: Cell, folder: Path) -> dict[str, float | None]:
    """What a cell gains over agents that learn alone and begin with the same tasks, and over the paper's base
    (`_vanilla`), paired over seeds, with standard errors; nothing, if those are not finished or this is one of them."""
    names = ("final_accuracy", "auc")
    found: dict[str, float | None] = {}
    for base, word in ((cell.base, ""), (cell.vanilla, "_vanilla")):
        found |= {f"{name}_gain{word}{end}": None for name in names for end in ("", "_se")}
        if cell.method in ("vanilla", ALONE) or not finished(base, folder):
            continue
        here, there = scores(place_of(cell, folder)), scores(place_of(base, folder))
        for name in names:
            if gap := paired(here, there, name):
                found |= {f"{name}_gain{word}": gap.mean, f"{name}_gain{word}_se": gap.error}
    return found


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell, and one for each of its seeds."""
    own = row(cell, folder)
    names = ("dataset", "model", "method", "protocol", "draw", "seeds")
    each = scores(place_of(cell, folder))
    identity = own["identity"]
    return {
        "table1": [{**{name: one for name, one in own.items() if name != "out"}, "what": "table1"}],
        "seeds": [
            {**{name: own[name] for name in names}, "seed": seed, **values, "identity": identity}
            for seed, values in each.items()
        ],
    }
