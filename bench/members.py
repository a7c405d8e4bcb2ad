"""The same run in one process, in several and in Ray actors: `python -m bench.members` tells how long each takes once
it has started, the most memory that all its processes have had together, and if they agree.

The paper's MNIST row, 8 agents and 8 seeds, with fewer epochs, on images made of noise. Seconds are from the first
epoch to the last, the fewest of some turns, in which the ways alternate: on a wall clock, for which it counts what else
the machine does; and of CPU, which counts little: those of the longest path (whoever drives the run, and the busiest of
those that learn) of those of all processes. Memory is of a run before these.
"""

import argparse
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bench import cases
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.fleet import cluster
from shoal.fleet.run import Moment, train

EVERY = {"recv": 8, "fedavg": 5}  # epochs


def same(one: Stack, other: Stack) -> bool:
    """Are all tensors and all rows of the ledger equal, bit for bit?"""
    tensors = one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(tensor.nan_to_num() if tensor.is_floating_point() else tensor, found)
        for name, tensor in one.tensors.items()
        for found in [other.tensors[name].nan_to_num() if tensor.is_floating_point() else other.tensors[name]]
    )
    return tensors and one.ledger.words == other.ledger.words and np.array_equal(one.ledger.rows, other.ledger.rows)


class Memory(threading.Thread):
    """Watches how much memory this process and all that it has started have together, shared pages in parts (PSS)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.over = 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.most = max(self.most, sum(map(held, family())))


def family() -> list[int]:
    """This process and all that come from it. Ray's have other parents by then, so its session is looked at, too."""
    parents, found = {}, {os.getpid()}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)] = int(text[1])
            if f"shoal-ray-{os.getpid()}-".encode() in (place / "cmdline").read_bytes():
                found.add(int(place.name))
        except OSError:
            continue
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def held(process: int) -> int:
    """Bytes of a process."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class Taken(NamedTuple):
    """What a run took from its first epoch to its last."""

    seconds: float  # on a wall clock
    path: float  # of CPU: those of whoever drives the run, and of the busiest thread or process that learns
    work: float  # of CPU, of all processes
    end: Stack


def spent() -> dict[int, float]:
    """Seconds of CPU that every thread of this process and every process that comes from it have had."""
    found, own = {}, os.getpid()
    places = [Path(f"/proc/{process}/stat") for process in family() if process != own]
    for place in [*Path(f"/proc/{own}/task").glob("*/stat"), *places]:
        try:
            words = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(place.parent.name)] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return found


def taken(fleet: Sequence[World]) -> Taken:
    """Train a fleet."""
    marks: list[tuple[float, dict[int, float]]] = []
    last = fleet[0].settings.tasks.count, 0

    def watch(moment: Moment) -> None:
        if not marks or (moment.task, moment.epoch) == last:
            marks.append((time.perf_counter(), spent()))

    (end,) = train(fleet, watch=watch)
    (first, before), (then, after) = marks[0], marks[-1]
    own = {who: seconds - before.get(who, 0.0) for who, seconds in after.items()}
    driver = own.pop(os.getpid())
    return Taken(then - first, driver + max(own.values(), default=0.0), driver + sum(own.values()), end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="epochs per task (20)")
    parser.add_argument("--workers", type=int, default=2, help="processes, or actors (2)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--ways", default="here,processes", help="some of here, processes and ray (here,processes)")
    parser.add_argument("--models", default="mlp,modular-mlp")
    parser.add_argument("--sharing", default="none,recv,fedavg,modmod", help="each alone (none,recv,fedavg,modmod)")
    given = parser.parse_args()
    bank, names = cases.mnist(), given.ways.split(",")
    machines = {name: [f"machine.members={name}", f"machine.workers={given.workers}"] for name in names}
    machines |= {"here": []} if "here" in names else {}
    for model, shared in product(given.models.split(","), given.sharing.split(",")):
        if shared == "modmod" and not model.startswith("modular"):
            continue
        words = [f"learner.epochs={given.epochs}", f"sharing={shared}"]
        words += [f"sharing.{shared}.every={EVERY[shared]}"] if shared in EVERY else []
        fleets = {name: worlds(cases.row(model, 64, *words, *machines[name]), bank) for name in names}
        found: dict[str, list[Taken]] = {name: [] for name in names}
        most: dict[str, int] = {}
        for name in names:
            memory = Memory()
            memory.start()
            found[name].append(taken(fleets[name]))  # not timed: looking at memory takes time
            memory.over.set()
            memory.join()
            most[name] = memory.most
        with ExitStack() as started:
            if "ray" in names:
                started.enter_context(cluster.session(fleets["ray"][0].settings.machine))
            for _ in range(given.turns):
                for name in names:
                    found[name].append(taken(fleets[name]))
        told = []
        for name in names:
            timed = found[name][1:] or found[name]
            seconds, path, work = (min(getattr(one, part) for one in timed) for part in ("seconds", "path", "work"))
            told.append(f"{name} {seconds:.1f} s ({path:.1f} s of {work:.1f} s of CPU), {most[name] / 1e6:,.0f} MB")
        ends = [one.end for name in names for one in found[name]]
        equal = "the same bits" if all(same(ends[0], end) for end in ends) else "DIFFERENT"
        print(f"{model}, sharing {shared}, {given.workers} workers: {'; '.join(told)}: {equal}", flush=True)


if __name__ == "__main__":
    main()
