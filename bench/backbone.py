"""Nets on a frozen backbone: what heads of others are worth, and what masks cost as bits and as scores.

`python -m bench.backbone [SEEDS]` trains eight agents on pairs of the digits that come with shoal and writes
docs/results/backbone.csv: the accuracy on one's own tasks, on tasks that only others have met (zero-shot), and where
nobody says of which task an image is.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from bench import results
from shoal.agents.evaluate import others
from shoal.fleet.run import simulate
from shoal.sharing.filed import task_free
from shoal.sharing.heads import Heads

FILE = Path(__file__).parents[1] / "docs" / "results" / "backbone.csv"
TASKS = {"count": 8, "classes": 2, "train": 64, "validation": 10, "initial": 4}
CASES: dict[str, tuple[str, int, float, str, dict[str, Any] | None]] = {  # model, width, rate, network, mode
    "masks, alone": ("masked-mlp", 64, 1e-3, "ring", None),
    "masks as bits": ("masked-mlp", 64, 1e-3, "complete", {"mode": "masks"}),
    "masks as scores": ("masked-mlp", 64, 1e-3, "complete", {"mode": "masks", "send": "scores"}),
    "heads, width 64, ring": ("frozen-mlp", 64, 1e-2, "ring", {"mode": "heads"}),
    "heads, never sent": ("frozen-mlp", 256, 1e-2, "ring", None),
    "heads, ring": ("frozen-mlp", 256, 1e-2, "ring", {"mode": "heads"}),
    "heads, complete": ("frozen-mlp", 256, 1e-2, "complete", {"mode": "heads"}),
}
COLUMNS = (
    "case",
    "seeds",
    "own",
    "own_se",
    "while_learned",
    "zero_shot",
    "zero_shot_se",
    "mapped",
    "free",
    "bytes_per_link",
)


def measured(case: str, seeds: int) -> dict[str, Any]:
    """One line of the table; errors are over seeds."""
    model, width, rate, network, mode = CASES[case]
    settings = shoal.Settings(
        dataset="digits",
        model=model,
        agents=8,
        seeds=seeds,
        tasks=TASKS,
        net={"width": width, "dropout": 0.0},
        learner={"epochs": 100, "rate": rate},
        network=network,
        sharing=[mode] if mode else [],
    )
    (world,) = shoal.prepare(settings)
    stack = simulate(world)
    last = 100 * stack.accuracy[:, -1, -1].nanmean(1).numpy()
    while_learned = [stack.accuracy[:, task, :, task].mean() for task in range(TASKS["initial"], TASKS["count"])]
    auc = 100 * float(np.mean(while_learned))
    seen: dict[int, list[float]] = {}
    for one in others([(world, stack)]):
        seen.setdefault(one.lane.seed, []).append(100 * one.accuracy)
    own = [float(last[[lane.seed == seed for lane in world.lanes]].mean()) for seed in seen]
    zero = [float(np.mean(values)) for values in seen.values()]
    free: list[Any] = ["", ""]
    if mode and mode["mode"] == "heads":
        (heads,) = settings.sharing
        assert isinstance(heads, Heads)
        found = [task_free(world, stack, row, heads) for row in range(len(world.lanes))]
        free = [f"{100 * float(np.mean([getattr(one, name) for one in found])):.2f}" for name in ("mapped", "right")]
    links = max(1, len(world.edges))
    sent = int(stack.ledger.column("bytes").sum()) / links / (TASKS["count"] - TASKS["initial"])
    values = [case, seeds, *spread(own), f"{auc:.2f}", *spread(zero), *free, round(sent)]
    return dict(zip(COLUMNS, values, strict=True)) | results.stamp()


def spread(values: list[float]) -> tuple[str, str]:
    """The mean over seeds and its standard error."""
    return f"{np.mean(values):.2f}", f"{np.std(values, ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""


def main(seeds: int = 4) -> None:
    rows = []
    for case in CASES:
        rows.append(measured(case, seeds))
        print(*rows[-1].values(), sep=", ", flush=True)
    results.write(FILE, rows)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
