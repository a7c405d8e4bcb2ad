"""Modules against images: is it what is sent, or two settings that go with it?

Under `fair`, agents that share images ask about all their tasks (`scope = all`) and begin heads at random, while a
received module brings a head of its own. Here agents alone and agents that share have both scopes and both kinds of
heads, so that every difference stands under all four (modular nets, protocol `fair`).
"""

from pathlib import Path

from shoal.settings.groups import FAIR
from shoal.study.cells import Row
from shoal_paper.control import beside
from shoal_paper.table1 import MLP, Cell, settings

NAME = "confounds"
METHODS = ("vanilla", "data", "modmod", "hybrid")
ASKING = ("data", "hybrid")  # methods that have a scope
SCOPES = ("all", "current")
HEADS = ("random", "zero")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Each method with both kinds of heads and, if it asks, both scopes."""
    if dataset not in MLP or model != "modular":
        return []
    return [
        cell(dataset, method, scope, head, seeds)
        for method in METHODS
        for scope in (SCOPES if method in ASKING else (None,))
        for head in HEADS
    ]


def cell(dataset: str, method: str, scope: str | None, head: str, seeds: int) -> Cell:
    own = settings(dataset, "modular", method, FAIR, seeds, net={"head": head})
    if scope is not None:
        shared = [one.model_copy(update={"scope": scope}) if one.mode == "recv" else one for one in own.sharing]
        own = own.model_copy(update={"sharing": tuple(shared)})
    return Cell(NAME, dataset, "modular", method, own, {"scope": scope, "head": head})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell and what it has more than agents alone with the same heads; modules and the hybrid also what more
    than images asked for with either scope (`_all`, `_current`) and the same heads."""
    head, seeds = one.varied["head"], one.settings.seeds
    found = beside(one, cell(one.dataset, METHODS[0], None, head, seeds), folder)
    for scope in SCOPES:
        other = beside(one, cell(one.dataset, "data", scope, head, seeds), folder)
        wanted = one.method == "modmod" or (one.method == "hybrid" and one.varied["scope"] == scope)
        found |= {
            f"{name}_{scope}": value if wanted else None for name, value in other.items() if "_difference" in name
        }
    return found


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder)]}
