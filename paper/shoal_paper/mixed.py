"""A mixed fleet: nine agents of three kinds with different nets (`shoal run mixed`), sharing and alone."""

from pathlib import Path

from shoal.configure.reading import read
from shoal.study.cells import Row
from shoal.study.compare import Entry, compared
from shoal_paper.table1 import Cell

NAME = "mixed"
METHODS = ("vanilla", "hybrid")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """The fleet alone, and the fleet that shares images and modules."""
    return [cell(method, seeds) for method in METHODS if (dataset, model) == ("mnist", "modular")]


def cell(method: str, seeds: int) -> Cell:
    words = [f"seeds={seeds}", *(["sharing=none"] if method == METHODS[0] else [])]
    return Cell(NAME, "mnist", "mixed", method, read(Path(NAME), words))


def rows(one: Cell, folder: Path) -> list[Row]:
    """A row for the whole fleet, and one for each kind of agents, with what they have more than alone."""
    base, own = (entry(method, one.settings.seeds) for method in (METHODS[0], one.method))
    found = compared([own], own if one.method == METHODS[0] else base, folder)
    left = ("run", "baseline", "out")
    return [{"method": one.method} | {name: value for name, value in row.items() if name not in left} for row in found]


def entry(method: str, seeds: int) -> Entry:
    made = cell(method, seeds)
    return Entry(method, made.name, made.settings.model_dump(), made.settings)


def row(one: Cell, folder: Path) -> Row:
    return rows(one, folder)[0]


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: rows(one, folder)}
