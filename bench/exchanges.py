"""Exchanges, zero-shot tests and memory of large fleets: seconds and megabytes, each size in a process of its own.

One seed of many agents on tasks like those of the digits experiment, on images made of noise. On the graph `eight` an
agent has the four next ones on either side as neighbours. `python -m bench.exchanges MODE GRAPH AGENTS` measures one;
words behind it are settings.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from bench import results
from bench.cases import midway, noise
from bench.race import CLOCKS
from bench.scale import peak
from shoal.agents.engine import keep_memory
from shoal.agents.evaluate import others
from shoal.agents.events import due
from shoal.agents.worlds import world
from shoal.configure.reading import EXPERIMENTS, read
from shoal.fleet.exchange import meet_all
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.members import crew_of
from shoal.fleet.run import one_thread
from shoal.settings.groups import Settings

TASK = 6  # of eight: the tasks before have left memories and, in a modular net, modules
SIZES = (64, 256, 1024, 4096, 10_000)
TESTED = 1024  # agents, at most, whose zero-shot accuracy is measured: so far it grows fastest of all
QUICK = ("net.width=8", "learner.epochs=16", "tasks.train=6", "tasks.validation=4")


class Case(NamedTuple):
    """A mode on a graph."""

    mode: str
    model: str
    graph: str
    sizes: tuple[int, ...]
    words: tuple[str, ...] = ()


CASES = (
    Case("fedavg", "mlp", "complete", SIZES[:1]),
    Case("fedavg", "mlp", "ring", SIZES),
    Case("recv", "mlp", "eight", SIZES[:4]),
    Case("modmod", "modular-mlp", "eight", SIZES[:4]),
)


def eight(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """Everybody is connected with the four next agents on either side, in a circle."""
    return nx.circulant_graph(n, [step for step in range(1, 5) if 2 * step <= n])


def ask(case: Case, agents: int, turns: int, quick: bool, tested: int = TESTED) -> dict[str, Any]:
    """Measure in a fresh process."""
    words = [case.mode, case.graph, str(agents), "--turns", str(turns), "--tested", str(tested), *["--quick"] * quick]
    command = [sys.executable, "-m", "bench.exchanges", *words]
    # From the folder that holds `bench`, wherever this one was started.
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=results.ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(turns: int, quick: bool, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """Every mode at every size."""
    found = []
    for case in CASES:
        for agents in (12,) if quick else case.sizes:
            found.append(ask(case, agents, turns, quick))
            tick()
    return found


def settings_of(case: Case, agents: int, quick: bool) -> Settings:
    """The digits experiment with so many agents of one seed."""
    graph = f"{__spec__.name}:eight" if case.graph == "eight" else case.graph
    words = [f"model={case.model}", f"agents={agents}", "seeds=1", f"sharing={case.mode}", f"network.graph={graph}"]
    return read(EXPERIMENTS / "digits.toml", [*words, *(QUICK if quick else ()), *case.words])


def measure(case: Case, agents: int, turns: int, quick: bool, tested: int, clock: str = "wall") -> dict[str, Any]:
    """Building a fleet, its epochs, exchanges and, if they are not too many, tests on others' tasks; and its memory."""
    clocked = CLOCKS[clock]

    def timed(work: Callable[[], object]) -> float:
        watch = clocked()
        work()
        return watch()

    bank = noise("digits", (8, 8), 10, 1500, 300)
    empty, building = peak(), clocked()
    settings = settings_of(case, agents, quick)
    fleet = world(settings, bank)
    keep_memory()
    stack = midway(fleet, TASK)
    crew = crew_of([fleet], [stack])
    edges = len(fleet.edges)
    setup = building()
    now = next(epoch for epoch in range(settings.learner.epochs + 1) if due(settings, TASK, epoch))

    def exchange() -> int:
        before = len(crew.ledger)
        meet_all(crew)
        return len(crew.ledger) - before

    stack.epoch = now
    first = timed(exchange)
    learn_epoch([(fleet, stack)], 0)
    epochs, exchanges, messages = [], [], 0
    for turn in range(1, turns + 1):
        epochs.append(timed(partial(learn_epoch, [(fleet, stack)], turn)))
        watch = clocked()
        messages = exchange()
        exchanges.append(watch())
    peak_trained = peak()
    zero_shot = timed(partial(others, [(fleet, stack)])) if agents <= tested else None
    exchanged = statistics.median(exchanges)
    return {
        "mode": case.mode,
        "model": settings.model,
        "graph": case.graph,
        "agents": agents,
        "edges": edges,
        "messages": messages,
        "setup_seconds": setup,
        "epoch_seconds": statistics.median(epochs),
        "first_exchange_seconds": first,
        "exchange_seconds": exchanged,
        "exchange_seconds_low": min(exchanges),
        "exchange_seconds_high": max(exchanges),
        "us_per_message": 1e6 * exchanged / max(1, messages),
        "us_per_edge": 1e6 * exchanged / max(1, edges),
        "zero_shot_seconds": "" if zero_shot is None else zero_shot,
        "empty_mb": empty,
        "peak_mb": peak_trained,
        "mb_per_agent": (peak_trained - empty) / agents,
        "clock": clock,
    }


COLUMNS = {
    "epoch, s": "epoch_seconds",
    "exchange, s": "exchange_seconds",
    "µs per message": "us_per_message",
    "µs per edge": "us_per_edge",
    "zero-shot, s": "zero_shot_seconds",
    "building, s": "setup_seconds",
    "peak, MB": "peak_mb",
    "MB per agent": "mb_per_agent",
}


def lines(rows: Sequence[results.Row]) -> list[list[str]]:
    """What the table shows."""
    return [
        [row["mode"], row["graph"], f"{int(row['agents']):,}", f"{int(row['messages']):,}"]
        + ["" if row[name] == "" else results.whole(row[name]) for name in COLUMNS.values()]
        for row in rows
    ]


HEAD = ("mode", "graph", "agents", "messages", *COLUMNS)


def table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/exchanges.csv as a markdown table."""
    return results.markdown(HEAD, lines(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=sorted({case.mode for case in CASES}))
    parser.add_argument("graph", choices=sorted({case.graph for case in CASES}))
    parser.add_argument("agents", type=int)
    parser.add_argument("words", nargs="*", help="such as sharing.modmod.metric=leep")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tested", type=int, default=TESTED)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: where others work too")
    given = parser.parse_args()
    model = next(case.model for case in CASES if case.mode == given.mode)
    one = Case(given.mode, model, given.graph, (given.agents,), tuple(given.words))
    with one_thread():
        print(json.dumps(measure(one, given.agents, given.turns, given.quick, given.tested, given.clock)))
