"""Overlap: how much agents have in common, by their classes, their labels and what they read."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank
from shoal.data.tasks import Lane, Stream
from shoal.rng import key

NAMES = ("iou", "labels", "features")
MOST = 2000  # pairs of agents of a seed that are looked at
CHUNK = 4096  # rows at a time: squares in double precision need room


class Pair(NamedTuple):
    """Two agents of a seed.

    `iou` is the number of classes that both meet over that of all they meet; `labels` the total variation distance of
    their labels, 0 for the same shares and 1 for no label in common; `features` the distance of the means of what they
    read, in standard deviations, the mean over columns or pixels.
    """

    seed: int
    agents: tuple[int, int]
    iou: float
    labels: float
    features: float


def pairs(bank: Bank, streams: Mapping[Lane, Stream]) -> list[Pair]:
    """The pairs of agents of each seed, by the training rows of their streams."""
    rows = {lane: np.concatenate([task.train for task in stream]) for lane, stream in streams.items()}
    shares = {lane: np.bincount(bank.labels[bank.base(of)], minlength=len(bank.classes)) for lane, of in rows.items()}
    shares = {lane: counts / counts.sum() for lane, counts in shares.items()}
    moments = {lane: means(bank, of) for lane, of in rows.items()}
    return [
        Pair(
            one.seed,
            (one.agent, other.agent),
            iou,
            labels=float(np.abs(shares[one] - shares[other]).sum() / 2),
            features=apart(moments[one], moments[other]),
        )
        for (one, other), iou in ious(streams).items()
    ]


def ious(streams: Mapping[Lane, Stream]) -> dict[tuple[Lane, Lane], float]:
    """Of the pairs of agents of each seed, the number of classes that both meet over that of all they meet."""
    met = {lane: {one for task in stream for one in task.classes} for lane, stream in streams.items()}
    return {
        (one, other): len(met[one] & met[other]) / len(met[one] | met[other])
        for seed in sorted({lane.seed for lane in streams})
        for one, other in couples([lane for lane in sorted(streams) if lane.seed == seed])
    }


def couples(lanes: Sequence[Lane]) -> list[tuple[Lane, Lane]]:
    """All pairs of the agents of a seed; of a large fleet some, drawn at random: there are half a million of a thousand
    agents."""
    count = len(lanes)
    if count * (count - 1) // 2 <= MOST:
        return list(combinations(lanes, 2))
    drawn = key(lanes[0].seed, "overlap", "pairs").integers(count, size=(MOST, 2))
    found = {(min(one, other), max(one, other)) for one, other in drawn.tolist() if one != other}
    return [(lanes[one], lanes[other]) for one, other in sorted(found)]


def mean_iou(streams: Mapping[Lane, Stream]) -> float | None:
    """How much of their classes two agents have in common, the mean over pairs; None: there is one agent."""
    found = ious(streams)
    return round(sum(found.values()) / len(found), 6) if found else None


def overlap(found: Sequence[Pair]) -> dict[str, float | None]:
    """The means over pairs of agents; None: there are none."""
    return {name: round(float(np.mean([getattr(one, name) for one in found])), 6) if found else None for name in NAMES}


Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


def means(bank: Bank, rows: NDArray[np.int64]) -> Moments:
    """The mean, and the mean square around it, of every column or pixel of some rows."""
    chunks = [bank.take(rows[at : at + CHUNK]) for at in range(0, len(rows), CHUNK)]
    mean: NDArray[np.float64] = np.sum([chunk.sum(0, np.float64) for chunk in chunks], 0) / len(rows)
    squares: NDArray[np.float64] = np.sum([((chunk - mean) ** 2).sum(0) for chunk in chunks], 0) / len(rows)
    return mean, squares


def apart(one: Moments, other: Moments) -> float:
    """The distance of two means in standard deviations, the mean over those that vary."""
    spread = np.sqrt((one[1] + other[1]) / 2)
    gap = np.abs(one[0] - other[0])
    varies = spread > 0
    return float((gap[varies] / spread[varies]).mean()) if varies.any() else float(gap.any())


def table(found: Sequence[Pair]) -> list[dict[str, Any]]:
    """Every pair of agents, the mean over seeds, for the record."""
    every: dict[tuple[int, int], list[Pair]] = {}
    for one in found:
        every.setdefault(one.agents, []).append(one)
    return [
        {"agents": list(agents)}
        | {name: round(float(np.mean([getattr(one, name) for one in some])), 4) for name in NAMES}
        for agents, some in every.items()
    ]
