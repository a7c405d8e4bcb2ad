"""What a run's sharing will cost and what will be refused, told before anything runs: `shoal check`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.data.tasks import Lane
from shoal.fleet.world import World
from shoal.mail.filters import Way, left, stopped
from shoal.mail.ledger import Use
from shoal.mail.mail import AT_REST, OVER_BUDGET, Expected, wire
from shoal.mail.quote import Quote
from shoal.settings.groups import Settings
from shoal.sharing.clock import due
from shoal.sharing.contract import Sharing


class Edges(NamedTuple):
    """Edges with the same limits that the same modes use at the same price."""

    budget: int | None
    every: int
    modes: tuple[str, ...]
    number: int  # of all seeds
    pairs: tuple[tuple[int, int], ...]  # the agents at their ends


class Line(NamedTuple):
    """One kind of mail of one mode on the edges that have the same limits. Costs are per directed edge, and at most."""

    mode: str
    kind: str
    edges: Edges
    items: int  # in the largest message, and
    wanted: int  # without a limit
    floats: int  # of the largest message
    bytes: int
    exchanges: int  # in a task
    tasks: int  # with exchanges
    posted: int  # in the run
    resting: int  # of them refused because the edge rests
    over: int  # because they do not fit
    total: int  # floats of all that cross the edge in the run
    total_bytes: int


def plan(worlds: Sequence[World]) -> list[Line]:
    """All lines of a run, modes in the order of acting."""
    world, home = worlds[0], {lane: one for one in worlds for lane in one.lanes}
    alike: dict[tuple[Any, ...], list[tuple[Lane, Lane]]] = {}
    for ends, edge in world.edges.items():
        limits = edge._replace(sender=0, receiver=0)  # all that filters can ask of an edge
        key = limits, Edges(edge.budget, edge.every, users(world, *ends), 0, ()), *(home[lane] for lane in ends)
        alike.setdefault(key, []).append(ends)
    groups: dict[tuple[Line, ...], list[tuple[Lane, Lane]]] = {}  # kinds of agents that cost the same go together
    for (_, edges, sender, receiver), found in alike.items():
        groups.setdefault(tuple(along(sender, receiver, *found[0], edges)), []).extend(found)
    return [
        line._replace(edges=line.edges._replace(number=len(found), pairs=pairs(found)))
        for lines, found in groups.items()
        for line in lines
    ]


def pairs(ends: Iterable[tuple[Lane, Lane]]) -> tuple[tuple[int, int], ...]:
    """The agents at the ends of edges of any seed."""
    return tuple(sorted({(sender.agent, receiver.agent) for sender, receiver in ends}))


def table(world: World) -> dict[tuple[str, str], set[str]]:
    """The modes that go from agents of one kind to those of another, over some edge."""
    names = {agent: name for name, agents in world.fleet.members().items() for agent in agents}
    found: dict[tuple[str, str], set[str]] = {}
    for sender, receiver in world.edges:
        found.setdefault((names[sender.agent], names[receiver.agent]), set()).update(users(world, sender, receiver))
    return found


def users(world: World, sender: Lane, receiver: Lane) -> tuple[str, ...]:
    """The modes that use an edge at all."""
    return tuple(mode.mode for mode in world.settings.sharing if mode.uses(world, sender, receiver))


def along(world: World, other: World, sender: Lane, receiver: Lane, edges: Edges) -> list[Line]:
    """What goes over one of these edges in a whole run, from a `sender` in `world` to a `receiver` in the
    `other`: the largest mail passes the same filters as mail does.

    Every mode is told the whole budget, because others that act at the same moment may find nothing to send.
    """
    settings, edge = world.settings, world.edges[sender, receiver]
    posted: Counter[tuple[str, str]] = Counter()
    total, size = posted.copy(), posted.copy()
    refused: Counter[tuple[tuple[str, str], str]] = Counter()
    largest: dict[tuple[str, str], Quote] = {}
    last = -1
    for task, epoch, mode in moments(settings):
        if mode.mode not in edges.modes:
            continue
        now = task * settings.learner.epochs + epoch
        way = Way(edge, mode, now, Use(last))
        for quote in mode.quote(world, left(way), other):
            name = mode.mode, quote.kind
            posted[name] += 1
            largest[name] = max(largest.get(name, quote), quote, key=lambda one: one.floats)
            if why := stopped(way, quote):
                refused[name, why] += 1
            else:
                last = now
                total[name] += quote.floats
                size[name] += weight(mode.expects(other, quote.kind, sender), quote.items)
    lines = []
    for mode in settings.sharing:
        if mode.mode not in edges.modes:
            continue
        tasks = [task for task, _, one in moments(settings) if one == mode]
        for free in mode.quote(world, None, other):
            name = mode.mode, free.kind
            if name not in largest:
                continue
            one = largest[name]
            length = weight(mode.expects(other, free.kind, sender), one.items)
            price = one.items, free.items, one.floats, length
            times = tasks.count(tasks[-1]), len(set(tasks)), posted[name]
            kept = refused[name, AT_REST], refused[name, OVER_BUDGET]
            lines.append(Line(*name, edges, *price, *times, *kept, total[name], size[name]))
    return lines


def weight(expected: Mapping[str, Expected], items: int) -> int:
    """The bytes of a message with so many items that looks as expected."""
    layout = ((name, one.dtype, tuple(items if n is None else n for n in one.shape)) for name, one in expected.items())
    return wire(tuple(sorted(layout, key=lambda part: part[0])))


def moments(settings: Settings) -> list[tuple[int, int, Sharing]]:
    """All exchanges of a run: task, epochs done, mode."""
    epochs, initial = settings.learner.epochs, settings.tasks.initial
    found = []
    for task in range(initial if settings.tasks.common else 0, settings.tasks.count):
        trained = task >= initial - 1
        for epoch in range(epochs) if trained else [0]:
            found += [(task, epoch, mode) for mode in due(settings, task, epoch)]
        if trained:
            found += [(task, epochs, mode) for mode in due(settings, task, epochs, ended=True)]
    return found
