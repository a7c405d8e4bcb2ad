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


def race(contenders: Sequence[Contender], seconds: float, turns: int, tick: Callable[[], None]) -> Rates:
    """The rates of all contenders. They take turns, so that a noisy machine hits all alike."""
    rates: Rates = {contender.name: [] for contender in contenders}
    before = torch.get_num_threads()
    try:
        for turn in range(turns):
            for contender in contenders:
                torch.set_num_threads(contender.threads)
                if turn == 0:
                    contender.fresh()()  # what happens once in a process, torch's own imports for one, is not timed
                rates[contender.name].append(rate(contender.fresh(), seconds))
                tick()
    finally:
        torch.set_num_threads(before)
    return rates


def rate(work: Work, seconds: float) -> float:
    """Units per second over about `seconds`. The first pass warms up, unless it alone takes that long."""
    started = time.perf_counter()
    done = work()
    passed = time.perf_counter() - started
    if passed < seconds:
        started, done, passed = time.perf_counter(), 0, 0.0
        while passed < seconds:
            done += work()
            passed = time.perf_counter() - started
    return done / passed


def middle(rates: Rates, name: str) -> float:
    return statistics.median(rates[name])
