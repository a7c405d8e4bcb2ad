"""The same run in one process and in several: `python -m bench.members` tells how long each takes, and if they agree.

The paper's MNIST row, 8 agents and 8 seeds, with fewer epochs, on images made of noise.
"""

import argparse
import time

import numpy as np
import torch

from bench import cases
from shoal.fleet.run import train
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="epochs per task (20)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each (3)")
    given = parser.parse_args()
    bank = cases.mnist()
    for model, shared in (("mlp", "none"), ("mlp", "recv,fedavg"), ("modular-mlp", "recv,modmod,fedavg")):
        words = [f"learner.epochs={given.epochs}", f"sharing={shared}"]
        if shared != "none":
            words += ["sharing.recv.every=8", "sharing.fedavg.every=5"]
        ways = {"here": [], "processes": ["machine.members=processes", f"machine.workers={given.workers}"]}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        ends: dict[str, Stack] = {}
        for _ in range(given.turns):
            for name, more in ways.items():
                fleet = worlds(cases.row(model, 64, *words, *more), bank)
                started = time.perf_counter()
                (ends[name],) = train(fleet)
                taken[name].append(time.perf_counter() - started)
        seconds = {name: f"{min(times):.1f} s" for name, times in taken.items()}
        equal = "the same bits" if same(ends["here"], ends["processes"]) else "DIFFERENT"
        there = f"{given.workers} processes {seconds['processes']}"
        print(f"{model}, sharing {shared}: here {seconds['here']}, {there}: {equal}", flush=True)


if __name__ == "__main__":
    main()
