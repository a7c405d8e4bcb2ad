"""Images: is it the sharing, or the dropout?

In the paper's Recv runs dropout was off for good after the first exchange, an accident of the code, and on in all other
rows. Here it is on for everyone, or off for everyone (protocol `fair`).
"""

from pathlib import Path

from shoal.settings.groups import FAIR
from shoal.study.cells import Row
from shoal_paper.control import beside
from shoal_paper.table1 import Cell, settings

NAME = "dropout"
ROWS = (("monolithic", "mnist"), ("monolithic", "kmnist"), ("modular", "mnist"))
RATES = (0.5, 0.0)
METHODS = ("vanilla", "data")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone and agents that ask for images, with dropout and without."""
    return [
        cell(dataset, model, method, rate, seeds) for rate in RATES for method in METHODS if (model, dataset) in ROWS
    ]


def cell(dataset: str, model: str, method: str, rate: float, seeds: int) -> Cell:
    own = settings(dataset, model, method, FAIR, seeds, net={"dropout": rate})
    return Cell(NAME, dataset, model, method, own, {"dropout": rate})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, and what it has more than agents alone with the same dropout."""
    alone = cell(one.dataset, one.model, METHODS[0], one.varied["dropout"], one.settings.seeds)
    return beside(one, alone, folder)


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
