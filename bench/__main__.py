"""Measure the speed of shoal against what others would write, against a slow twin and against bare matrix products.

Everything is measured in this run; times depend on the machine, so look at the ratios.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import cases, exchanges, floor, page, results, scale, sharing, speed, tables
from bench.race import Contender, Rates, middle, race
from shoal.agents.engine import ENGINES, THREADS, keep_memory
from shoal.agents.evaluate import accuracy
from shoal.agents.world import World
from shoal.data import Bank
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.runs.about import about
from shoal.sharing.modes import MODES

CNN_LANES = (1, 2)
# One batch of 64: 16 images of each of 4 classes. The paper has 5; a head is nothing beside the convolutions.
ONE_BATCH = ("tasks.classes=4", "tasks.train=16")
TINY = ("net.width=8", "learner.batch=8", "tasks.classes=4", "tasks.train=2", "learner.memory=2")

SECTIONS = ("speed", "exchanges", "modular-mlp", "mlp", "cnn", "evaluation", "sharing", "growth", "page")

WIDE = None if sys.stdout.isatty() else 160  # a file has no width of its own
KEPT = ("speed", "exchanges")  # sections that `--csv` writes

Found = dict[str, Any]
Tick = Callable[[], None]


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    quick: bool
    seconds: float
    turns: int
    lanes: tuple[int, ...]
    only: tuple[str, ...] = ()

    @property
    def threads(self) -> int:
        """The most torch threads that anything takes; where others work too, more than one can be far slower."""
        return 1 if self.quick else THREADS

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of cores that contenders are bound to."""
        return (1,) if self.quick or THREADS == 1 else (1, 2)

    @property
    def raced(self) -> tuple[int, ...]:
        """Lanes of the race against other ways to write a step."""
        return (1, 4) if self.quick else (1, 8, 64, 1024)

    @property
    def rounds(self) -> int:
        """Turns of that race: its ratios have a spread."""
        return self.turns if self.quick else max(5, self.turns)

    @property
    def growth(self) -> tuple[int, ...]:
        """Lanes of the table of growth."""
        return (8, 16) if self.quick else (64, 128, 256, 512, 1024)

    @property
    def fleet(self) -> int:
        """Lanes that are evaluated."""
        return 8 if self.quick else 64


@dataclass(frozen=True)
class Section:
    """A part of the bench: how often it ticks, what measures it, and its table."""

    ticks: int
    measure: Callable[[Tick], Found]
    show: Callable[[Found], Table]


def stacks(options: Options, model: str, bank: Bank, lanes: int, *changes: str) -> tuple[World, list[Contender]]:
    """A fleet, and its epochs with each engine."""
    fleet = cases.fleet_of(model, bank, lanes, *changes)
    stack = cases.midway(fleet)

    def contender(engine: str) -> Contender:
        mapped = cases.with_engine(fleet, engine)
        return Contender(f"{engine} {lanes}", lambda: cases.epochs(mapped, stack), 1)

    return fleet, [contender(engine) for engine in ENGINES]


def either(name: str, fresh: Callable[[], cases.Work], threads: int) -> list[Contender]:
    """A contender with one thread and with all: the better one counts."""
    return [Contender(f"{name}, threads: {count}", fresh, count) for count in sorted({1, threads})]


def best(rates: Rates, name: str) -> float:
    return max(middle(rates, each) for each in rates if each.startswith(f"{name}, threads"))


def measure_mlp(model: str, options: Options, tick: Tick) -> Found:
    """Agent-steps per second of an MLP at every number of lanes."""
    bank, contenders, operations = cases.mnist(options.quick), [], {}
    for lanes in options.lanes:
        fleet, engines = stacks(options, model, bank, lanes)
        groups = (floor.modular if family(fleet.settings) == GROWTH else floor.monolithic)(fleet.settings, lanes)
        operations[lanes] = floor.operations(groups) / (len(groups) * lanes)
        bare = floor.run(groups, len(groups) * lanes)
        contenders += [*engines, *either(f"products {lanes}", partial(same, bare), options.threads)]
    contenders += either("twin", partial(cases.twin_epochs, fleet), options.threads)
    rates = race(contenders, options.seconds, options.turns, tick)
    twin, rows = best(rates, "twin"), []
    for lanes in options.lanes:
        loop, vmap = (middle(rates, f"{engine} {lanes}") for engine in ("loop", "vmap"))
        products = best(rates, f"products {lanes}")
        rows.append(
            {
                "lanes": lanes,
                "loop": loop,
                "vmap": vmap,
                "twin": twin,
                "products": products,
                "products_gflops": products * operations[lanes] / 1e9,
                "vmap_to_twin": vmap / twin,
                "products_to_vmap": products / vmap,
                "products_to_twin": products / twin,
            }
        )
    return {"unit": "agent-steps per second", "rows": rows, "turns": rates}


def measure_cnn(options: Options, tick: Tick) -> Found:
    """Agent-steps per second of both CNNs."""
    bank, changes = cases.cifar(options.quick), TINY if options.quick else ONE_BATCH
    rows, turns = [], {}
    for model in ("cnn", "modular-cnn"):
        contenders: list[Contender] = []
        for lanes in CNN_LANES:
            fleet, engines = stacks(options, model, bank, lanes, *changes)
            contenders += engines
        bare = floor.convolutions(fleet.settings, *bank.images.shape[1:3])
        contenders += either("convolutions", partial(same, bare), options.threads)
        contenders += either("twin", partial(cases.twin_epochs, fleet), options.threads)
        turns[model] = rates = race(contenders, options.seconds, options.turns, tick)
        twin, convolutions = best(rates, "twin"), best(rates, "convolutions")
        for lanes in CNN_LANES:
            loop, vmap = (middle(rates, f"{engine} {lanes}") for engine in ("loop", "vmap"))
            rows.append(
                {
                    "model": model,
                    "lanes": lanes,
                    "loop": loop,
                    "vmap": vmap,
                    "twin": twin,
                    "convolutions": convolutions,
                    "loop_to_twin": loop / twin,
                    "convolutions_to_loop": convolutions / loop,
                }
            )
    return {"unit": "agent-steps per second", "rows": rows, "turns": turns}


def measure_evaluation(options: Options, tick: Tick) -> Found:
    """Test images per second of the modular MLP."""
    fleet = cases.fleet_of("modular-mlp", cases.mnist(options.quick), options.fleet)
    stack = cases.midway(fleet)
    images = int(fleet.test.sizes[:, cases.TASK].sum())
    agent, (x, y) = cases.twin_of(fleet), cases.samples(fleet, cases.TASK, "test")

    def ours() -> int:
        accuracy(fleet, stack, "test", [cases.TASK])
        return images

    def theirs() -> int:
        agent.right(cases.TASK, x, y)
        return len(y)

    bare = floor.run(floor.evaluation(fleet.settings, len(y)), len(y))
    contenders = [Contender("shoal", lambda: ours, 1), *either("products", partial(same, bare), options.threads)]
    contenders += either("twin", lambda: theirs, options.threads)
    rates = race(contenders, options.seconds, options.turns, tick)
    shoal, products, twin = middle(rates, "shoal"), best(rates, "products"), best(rates, "twin")
    row = {
        "lanes": options.fleet,
        "images": images // options.fleet,
        "shoal": shoal,
        "twin": twin,
        "products": products,
        "shoal_to_twin": shoal / twin,
        "products_to_shoal": products / shoal,
    }
    return {"unit": "test images per second", "rows": [row], "turns": rates}


def measure_speed(options: Options, tick: Tick) -> Found:
    """Shoal beside other ways to write the same step, each model and number of cores in a process of its own."""
    rows = []
    for model in speed.MODELS:
        for cores in options.cores:
            rows += speed.ask(model, cores, options.raced, options.rounds, options.seconds)
            tick()
    return {"unit": "agent-steps per second", "rows": rows}


def measure_exchanges(options: Options, tick: Tick) -> Found:
    """Exchanges and memory of fleets of 64 to 10,000 agents."""
    return {"unit": "seconds, MB", "rows": exchanges.rows(options.turns, options.quick, tick)}


def measure_growth(options: Options, tick: Tick) -> Found:
    """Time and memory from 64 lanes on, each number of lanes in a process of its own."""
    rows = []
    for lanes in options.growth:
        row = scale.ask(lanes, max(options.turns, 3), options.quick)
        row["epoch_ms_per_lane"] = 1e3 * row["epoch_seconds"] / lanes
        row["test_ms_per_lane"] = 1e3 * row["test_seconds"] / lanes
        row["mb_per_lane"] = (row["peak_mb"] - row["empty_mb"]) / lanes
        rows.append(row)
        tick()
    straight = {}
    for name in ("epoch_seconds", "test_seconds", "peak_mb"):
        columns = np.corrcoef(options.growth, [row[name] for row in rows])
        straight[name] = float(columns[0, 1] ** 2)
    return {"unit": "seconds, MB", "rows": rows, "r_squared": straight}


def measure_sharing(options: Options, tick: Tick) -> Found:
    """What every sharing mode adds to the time of learning."""
    models = ("mlp", "modular-mlp")
    found = (sharing.rows(model, options.fleet, options.turns, options.quick, tick) for model in models)
    return {"unit": "seconds of a task", "rows": [row for rows in found for row in rows]}


def sections(options: Options) -> dict[str, Section]:
    two = len({1, options.threads})  # those that run with one thread and with all
    mlp = options.turns * (len(options.lanes) * (len(ENGINES) + two) + two)
    modular, monolithic = (f"{kind} MLP, MNIST row" for kind in ("Modular", "Monolithic"))
    return {
        "speed": Section(
            len(speed.MODELS) * len(options.cores),
            lambda tick: measure_speed(options, tick),
            lambda found: tables.speed(found["rows"]),
        ),
        "exchanges": Section(
            sum(1 if options.quick else len(case.sizes) for case in exchanges.CASES),
            lambda tick: measure_exchanges(options, tick),
            lambda found: tables.exchanges(found["rows"]),
        ),
        "modular-mlp": Section(
            mlp,
            lambda tick: measure_mlp("modular-mlp", options, tick),
            lambda found: tables.mlp(f"{modular}, assimilation at task 7 (8 modules)", found["rows"]),
        ),
        "mlp": Section(
            mlp,
            lambda tick: measure_mlp("mlp", options, tick),
            lambda found: tables.mlp(f"{monolithic}, replay at task 7 (128 + 7 x 32 images)", found["rows"]),
        ),
        "cnn": Section(
            2 * options.turns * (len(CNN_LANES) * len(ENGINES) + 2 * two),
            lambda tick: measure_cnn(options, tick),
            lambda found: tables.cnn(found["rows"]),
        ),
        "evaluation": Section(
            options.turns * (1 + 2 * two),
            lambda tick: measure_evaluation(options, tick),
            lambda found: tables.evaluation(found["rows"]),
        ),
        "sharing": Section(
            options.turns * (2 * len(MODES) + 1),  # modmod is for one of the two models
            lambda tick: measure_sharing(options, tick),
            lambda found: tables.sharing(options.fleet, found["rows"]),
        ),
        "growth": Section(
            len(options.growth),
            lambda tick: measure_growth(options, tick),
            lambda found: tables.scale(found["rows"], found["r_squared"]),
        ),
        "page": Section(
            options.turns,
            lambda tick: {"unit": "seconds", "rows": page.rows(options.fleet, options.turns, tick)},
            lambda found: tables.page(found["rows"]),
        ),
    }


def read_options() -> tuple[Options, Path, Path | None]:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that it works: the numbers mean nothing"
    )
    parser.add_argument("--seconds", type=float, help="length of a turn (0.7)")
    parser.add_argument("--turns", type=int, help="turns of each contender, the median counts (3)")
    parser.add_argument("--lanes", type=int, nargs="+", help="of the MLP tables (1 8 64 256)")
    parser.add_argument("--only", nargs="+", metavar="SECTION", help="some sections: " + ", ".join(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"), help="where the numbers go (%(default)s)")
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FOLDER",
        help="also write speed.csv and exchanges.csv there; docs/results has those we quote",
    )
    given = parser.parse_args()
    usual = Options(True, 0.02, 1, (1, 4)) if given.quick else Options(False, 0.7, 3, (1, 8, 64, 256))
    said = {name: value for name, value in vars(given).items() if name not in ("out", "csv") and value is not None}
    options = Options(**{**asdict(usual), **said})
    for count in options.lanes:
        if count < 1 or (count > cases.AGENTS and count % cases.AGENTS):
            parser.error(
                f"--lanes {count} makes no whole fleets; use 1 to {cases.AGENTS}, or a multiple of {cases.AGENTS}"
            )
    for name in options.only:
        if name not in SECTIONS:
            parser.error(f"--only {name} is no section; use one or more of {', '.join(SECTIONS)}")
    if options.turns < 1:
        parser.error(f"--turns {options.turns} measures nothing; use 1 or more, 3 for numbers to trust")
    return options, given.out, given.csv


def same(work: cases.Work) -> cases.Work:
    """Work without a state of its own needs no fresh start."""
    return work


def main() -> None:
    options, out, folder = read_options()
    keep_memory()
    console, screen, started = Console(width=WIDE), Console(stderr=True), time.monotonic()
    here = {**about(), "processor": results.processor(), "cores": os.cpu_count(), "threads": options.threads}
    stamp = results.stamp()
    found: Found = {"machine": here, "options": asdict(options)}
    console.print(
        f"{here['processor']}, {here['cores']} cores, torch threads: {options.threads}, torch {torch.__version__}, "
        f"shoal {here['shoal']} at {here['commit']}.\nThe images are noise: speed does not depend on what they show.",
        *["Quick: this only shows that everything runs; the numbers mean nothing."] * options.quick,
        "",
        sep="\n",
        highlight=False,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    for name, section in sections(options).items():
        if options.only and name not in options.only:
            continue
        with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
            bar = progress.add_task(name, total=section.ticks)
            found[name] = section.measure(partial(progress.advance, bar))
        console.print(section.show(found[name]), "")
        if folder and name in KEPT:
            results.write(folder / f"{name}.csv", [row | stamp for row in found[name]["rows"]])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"{time.monotonic() - started:.0f} s in all; every number, each turn's too, is in {out}")


if __name__ == "__main__":
    main()
