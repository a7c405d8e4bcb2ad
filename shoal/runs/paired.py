"""Differences of two runs, paired over seeds: a seed means the same tasks and the same first weights in both."""

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.runs import metrics

Scores = dict[int, dict[str, float]]  # by seed, the mean over its agents
SURE = 0.05  # p-value below which a difference counts as shown


class Gain(NamedTuple):
    """What one run has more than another: the mean over the seeds that both have, and its standard error."""

    mean: float
    error: float | None  # None: there is one seed
    seeds: int

    def times(self, scale: float) -> "Gain":
        """The same in another unit."""
        return Gain(scale * self.mean, None if self.error is None else scale * self.error, self.seeds)

    @property
    def p(self) -> float | None:
        """Of a two-sided paired t-test."""
        if self.error is None:
            return None
        # Equal differences have an error of zero, or of what rounding leaves of it: a few test rows can do that, and
        # then no more is known than that so many coins fell on the same side.
        if self.error <= 1e-12 * max(1.0, abs(self.mean)):
            return 1.0 if abs(self.mean) <= 1e-12 else 0.5 ** (self.seeds - 1)
        return student(self.mean / self.error, self.seeds - 1)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %, by Student's t: with few seeds, two standard errors would promise too much."""
        return self.among(1)[0]

    def among(self, count: int) -> tuple[tuple[float, float] | None, float | None]:
        """The interval and p of one of `count` differences that are looked at (Bonferroni): all of the intervals hold
        the truth in 95 of 100 such looks, and one leaves out zero where its p is below 0.05."""
        if self.error is None or self.p is None:
            return None, None
        reach = self.error * critical(self.seeds - 1, SURE / count)
        return (self.mean - reach, self.mean + reach), min(1.0, count * self.p)

    @property
    def sign(self) -> int:
        """1 or -1 if it is shown to be above or below zero, else 0."""
        return 0 if self.p is None or not self.p < SURE else 1 if self.mean > 0 else -1


def paired(here: Scores, there: Scores, name: str) -> Gain | None:
    """What `here` has more of than `there`; None if they have no seed in common, or it is not defined in one."""
    both = sorted(here.keys() & there.keys())
    if not both:
        return None
    gaps = np.array([here[seed][name] - there[seed][name] for seed in both])
    if np.isnan(gaps).any():
        return None
    return Gain(float(gaps.mean()), float(metrics.error(gaps)) if len(both) > 1 else None, len(both))


def student(t: float, freedom: int) -> float:
    """Two-sided p-value of Student's t with so many degrees of freedom.

    For whole numbers the distribution is a finite sum (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4).
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * step / (step + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(1.0, max(0.0, 1.0 - inside))


def chance(p: float | None) -> str:
    """A p-value as people read it; nothing, if there is none."""
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


@cache
def critical(freedom: int, level: float = SURE) -> float:
    """The t whose p-value is `level`, halving an interval that holds it until nothing is left of it."""
    low, high = 0.0, 2.0
    while student(high, freedom) > level:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if student(middle, freedom) > level else (low, middle)
    return high


def holm(chances: Sequence[float], looks: int = 1) -> list[float]:
    """p-values corrected for their number, so that any of them is below a level by accident no more often than that
    level says (Holm 1979, Scandinavian Journal of Statistics 6); and for how often the data is looked at."""
    order = sorted(range(len(chances)), key=lambda at: chances[at])
    corrected, least = [1.0] * len(chances), 0.0
    for rank, at in enumerate(order):
        least = max(least, min(1.0, looks * (len(chances) - rank) * chances[at]))
        corrected[at] = least
    return corrected


def interaction(scores: npt.ArrayLike) -> float:
    """How likely it is by chance that what one thing changes depends so much on another: p of scores by seed, by the
    choices of the one and by those of the other.

    What is left of a seed's scores without the means of its rows and columns is as likely as its negative, if nothing
    depends. All choices of signs, one per seed, say how often a mean as large comes by chance: with n seeds, p is at
    least 2 ** (1 - n).
    """
    found = np.asarray(scores, dtype=np.float64)
    left = found - found.mean(1, keepdims=True) - found.mean(2, keepdims=True) + found.mean((1, 2), keepdims=True)
    if np.abs(left).max() <= 1e-12 * np.abs(found).max():  # nothing is left but what rounding leaves
        return 1.0
    others = list(itertools.product((1.0, -1.0), repeat=len(left) - 1))  # all signs turned round is the same size
    signs = np.hstack([np.ones((len(others), 1)), np.array(others)])
    sizes = np.square(signs @ left.reshape(len(left), -1)).sum(1)
    return float((sizes >= sizes[0] * (1 - 1e-9)).mean())
