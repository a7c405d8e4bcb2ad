"""What compressed mail costs and keeps: FedAvg on MNIST with every codec, final accuracy against bytes per link and
task.

All cells begin alike, exchange at the same moments (PowerGossip also with every epoch) and differ in nothing else.
Steps towards neighbours are the defaults: nothing was tuned.
"""

from pathlib import Path

from shoal.runs.paired import paired
from shoal.study.cells import Row, place_of, scores, summary_of
from shoal_paper.table1 import Cell, settings

COMPRESSION = "compression"
WHOLE = "fedavg"  # what the others are set beside
LEARNER: Row = {"epochs": 40}
# What FedAvg is told.
CODED: dict[str, Row] = {
    WHOLE: {},
    "int8": {"compress": "int8"},
    "int4": {"compress": "int4"},
    "sign": {"compress": "sign"},
    "top 10 %": {"compress": "topk", "ratio": 0.1},
    "top 1 %": {"compress": "topk", "ratio": 0.01},
    "random 10 %": {"compress": "randk", "ratio": 0.1, "form": "difference"},
    "rank 1": {"compress": "power"},
    "rank 1, every epoch": {"compress": "power", "every": 1},
    "rank 4": {"compress": "power", "rank": 4},
}


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone, FedAvg, and FedAvg with every codec."""
    if (dataset, model) != ("mnist", "monolithic"):
        return []
    alone = settings(dataset, model, "vanilla", "fair", seeds, learner=LEARNER)
    found = [Cell(COMPRESSION, dataset, model, "vanilla", alone)]
    for name, own in CODED.items():
        chosen = settings(dataset, model, "fedavg", "fair", seeds, own, learner=LEARNER)
        found.append(Cell(COMPRESSION, dataset, model, name, chosen))
    return found


def row(cell: Cell, folder: Path) -> Row:
    """A finished cell beside FedAvg, paired over seeds."""
    place = place_of(cell, folder)
    summary = summary_of(place)
    (whole,) = (one for one in cells(cell.dataset, cell.model, "fair", summary["seeds"]) if one.method == WHOLE)
    there = place_of(whole, folder)
    gap = paired(scores(place), scores(there), "final_accuracy") if (there / "summary.json").exists() else None
    sent, most = summary["bytes_per_link_task"] or 0, summary_of(there)["bytes_per_link_task"] if gap else None
    return {
        "protocol": summary["protocol"],
        "dataset": cell.dataset,
        "model": cell.model,
        "method": cell.method,
        "seeds": summary["seeds"],
        "final_accuracy": summary["final_accuracy"],
        "final_accuracy_se": summary["final_accuracy_se_seeds"],
        "bytes_per_link_task": sent,
        "of_fedavg": sent / most if most else None,
        "to_fedavg": gap.mean if gap else None,
        "to_fedavg_se": gap.error if gap else None,
        "seconds": summary["seconds"],
        "identity": cell.settings.identity(),
        "commit": summary["commit"],
    }


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell."""
    return {COMPRESSION: [row(cell, folder)]}
