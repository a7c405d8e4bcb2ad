"""The paper's tables and figures, and published benchmarks of learners: each is a family of cells, a run each, and what
is made of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shoal.data.draws import DRAWS
from shoal.errors import SettingsError, UserError
from shoal.study.cells import Row, read_csv, write_csv
from shoal_paper import (
    adaptation,
    benchmarks,
    budget,
    compression,
    confounds,
    curves,
    dropout,
    gaps,
    grid,
    heads,
    leak,
    links,
    memory,
    mixed,
    table1,
    topology,
    weights,
)
from shoal_paper.table1 import ALONE, DATASETS, METHODS, MLP, MODELS, SMALL, Cell, redrawn, settings

__all__ = ["DATASETS", "FAMILIES", "FIGURED", "METHODS", "MODELS", "Cell", "choose", "collect", "row", "settings"]

Tables = dict[str, list[Row]]


def nothing(tables: Tables) -> Tables:
    return {}


def as_they_are(name: str) -> Callable[[Tables], Tables]:
    """The rows themselves are what is shown."""
    return lambda tables: {name: tables[name]}


def of_table1(cell: Cell, folder: Path) -> Tables:
    """All that is shown of a run of Table 1: its numbers, its seeds, its learning curve."""
    return table1.records(cell, folder) | curves.records(cell, folder)


class Family(NamedTuple):
    """A table or figure of the paper, or a published benchmark."""

    cells: Callable[[str, str, str, int], list[Cell]]  # of a dataset, a kind of model, a protocol, so many seeds
    records: Callable[[Cell, Path], Tables]  # the rows of a finished cell, by the CSV they belong to
    conclude: Callable[[Tables], Tables] = nothing  # what all the rows come to
    row: Callable[[Cell, Path], Row] = table1.row  # a finished cell in short
    methods: tuple[str, ...] = METHODS
    seeds: int = 8
    paper: bool = True  # is it in the paper?
    base: tuple[str, ...] = ()  # methods that rows are set beside; none: agents alone, where something is varied
    settle: Callable[[Tables], Tables] = nothing  # what is written beside the rows, and rows that depend on others
    datasets: tuple[str, ...] = MLP  # where nobody says which: cifar100 takes weeks on a CPU


FAMILIES = {
    "table1": Family(table1.cells, of_table1, settle=gaps.conclude),
    "curves": Family(table1.cells, curves.records),
    "budget": Family(budget.cells, budget.records, budget.conclude, settle=budget.settled("budget")),
    "topology": Family(topology.cells, budget.records, topology.conclude, settle=budget.settled("topology")),
    "gaps": Family(table1.cells, table1.records, gaps.conclude),
    compression.COMPRESSION: Family(
        compression.cells,
        compression.records,
        as_they_are(compression.COMPRESSION),
        compression.row,
        ("vanilla", *compression.CODED),
        4,
        False,
        (compression.WHOLE,),
    ),
    benchmarks.SEQUENTIAL: Family(
        benchmarks.sequential,
        benchmarks.records,
        as_they_are(benchmarks.SEQUENTIAL),
        benchmarks.row,
        tuple(benchmarks.ONLINE),
        5,
        False,
    ),
    benchmarks.SCENARIOS: Family(
        benchmarks.scenarios,
        benchmarks.records,
        as_they_are(benchmarks.SCENARIOS),
        benchmarks.row,
        tuple(benchmarks.OFFLINE),
        10,
        False,
    ),
    dropout.NAME: Family(
        dropout.cells, dropout.records, as_they_are(dropout.NAME), dropout.row, dropout.METHODS, paper=False
    ),
    memory.NAME: Family(
        memory.cells, memory.records, as_they_are(memory.NAME), memory.row, memory.METHODS, paper=False
    ),
    leak.NAME: Family(leak.cells, leak.records, as_they_are(leak.NAME), leak.row, leak.METHODS, seeds=4, paper=False),
    links.NAME: Family(
        links.cells, links.records, as_they_are(links.NAME), links.row, links.METHODS, seeds=2, paper=False
    ),
    grid.NAME: Family(
        grid.cells, grid.records, as_they_are(grid.NAME), grid.row, grid.METHODS, paper=False, base=(grid.ALONE,)
    ),
    weights.NAME: Family(
        weights.cells, weights.records, as_they_are(weights.NAME), weights.row, weights.METHODS, paper=False
    ),
    mixed.NAME: Family(mixed.cells, mixed.records, as_they_are(mixed.NAME), mixed.row, mixed.METHODS, paper=False),
    adaptation.NAME: Family(
        adaptation.cells,
        adaptation.records,
        as_they_are(adaptation.NAME),
        adaptation.row,
        adaptation.METHODS,
        3,
        paper=False,
        datasets=(SMALL,),
    ),
    heads.NAME: Family(heads.cells, heads.records, as_they_are(heads.NAME), heads.row, heads.METHODS, paper=False),
    confounds.NAME: Family(
        confounds.cells,
        confounds.records,
        as_they_are(confounds.NAME),
        confounds.row,
        confounds.METHODS,
        paper=False,
    ),
}
FIGURED = ("curves", "budget", "topology", links.NAME, compression.COMPRESSION, grid.NAME)  # families with a figure
# What tells rows of a CSV apart, and their order.
RANKS: dict[str, tuple[str, ...]] = {
    "protocol": ("paper", "fair"),
    "dataset": DATASETS,
    "model": (*MODELS, mixed.NAME),
    "scenario": tuple(benchmarks.HEADS),
    "method": tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.methods)),
}
KEYS = (
    *RANKS,
    "learner",
    "kind",
    "dropout",
    "memory",
    "own_validation",
    "adaptation",
    "scope",
    "head",
    "digits",
    "mode",
    "graph",
    "p",
    "every",
    "queries",
    "images",
    "sent",
    "loss",
    "absent",
    "draw",
    "seeds",
    "seed",
    "epoch",
)


def choose(
    what: str,
    datasets: list[str] | None,
    models: list[str] | None,
    methods: list[str] | None,
    protocol: str,
    seeds: int | None,
    draw: str | None = None,
) -> list[Cell]:
    """The cells that the words select; of the family's datasets, if they do not say.
    `draw` says how tasks are drawn, if not as the protocol has it.

    Agents alone come along wherever gains are asked for.
    """
    wanted = [name for name, family in FAMILIES.items() if family.paper] if what == "all" else [what]
    if not FAMILIES.keys() >= set(wanted):
        raise SettingsError(f"cannot reproduce `{what}`; allowed: {', '.join(FAMILIES)}, all, report")
    if draw is not None and draw not in DRAWS:
        raise SettingsError(f"tasks cannot be drawn by `{draw}`; allowed: {', '.join(DRAWS)}")
    if draw is not None and not FAMILIES[wanted[0]].paper:
        raise SettingsError(f"--draw is for the paper's tables and figures; {what} has its own")
    for name, said, allowed in (
        ("dataset", datasets, DATASETS), ("model", models, MODELS), ("method", methods, FAMILIES[wanted[0]].methods)
    ):  # fmt: skip
        for value in said or ():
            if value not in allowed:
                where = "Table 1" if FAMILIES[wanted[0]].paper else what
                raise SettingsError(f"{where} has no {name} `{value}`; allowed: {', '.join(allowed)}")
    found = [
        replace(cell, what=family)
        for family in wanted
        for dataset in datasets or FAMILIES[family].datasets
        for model in models or MODELS
        for cell in chosen(FAMILIES[family], dataset, model, protocol, seeds_of(family, seeds), methods)
    ]
    if not found:
        words = " ".join("/".join(some) for some in (datasets, models, methods) if some)
        hint = ": only modular nets have modules to share" if methods == ["modmod"] else ""
        raise SettingsError(f"{what} has no cell `{words}`{hint}")
    return found if draw is None else [replace(cell, settings=redrawn(cell.settings, draw)) for cell in found]


def placed(cell: Cell, data: Path | None) -> Cell:
    """The same cell, with a folder for its data where one is given: some tables look at the data, too."""
    own = cell.settings
    machine = own.machine if data is None else own.machine.model_copy(update={"data": str(data)})
    return replace(cell, settings=own.model_copy(update={"machine": machine}))


def seeds_of(what: str, seeds: int | None) -> int:
    """How many seeds the cells of a family have, if nobody says it."""
    if seeds is not None:
        return seeds
    return FAMILIES[what].seeds if what in FAMILIES else Family._field_defaults["seeds"]


def row(cell: Cell, folder: Path) -> Row:
    """A finished cell in short."""
    return FAMILIES[cell.what].row(cell, folder)


def chosen(
    family: Family, dataset: str, model: str, protocol: str, seeds: int, methods: list[str] | None
) -> list[Cell]:
    """Cells of these methods, with those that their gains need."""
    cells = family.cells(dataset, model, protocol, seeds)
    if not methods:
        return cells
    # Where figures say "federated", fedprox stands for fedavg in some panels.
    wanted = [
        cell
        for cell in cells
        if cell.method in methods or ("fedavg" in methods and cell.varied.get("mode") == "federated")
    ]
    needed = family.base or (("vanilla", ALONE) if any(cell.varied for cell in wanted) else ())
    return [cell for cell in cells if cell in wanted or (wanted and cell.method in needed)]


def collect(cells: Iterable[Cell], folder: Path, place: Path) -> dict[str, Tables]:
    """Put the rows of finished cells, found in `folder`, into the CSVs in `place`, and what they come to beside them.

    Rows of earlier commands stay. Gives what the rows of each family come to: none, some or several tables.
    """
    new: Tables = {}
    families = list(dict.fromkeys(cell.what for cell in cells))
    for cell in cells:
        for name, rows in FAMILIES[cell.what].records(cell, folder).items():
            new.setdefault(name, []).extend(rows)
    files = {name: place / f"{name}.csv" for name in new}
    kept = {name: write(rows, files[name]) if rows else read_csv(files[name]) for name, rows in new.items()}
    found: dict[str, Tables] = {}
    for what in families:
        try:
            for name, rows in FAMILIES[what].settle(kept).items():
                if rows:  # the gaps of a dataset that the paper does not have are none
                    kept[name] = read_csv(write_csv(place / f"{name}.csv", rows))
            found[what] = {name: rows for name, rows in FAMILIES[what].conclude(kept).items() if rows}
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"cannot make sense of the CSVs in {place} ({error}); restore them") from None
        for name, rows in found[what].items():
            write_csv(place / f"{name}.csv", rows)
    return found


def write(rows: list[Row], file: Path) -> list[Row]:
    """Write rows over those with the same keys in a CSV, and give all that are then in it, as they are there."""
    keys = [name for name in KEYS if name in rows[0]]
    before = read_csv(file)
    if gone := [name for name in keys if any(name not in one for one in before)]:
        raise UserError(f"{file} has no column `{gone[0]}`; restore it, or move it away to begin a new one")
    every = {tuple(one[name] for name in keys): one for one in [*before, *rows]}
    columns = dict.fromkeys(rows[0])
    ordered = [{**columns, **one} for one in sorted(every.values(), key=order)]
    return read_csv(write_csv(file, [{name: one[name] for name in columns} for one in ordered]))


def order(row: Row) -> list[tuple[int, Any]]:
    """Where a row belongs; what the paper does not have comes last."""
    found: list[tuple[int, Any]] = []
    for name in KEYS:
        value = row.get(name)
        if name in RANKS and value in RANKS[name]:
            value = RANKS[name].index(value)
        found.append((0, 0) if value is None else (2, value) if isinstance(value, str) else (1, value))
    return found
