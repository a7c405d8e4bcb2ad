"""This code and that of another source tree, measured in turn in one run: `python -m bench.versus FOLDER`.

Each tree has a process of its own, which makes its fleets once and then does one piece of work when it is told to. They
take turns, so that a busy machine slows both; what counts is the median of the ratios of neighbouring turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

CASES = ("mlp 64", "mlp 8", "mlp 1", "modular-mlp 64", "modular-mlp 8", "modular-mlp 1", "cnn 4", "modular-cnn 4")
SHARING = ("recv", "simp", "uniform", "fedavg", "fedprox", "fedcurv", "fedfish", "modmod")

# What a tree's process does, with the names that either of them has.
WORKER = """
import sys, time
from importlib import import_module
from bench import cases, sharing

def found(*names):
    for name in names:
        module, _, what = name.partition(":")
        try:
            return getattr(import_module(module), what)
        except (ImportError, AttributeError):
            pass
    raise ImportError(names)

accuracy = found("shoal.agents.evaluate:accuracy", "shoal.fleet.evaluate:accuracy")
one_thread = found("shoal.fleet.run:one_thread", "shoal.run:one_thread")
keep_memory = found("shoal.agents.engine:keep_memory", "shoal.fleet.engine:keep_memory")
keep_memory()
banks, made = {}, {}
FEW = ("tasks.classes=4", "tasks.train=16")  # a small part of the images of the CIFAR-100 row

def bank_of(model):
    kind = "cifar" if model.endswith("cnn") else "mnist"
    if kind not in banks:
        banks[kind] = getattr(cases, kind)(kind == "mnist")
    return banks[kind]

def work_of(case):
    what, _, count = case.partition(" ")
    if what == "sharing":
        if "fleets" not in made:
            made["fleets"] = sharing.fleets("modular-mlp", 16, True)
        return lambda: sharing.task(made["fleets"][count])
    model = what.removeprefix("test-")
    fleet = cases.fleet_of(model, bank_of(model), int(count), *(FEW if model.endswith("cnn") else ()))
    stack = cases.midway(fleet)
    if what.startswith("test-"):
        return lambda: accuracy(fleet, stack, "test", range(8))
    return cases.epochs(fleet, stack)

print("ready", flush=True)
for line in sys.stdin:
    case, seconds = line.strip().rsplit(" ", 1)
    if case not in made:
        made[case] = work_of(case)
        with one_thread():
            made[case]()
    done, started = 0, time.perf_counter()
    with one_thread():
        while not done or time.perf_counter() - started < float(seconds):
            made[case]()
            done += 1
    print((time.perf_counter() - started) / done, flush=True)
"""


class Tree:
    """The process of a source tree."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.heard()

    def heard(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("a tree's process has ended; what it said stands above")
        return line

    def time(self, case: str, seconds: float) -> float:
        """The mean seconds of one piece of work."""
        assert self.process.stdin is not None
        print(case, seconds, file=self.process.stdin, flush=True)
        return float(self.heard())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the other tree")
    parser.add_argument("--turns", type=int, default=15, help="turns of each (15)")
    parser.add_argument("--seconds", type=float, default=0.7, help="length of a turn, at least (0.7)")
    parser.add_argument("--only", nargs="+", help="some cases, e.g. 'mlp 64'")
    given = parser.parse_args()
    here, there = Tree(Path(__file__).parents[1]), Tree(given.folder.resolve())
    tests = ("test-mlp 64", "test-modular-mlp 64")
    for case in given.only or (*CASES, *tests, "sharing none", *(f"sharing {mode}" for mode in SHARING)):
        pairs = [(here.time(case, given.seconds), there.time(case, given.seconds)) for _ in range(given.turns + 1)][1:]
        ratio = statistics.median(one / other for one, other in pairs)
        one, other = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{case:24} here {one * 1e3:9.2f} ms, there {other * 1e3:9.2f} ms, here / there {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
