"""Taking times: contenders take turns, and the median of their turns counts."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.cases import Work

Rates = dict[str, list[float]]  # units per second of every turn, by contender


@dataclass(frozen=True)
class Contender:
    """Something to time; `fresh` makes its state, which is not timed."""

    name: str
    fresh: Callable[[], Work]
    threads: int


Watch = Callable[[], float]  # how many seconds have passed since it was started


def wall() -> Watch:
    """Seconds on the wall."""
    started = time.perf_counter()
    return lambda: time.perf_counter() - started


def cpu() -> Watch:
    """What all threads of this process have had of all cores: where others work on the machine too, that says more."""
    started = time.process_time()
    return lambda: time.process_time() - started


def busiest() -> Watch:
    """What the work takes at least on cores of its own: what its busiest thread has had or, if that is more, what all
    threads have had, dealt evenly to all cores. It is kind to those whose threads wait for each other."""
    started, cores = by_thread(), len(os.sched_getaffinity(0))

    def passed() -> float:
        spent = [had - started.get(thread, 0.0) for thread, had in by_thread().items()]
        return max(max(spent), sum(spent) / cores)

    return passed


def by_thread() -> dict[str, float]:
    """The seconds that each thread of this process has had, as Linux tells."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            found[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
    return found


CLOCKS: dict[str, Callable[[], Watch]] = {"wall": wall, "cpu": cpu, "busiest": busiest}


def race(
    contenders: Sequence[Contender], seconds: float, turns: int, tick: Callable[[], None], clock: str = "wall"
) -> Rates:
    """The rates of all contenders. They take turns, so that a noisy machine hits all alike."""
    rates: Rates = {contender.name: [] for contender in contenders}
    before = torch.get_num_threads()
    try:
        for turn in range(turns):
            for contender in contenders:
                torch.set_num_threads(contender.threads)
                if turn == 0:
                    contender.fresh()()  # what happens once in a process, torch's own imports for one, is not timed
                rates[contender.name].append(rate(contender.fresh(), seconds, clock))
                tick()
    finally:
        torch.set_num_threads(before)
    return rates


def rate(work: Work, seconds: float, clock: str = "wall") -> float:
    """Units per second over about `seconds`. The first pass warms up, unless it alone takes that long."""
    watch = CLOCKS[clock]()
    done = work()
    passed = watch()
    if passed < seconds:
        watch, done, passed = CLOCKS[clock](), 0, 0.0
        while passed < seconds:
            done += work()
            passed = watch()
    return done / passed


def middle(rates: Rates, name: str) -> float:
    return statistics.median(rates[name])
