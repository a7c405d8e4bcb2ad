"""Letters: what mail of a mode looks like, declared once as data.

From the declaration follow what a receiver accepts, what a policy may forbid, what mail will cost, and how it is cut to
what a link still carries: the items of a letter are in order of worth, and the post leaves out the last ones.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from shoal.data.bank import Bank
from shoal.letters.mail import Expected, weight
from shoal.weakly import weakly

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.settings.groups import Settings


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


# What a tensor of a letter holds: images (given as rows of the bank), classes as the data counts them, or what a
# function of the receiver's world says.
Field = Literal["rows", "classes"] | Expected | Callable[["World"], Expected]


@dataclass(frozen=True)
class Letter:
    """Mail of one kind: its tensors by name, each with an item in every row unless it is of a fixed size, and how many
    items there are at most."""

    fields: Mapping[str, Field] | Callable[["World"], Mapping[str, Expected]]
    most: int | Callable[["World"], int]
    holds: tuple[str, ...]  # what it holds, in the words that policies know (`CONTENTS`)
    classes: str = ""  # the tensor that says of which class each item is
    share: int = 1  # it may take one part of so many of what a link still carries
    leaves: str = ""  # a kind of letter, the largest of which a link must carry beside it,
    spare: int = 0  # or one with so many items
    behind: str = ""  # a kind of letter that goes before it to each neighbour: it has what that leaves of the link
    least: int = 0  # with fewer items it does not leave
    alike: bool = False  # do all neighbours get the same? Then it holds only what may go to all of them
    kin: Callable[["World"], Mapping[str, Expected]] | None = None  # what more goes to those alike that began alike
    cut: bool = True  # are its last items left out where not all fit a link? Else it leaves whole, or is refused

    def number(self, world: "World") -> int:
        """How many items it has at most."""
        return self.most if isinstance(self.most, int) else self.most(world)

    def look(self, world: "World", other: "Settings | None" = None) -> dict[str, Expected]:
        """What a receiver in some world expects of it, or one of an agent with other settings."""
        fields = self.fields(world) if callable(self.fields) else self.fields
        found = {name: expected(one, world) for name, one in fields.items()}
        alike = other is None or other is world.settings or other == world.settings
        return found | (dict(self.kin(world)) if self.kin and alike and world.settings.tasks.common else {})

    def whole(self, world: "World") -> set[str]:
        """Its tensors of a fixed size, which are about all items."""
        return {name for name, one in self.look(world).items() if one.shape[:1] != (None,)}


def most_of(
    letters: Mapping[str, Letter], kind: str, world: "World", room: Room, other: "Settings | None" = None
) -> int:
    """How many items a letter has at most where a link to an agent with such settings still carries so much."""
    letter = letters[kind]
    if letter.leaves:
        beside = letters[letter.leaves]
        room = room.less(beside.look(world, other), letter.spare or beside.number(world))
    return fitting(letter.number(world), letter.look(world, other), room.part(letter.share))


def expected(what: Field, world: "World") -> Expected:
    """What a receiver expects of a tensor of a letter."""
    if isinstance(what, Expected):
        return what
    if what == "rows":
        return images_of(world)
    return classes_of(world) if what == "classes" else what(world)


@weakly
def pixels(bank: Bank) -> tuple[float, float]:
    """The range of numbers in raw images: from 0 to the peak where they are bytes, else as far again beyond what there
    is as that is wide."""
    least, most = float(bank.images.min()), float(bank.images.max())
    if bank.images.dtype == np.uint8:
        return 0.0, max(most, float(bank.peak))
    return least - (most - least), most + (most - least)


def images_of(world: "World") -> Expected:
    """What images in a message look like."""
    shape, (least, most) = (None, *world.bank.images.shape[1:]), pixels(world.bank)
    if world.bank.images.dtype == np.uint8:
        return Expected(torch.uint8, shape, int(most) + 1)
    return Expected(torch.float32, shape, least=least, most=most)


def classes_of(world: "World") -> Expected:
    """What global class ids in a message look like."""
    return Expected(torch.int32, (None,), len(world.bank.classes))
