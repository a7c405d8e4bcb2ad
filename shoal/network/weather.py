"""Weather: what becomes of mail on directed edges at a moment. It is drawn from paths that name seed, edge and moment,
so that it is the same for every mode, however often a run is stopped and however its agents are dealt to processes.

What leaves over an edge at one moment has one fate: it is lost together, or comes together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.network.edges import Edge
from shoal.rng import numbers
from shoal.settings.conditions import Bursts, Drawn

Numbers = np.ndarray


@dataclass(frozen=True, eq=False)
class Weather:
    """The conditions of some directed edges, each of a seed, as arrays [M]."""

    edges: Sequence[tuple[int, Edge]]  # seed, edge

    @cached_property
    def lossy(self) -> bool:
        """Can any of them lose mail?"""
        return any(edge.loss != 0 for _, edge in self.edges)

    @cached_property
    def slow(self) -> bool:
        """Can mail come late over any of them?"""
        return any(edge.delay != 0 for _, edge in self.edges)

    @cached_property
    def breaks(self) -> bool:
        """Is any of them down at times?"""
        return any(edge.down for _, edge in self.edges)

    @cached_property
    def ends(self) -> tuple[Numbers, Numbers, Numbers]:
        """Seeds, senders and receivers, int64 [M] each."""
        found = np.array([(seed, edge.sender, edge.receiver) for seed, edge in self.edges], np.int64).reshape(-1, 3)
        return found[:, 0], found[:, 1], found[:, 2]

    def luck(self, word: str, when: int, some: Numbers | slice = slice(None)) -> Numbers:
        """A number in [0, 1) for some of the edges at a moment."""
        seeds, senders, receivers = (column[some] for column in self.ends)
        found, moment = np.empty(len(seeds)), np.full(len(seeds), when)
        for seed in np.unique(seeds).tolist():
            mine = seeds == seed
            found[mine] = numbers(seed, "weather", word, at=(senders[mine], receivers[mine], moment[mine]))
        return found

    @cached_property
    def chances(self) -> Numbers:
        """[M, 5]: the chance of loss in good and in bad times, the share of bad times, the chances that a good epoch is
        followed by a bad one and a bad one by a good one."""
        plain = ((edge.loss, edge.loss) for _, edge in self.edges)
        rows = [
            (one.good, one.bad, one.share, one.worsens, one.mends) if isinstance(one, Bursts) else (one, one, 0, 0, 1)
            for one, _ in plain
        ]
        return np.array(rows, np.float64).reshape(-1, 5)

    def lost(self, when: int) -> Numbers:
        """Over which edges what leaves at a moment is lost: bool [M]."""
        if not self.lossy:
            return np.zeros(len(self.edges), bool)
        good, bad = self.chances[:, 0], self.chances[:, 1]
        found: Numbers = self.luck("loss", when) < np.where(self.bad(when), bad, good)
        return found

    def bad(self, when: int) -> Numbers:
        """Over which edges it is a bad time: bool [M].

        In every epoch the luck of an edge either decides, whatever was before, or leaves the time as it was (or, where
        bad times rarely last, turns it round). So it is enough to look back to the last epoch that decided: nobody
        needs to remember anything. In the first epoch the share of bad times decides.
        """
        share, worsens, mends = self.chances[:, 2:].T
        low, high, turns = np.minimum(worsens, 1 - mends), np.maximum(worsens, 1 - mends), worsens > 1 - mends
        found, odd = np.zeros((2, len(self.edges)), bool)
        left = np.flatnonzero(share > 0)
        for back in range(when, -1, -1):
            if not len(left):
                break
            luck = self.luck("times", back, left)
            if back == 0:
                found[left] = luck < share[left]
                break
            found[left] = luck < low[left]
            open_ = (luck >= low[left]) & (luck < high[left])
            left = left[open_]
            odd[left] ^= turns[left]
        return found ^ odd

    @cached_property
    def spans(self) -> Numbers:
        """[3, M]: the least and the most epochs for which mail is under way, and how many beyond the least it is on
        average, where that is drawn geometrically."""
        rows = [
            (one.least, one.least if one.most is None else one.most, one.mean or 0)
            if isinstance(one, Drawn)
            else (one, one, 0)
            for one in (edge.delay for _, edge in self.edges)
        ]
        found: Numbers = np.array(rows, np.float64).reshape(-1, 3).T
        return found

    def delays(self, when: int) -> Numbers:
        """How many epochs what leaves at a moment is under way: int64 [M]."""
        least, most, mean = self.spans
        luck = self.luck("delay", when) if (least != most).any() or mean.any() else np.zeros(len(least))
        even = np.floor(luck * (most - least + 1))
        rare = np.floor(np.log1p(-luck) / np.log(np.where(mean > 0, mean / (1 + mean), 0.5)))
        found: Numbers = (least + np.where(mean > 0, rare, even)).astype(np.int64)
        return found

    def down(self, when: int) -> Numbers:
        """Which edges are down at a moment: bool [M]."""
        return np.array([any(a <= when < b for a, b in edge.down) for _, edge in self.edges], bool)
