"""Filters: what directed edges let pass. All edges have the same row of them, and a message leaves if all let it.

A filter sees the sender's side of edges and nothing else, many at once: its columns have a row for each edge, and it
answers with a row for each. A new one is a value of type `Filter` in `filters`; if it stops messages with a verdict of
its own, that verdict belongs into `UNSENT` too.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.letters.letter import Room
from shoal.letters.mail import AT_REST, DOWN, OVER_BUDGET, UNSENT
from shoal.letters.terms import Terms, stops
from shoal.letters.uses import Used
from shoal.network.roads import Fate, Limits, Roads
from shoal.network.weather import Numbers
from shoal.units import limit

if TYPE_CHECKING:
    from shoal.mail.post import Post
    from shoal.sharing.contract import Sharing


class Ways(NamedTuple):
    """Directed edges at one moment, for one mode, as their senders know them."""

    roads: Roads
    at: Numbers  # which of the roads these are, int64 [M]
    mode: "Sharing"
    now: int  # in epochs since the first task
    task: int  # by the clock of the senders
    use: Used  # what they have carried, of all modes
    own: Used  # of this mode
    when: int = 0  # the epoch that runs, or has just ended, since the first task
    terms: Sequence[Terms | None] = ()  # what may leave over each; nothing: anything over all

    def take(self, at: Numbers) -> "Ways":
        """Some of these edges."""
        if len(at) == len(self.at):
            return self
        terms = [self.terms[one] for one in at.tolist()] if self.terms else ()
        return self._replace(at=self.at[at], use=self.use.take(at), own=self.own.take(at), terms=terms)

    @property
    def rests(self) -> Numbers:
        """Which were used not long ago: bool [M]. (Now is not long ago, but the same moment.)"""
        last = self.use.last
        found: Numbers = (last >= 0) & (last < self.now) & (self.now < last + self.roads.every[self.at])
        return found

    @property
    def fate(self) -> Fate:
        """What becomes of what leaves over them."""
        return Fate(*(column[self.at] for column in self.roads.fate(self.when)))


class Load(NamedTuple):
    """What is to leave, a message over each of some edges."""

    kinds: Sequence[str] | Numbers
    weights: Numbers  # int64 [M, 2], floats and bytes
    counts: Sequence[Numbers | None] = ()  # items of each class, where they matter,
    given: Sequence[Numbers | None] = ()  # and those that have left before


class Filter(NamedTuple):
    """One rule for what leaves over edges."""

    # Why messages, or the largest ones that are to be expected, may not leave now; empty: they may. Words, object [M].
    stops: Callable[[Ways, Load], Numbers] = lambda ways, load: words(len(ways.at))
    # What may still leave now, floats and bytes: float64 [M, 2].
    left: Callable[[Ways], Numbers] = lambda ways: np.full((len(ways.at), 2), inf)
    # Which of the messages that leave are lost on the way, and paid for, bool [M]; and how many epochs later the others
    # come, int64 [M].
    sends: Callable[[Ways, Load], tuple[Numbers, Numbers]] = lambda ways, load: (
        np.zeros(len(ways.at), bool),
        np.zeros(len(ways.at), np.int64),
    )


def words(count: int, said: Numbers | bool = False, word: str = "") -> Numbers:
    """A word where something is said, and none elsewhere: object [M]."""
    found = np.full(count, "", dtype=object)
    found[said] = word
    return found


def budgeted(limits: Callable[[Ways], Limits | None], used: Callable[[Ways], Used]) -> Filter:
    """Lets pass what fits a limit, per exchange or per task, of which some is used."""

    def left(ways: Ways) -> Numbers:
        found, most = np.full((len(ways.at), 2), inf), limits(ways)
        if most is not None:
            gone = np.where(most.task[:, None], used(ways).within(ways.task), used(ways).at(ways.now))
            unit = most.bytes.astype(np.int64)
            row = np.arange(len(ways.at))
            found[row, unit] = most.amount - gone[row, unit]
        return found

    def stops(ways: Ways, load: Load) -> Numbers:
        most = limits(ways)
        if most is None:
            return words(len(ways.at))
        # Nothing at all goes over an edge without a budget, not even a message without content.
        over = (most.amount == 0) | (load.weights > left(ways)).any(1)
        return words(len(ways.at), over, OVER_BUDGET)

    return Filter(stops, left)


def closed(ways: Ways, where: Numbers) -> Numbers:
    """Room where edges let nothing pass, and where they let all."""
    return np.where(where[:, None], 0.0, np.full((len(ways.at), 2), inf))


def edge_limits(ways: Ways) -> Limits | None:
    """The limits of the edges; None: not one has any."""
    most = ways.roads.limits
    return most.take(ways.at) if np.isfinite(most.amount).any() else None


def mode_limits(ways: Ways) -> Limits | None:
    """The limit of the mode, for each edge."""
    most = limit(ways.mode.budget)
    return None if most is None else Limits.of([most] * len(ways.at))


def stopped_by_site(ways: Ways, load: Load) -> Numbers:
    """What the policies of sites say of each message."""
    found = words(len(ways.at))
    for at, ours in enumerate(ways.terms):
        more = (load.given[at], load.counts[at]) if load.counts else (None, None)
        found[at] = stops(ours, ways.mode, more[0], load.kinds[at], more[1])
    return found


POLICY = Filter(stopped_by_site)
RHYTHM = Filter(lambda ways, load: words(len(ways.at), ways.rests, AT_REST), lambda ways: closed(ways, ways.rests))
EDGE_BUDGET = budgeted(edge_limits, lambda ways: ways.use)
MODE_BUDGET = budgeted(mode_limits, lambda ways: ways.own)
WEATHER = Filter(
    lambda ways, load: words(len(ways.at), ways.fate.down, DOWN),
    lambda ways: closed(ways, ways.fate.down),
    lambda ways, load: ways.fate[:2],
)
ROW = (POLICY, RHYTHM, EDGE_BUDGET, MODE_BUDGET, WEATHER)


def filters() -> tuple[Filter, ...]:
    """The filters of all edges, in their order. This is the one place where they are put in a row."""
    return ROW


USUAL = filters


def usual() -> bool:
    """Are the filters those that are here, and not a stranger's?"""
    return filters is USUAL


def stopped(ways: Ways, load: Load) -> Numbers:
    """Why messages may not leave now, each by the first filter that stops it; empty: it may. Words, object [M]."""
    found = words(len(ways.at))
    for one in filters():
        said = one.stops(ways, load)
        free = found == ""
        found[free] = said[free]
    if strange := set(found.tolist()) - {"", *UNSENT}:  # the ledger could not tell that it was never paid for
        raise ValueError(f"a filter stops mail as `{min(strange)}`, which is not in UNSENT; put it there")
    return found


def left(ways: Ways) -> Numbers:
    """What may still leave now, floats and bytes, nothing while an edge rests: float64 [M, 2]."""
    return reduce(np.minimum, (one.left(ways) for one in filters()))


def room(row: Numbers) -> Room:
    """What is left of one edge."""
    return Room(*(None if one == inf else int(one) for one in row.tolist()))


def sent(ways: Ways, load: Load) -> tuple[Numbers, Numbers]:
    """Which messages are lost on the way, bool [M], and how many epochs later the others come, int64 [M]."""
    lost, late = np.zeros(len(ways.at), bool), np.zeros(len(ways.at), np.int64)
    for one in filters():
        gone, later = one.sends(ways, load)
        lost, late = lost | gone, late + later
    return lost, late


def audit(post: "Post") -> None:
    """The constraint of the paper's equation 1, size(K_ji) <= b_ji f_ji C, for every edge, with 1 / `every` as the
    frequency: an edge can have been used once at the start and once for each of its periods that have passed. Of a
    budget per task, a task is the period."""
    links, roads = post.world.links(post.mode), post.world.roads(post.mode)
    most = roads.limits
    if np.isinf(most.amount).all():
        return
    total = post.stack.ledger.every.of(links).total
    times = np.where(most.task, post.stack.task + 1, post.now // roads.every + 1)
    over = np.flatnonzero(total[np.arange(len(links)), most.bytes.astype(np.int64)] > most.amount * times)
    for at in over.tolist():
        (sender, receiver), unit = links.pairs[at], "bytes" if most.bytes[at] else "floats"
        raise RuntimeError(
            f"edge {sender} -> {receiver} carried {total[at, int(most.bytes[at])]} {unit} where "
            f"{most.amount[at] * times[at]:.0f} are allowed"
        )
