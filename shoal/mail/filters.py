"""Filters: what a directed edge lets pass. Each edge has a row of them, and a message leaves if all of them let it.

A filter sees the sender's side of an edge and nothing else. A new one is a value of type `Filter` and a word in the
row that `filters` makes; if it stops messages with a verdict of its own, that verdict belongs into `UNSENT` too.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.letters.ledger import UNUSED, Use
from shoal.letters.mail import AT_REST, DOWN, OVER_BUDGET, Mail
from shoal.letters.quote import Quote, Room
from shoal.letters.terms import Terms, stops
from shoal.network.edges import Edge
from shoal.network.weather import Weather, over
from shoal.units import Limit, limit

if TYPE_CHECKING:
    from shoal.sharing.contract import Sharing


class Way(NamedTuple):
    """A directed edge at one moment, for one mode, as its sender knows it."""

    edge: Edge
    mode: "Sharing"
    now: int  # in epochs since the first task
    task: int  # by the clock of the sender
    use: Use  # what it has carried, of all modes
    own: Use = UNUSED  # of this mode
    seed: int = 0
    when: int = 0  # the epoch that runs, or has just ended, since the first task
    terms: Terms | None = None  # what may leave over it; None: anything
    counts: np.ndarray | None = None  # of the message in question, items of each class, where that matters
    given: np.ndarray | None = None  # and those that have left before it

    @property
    def weather(self) -> Weather:
        """What becomes of mail on it."""
        return over(self.seed, self.edge)

    @property
    def rests(self) -> bool:
        """Was it used not long ago? (Now is not long ago, but the same moment.)"""
        return 0 <= self.use.last < self.now < self.use.last + self.edge.every


class Filter(NamedTuple):
    """One rule for what leaves over an edge."""

    # Why a message, or the largest one that is to be expected, may not leave now; empty: it may.
    stops: Callable[[Way, Mail | Quote], str] = lambda way, letter: ""
    # What may still leave now.
    left: Callable[[Way], Room] = lambda way: Room()
    # A message that leaves as it arrives, perhaps later (`due`); None: it is lost on the way, and paid for.
    sends: Callable[[Way, Mail], Mail | None] = lambda way, mail: mail


def budgeted(limit: Callable[[Way], Limit | None], used: Callable[[Way], Use]) -> Filter:
    """Lets pass what fits a limit, per exchange or per task, of which some is used."""

    def left(way: Way) -> Room:
        most = limit(way)
        if most is None:
            return Room()
        gone = used(way).at(way.now) if most.per == "exchange" else used(way).within(way.task)
        return Room(**{most.unit: most.amount - getattr(gone, most.unit)})

    def stops(way: Way, letter: Mail | Quote) -> str:
        most, room = limit(way), left(way)
        # Nothing at all goes over an edge without a budget, not even a message without content.
        closed = most is not None and not most.amount
        pairs = (letter.floats, room.floats), (letter.bytes, room.bytes)
        return OVER_BUDGET if closed or any(rest is not None and one > rest for one, rest in pairs) else ""

    return Filter(stops, left)


def delayed(way: Way, mail: Mail) -> Mail:
    """A mail that comes so much later."""
    late = int(way.weather.delays(way.when)[0])
    return replace(mail, due=way.now + late) if late else mail


LINK_DOWN = Filter(
    lambda way, letter: DOWN if way.weather.down(way.when)[0] else "",
    lambda way: Room(0, 0) if way.weather.down(way.when)[0] else Room(),
)
LOSS = Filter(sends=lambda way, mail: None if way.weather.lost(way.when)[0] else mail)
DELAY = Filter(sends=delayed)
POLICY = Filter(lambda way, letter: stops(way.terms, way.mode, way.given, letter.kind, way.counts))
RHYTHM = Filter(lambda way, letter: AT_REST if way.rests else "", lambda way: Room(0, 0) if way.rests else Room())
EDGE_BUDGET = budgeted(lambda way: way.edge.limit, lambda way: way.use)
MODE_BUDGET = budgeted(lambda way: limit(way.mode.budget), lambda way: way.own)


def filters(way: Way) -> tuple[Filter, ...]:
    """The filters of an edge, in their order. This is the one place where they are put in a row. (Where links have no
    limits, the same is done for bundles, by arrays: `carriage.fates`.)"""
    edge = way.edge
    weather = [(edge.down, LINK_DOWN), (edge.loss, LOSS), (edge.delay, DELAY)]
    site = (POLICY,) if way.terms is not None else ()
    return *site, RHYTHM, EDGE_BUDGET, MODE_BUDGET, *(one for there, one in weather if there)


USUAL = filters


def usual() -> bool:
    """Are the filters those that are here, and not a stranger's?"""
    return filters is USUAL


def open_to_all(mode: "Sharing") -> bool:
    """Is all that a mode sends over edges without limits let pass as it is?"""
    return usual() and limit(mode.budget) is None


def stopped(way: Way, letter: Mail | Quote) -> str:
    """Why a message may not leave now, by the first filter that stops it; empty: it may."""
    return next((why for one in filters(way) if (why := one.stops(way, letter))), "")


def left(way: Way) -> Room:
    """What may still leave now: nothing while the edge rests."""
    return reduce(Room.within, (one.left(way) for one in filters(way)))


def sent(way: Way, mail: Mail) -> Mail | None:
    """A message that leaves as it arrives; None: it is lost on the way."""
    for one in filters(way):
        changed = one.sends(way, mail)
        if changed is None:
            return None
        mail = changed
    return mail
