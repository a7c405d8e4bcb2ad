"""Doses: how much of what a mode shares fills a budget. Most modes have a number of things that they send at once, all
have a time between exchanges; what the user says of either stays as it is."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.configure.completing import mode_of
from shoal.sharing.contract import Sharing

AMOUNTS = ("images", "queries", "modules")  # settings of modes that say how many things are sent at once
STEPS = 100  # doses between nothing and the usual one
MOST = 4  # times the usual dose, where the budget has room for it

Table = Mapping[str, Any] | Sharing


def dosed(modes: Sequence[Table], share: float, epochs: int, rarely: bool = False) -> list[Table]:
    """Modes with a share of their usual dose: fewer things at once, or, for those that send one thing or if all do so
    `rarely`, fewer exchanges; at least one thing, and one exchange in a task."""
    found: list[Table] = []
    for mode in modes:
        if isinstance(mode, Sharing):
            found.append(mode)
            continue
        usual, table = mode_of(dict(mode), {}), dict(mode)
        amounts = [one for one in AMOUNTS if hasattr(usual, one)]
        for one in amounts:
            if one not in mode:
                table[one] = max(1, int(getattr(usual, one) * share))
        if usual.every != "task" and "every" not in mode:
            if rarely:
                table["every"] = epochs
            elif not amounts:
                table["every"] = max(1, min(epochs, -int(-usual.every // share)))
        found.append(table)
    return found


def filling(
    modes: Sequence[Table], limit: float, epochs: int, price: Callable[[Sequence[Table]], float], most: int = 1
) -> list[list[Table]]:
    """The largest dose that a limit has room for, up to `most` times the usual one, and half of it; none, if not even
    the smallest has."""
    for rarely in (False, True):
        steps = range(1, most * STEPS + 1)

        def made(step: float, rarely: bool = rarely) -> list[Table]:
            return dosed(modes, step / STEPS, epochs, rarely)

        fits = bisect_right(steps, limit, key=lambda step: price(made(step)))
        if fits:
            doses = [made(fits), made(fits / 2)]
            return doses if price(doses[1]) < price(doses[0]) else doses[:1]
    return []
