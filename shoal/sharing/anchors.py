"""Anchors: what the rows of a task are like, in a few hundred numbers that all agents can compare.

Rows are read as they are (as a backbone's features, where there is one) along `SLICES` directions that all agents of a
seed have; an anchor is the mean and the spread along each. The distance is the sliced Wasserstein distance of order two
(Bonneel et al. 2015) between the normal distributions that have these means and spreads.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.letters.mail import Expected
from shoal.rng import key

SLICES = 128  # directions
LARGE = 1e15  # no number of an anchor is larger
LEAST = 1e-12  # rows that vary less do not vary


@lru_cache(maxsize=4)
def directions(size: int, seed: int) -> np.ndarray:
    """Directions of length one in the space of rows, [size, SLICES], the same for all agents of a seed."""
    drawn = key(seed, "anchors").normal(size=(size, SLICES))
    found: np.ndarray = drawn / np.linalg.norm(drawn, axis=0)
    return found


def anchor_of(world: World, row: int, task: int) -> dict[str, Tensor]:
    """The mean and the spread of the training rows of a lane's task along all directions, [1, SLICES] each. Labels are
    not looked at: rows without one count too."""
    bank, met = world.bank, world.streams[row][task]
    rows = bank.take(np.concatenate([met.train, met.unlabelled]))
    seen = rows.reshape(len(rows), -1) / np.float32(bank.peak)
    along = seen.astype(np.float64) @ directions(prod(bank.images.shape[1:]), world.lanes[row].seed)
    found = {"mean": along.mean(0), "spread": along.std(0)}
    return {name: torch.from_numpy(one.clip(-LARGE, LARGE)).float()[None] for name, one in found.items()}


def anchor_layout() -> dict[str, Expected]:
    """What an anchor looks like in mail."""
    return {
        "mean": Expected(torch.float32, (None, SLICES), least=-LARGE, most=LARGE),
        "spread": Expected(torch.float32, (None, SLICES), least=0.0, most=LARGE),
    }


def own_anchor(world: World, row: int, task: int) -> Tensor:
    """The anchor of a lane's own task, [2, SLICES]."""
    return stacked(anchor_of(world, row, task))


def stacked(anchor: Mapping[str, Tensor]) -> Tensor:
    """An anchor as one tensor [2, SLICES]."""
    return torch.cat([anchor["mean"], anchor["spread"]])


def distance(one: Tensor, other: Tensor) -> float:
    """The square of the sliced Wasserstein distance between two anchors [2, S], as a part of how much the rows of both
    vary; 0: they are alike."""
    one, other = one.double(), other.double()
    far = (one - other).square().sum(0).mean()
    return float(far / (((one[1] ** 2 + other[1] ** 2) / 2).mean() + LEAST))
