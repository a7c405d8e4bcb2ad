"""modmod: is it what was received, or that heads begin at zero?

A received head has zeros for the classes that the sender does not have; a fresh one is random. Here agents alone begin
the heads of later tasks at zero, too, and are set beside agents that share modules (protocol `fair`).
"""

from pathlib import Path

from shoal.reproduce.control import beside_both
from shoal.reproduce.table1 import Cell, settings
from shoal.runs.cells import Row
from shoal.settings.groups import FAIR

NAME = "heads"
DATASETS = ("mnist", "kmnist", "fashionmnist")
RUN = (("vanilla", "random"), ("vanilla", "zero"), ("modmod", "random"))
METHODS = tuple(dict.fromkeys(method for method, _ in RUN))


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone with both kinds of heads, and agents that share modules."""
    return [cell(dataset, *one, seeds) for one in RUN if dataset in DATASETS and model == "modular"]


def cell(dataset: str, method: str, head: str, seeds: int) -> Cell:
    own = settings(dataset, "modular", method, FAIR, seeds, net={"head": head})
    return Cell(NAME, dataset, "modular", method, own, {"head": head})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, what it has more than agents alone whose heads begin at zero, and what more than agents alone
    as they are (`_vanilla`)."""
    zero, random = (cell(one.dataset, METHODS[0], head, one.settings.seeds) for head in ("zero", "random"))
    return beside_both(one, zero, random, folder)


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
