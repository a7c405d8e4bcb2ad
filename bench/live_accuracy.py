"""Is what agents learn live what the simulator says that they learn?

    python -m bench.live_accuracy --seeds 16

Fleets of some seeds, each simulated with clocks of their own and lived in threads, over lines within this process: the
same settings, but live it is the machine that decides who hears of whom when. Ten seconds or more for each seed.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.agents.stack import Stack
from shoal.live.serving import accuracy
from tests.live.houses import built, lived, simulated, small

CLOCK = {"pace": "asynchronous", "speed": 100.0, "patience": 10.0}
TASKS = {"count": 5, "classes": 2, "initial": 1, "train": 16, "validation": 8}
LEARNER = {"epochs": 30, "batch": 16, "memory": 8}


def mean(stacks: Mapping[int, Stack]) -> float:
    """The mean accuracy of all agents at the end."""
    return float(np.mean([accuracy(stack.accuracy) or 0 for stack in stacks.values()]))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--seeds", type=int, default=4)
    seeds = reader.parse_args().seeds
    found = {"simulated": list[float](), "live": list[float](), "alone": list[float]()}
    for seed in range(seeds):
        raw: dict[str, Any] = {
            "agents": 4, "seed": seed, "tasks": TASKS, "net": {"width": 32}, "learner": LEARNER, "clock": CLOCK,
        }  # fmt: skip
        settings = small("recv", network="ring", **raw)
        found["simulated"].append(mean(simulated(settings)))
        found["alone"].append(mean(simulated(small(network="ring", **raw))))
        with tempfile.TemporaryDirectory() as place:
            found["live"].append(mean(lived(built(settings, Path(place)), seconds=900)))
    for name, values in found.items():
        print(f"{name}: {100 * np.mean(values):.1f} % ({', '.join(f'{100 * one:.1f}' for one in values)})")
    for one, other in (("live", "simulated"), ("live", "alone"), ("simulated", "alone")):
        apart = 100 * (np.array(found[one]) - found[other])
        error = apart.std(ddof=1) / seeds**0.5
        print(f"{one} - {other}: {apart.mean():+.2f} ± {error:.2f} points (standard error over {seeds} seeds)")


if __name__ == "__main__":
    main()
