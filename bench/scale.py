"""Time and peak memory of the modular MNIST row with N lanes, in a process of its own: `python -m bench.scale N`."""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases import fleet_of, midway, mnist
from shoal.agents.engine import keep_memory
from shoal.agents.evaluate import accuracy
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.run import one_thread


def ask(lanes: int, turns: int, quick: bool) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [sys.executable, "-m", "bench.scale", str(lanes), "--turns", str(turns), *["--quick"] * quick]
    # From the folder that holds `bench`, wherever this one was started.
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(lanes: int, turns: int, quick: bool) -> dict[str, Any]:
    """What a run does, once each but for the epochs that are timed, at its last task, when a net is largest."""
    bank = mnist(quick)
    empty = peak()
    started = time.perf_counter()
    fleet = fleet_of("modular-mlp", bank, lanes)
    keep_memory()
    task = fleet.settings.tasks.count - 1
    stack = midway(fleet, task)
    setup = time.perf_counter() - started
    stack.task = 0
    learn_epoch([(fleet, stack)], 0)
    stack.task = task
    learn_epoch([(fleet, stack)], 0)
    epochs = [timed(partial(learn_epoch, [(fleet, stack)], at)) for at in range(1, turns + 1)]
    learn_epoch([(fleet, stack)], fleet.settings.learner.epochs - 1)  # the one that adapts
    tests = [timed(partial(accuracy, fleet, stack, "test", [task])) for _ in range(turns)]
    return {
        "lanes": lanes,
        "setup_seconds": setup,
        "epoch_seconds": statistics.median(epochs),
        "test_seconds": statistics.median(tests),
        "empty_mb": empty,
        "peak_mb": peak(),
    }


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak() -> float:
    """The most memory (MB) that this process has had so far."""
    try:
        # Linux: `ru_maxrss` would also count the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lanes", type=int)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with one_thread():
        print(json.dumps(measure(given.lanes, given.turns, given.quick)))
