"""What is the luck of weights? Cells of Table 1 once more, with the same draws of tasks and other weights, batches and
dropout: the authors' draws can be repeated, their weights cannot, so that this is how far apart equals are."""

import math
from pathlib import Path

from shoal.runs.paired import paired
from shoal.settings.groups import Settings
from shoal.study.cells import Row, place_of, scores
from shoal_paper.protocol import PAPER
from shoal_paper.table1 import Cell, settings

NAME = "weights"
CELLS = (("kmnist", "monolithic", "vanilla"), ("kmnist", "monolithic", "fedavg"), ("kmnist", "modular", "modmod"))
METHODS = tuple(dict.fromkeys(method for _, _, method in CELLS))
SHOWN = ("final_accuracy", "auc")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Each of these cells as Table 1 has it, and once more."""
    found = []
    for name, kind, method in CELLS:
        if (name, kind) == (dataset, model):
            own = settings(dataset, model, method, PAPER, seeds)
            found += [Cell(NAME, dataset, model, method, one, {"again": one is not own}) for one in (own, again(own))]
    return found


def again(fleet: Settings) -> Settings:
    """The same tasks under the seeds that come after the fleet's."""
    tasks = fleet.tasks.model_copy(update={"repeat": fleet.seeds})
    return fleet.model_copy(update={"seed": fleet.seeds, "tasks": tasks})


def row(one: Cell, folder: Path) -> Row:
    """Both runs of a cell, their difference paired over draws, and the error that weights alone give the mean of one:
    the difference of two runs varies by the root of two more than each of them."""
    own = settings(one.dataset, one.model, one.method, PAPER, one.settings.seeds)
    first, second = (place_of(Cell(NAME, one.dataset, one.model, one.method, run), folder) for run in (own, again(own)))
    here = scores(first)
    there = {seed - own.seeds: values for seed, values in scores(second).items()}
    found: Row = {"dataset": one.dataset, "model": one.model, "method": one.method, "seeds": own.seeds}
    for name in SHOWN:
        gap = paired(there, here, name)
        assert gap is not None
        means = (sum(values[name] for values in run.values()) / len(run) for run in (here, there))
        found |= dict(zip((name, f"{name}_again"), means, strict=True))
        found |= {f"{name}_difference": gap.mean, f"{name}_difference_se": gap.error}
        found[f"{name}_se_weights"] = None if gap.error is None else gap.error / math.sqrt(2)
    return found | {"identity": again(own).identity()}


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)] if one.varied["again"] else []}
