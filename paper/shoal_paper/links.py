"""Who degrades gracefully: gain over agents alone against the share of mail that is lost, and against how many of the
eight agents are gone. The MNIST row of Table 1 with half of its epochs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.configure.reading import resolve
from shoal.runs.paired import paired
from shoal.study.cells import Row, place_of, scores, summary_of
from shoal_paper.table1 import Cell

NAME = "links"
SHARED: dict[str, tuple[str, ...]] = {
    "alone": (), "recv": ("recv",), "fedavg": ("fedavg",), "modmod": ("modmod",), "hybrid": ("recv", "modmod", "fedavg")
}  # fmt: skip
METHODS = tuple(SHARED)
LOSSES = (0.0, 0.3, 0.6, 0.9)
ABSENT = (1, 2, 4, 6)
AGENTS, INITIAL, EPOCHS = 8, 4, 50
STAY = (0, 1)  # the agents that are always there: what absence costs is measured on them


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone, and every mode under every loss and with every number of agents that are gone."""
    if (dataset, model) != ("mnist", "modular"):
        return []
    found = [cell("alone", 0.0, 0, protocol, seeds)]
    for method in METHODS[1:]:
        found += [cell(method, loss, 0, protocol, seeds) for loss in LOSSES]
        found += [cell(method, 0.0, gone, protocol, seeds) for gone in ABSENT]
    return found


def cell(method: str, loss: float, gone: int, protocol: str, seeds: int) -> Cell:
    raw: dict[str, Any] = {
        "dataset": "mnist",
        "model": "modular-mlp",
        "protocol": protocol,
        "agents": AGENTS,
        "seeds": seeds,
        "tasks": {"initial": INITIAL},
        "learner": {"epochs": EPOCHS},
        "network": {"loss": loss},
        "sharing": [{"mode": name} for name in SHARED[method]],
    }
    if gone:  # after the common start
        raw["presence"] = {"leaves": [{"agents": list(range(AGENTS - gone, AGENTS)), "task": INITIAL}]}
    return Cell(NAME, "mnist", "modular", method, resolve(raw), {"loss": loss, "absent": gone})


def row(one: Cell, folder: Path) -> Row:
    """Final accuracy and AUC, and what they have more than alone, of all agents or of those that stay."""
    agents = STAY if one.varied["absent"] else None
    base = cell("alone", 0.0, 0, one.settings.protocol, one.settings.seeds)
    mine, alone = scores(place_of(one, folder), agents), scores(place_of(base, folder), agents)
    summary = summary_of(place_of(one, folder))
    found: Row = {
        **named(one.varied),
        **{name: sum(values[name] for values in mine.values()) / len(mine) for name in ("final_accuracy", "auc")},
    }
    for name, short in (("final_accuracy", "gain"), ("auc", "auc_gain")):
        gain = paired(mine, alone, name)
        found |= {short: gain and gain.mean, f"{short}_se": gain and gain.error}
    told = ("messages", "bytes_per_link_task", "commit")
    return {
        "protocol": one.settings.protocol, "dataset": one.dataset, "model": one.model, "method": one.method,
        "seeds": one.settings.seeds, **found, **{name: summary[name] for name in told},
    }  # fmt: skip


def named(varied: Mapping[str, Any]) -> Row:
    return {"loss": varied["loss"], "absent": varied["absent"]}


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
