"""How long a run is said to take by the time of its first steps, beside how long it takes: ten cases.

`python -m bench.estimates` writes docs/results/estimates.csv. Both are told and taken by one thread and in processor
time, which others on the machine do not lengthen; `--clock wall` takes all threads and the clock on the wall.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import nn

import shoal
from bench.results import read, stamp, write
from shoal.fleet import pace as paces

FILE = Path(__file__).parents[1] / "docs" / "results" / "estimates.csv"
FEW: dict[str, Any] = {"count": 4, "classes": 2, "train": 40, "validation": 10, "initial": 2}


def table(rows: int, sites: int, numbers: bool = False) -> shoal.Data:
    """Made-up rows of some sites, in four tasks unless numbers are predicted."""
    at, x = np.arange(rows), np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
    if numbers:
        return shoal.Data.from_arrays(x, x[:, 0] * 2 + 1.5, agent=at % sites)
    return shoal.Data.from_arrays(x, (x[:, 0] > 0) + 2 * (x[:, 1] > 0), agent=at % sites, task=at * 4 // rows)


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())


def layers() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh())


def mode(name: str, **more: Any) -> Callable[[], shoal.Fleet]:
    """Agents that share in one way on the digits."""
    return lambda: shoal.Fleet(
        "digits", **{"model": "mlp", "tasks": FEW, "sharing": name, "network": "ring", "agents": 8, **more}
    )


CASES: dict[str, Callable[[], shoal.Fleet]] = {
    "digits as they are": lambda: shoal.Fleet("digits"),
    "a net in one piece": lambda: shoal.Fleet("digits", model="mlp", tasks=FEW, learner={"epochs": 100}, agents=20),
    "convolutions of one's own": lambda: shoal.Fleet("digits", model=convolutions, tasks=FEW, learner={"epochs": 20}),
    "layers of one's own": lambda: shoal.Fleet("digits", model=layers, tasks=FEW, learner={"epochs": 40}),
    "models are averaged": mode("fedavg", learner={"epochs": 60}, agents=30),
    "rows are asked for": mode("recv", model="modular-mlp", learner={"epochs": 60}),
    "importance of weights": lambda: shoal.Fleet(
        "digits", model="mlp", tasks=FEW, learner={"epochs": 60, "method": "ewc"}
    ),
    "a table": lambda: shoal.Fleet(table(200_000, 10), model="mlp", learner={"epochs": 5}),
    "numbers to predict": lambda: shoal.Fleet(table(60_000, 5, True), model="mlp", learner={"epochs": 10}),
    "many agents": lambda: shoal.Fleet(
        "digits", model="mlp", tasks=FEW, learner={"epochs": 10}, agents=400, network="ring"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[*CASES], help=f"of {', '.join(CASES)}")
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    said = parser.parse_args()
    paces.CLOCK = clock = time.process_time if said.clock == "cpu" else time.perf_counter
    for name in said.cases:
        settings = CASES[name]().settings
        machine = settings.machine.model_copy(update={"threads": 1 if said.clock == "cpu" else 0})
        settings = settings.model_copy(update={"machine": machine})
        begun = clock()
        told = paces.pace(shoal.prepare(settings, yes=True))
        ready = clock()
        with TemporaryDirectory() as folder:
            shoal.carry_out(shoal.prepare(settings, yes=True), shoal.create(f"{folder}/run", settings))
        taken = clock() - ready
        row = {
            "case": name, "told": told, "taken": taken, "ratio": told / taken, "telling": ready - begun,
            "clock": said.clock, **stamp(),
        }  # fmt: skip
        print(*row.values(), sep=",", flush=True)
        kept = {one["case"]: one for one in read(FILE)} | {name: row}
        write(FILE, [kept[one] for one in CASES if one in kept])


if __name__ == "__main__":
    main()
