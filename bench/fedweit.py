"""FedWeIT beside what it is compared with: replay alone, averaging of a net that learns each task alone, and its own
net without mail or with the base averaged as a whole.

`python -m bench.fedweit [EXPERIMENT [SEEDS [DRIFTS]]]` trains the fleet of an experiment (digits, mnist) in a ring, and
writes its rows of docs/results/fedweit.csv. How hard the base is held (`drift`) is chosen by accuracy on validation
images.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal
from bench import results
from shoal.agents.evaluate import accuracy
from shoal.agents.world import World
from shoal.configure.reading import read
from shoal.fleet.run import simulate

FILE = Path(__file__).parents[1] / "docs" / "results" / "fedweit.csv"
DRIFTS = "1,10,100"
CASES = {
    "replay alone": ("model=mlp", "learner=replay"),
    "none + fedavg": ("model=mlp", "learner=none", "sharing=fedavg"),
    "replay + fedavg": ("model=mlp", "learner=replay", "sharing=fedavg"),
    "decomposed alone": ("model=decomposed-mlp",),
    "decomposed + fedavg": ("model=decomposed-mlp", "sharing=fedavg"),
    "decomposed + fedweit": ("model=decomposed-mlp", "sharing=fedweit"),
}


def measured(experiment: str, case: str, drift: float | None, seeds: int) -> dict[str, Any]:
    """One row; errors are over seeds."""
    words = [*CASES[case], *([] if drift is None else [f"learner.drift={drift}"])]
    (world,) = shoal.prepare(read(experiment, ["network=ring", f"seeds={seeds}", "protocol=fair", *words]))
    stack = simulate(world)
    tasks, first = world.settings.tasks.count, world.settings.tasks.initial
    ends = stack.accuracy[:, :, -1].numpy()  # [L, T, T] at the end of each task
    learned = np.stack([ends[:, max(task, first - 1), task] for task in range(tasks)], 1)
    climb = np.stack([stack.accuracy[:, task, 1:-1, task].mean(1).numpy() for task in range(first, tasks)], 1).mean(1)
    held = accuracy(world, stack, "validation", range(tasks)).mean(1).numpy()
    final, ledger = ends[:, -1].mean(1), stack.ledger
    sizes = pl.DataFrame({name: ledger.column(name) for name in ("kind", "bytes")})
    each = len(world.edges) * (tasks - first)
    return {
        "experiment": experiment,
        "case": case,
        "drift": drift,
        "seeds": seeds,
        "validation": percent(held.mean()),
        "final": percent(final.mean()),
        "final_se": percent(error(world, final)),
        "forgetting": percent((learned - ends[:, -1])[:, :-1].mean()),
        "while_learned": percent(climb.mean()),
        "while_learned_se": percent(error(world, climb)),
        "bytes_per_link_task": round(sizes["bytes"].sum() / each),
        "part_bytes": round(sizes.filter(pl.col("kind") == "part")["bytes"].sum() / each),
        "chosen": "",
    }


def percent(share: float) -> float:
    return round(100 * float(share), 3)


def error(world: World, values: np.ndarray) -> float:
    """The standard error over seeds."""
    seed = np.array([lane.seed for lane in world.lanes])
    means = [values[seed == one].mean() for one in np.unique(seed)]
    return float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")


def rows(experiment: str, seeds: int, drifts: list[float]) -> list[dict[str, Any]]:
    """All rows of an experiment; of each case the drift with the highest validation accuracy is chosen."""
    found = []
    for case in CASES:
        tried = drifts if case.startswith("decomposed") else [None]
        some = [measured(experiment, case, drift, seeds) for drift in tried]
        max(some, key=lambda row: row["validation"])["chosen"] = "yes"
        found += some
        for row in some:
            print(*row.values(), sep=",", flush=True)
    return found


def main(experiment: str = "digits", seeds: str = "2", drifts: str = DRIFTS) -> None:
    new = rows(experiment, int(seeds), [float(one) for one in drifts.split(",")])
    old = [row for row in results.read(FILE) if row["experiment"] != experiment]
    results.write(FILE, [*old, *(row | results.stamp() for row in new)])


if __name__ == "__main__":
    main(*sys.argv[1:])
