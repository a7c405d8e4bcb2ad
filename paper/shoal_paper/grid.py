"""Does the order of sharing modes depend on the learner? Every learner with every mode, on nets in one piece, and
beside them nets with a learner and a mode of their own: modules and masks.

Protocol `fair`, shorter tasks than Table 1's, defaults of all learners and modes: nothing was tuned here. A gain is
over agents with the same net and learner that share nothing, paired over seeds.
"""

from pathlib import Path

from shoal.configure.reading import resolve
from shoal.settings.groups import FAIR, Settings
from shoal.study.cells import Row, place_of, scores, summary_of
from shoal.study.compare import difference
from shoal_paper.table1 import Cell, settings

NAME = "grid"
SEEDS = "grid_seeds"
DATASETS = ("mnist", "combined")
EPOCHS = 40
ALONE = "none"
LEARNERS = ("none", "ewc", "replay", "derpp")
# What agents share, and the [[sharing]] table of it.
SHARING: dict[str, list[Row]] = {
    ALONE: [],
    "data": [{"mode": "recv"}],
    "fedavg": [{"mode": "fedavg"}],
    "fedavg int8": [{"mode": "fedavg", "compress": "int8"}],
}
# Nets that bring a learner and a mode of their own.
OWN: dict[str, tuple[str, str, list[Row]]] = {
    "modular": ("modular-mlp", "modules", [{"mode": "modmod"}]),
    "frozen": ("masked-mlp", "masks", [{"mode": "masks"}]),
}
METHODS = (*SHARING, *(name for _, name, _ in OWN.values()))
SHOWN = ("final_accuracy", "auc")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Nets in one piece count as monolithic, the others as modular."""
    if dataset not in DATASETS:
        return []
    if model == "monolithic":
        return [cell(dataset, learner, method, seeds) for learner in LEARNERS for method in SHARING]
    return [cell(dataset, learner, method, seeds) for learner in OWN for method in (ALONE, OWN[learner][1])]


def cell(dataset: str, learner: str, method: str, seeds: int) -> Cell:
    net, model = (OWN[learner][0], "modular") if learner in OWN else ("mlp", "monolithic")
    shared = SHARING.get(method) if learner in LEARNERS or method == ALONE else OWN[learner][2]
    return Cell(NAME, dataset, model, method, made(dataset, net, learner, shared or [], seeds), {"learner": learner})


def made(dataset: str, net: str, learner: str, sharing: list[Row], seeds: int) -> Settings:
    agents = settings(dataset, "monolithic", "vanilla", FAIR, seeds).agents
    own = {"method": learner, "epochs": EPOCHS}
    return resolve(
        {"dataset": dataset, "model": net, "agents": agents, "seeds": seeds, "learner": own, "sharing": sharing}
    )


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, and what it has more than agents alone with the same net and learner."""
    place = place_of(one, folder)
    summary = summary_of(place)
    alone = place_of(cell(one.dataset, one.varied["learner"], ALONE, one.settings.seeds), folder)
    more = difference(summary, scores(place), scores(alone), one.method == ALONE)
    found: Row = {"protocol": FAIR, "dataset": one.dataset, "model": one.model, "learner": one.varied["learner"]}
    found |= {"method": one.method, "seeds": summary["seeds"]}
    for name in SHOWN:
        found |= {name: summary[name], f"{name}_se_seeds": summary[f"{name}_se_seeds"]}
        found |= {f"{name}_difference{end}": more[f"{name}_difference{end}"] for end in ("", "_se", "_p")}
    found["bytes_per_link_task"] = summary["bytes_per_link_task"]
    end = {"seconds": summary["seconds"], "identity": one.settings.identity(), "commit": summary["commit"]}
    return found | end


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for the cell, and one for each of its seeds."""
    own = row(one, folder)
    head = {name: own[name] for name in ("protocol", "dataset", "model", "learner", "method", "seeds")}
    each = scores(place_of(one, folder)).items()
    return {NAME: [own], SEEDS: [{**head, "seed": seed, **{name: of[name] for name in SHOWN}} for seed, of in each]}
