"""Which row of a cell of Table 1 counts, where there are several."""

from collections.abc import Iterable

from shoal.runs.paired import Scores
from shoal.study.cells import Row
from shoal_paper.claims import METRICS, Key
from shoal_paper.table1 import DATASETS, METHODS, MODELS, PAPER, former


def fullest(rows: Iterable[Row]) -> dict[Key, Row]:
    """The row of every cell, the one with most seeds, in the order of the table."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = (row["protocol"], row["dataset"], row["model"], row["method"])
        if key not in found or rank(row) > rank(found[key]):
            found[key] = row
    order = (("paper", "fair"), DATASETS, MODELS, METHODS)
    known = [key for key in found if all(one in ranks for one, ranks in zip(key, order, strict=True))]
    return {
        key: found[key] for key in sorted(known, key=lambda key: [r.index(k) for k, r in zip(key, order, strict=True)])
    }


def rank(row: Row) -> tuple[int, bool]:
    """Which of two rows of a cell is better: that with more seeds, else that with the newer draws."""
    return row["seeds"], not former(row)


def printed(rows: dict[Key, Row]) -> list[Row]:
    """The rows that the paper has; one seed says nothing of its own spread, and is not counted among them."""
    return [row for (_, _, model, method), row in rows.items() if (model, method) in PAPER and row["seeds"] > 1]


def by_cell(best: dict[Key, Row], seeds: Iterable[Row]) -> dict[Key, Scores]:
    """The seeds of every cell, of the run that the table has."""
    found: dict[Key, Scores] = {}
    for row in seeds:
        key = (row["protocol"], row["dataset"], row["model"], row["method"])
        if key in best and row["identity"] == best[key]["identity"]:
            found.setdefault(key, {})[row["seed"]] = {name: row[name] for name in METRICS}
    return found
