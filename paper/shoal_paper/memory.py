"""Images: is it those of others, or more of any? Agents alone that remember more of their own images of every task.

Who asks for images has 32 of its own of a task and room for 32 of others (protocol `fair`, nets in one piece). Agents
alone with 64 of their own remember as many; with 128 they keep all. Both are set beside Table 1's rows, seed by seed.
"""

from collections.abc import Sequence
from pathlib import Path

from shoal.runs.paired import Gain, paired
from shoal.settings.groups import FAIR
from shoal.study.cells import Row, place_of, scores, summary_of
from shoal_paper.table1 import Cell, settings

NAME = "memory"
METHODS = ("vanilla",)
USUAL, MEMORIES = 32, (64, 128)
SHOWN = ("final_accuracy", "auc")


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    if model != "monolithic":
        return []
    return [
        Cell(
            NAME, dataset, model, "vanilla", settings(dataset, model, "vanilla", FAIR, seeds, learner={"memory": size}),
            {"memory": size},
        )
        for size in MEMORIES
    ]  # fmt: skip


def row(cell: Cell, folder: Path) -> Row:
    """A finished cell in short."""
    summary = summary_of(place_of(cell, folder))
    head = {"dataset": cell.dataset, "model": cell.model, "method": cell.method, **cell.varied}
    end = {"identity": cell.settings.identity(), "commit": summary["commit"]}
    return {**head, "seeds": summary["seeds"], **{name: summary[name] for name in SHOWN}, **end}


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row for each seed."""
    own = row(cell, folder)
    each = scores(place_of(cell, folder)).items()
    return {NAME: [{**own, "seed": seed, **{name: of[name] for name in SHOWN}} for seed, of in each]}


def gains(rows: Sequence[Row], seeds: Sequence[Row]) -> dict[tuple[str, int | str], dict[str, Gain]]:
    """Of each dataset what agents alone with so much memory, and agents with images of others ("data"), have more than
    agents alone of Table 1; and what those images have more than each memory ("data over 64")."""
    own: dict[tuple[str, int | str], dict[int, dict[str, float]]] = {}
    for one in rows:
        own.setdefault((one["dataset"], one["memory"]), {})[one["seed"]] = {name: one[name] for name in SHOWN}
    for one in seeds:
        if (one["protocol"], one["model"]) == (FAIR, "monolithic") and one["method"] in ("vanilla", "data"):
            place = one["dataset"], one["method"]
            own.setdefault(place, {})[one["seed"]] = {name: one[name] for name in SHOWN}
    found: dict[tuple[str, int | str], dict[str, Gain]] = {}
    for dataset in dict.fromkeys(one["dataset"] for one in rows):
        sizes = [size for size in MEMORIES if (dataset, size) in own]
        kinds: list[int | str] = [*sizes, "data"]
        pairs: list[tuple[int | str, int | str, int | str]] = [(kind, kind, "vanilla") for kind in kinds]
        pairs += [(f"data over {size}", "data", size) for size in sizes]
        for words, more, less in pairs:
            both = {name: paired(own[dataset, more], own[dataset, less], name) for name in SHOWN}
            found[dataset, words] = {name: gain for name, gain in both.items() if gain}
    return found
