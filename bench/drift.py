"""How late detectors find changes in agents' streams, and how often they see one that is not there.

`python -m bench.drift` strings the tasks of eight agents together, for pixels in another order, images turned by 30
degrees more, the exercises of ten people's watches, and a stream that does not change, and writes
docs/results/drift.csv. Nothing is trained.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal
from bench.results import stamp, write
from shoal import data
from shoal.backbones import bank_of
from shoal.data.drift import Drift, boundaries
from shoal.data.scenarios import seen
from shoal.data.tasks import lanes_of

FILE = Path(__file__).parents[1] / "docs" / "results" / "drift.csv"
DETECTORS, WATCHES = ("page-hinkley", "adwin", "kswin"), ("rows", "errors")
DIGITS: dict[str, Any] = {"classes": 10, "train": 50, "validation": 10, "count": 5}


def still() -> shoal.Data:
    """The digits of four sites in a random order: no row is earlier for a reason."""
    bank = data.load("digits")
    order = np.random.default_rng(0).permutation(len(bank))
    sites = np.arange(len(bank)) % 4
    return shoal.Data.from_arrays(bank.images, bank.labels, agent=sites, time=order.astype(float))


def streams() -> dict[str, tuple[Any, dict[str, Any]]]:
    """The data and settings of each stream."""
    return {
        "permuted digits": ("digits", {"of": "permuted", **DIGITS}),
        "rotated digits": ("digits", {"of": "rotated", **DIGITS}),
        "watches": ("watches", {"of": "given", "count": 6, "classes": 7, "train": "all", "validation": "all"}),
        "digits that do not change": (still(), {"of": "time", **DIGITS, "train": "all", "validation": "all"}),
    }


def measured(name: str, given: Any, tasks: dict[str, Any], detector: str, watch: str) -> dict[str, Any]:
    """One line of the table."""
    own = {"scenario": "drift", "detector": detector, "watch": watch, "heads": "one", "initial": 1, "common": False}
    fleet = shoal.Fleet(given, model="plain-mlp", tasks={**tasks, **own}, learner={"memory": 0, "method": "none"})
    settings = fleet.settings
    assert isinstance(settings.tasks, Drift)
    bank = seen(bank_of(settings), settings)
    table = boundaries(bank, settings, lanes_of(settings))
    true = table.filter(pl.col("what") == "true")
    late = [one for one in true["delay"].to_list() if one is not None]
    cuts = table.filter(pl.col("what") != "true")
    false = len(cuts) - len(late) if len(true) or "not change" in name else 0
    row = {"stream": name, "detector": detector, "watch": watch, "agents": settings.agents}
    shared = settings.agents * float(np.mean(table["rows"].to_list() or [0]))
    lengths = shared or int((~bank.test).sum())
    row |= {"true": len(true), "found": len(late), "delay": f"{np.mean(late):.1f}" if late else ""}
    row |= {"false": false, "rows": round(lengths)}
    print(*row.values(), sep=",", flush=True)
    return row | stamp()


def main() -> None:
    rows = [
        measured(name, given, tasks, detector, watch)
        for name, (given, tasks) in streams().items()
        for detector in DETECTORS
        for watch in WATCHES
    ]
    write(FILE, rows)


if __name__ == "__main__":
    main()
