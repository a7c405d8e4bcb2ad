"""CIFAR-100: is it the modules, or the adaptation that was left out?

In the paper modmod and the modular hybrid on CIFAR-100 ran without the adaptation epoch, agents alone with it. Here
agents alone and agents that share modules both have it, or both do not, on the reduction for CPUs.
"""

from pathlib import Path

from shoal.study.cells import Row
from shoal_paper.control import beside_both
from shoal_paper.protocol import PAPER
from shoal_paper.table1 import SMALL, Cell, settings

NAME = "adaptation"
WHEN = ("last", "never")
RUN = (("vanilla", "last"), ("modmod", "last"), ("vanilla", "never"), ("modmod", "never"), ("hybrid", "never"))
METHODS = tuple(dict.fromkeys(method for method, _ in RUN))


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents alone and agents that share modules, with the adaptation epoch and without; hybrids as the paper."""
    return [cell(method, when, seeds) for method, when in RUN if (dataset, model) == (SMALL, "modular")]


def cell(method: str, when: str, seeds: int) -> Cell:
    own = settings(SMALL, "modular", method, PAPER, seeds, learner={"adaptation": when})
    return Cell(NAME, SMALL, "modular", method, own, {"adaptation": when})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, what it has more than agents alone that adapt as it does, and what more than agents alone that
    adapt (`_vanilla`), which is what the paper compares."""
    alike, vanilla = (cell(METHODS[0], when, one.settings.seeds) for when in (one.varied["adaptation"], WHEN[0]))
    return beside_both(one, alike, vanilla, folder)


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
