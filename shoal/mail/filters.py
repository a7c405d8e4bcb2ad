"""Filters: what a directed edge lets pass. Each edge has a row of them, and a message leaves if all of them let it.

A filter sees the sender's side of an edge and nothing else. A new one is a value of type `Filter` and a word in the
row that `filters` makes; if it stops messages with a verdict of its own, that verdict belongs into `UNSENT` too.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from shoal.mail.ledger import Use
from shoal.mail.mail import AT_REST, OVER_BUDGET, Mail
from shoal.mail.quote import Quote
from shoal.network.edges import Edge

if TYPE_CHECKING:
    from shoal.sharing.contract import Sharing


class Way(NamedTuple):
    """A directed edge at one moment, for one mode, as its sender knows it."""

    edge: Edge
    mode: "Sharing"
    now: int  # in epochs since the first task
    use: Use  # what it has carried, of all modes
    spent: int = 0  # floats of this mode, now

    @property
    def rests(self) -> bool:
        """Was it used not long ago? (Now is not long ago, but the same moment.)"""
        return 0 <= self.use.last < self.now < self.use.last + self.edge.every

    @property
    def carried(self) -> int:
        """The floats that it has carried now, of all modes."""
        return self.use.carried if self.use.last == self.now else 0

    @property
    def share(self) -> int | None:
        """The floats that this mode may send over it at one exchange; None: as many as it likes."""
        return None if self.mode.budget == "unlimited" else self.mode.budget


class Filter(NamedTuple):
    """One rule for what leaves over an edge."""

    # Why a message, or the largest one that is to be expected, may not leave now; empty: it may.
    stops: Callable[[Way, Mail | Quote], str] = lambda way, letter: ""
    # The floats that may still leave now; None: as many as one likes.
    left: Callable[[Way], int | None] = lambda way: None
    # A message that leaves as it arrives, perhaps later (`due`); None: it is lost on the way, and paid for.
    sends: Callable[[Way, Mail], Mail | None] = lambda way, mail: mail


def budgeted(limit: Callable[[Way], int | None], used: Callable[[Way], int]) -> Filter:
    """Lets pass what fits a limit of which some is used."""

    def left(way: Way) -> int | None:
        most = limit(way)
        return None if most is None else most - used(way)

    def stops(way: Way, letter: Mail | Quote) -> str:
        rest = left(way)
        # Nothing at all goes over an edge without a budget, not even a message without content.
        return "" if rest is None or (limit(way) != 0 and letter.floats <= rest) else OVER_BUDGET

    return Filter(stops, left)


RHYTHM = Filter(lambda way, letter: AT_REST if way.rests else "", lambda way: 0 if way.rests else None)
EDGE_BUDGET = budgeted(lambda way: way.edge.budget, lambda way: way.carried)
MODE_BUDGET = budgeted(lambda way: way.share, lambda way: way.spent)


def filters(way: Way) -> tuple[Filter, ...]:
    """The filters of an edge, in their order. This is the one place where they are put in a row."""
    return RHYTHM, EDGE_BUDGET, MODE_BUDGET


def stopped(way: Way, letter: Mail | Quote) -> str:
    """Why a message may not leave now, by the first filter that stops it; empty: it may."""
    return next((why for one in filters(way) if (why := one.stops(way, letter))), "")


def left(way: Way) -> int | None:
    """The floats that may still leave now: zero while the edge rests, None without a limit."""
    return min((rest for one in filters(way) if (rest := one.left(way)) is not None), default=None)


def sent(way: Way, mail: Mail) -> Mail | None:
    """A message that leaves as it arrives; None: it is lost on the way."""
    for one in filters(way):
        changed = one.sends(way, mail)
        if changed is None:
            return None
        mail = changed
    return mail
