"""What an exchange will cost, before anything runs, and how much fits what is left of a link."""

from bisect import bisect_right
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from shoal.letters.mail import Expected, weight


class Quote(NamedTuple):
    """The largest mail of one kind on a directed edge at one exchange."""

    kind: str
    items: int
    floats: int
    bytes: int = 0  # filled in by whoever asks, from what receivers expect (`plan.quoted`)


class Room(NamedTuple):
    """What a link may still carry, in numbers and in bytes; None: as many as one likes."""

    floats: int | None = None
    bytes: int | None = None

    def within(self, other: "Room") -> "Room":
        """What both leave."""
        pairs = zip(self, other, strict=True)
        return Room(*(min((one for one in pair if one is not None), default=None) for pair in pairs))

    def part(self, count: int) -> "Room":
        """One of `count` equal parts."""
        return Room(*(None if one is None else one // count for one in self))

    def less(self, layout: Mapping[str, Expected], items: int) -> "Room":
        """What is left when a message with so many items has gone."""
        floats = None if self.floats is None else self.floats - numbers(layout, items)
        return Room(floats, None if self.bytes is None else self.bytes - weight(layout, items))


def numbers(layout: Mapping[str, Expected], items: int) -> int:
    """The floats of a message with so many items that looks as expected."""
    return sum(prod(items if size is None else size for size in one.shape) for one in layout.values())


def fitting(wanted: int, layout: Mapping[str, Expected], room: Room) -> int:
    """How many of `wanted` items fit, in a message that looks as a receiver expects; at least one, so that a refusal is
    seen.

    >>> fitting(20, {"x": Expected(torch.float32, (None, 10))}, Room(floats=55))
    5
    """
    fits, each = wanted, numbers(layout, 1) - numbers(layout, 0)
    if room.floats is not None and each:
        fits = min(fits, (room.floats - numbers(layout, 0)) // each)
    if room.bytes is not None:
        fits = bisect_right(range(1, max(0, fits) + 1), room.bytes, key=lambda items: weight(layout, items))
    return fits if room == Room() else max(1, fits)
