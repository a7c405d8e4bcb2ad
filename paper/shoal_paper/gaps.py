"""How far apart the rows of Table 1 are on each dataset (the appendix's table): a proxy for how hard it is."""

from collections.abc import Sequence

from shoal.study.cells import Row
from shoal_paper import table1
from shoal_paper.budget import grouped


def counts(model: str, method: str) -> bool:
    """Does the row count? The printed gaps follow from Table 1 without FedFish and the monolithic hybrid."""
    return method != "fedfish" and (model, method) != ("monolithic", "hybrid")


def conclude(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """A row per dataset; `rows` tells how many of the table's it is made of, the paper's gaps of the same ones."""
    found = []
    kept = [
        one
        for one in tables["table1"]
        if one["dataset"] in table1.PAPER.get((one["model"], one["method"]), {}) and counts(one["model"], one["method"])
    ]
    names = ("protocol", "draw", "seeds", "dataset")
    for group, rows in grouped(kept, names).items():
        if len(rows) < 2:  # one row is no distance from another
            continue
        theirs = [table1.PAPER[one["model"], one["method"]][one["dataset"]] for one in rows]
        found.append(
            {
                **dict(zip(names, group, strict=True)),
                "rows": len(rows),
                "final_gap": gap([one["final_accuracy"] for one in rows]),
                "paper_final_gap": gap([final for final, _ in theirs]),
                "auc_gap": gap([one["auc"] for one in rows]),
                "paper_auc_gap": gap([auc for _, auc in theirs]),
            }
        )
    return {"gaps": found}


def gap(values: Sequence[float]) -> float:
    """From the lowest to the highest, in % of the lowest."""
    return 100 * (max(values) - min(values)) / min(values)
