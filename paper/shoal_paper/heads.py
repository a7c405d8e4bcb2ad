"""modmod: is it what was received, or that heads begin at zero?

A received head has zeros for the classes that the sender does not have; a fresh one is random. Here agents alone, and
agents that share images or modules, begin the heads of later tasks at random or at zero (protocol `fair`).
"""

from pathlib import Path

from shoal.settings.groups import FAIR
from shoal.study.cells import Row
from shoal_paper.control import beside_both
from shoal_paper.table1 import Cell, settings

NAME = "heads"
DATASETS = ("mnist", "kmnist", "fashionmnist")
METHODS = ("vanilla", "data", "modmod")
HEADS = ("random", "zero")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone and agents that share, with both kinds of heads."""
    kinds = [(method, head) for method in METHODS for head in HEADS if dataset in DATASETS and model == "modular"]
    return [cell(dataset, method, head, seeds) for method, head in kinds]


def cell(dataset: str, method: str, head: str, seeds: int) -> Cell:
    own = settings(dataset, "modular", method, FAIR, seeds, net={"head": head})
    return Cell(NAME, dataset, "modular", method, own, {"head": head})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, what it has more than agents alone whose heads begin at zero, and what more than agents alone
    as they are (`_vanilla`)."""
    random, zero = (cell(one.dataset, METHODS[0], head, one.settings.seeds) for head in HEADS)
    return beside_both(one, zero, random, folder)


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
