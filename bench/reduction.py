"""How small CIFAR-100 may be made for a CPU: what agents learn alone under reductions that take about as long.

`python -m bench.reduction DATA` trains two agents that share nothing under every reduction, both kinds of nets, and
writes docs/results/reduction.csv: the mean accuracy over all tasks at the end on validation images, and the seconds of
CPU that it took. DATA is a folder with CIFAR-100. Rows that are there already are not made again. No run of Table 1 has
the seed that is drawn here, test images play no part, and nothing is shared: no gain can choose the reduction.
"""

import sys
import time
from pathlib import Path
from typing import Any

import shoal
from bench import results
from shoal.agents.evaluate import accuracy
from shoal.configure.reading import read
from shoal.fleet.run import simulate

FILE = Path(__file__).parents[1] / "docs" / "results" / "reduction.csv"
SEED = 100
AGENTS = 2
COLUMNS = ("model", "width", "train", "epochs", "batch", "rate", "agents", "seed", "validation_accuracy", "seconds")
# Channels, training images of a class, epochs, images of a batch, learning rate.
REDUCTIONS = (
    (16, 64, 10, 16, 2e-3),
    (16, 64, 32, 64, 2e-3),
    (16, 128, 10, 16, 2e-3),
    (16, 128, 10, 32, 2e-3),
    (16, 128, 16, 64, 1e-3),
    (16, 128, 16, 64, 2e-3),
    (16, 128, 16, 64, 4e-3),
    (16, 256, 5, 16, 2e-3),
    (16, 256, 8, 64, 2e-3),
    (24, 64, 10, 32, 2e-3),
    (24, 64, 20, 32, 2e-3),
    (24, 128, 10, 32, 2e-3),
    (32, 64, 12, 16, 1e-3),
    (32, 64, 12, 32, 2e-3),
    (32, 64, 16, 64, 2e-3),
)


def measured(model: str, reduction: tuple[Any, ...], data: str) -> dict[str, Any]:
    """What agents alone have learned at the end."""
    width, train, epochs, batch, rate = reduction
    words = [
        "protocol=paper", "sharing=none", f"model={model}", f"agents={AGENTS}", "seeds=1", f"seed={SEED}",
        f"net.width={width}", f"tasks.train={train}", "tasks.validation=all", f"learner.epochs={epochs}",
        f"learner.batch={batch}", f"learner.rate={rate}", f"machine.data={data}", "machine.threads=1",
    ]  # fmt: skip
    (world,) = shoal.prepare(read(Path("cifar100-small"), words))
    begun = time.process_time()
    stack = simulate(world)
    seconds = time.process_time() - begun
    right = accuracy(world, stack, "validation", range(stack.task))
    found = (model, *reduction, AGENTS, SEED, f"{100 * float(right.mean()):.2f}", round(seconds))
    return dict(zip(COLUMNS, found, strict=True)) | {"commit": results.stamp()["commit"]}


def main(data: str, models: list[str]) -> None:
    """Make the rows that are not there yet."""
    rows: list[dict[str, Any]] = [{**row} for row in results.read(FILE)]
    for model in models:
        for reduction in REDUCTIONS:
            wanted = [model, *map(str, reduction)]
            if any([row[name] for name in COLUMNS[: len(wanted)]] == wanted for row in rows):
                continue
            rows.append(measured(model, reduction, data))
            print(*rows[-1].values(), flush=True)
            results.write(FILE, rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["cnn", "modular-cnn"])
