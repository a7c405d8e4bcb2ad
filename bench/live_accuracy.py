"""Is what agents learn live what the simulator says that they learn?

    python -m bench.live_accuracy --seeds 16

Fleets of some seeds, each simulated with clocks of their own and lived in threads, over lines within this process. The
simulator's agents are equally fast; so are the live ones, each of which goes on from an epoch when all have come as
far, and answers others meanwhile. With `--drift` it is the machine that decides how fast each is, so that some ask
neighbours which have not yet met what they ask for. Ten seconds of a processor or more for each seed.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.agents.stack import Stack
from shoal.live.life import Life
from shoal.live.serving import accuracy
from tests.live.houses import built, lived, simulated, small

AGENTS = 4
CLOCK = {"pace": "asynchronous", "speed": 100.0, "patience": 30.0}
TASKS = {"count": 5, "classes": 2, "initial": 1, "train": 16, "validation": 8}
LEARNER = {"epochs": 30, "batch": 16, "memory": 8}


class InStep:
    """Lets agents go on from an epoch when all have come as far."""

    def __init__(self) -> None:
        self.done: dict[int, int] = {}  # epochs, by agent

    def __call__(self, life: Life) -> bool:
        mine = self.done[life.home.agent] = life.stack.task * life.world.settings.learner.epochs + life.stack.epoch
        while len(self.done) < AGENTS or min(self.done.values()) < mine:
            life.office.idle(0.02)
            life.crew.visit()
        return False


def mean(stacks: Mapping[int, Stack]) -> float:
    """The mean accuracy of all agents at the end."""
    return float(np.mean([accuracy(stack.accuracy) or 0 for stack in stacks.values()]))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--seeds", type=int, default=4)
    reader.add_argument("--drift", action="store_true")
    said = reader.parse_args()
    seeds = said.seeds
    found = {"simulated": list[float](), "live": list[float](), "alone": list[float]()}
    for seed in range(seeds):
        raw: dict[str, Any] = {
            "agents": AGENTS, "seed": seed, "tasks": TASKS, "net": {"width": 32}, "learner": LEARNER, "clock": CLOCK,
        }  # fmt: skip
        settings = small("recv", network="ring", **raw)
        found["simulated"].append(mean(simulated(settings)))
        found["alone"].append(mean(simulated(small(network="ring", **raw))))
        with tempfile.TemporaryDirectory() as place:
            pace: Any = (lambda life: False) if said.drift else InStep()
            found["live"].append(mean(lived(built(settings, Path(place)), crash=pace, seconds=1800)))
        print(", ".join(f"{name} {100 * values[-1]:.2f} %" for name, values in found.items()), flush=True)
    for name, values in found.items():
        print(f"{name}: {100 * np.mean(values):.1f} % ({', '.join(f'{100 * one:.1f}' for one in values)})")
    for one, other in (("live", "simulated"), ("live", "alone"), ("simulated", "alone")):
        apart = 100 * (np.array(found[one]) - found[other])
        error = apart.std(ddof=1) / seeds**0.5
        print(f"{one} - {other}: {apart.mean():+.2f} ± {error:.2f} points (standard error over {seeds} seeds)")


if __name__ == "__main__":
    main()
