"""How an agent makes one model of its own and those that have arrived: the mean, or a rule that bears liars.

A rule is written for one agent: it is given the models in the order of their agents and in double precision, and sees
nothing else. It is numpy, which sums in the same order on any number of threads. What a rule makes of equal models is
that model, bit for bit. A new one is a function and a line in `BUILT_IN`.

For n models x_j, one's own x among them, of which `tolerates` (f = 1) may be lies, `combine` is one of

- `mean`, the default, bears no liar.
- `median`, of every weight; `trimmed`, the mean of every weight without its f largest and f smallest values (Yin et al.
  2018).
- `krum`, the one model with the smallest sum of squared distances to the n − f − 2 nearest others (equals: their mean);
  `multi-krum`, the mean of all models but the f with the largest such sums (Blanchard et al. 2017).
- `geometric`, the y with the smallest Σ_j |x_j − y|, in 8 rounds of y = (Σ_j x_j/d_j) / (Σ_j 1/d_j) from the median;
  d_j is |x_j − y|, and 0.1 at least (Pillutla et al. 2022).
- `clipped`, x + 1/n Σ_j (x_j − x) · min(1, r/|x_j − x|), r `radius` or the distance to the farthest of the others after
  the f farthest have been left out (He et al. 2022).

Median, trimmed and geometric need 2f + 1 models to bear f liars, krum and multi-krum 2f + 3, clipped f + 2. Price:
nothing. Everybody applies the rule to what it hears, and counts its own model; the pull of fedcurv does not go through
it. Not with `compress`, nor with `weights` other than mean.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.compiled.library import kernel
from shoal.doors import Table

CHUNK = 2**17  # numbers that are summed at once: they should stay in a core's cache
STEPS, FLOOR = 8, 0.1  # of the geometric median: rounds of reweighing, and the least distance that counts

Array = NDArray[np.float64]


class Heard(NamedTuple):
    """What one agent combines."""

    models: Array  # [n, D]: its own and those that have arrived, in the order of agents
    own: int  # which of them is its own
    tolerates: int  # how many of them may be lies
    radius: float | None  # for `clipped`; None: found anew each time


class Rule(NamedTuple):
    """A way to make one model of several, the least number of models among which it bears so many liars, and whether
    it makes the same for all agents that hear the same models."""

    combine: Callable[[Heard], Array]
    needs: Callable[[int], float]
    common: bool = False

    @property
    def about(self) -> str:
        return (self.combine.__doc__ or "").replace("\n", " ")


def mean(heard: Heard) -> Array:
    """The mean; it bears no liar"""
    return total(heard.models) / len(heard.models)


def median(heard: Heard) -> Array:
    """The median of every weight (Yin et al. 2018)"""
    found: Array = np.median(heard.models, axis=0)
    return found


def trimmed(heard: Heard) -> Array:
    """The mean of every weight without its `tolerates` largest and smallest values (Yin et al. 2018)"""
    count = len(heard.models)
    off = min(heard.tolerates, (count - 1) // 2)
    return total(np.sort(heard.models, axis=0)[off : count - off]) / (count - 2 * off)


def krum(heard: Heard) -> Array:
    """The one model that is nearest to most others (Blanchard et al. 2017)"""
    scores = closeness(heard)
    best = heard.models[scores == scores.min()]  # two that are nearest to each other have the same score
    return total(best) / len(best)


def multi_krum(heard: Heard) -> Array:
    """The mean of all models but the `tolerates` that are farthest from most others (Blanchard et al. 2017)"""
    kept = np.sort(np.argsort(closeness(heard), kind="stable")[: len(heard.models) - borne(heard)])
    return total(heard.models[kept]) / len(kept)


def geometric(heard: Heard) -> Array:
    """The geometric median, the model with the smallest sum of distances to all (smoothed Weiszfeld; Pillutla et al.
    2022)"""
    found = median(heard)
    for _ in range(STEPS):
        weights = 1 / np.maximum(np.sqrt(squares(heard.models - found)), FLOOR)
        found = total(weights[:, None] * heard.models) / weights.sum()
    return found


def clipped(heard: Heard) -> Array:
    """Towards the others, but towards none by more than a radius (He et al. 2022): x + mean of clip(x_j - x)"""
    own = heard.models[heard.own]
    gaps = heard.models - own
    lengths = np.sqrt(squares(gaps))
    radius = heard.radius
    if radius is None:  # as far as the farthest that is honest, if the `tolerates` farthest are not
        others = np.sort(np.delete(lengths, heard.own))
        radius = others[max(0, len(others) - 1 - heard.tolerates)]
    shares = np.where(lengths > radius, radius / np.where(lengths > radius, lengths, 1), 1)
    found: Array = own + total(shares[:, None] * gaps) / len(gaps)
    return found


def total(models: Array) -> Array:
    """The sum, one model after the other."""
    found: Array = models[0].copy()
    for model in models[1:]:
        found += model
    return found


def squares(models: Array) -> Array:
    """The squared length of each."""
    found: Array = np.square(models).sum(1)
    return found


def borne(heard: Heard) -> int:
    """How many liars Krum bears among so many models: n > 2 f + 2."""
    return max(0, min(heard.tolerates, (len(heard.models) - 3) // 2))


def closeness(heard: Heard) -> Array:
    """Krum's score of each model: the sum of squared distances to the n - f - 2 others that are nearest to it."""
    count = len(heard.models)
    apart = np.zeros((count, count))
    for at in range(count - 1):
        apart[at, at + 1 :] = apart[at + 1 :, at] = squares(heard.models[at + 1 :] - heard.models[at])
    near = max(1, count - borne(heard) - 2)
    found: Array = np.sort(apart, axis=1)[:, 1 : 1 + near].sum(1)  # the first is the distance to itself
    return found


def majority(liars: int) -> int:
    return 2 * liars + 1


BUILT_IN: dict[str, Rule] = {
    "mean": Rule(mean, lambda liars: inf if liars else 1, common=True),
    "median": Rule(median, majority, common=True),
    "trimmed": Rule(trimmed, majority, common=True),
    "krum": Rule(krum, lambda liars: 2 * liars + 3, common=True),
    "multi-krum": Rule(multi_krum, lambda liars: 2 * liars + 3, common=True),
    "geometric": Rule(geometric, majority, common=True),
    "clipped": Rule(clipped, lambda liars: liars + 2),
}
RULES: Table[Rule] = Table("rule", BUILT_IN, "shoal.rules", lambda entry: isinstance(entry, Rule))


def averaged(tables: Sequence[Tensor], sets: np.ndarray, sizes: np.ndarray, compiled: bool = False) -> Tensor:
    """`mean` of many agents at once: of the first so many rows of tables [N, ...], one table after the other, that each
    of some sets names, one row after the other; by the kernel, which gives the same bits, or by torch."""
    if compiled and all(one.dtype == torch.float32 for one in tables):
        return by_kernel(tables, sets, sizes)
    table = torch.cat(list(tables))
    flat = table.flatten(1)
    found = flat.new_empty(len(sets), flat.shape[1])
    order = np.argsort(-sizes, kind="stable")  # the largest first: those that go on are always the first
    step = max(1, CHUNK // max(1, flat.shape[1]))
    for start in range(0, len(sets), step):
        here = order[start : start + step]
        at, many = torch.from_numpy(sets[here].T.copy()), sizes[here]
        total = flat[at[0]].double()
        for turn in range(1, int(many[0])):
            on = int((many > turn).sum())
            total[:on] += flat[at[turn, :on]]
        found[torch.from_numpy(here)] = (total / torch.from_numpy(many)[:, None]).float()
    return found.view(len(sets), *table.shape[1:])


def by_kernel(tables: Sequence[Tensor], sets: np.ndarray, sizes: np.ndarray) -> Tensor:
    """The same by the kernel, which is told where rows lie."""
    library = kernel().library
    assert library is not None
    shape, held = tables[0].shape[1:], [one if one[0].is_contiguous() else one.contiguous() for one in tables]
    rows = np.concatenate([one.data_ptr() + 4 * one.stride(0) * np.arange(len(one)) for one in held])
    where = np.ascontiguousarray(rows[sets], np.int64)
    many, found = np.ascontiguousarray(sizes, np.int64), torch.empty(len(sets), *shape)
    lengths = shape.numel(), sets.shape[1], len(sets)
    library.shoal_means(where.ctypes.data, many.ctypes.data, *lengths, found.data_ptr())
    return found
