"""Roads: directed edges and what they carry at most, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from shoal.network.edges import Edge
from shoal.network.weather import Numbers, Weather
from shoal.units import Limit


class Limits(NamedTuple):
    """The limits of several edges: amounts float64 [M], inf where there is none; of bytes, or else of floats; per task,
    or else per exchange."""

    amount: Numbers
    bytes: Numbers  # bool [M]
    task: Numbers  # bool [M]

    @classmethod
    def of(cls, limits: Sequence[Limit | None]) -> "Limits":
        """Limits as arrays."""
        amount = np.array([inf if one is None else one.amount for one in limits], np.float64)
        units = np.array([one is not None and one.unit == "bytes" for one in limits], bool)
        return cls(amount, units, np.array([one is not None and one.per == "task" for one in limits], bool))

    def take(self, at: Numbers) -> "Limits":
        """Those of some edges."""
        return Limits(*(column[at] for column in self))


@dataclass(frozen=True, eq=False)
class Roads:
    """Some directed edges, each of a seed."""

    edges: Sequence[tuple[int, Edge]]  # seed, edge

    @cached_property
    def limits(self) -> Limits:
        """What they carry at most."""
        return Limits.of([edge.limit for _, edge in self.edges])

    @cached_property
    def every(self) -> Numbers:
        """Epochs between two exchanges, at least: int64 [M]."""
        return np.array([edge.every for _, edge in self.edges], np.int64)

    @cached_property
    def weather(self) -> Weather:
        """What becomes of mail on them."""
        return Weather(self.edges)

    def fate(self, when: int) -> "Fate":
        """What becomes of what leaves over them at a moment."""
        if when not in self.known:
            weather, count = self.weather, len(self.edges)
            late = weather.delays(when) if weather.slow else np.zeros(count, np.int64)
            down = weather.down(when) if weather.breaks else np.zeros(count, bool)
            self.known.clear()
            self.known[when] = Fate(weather.lost(when), late, down)
        return self.known[when]

    @cached_property
    def known(self) -> "dict[int, Fate]":
        """What `fate` has found last."""
        return {}


class Fate(NamedTuple):
    """What becomes of what leaves over edges at a moment."""

    lost: Numbers  # bool [M]
    late: Numbers  # epochs, int64 [M]
    down: Numbers  # bool [M]: it does not leave
