"""Shoal beside a tight plain PyTorch loop, stacked PyTorch by hand, JAX and the slow twin, on the same step.

Each model has a process for each number of cores, which it is bound to; in it all contenders take turns. What they
learn is the same (`tests/bench/test_contenders.py`). Speed does not depend on what images show, or how many there are.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bench import by_hand, cases, in_jax, results, tight
from bench.problem import Learns, Problem, problem
from bench.race import CLOCKS, Contender, Rates, race
from shoal.agents.engine import keep_memory

MODELS = ("mlp", "modular-mlp")
TITLES = {"mlp": "monolithic", "modular-mlp": "modular"}
SHOAL, TIGHT, STACKED, JAX, TWIN = NAMES = ("shoal", "tight loop", "stacked by hand", "JAX", "slow twin")

# What a process of its own does first: it stays on some cores, whatever its libraries think.
BOUND = """
import os, runpy, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{cores}])
runpy.run_module("bench.speed", run_name="__main__", alter_sys=True)
"""


def ask(
    model: str, cores: int, lanes: Sequence[int], turns: int, seconds: float, clock: str = "wall"
) -> list[dict[str, Any]]:
    """Measure in a fresh process that is bound to so many cores."""
    words = [model, "--cores", str(cores), "--turns", str(turns), "--seconds", str(seconds)]
    words += ["--clock", clock, "--lanes"]
    command = [sys.executable, "-c", BOUND.format(cores=cores), *words, *map(str, lanes)]
    # From the folder that holds `bench`, wherever this one was started.
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=results.ROOT, env=environment, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


class Pieces:
    """A contender on several cores: pieces of the lanes side by side, each in a thread."""

    def __init__(self, parts: Sequence[Learns]) -> None:
        self.parts = parts

    def epoch(self) -> None:
        list(pool(len(self.parts)).map(lambda part: part.epoch(), self.parts))


@cache
def pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "bench", torch.set_num_threads, (1,))


def work_of(parts: Sequence[Learns], units: int) -> cases.Work:
    """Whole epochs."""
    epoch = parts[0].epoch if len(parts) == 1 else Pieces(parts).epoch

    def work() -> int:
        epoch()
        return units

    return work


def cut(what: Problem, count: int) -> list[Problem]:
    """A problem in so many pieces."""
    bounds = [what.lanes * at // count for at in range(count + 1)]
    return [what.piece(*pair) for pair in pairwise(bounds)]


def contenders(model: str, lanes: int, cores: int) -> list[Contender]:
    """All that race with so many lanes; their names end in how many pieces they are cut into."""
    fleet = cases.fleet_of(model, cases.mnist(quick=True), lanes)
    stack = cases.midway(fleet)
    what = problem(fleet, stack)
    units = what.steps * lanes

    def loop() -> cases.Work:
        made = tight.Loop(what)

        def work() -> int:
            made.turn()
            return what.steps

        return work

    found = [
        Contender(f"{SHOAL}/{lanes}/1", lambda: cases.epochs(fleet, stack), 1),
        Contender(f"{TIGHT}/{lanes}/1", loop, 1),
    ]
    for count in sorted({1, min(cores, lanes)}):
        parts = cut(what, count)

        def stacked(parts: Sequence[Problem] = parts) -> cases.Work:
            return work_of([by_hand.Stacked(part) for part in parts], units)

        found.append(Contender(f"{STACKED}/{lanes}/{count}", stacked, 1))
        if in_jax.there():
            found.append(Contender(f"{JAX}/{lanes}/{count}", partial(anew, *map(in_jax.Mapped, parts), units=units), 1))
    return found


def anew(*mapped: "in_jax.Mapped", units: int) -> cases.Work:
    """JAX from the first weights; it was compiled before."""
    for one in mapped:
        one.begin()
    return work_of(mapped, units)


def measure(
    model: str,
    cores: int,
    lanes: Sequence[int],
    turns: int,
    seconds: float,
    tick: Callable[[], None],
    clock: str = "wall",
) -> list[dict[str, Any]]:
    """Agent-steps per second of all contenders, and how many times as fast as shoal they are, turn by turn."""
    racing = [one for count in lanes for one in contenders(model, count, cores)]
    twin = cases.fleet_of(model, cases.mnist(quick=True), 1)
    racing.append(Contender(f"{TWIN}/1/1", partial(cases.twin_epochs, twin), 1))
    rates = race(racing, seconds, turns, tick, clock)
    return [row(rates, model, cores, count, name) | {"clock": clock} for count in lanes for name in NAMES]


def row(rates: Rates, model: str, cores: int, lanes: int, name: str) -> dict[str, Any]:
    """One contender at one number of lanes: the fastest of its ways to be cut into pieces."""
    there = f"{name}/{1 if name == TWIN else lanes}/"
    ways = {int(key.rpartition("/")[2]): found for key, found in rates.items() if key.startswith(there)}
    made: dict[str, Any] = {"model": model, "cores": cores, "lanes": lanes, "contender": name}
    if not ways:
        return made | dict.fromkeys(NUMBERS, "") | {"note": "not installed: pip install jax"}
    pieces = max(ways, key=lambda count: statistics.median(ways[count]))
    found, ours = ways[pieces], rates[f"{SHOAL}/{lanes}/1"]
    ratios = [one / other for one, other in zip(found, ours, strict=True)]
    note = f"jax {in_jax.version()}, " if name == JAX else ""
    if name in (STACKED, JAX):
        note += f"pieces: {pieces}"
    return made | dict(zip(NUMBERS, (*spread(found), *spread(ratios), len(found)), strict=True)) | {"note": note}


NUMBERS = ("rate", "rate_low", "rate_high", "to_shoal", "to_shoal_low", "to_shoal_high", "turns")


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest, largest."""
    return statistics.median(values), min(values), max(values)


def keep(file: Path, made: Sequence[dict[str, Any]]) -> None:
    """Put rows into a CSV file, in the place of others of the same model, cores and lanes."""
    cases_ = {(row["model"], row["cores"], row["lanes"]) for row in made}
    others = [row for row in results.read(file) if (row["model"], int(row["cores"]), int(row["lanes"])) not in cases_]
    rows = [*others, *(row | results.stamp() for row in made)]
    results.write(file, sorted(rows, key=lambda row: (row["model"], int(row["cores"]), int(row["lanes"]))))


def table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/speed.csv as the markdown table of README: agent-steps per second and, in brackets, how
    many times as fast as shoal, with the smallest and the largest of all turns."""
    held = {(row["model"], int(row["cores"]), int(row["lanes"]), row["contender"]): row for row in rows}
    cases_ = list(dict.fromkeys(key[:3] for key in held))
    names = [name for name in NAMES if any(key[3] == name for key in held)]
    lines = []
    for model, cores, lanes in cases_:
        cells = [cell(held[model, cores, lanes, name]) for name in names]
        lines.append([TITLES[model], str(cores), f"{lanes:,}", *cells])
    return results.markdown(["model", "cores", "lanes", *names], lines)


def cell(row: results.Row) -> str:
    """One contender."""
    if row["rate"] == "":
        return "not installed"
    rate = results.whole(row["rate"])
    if row["contender"] == SHOAL:
        return rate
    ratio, low, high = (f"{float(row[name]):.2f}" for name in ("to_shoal", "to_shoal_low", "to_shoal_high"))
    return f"{rate} ({ratio}; {low} to {high})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 64, 1024])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="where others work too: cpu for one core, busiest for several"
    )
    parser.add_argument("--csv", type=Path, help="also write the rows there, in the place of others of the same case")
    given = parser.parse_args()
    if given.clock == "cpu" and given.cores > 1:
        parser.error("--clock cpu cannot tell how well several cores are used; say --cores 1")
    keep_memory()
    words = given.model, given.cores, given.lanes, given.turns, given.seconds
    made = measure(*words, lambda: None, given.clock)
    if given.csv:
        keep(given.csv, made)
    print(json.dumps(made))
