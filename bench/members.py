"""The same run in one process, in several and in Ray actors: `python -m bench.members` tells how long each takes once
it has started, the most memory that all its processes have had together, and if they agree.

The paper's MNIST row, 8 agents and 8 seeds, with fewer epochs, on images made of noise. Seconds are from the first
epoch to the last, on a wall clock: what else the machine does counts, so compare the ways, which take turns.
"""

import argparse
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch

from bench import cases
from shoal.fleet.run import Moment, train
from shoal.fleet.stack import Stack
from shoal.fleet.world import worlds


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="epochs per task (20)")
    parser.add_argument("--workers", type=int, default=2, help="processes, or actors (2)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--ways", default="here,processes", help="some of here, processes and ray (here,processes)")
    parser.add_argument("--models", default="mlp,modular-mlp")
    given = parser.parse_args()
    bank, names = cases.mnist(), given.ways.split(",")
    for model, shared in (("mlp", "none"), ("mlp", "recv,fedavg"), ("modular-mlp", "recv,modmod,fedavg")):
        if model not in given.models.split(","):
            continue
        words = [f"learner.epochs={given.epochs}", f"sharing={shared}"]
        if shared != "none":
            words += ["sharing.recv.every=8", "sharing.fedavg.every=5"]
        taken: dict[str, list[float]] = {name: [] for name in names}
        most: dict[str, int] = dict.fromkeys(names, 0)
        ends: dict[str, Stack] = {}
        for _ in range(given.turns):
            for name in names:
                more = [] if name == "here" else [f"machine.members={name}", f"machine.workers={given.workers}"]
                fleet = worlds(cases.row(model, 64, *words, *more), bank)
                marks: list[float] = []

                def watch(moment: Moment, marks: list[float] = marks) -> None:
                    marks.append(time.perf_counter())

                memory = Memory()
                memory.start()
                (ends[name],) = train(fleet, watch=watch)
                memory.over.set()
                memory.join()
                taken[name].append(marks[-1] - marks[0])
                most[name] = max(most[name], memory.most)
        told = [f"{name} {min(taken[name]):.1f} s and {most[name] / 1e6:,.0f} MB" for name in names]
        equal = "the same bits" if all(same(ends[names[0]], ends[name]) for name in names) else "DIFFERENT"
        print(f"{model}, sharing {shared}, {given.workers} workers: {'; '.join(told)}: {equal}", flush=True)


if __name__ == "__main__":
    main()
