"""What conditions of links and clocks of their own cost: `python -m bench.conditions speed|size [--csv FOLDER]`.

`speed`: whole runs of a short MNIST row on images made of noise (8 agents, 2 seeds, 6 tasks of 20 epochs, 4 of them the
common start), in turns, so that a busy machine hits all alike: in lock-step without and with conditions, and
asynchronously with eight different clocks. What counts is the processor time for each step of an agent, and its ratio
to lock-step without conditions; the median of the turns. `size`: 1,000, 3,000 and 10,000 agents in a square who move,
hear those near them (about eight), and lose a tenth of their mail, each size in a process of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from math import pi, sqrt
from pathlib import Path
from typing import Any

from bench import results
from bench.cases import noise
from bench.scale import peak
from shoal.agents.engine import keep_memory
from shoal.agents.stack import RECORD
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.data import Bank
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED, LOST
from shoal.settings.groups import Settings

SPEEDS = [50.0 + 7 * agent for agent in range(8)]
ROW: dict[str, Any] = {
    "dataset": "mnist",
    "agents": 8,
    "seeds": 2,
    "tasks": {"count": 6, "initial": 4},
    "learner": {"epochs": 20},
    "machine": {"threads": 1},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("mlp", {"mode": "fedavg", "every": 2}),
    "modmod": ("modular-mlp", {"mode": "modmod"}),
}
PLAIN, WEATHER, APART = "lock-step", "lock-step, loss and delay", "asynchronous, 8 clocks"
WAYS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    WEATHER: {"network": {"loss": 0.2, "delay": {"least": 0, "most": 2}}},
    APART: {"clock": {"pace": "asynchronous", "speed": SPEEDS}, "network": {"latency": "20 ms"}},
}
SIZES = (1000, 3000, 10_000)
NEAR = 8  # neighbours of an agent that moves, on average


def small(settings: dict[str, Any]) -> dict[str, Any]:
    """The same, tiny: to see that it works."""
    tasks = {**settings["tasks"], "train": 6, "validation": 4}
    return {**settings, "net": {"width": 8}, "tasks": tasks, "learner": {"epochs": 4, "memory": 4}}


def spent(fleet: World) -> tuple[float, int]:
    """Processor seconds of a whole run, and the steps that agents took in it; 0: nobody has counted them."""
    started = time.process_time()
    stack = simulate(fleet)
    passed = time.process_time() - started
    steps = stack.of(RECORD)["steps"].sum() if fleet.settings.clock.counts else 0
    return passed, int(steps)


def speed(turns: int, quick: bool) -> list[dict[str, Any]]:
    """Every way to go on of every case, in turns. In lock-step agents take as many steps as by clocks of their own:
    what is shared here makes no epoch longer."""
    bank = noise("mnist", (28, 28), 10, 9_000, 1_000)
    rows = []
    for case, (model, mode) in CASES.items():
        fleets = {}
        for way, changes in WAYS.items():
            raw = {**(small(ROW) if quick else ROW), "model": model, "sharing": [mode], **changes}
            fleets[way] = world(Settings(**raw), bank)
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        steps = 0
        for turn in range(turns + 1):
            for way, fleet in fleets.items():
                passed, found = spent(fleet)
                steps = found or steps
                if turn:  # the first warms up
                    times[way].append(passed)
        for way, found_times in times.items():
            ratio = statistics.median(one / base for one, base in zip(found_times, times[PLAIN], strict=True))
            rows.append({
                "case": case, "way": way, "turns": turns, "steps": steps,
                "us_per_step": 1e6 * statistics.median(found_times) / steps, "ratio": ratio,
            })  # fmt: skip
    return rows


def moving(agents: int, quick: bool) -> Settings:
    """Many agents in a square, a tenth of whose mail is lost; in an epoch each goes a quarter of how far it hears."""
    radius = min(1.0, sqrt(NEAR / pi / agents))
    raw: dict[str, Any] = {
        "dataset": "digits",
        "model": "mlp",
        "agents": agents,
        "seeds": 1,
        "tasks": {"count": 2, "initial": 1, "classes": 2, "train": 8, "validation": 4},
        "net": {"width": 16, "depth": 2},
        "learner": {"epochs": 4, "memory": 4},
        "sharing": [{"mode": "fedavg", "every": 1}],
        "network": {"graph": "geometric", "radius": radius, "speed": radius / 4, "loss": 0.1},
        "machine": {"threads": 1},
    }
    return Settings(**(small(raw) if quick else raw))


def size(agents: int, quick: bool, bank: Bank | None = None) -> dict[str, Any]:
    """A whole run of so many agents: processor seconds, messages, and memory."""
    bank = noise("digits", (8, 8), 10, 1500, 300) if bank is None else bank
    empty, started = peak(), time.process_time()
    fleet = world(moving(agents, quick), bank)
    keep_memory()
    built = time.process_time() - started
    started = time.process_time()
    stack = simulate(fleet)
    passed = time.process_time() - started
    ledger = stack.ledger
    return {
        "agents": agents,
        "messages": len(ledger),
        "delivered": int(ledger.among("verdict", [ACCEPTED]).sum()),
        "lost": int(ledger.among("verdict", [LOST]).sum()),
        "building_seconds": built,
        "run_seconds": passed,
        "ms_per_agent": 1e3 * (built + passed) / agents,
        "us_per_message": 1e6 * passed / max(1, len(ledger)),
        "empty_mb": empty,
        "peak_mb": peak(),
        "kb_per_agent": 1e3 * (peak() - empty) / agents,
    }


def sizes(quick: bool) -> list[dict[str, Any]]:
    """Each size in a fresh process."""
    rows = []
    for agents in (20, 40) if quick else SIZES:
        command = [sys.executable, "-m", "bench.conditions", "size", "--agents", str(agents), *["--quick"] * quick]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=results.ROOT)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a markdown table."""
    names = list(rows[0])
    lines = [[one if isinstance(one, str) else results.whole(one) for one in row.values()] for row in rows]
    return results.markdown([name.replace("_", " ") for name in names], lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.conditions", description=__doc__)
    parser.add_argument("what", choices=("speed", "size"))
    parser.add_argument("--turns", type=int, default=3, help="of which the median counts (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works: the numbers mean nothing")
    parser.add_argument("--agents", type=int, help="measure this size alone, here, and print it as JSON")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="also write conditions-speed.csv or -size.csv there")
    given = parser.parse_args()
    if given.agents:
        print(json.dumps(size(given.agents, given.quick)))
        return
    rows = speed(given.turns, given.quick) if given.what == "speed" else sizes(given.quick)
    if given.csv:
        results.write(given.csv / f"conditions-{given.what}.csv", [row | results.stamp() for row in rows])
    print(table(rows))


if __name__ == "__main__":
    main()
