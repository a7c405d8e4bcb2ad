"""Pairs of digits by dictionaries: what agreement (colla) gains over fits of single tasks, and what lost mail costs.

`python -m bench.dictionaries [SEEDS]` writes docs/results/dictionaries.csv. Eight agents have five pairs each. `even`
tasks have so many images of each class; `drawn` ones have twice as many of both together, as tasks of shoal's scenarios
have, so that some have one image of a class or none. `single` is the accuracy of the tasks' own fits, from which all
begin.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from bench import results
from shoal.data import load
from shoal.models.factor import Factor

FILE = Path(__file__).parents[1] / "docs" / "results" / "dictionaries.csv"
AGENTS, TASKS, KEPT = 8, 5, 40  # images of each class to test on
GRAPHS = {
    "alone": ("disconnected", 0.0),
    "ring": ("ring", 0.0),
    "complete": ("complete", 0.0),
    "ring, 20 % lost": ("ring", 0.2),
}
COLUMNS = ("images", "tasks", "network", "seeds", "final", "final_se", "single", "single_sd", "gain", "gain_se")
SETTINGS: dict[str, Any] = {
    "model": "factor",
    "sharing": ["colla"],
    "net": {"basis": 6},
    "learner": {"epochs": 20, "memory": 0},
}


def dealt(images: int, even: bool, seed: int) -> shoal.Data:
    """Every agent's pairs of digits: rows to learn from, one of five of which is held out for validation, and to test
    on."""
    bank, rng = load("digits"), np.random.default_rng([seed, images])
    rows, agents, tasks, tests = [], [], [], []
    pairs = [(a, b) for b in range(10) for a in range(b)]
    for at, pair in enumerate(rng.permutation(len(pairs))[: AGENTS * TASKS]):
        of = [rng.permutation(np.flatnonzero(bank.labels == one)) for one in pairs[pair]]
        test, pool = np.concatenate([one[:KEPT] for one in of]), [one[KEPT:] for one in of]
        count = images + max(1, images // 5)  # the rest is for validation
        learned = np.concatenate([one[:count] for one in pool])
        if not even:
            learned = rng.permutation(np.concatenate(pool))[: 2 * count]
        rows.append(np.concatenate([learned, test]))
        tests.append(np.arange(len(rows[-1])) >= len(learned))
        agents.append(np.full(len(rows[-1]), at // TASKS))
        tasks.append(np.full(len(rows[-1]), at % TASKS))
    index = np.concatenate(rows)
    labels = bank.labels[index]
    return shoal.Data.from_arrays(
        bank.images[index], labels, agent=np.concatenate(agents), task=np.concatenate(tasks), test=np.concatenate(tests)
    )


def ran(images: int, even: bool, network: str, seed: int) -> tuple[float, float]:
    """Final accuracy of a fleet in %, and that of the fits of its single tasks."""
    graph, loss = GRAPHS[network]
    links, tasks = {"graph": graph, "loss": loss}, {"initial": 1, "common": False}
    fleet = shoal.Fleet(dealt(images, even, seed), network=links, tasks=tasks, **SETTINGS)
    (world,) = shoal.prepare(fleet.settings)
    stack, model, right = shoal.simulate(world), world.model, []
    assert isinstance(model, Factor)
    for row in range(AGENTS):
        for task in range(TASKS):
            size = int(world.test.sizes[row, task])
            at, labels = world.test.rows[row, task, :size], world.test.labels[row, task, :size]
            said = model.rows(world.inputs[at]) @ stack.of("ella")["theta"][row, task, 0]
            right.append(float(((said > 0) == (labels == 1)).double().mean()))
    return 100 * float(stack.accuracy[:, -1, -1].mean()), 100 * float(np.mean(right))


def measured(images: int, even: bool, seeds: int) -> list[dict[str, Any]]:
    """A row for each network; errors are over seeds, gains over single fits are paired."""
    found = []
    for network in GRAPHS:
        final, single = np.array([ran(images, even, network, seed) for seed in range(seeds)]).T
        numbers = [final.mean(), error(final), single.mean(), single.std(ddof=1), (final - single).mean()]
        words = [f"{one:.3f}" for one in (*numbers, error(final - single))]
        values = [images, "even" if even else "drawn", network, seeds, *words]
        row = dict(zip(COLUMNS, values, strict=True)) | results.stamp()
        print(*row.values(), sep=",", flush=True)
        found.append(row)
    return found


def error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    results.write(FILE, [row for images in (4, 10) for even in (True, False) for row in measured(images, even, seeds)])


if __name__ == "__main__":
    main()
