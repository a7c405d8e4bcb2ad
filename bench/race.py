"""Taking times: contenders take turns, and the median of their turns counts."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from bench.cases import Work

Rates = dict[str, list[float]]  # units per second of every turn, by contender


@dataclass(frozen=True)
class Contender:
    """Something to time; `fresh` makes its state, which is not timed."""

    name: str
    fresh: Callable[[], Work]
    threads: int


# Where others work on the machine too, the time that all threads of this process have had says more than the wall.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


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
    now = CLOCKS[clock]
    started = now()
    done = work()
    passed = now() - started
    if passed < seconds:
        started, done, passed = now(), 0, 0.0
        while passed < seconds:
            done += work()
            passed = now() - started
    return done / passed


def middle(rates: Rates, name: str) -> float:
    return statistics.median(rates[name])
