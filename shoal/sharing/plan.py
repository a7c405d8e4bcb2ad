"""What a run's sharing will cost and what will be refused, told before anything runs: `shoal check`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.agents.events import due
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.letter import Quote, Room
from shoal.letters.mail import AT_REST, OVER_BUDGET, POLICY, weight
from shoal.letters.uses import Use, Used
from shoal.mail.filters import Load, Ways, left, room, stopped
from shoal.network.roads import Roads
from shoal.settings.groups import Settings
from shoal.sharing import sites
from shoal.sharing.contract import Sharing
from shoal.units import Limit, limit, shown

FIRST = np.zeros(1, np.int64)


class Edges(NamedTuple):
    """Edges with the same limits that the same modes use at the same price."""

    budget: int | str | None
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
    forbidden: int  # by a policy
    total: int  # floats of all that cross the edge in the run
    total_bytes: int


def plan(worlds: Sequence[World]) -> list[Line]:
    """All lines of a run, modes in the order of acting."""
    world, home = worlds[0], {lane: one for one in worlds for lane in one.lanes}
    alike: dict[tuple[Any, ...], list[tuple[Lane, Lane]]] = {}
    for ends, edge in world.edges.items():
        limits = edge._replace(sender=0, receiver=0)  # all that filters can ask of an edge
        used = Edges(edge.budget, edge.every, users(world, *ends), 0, ())
        key = (limits, world.terms(*ends)), used, *(home[lane] for lane in ends)
        alike.setdefault(key, []).append(ends)
    groups: dict[tuple[Line, ...], list[tuple[Lane, Lane]]] = {}  # kinds of agents that cost the same go together
    for (_, edges, sender, receiver), found in alike.items():
        groups.setdefault(tuple(along(sender, receiver, *found[0], edges)), []).extend(found)
    return [
        line._replace(edges=line.edges._replace(number=len(found), pairs=pairs(found)))
        for lines, found in groups.items()
        for line in lines
    ]


class Expected(NamedTuple):
    """What a run takes by the clock of its fleet, about: one step for a batch of an agent's own images, and all that
    links may carry."""

    learning: float  # seconds of the slowest agent
    links: float  # seconds for which the slowest link is busy
    steps: float  # joules of all agents of a seed
    sending: float

    def __str__(self) -> str:
        seconds = f"{self.learning:,.4g} seconds of learning for the slowest agent"
        busy = f", its slowest link busy for at most {self.links:,.4g} seconds" * (self.links > 0)
        joules = f", {self.steps:,.4g} joules of steps and at most {self.sending:,.4g} of sending"
        return f"by the fleet's clock about {seconds}{busy}{joules * (self.steps + self.sending > 0)}"


def expected(worlds: Sequence[World], lines: Sequence[Line]) -> Expected:
    """What a run takes by the clock of its fleet. How many steps a learner takes with what it remembers, and what is
    received, is not known before."""
    world = worlds[0]
    clock, seeds = world.fleet.clock, world.fleet.seeds
    slowest, steps = 0.0, 0.0
    for one in worlds:
        tasks, learner = one.settings.tasks, one.settings.learner
        first = tasks.initial if tasks.common else 0
        passes = -(-one.train.sizes[:, first:] // learner.batch).sum(1) * learner.epochs
        if learner.iterations is not None:
            passes = (one.train.sizes[:, first:] > 0).sum(1) * learner.iterations
        for lane, count in zip(one.lanes, passes.tolist(), strict=True):
            slowest = max(slowest, count / clock.of("speed", lane.agent))
            steps += count * clock.of("step_joules", lane.agent) / seeds
    busy: Counter[tuple[int, int]] = Counter()
    sending = 0.0
    for line in lines:
        sending += sum(line.total_bytes * clock.of("byte_joules", sender) for sender, _ in line.edges.pairs)
        busy.update(dict.fromkeys(line.edges.pairs, line.total_bytes))
    rates = {(edge.sender, edge.receiver): edge.bandwidth for edge in world.edges.values()}
    links = max((weight / rate for ends, weight in busy.items() if (rate := rates.get(ends))), default=0.0)
    return Expected(slowest, links, steps, sending)


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

    Every mode is told the whole budget, because others that act at the same moment, or earlier in the task, may find
    nothing to send; no mode sends more in a task than a budget per task allows.
    """
    settings, edge = world.settings, world.edges[sender, receiver]
    posted: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[tuple[str, str], str]] = Counter()
    largest: dict[tuple[str, str], Quote] = {}
    crossed: dict[tuple[str, str], dict[int, list[Quote]]] = {}  # by task
    last, road, terms = -1, Roads([(sender.seed, edge)]), [world.terms(sender, receiver)]
    for task, epoch, mode in moments(settings):
        if mode.mode not in edges.modes:
            continue
        now = task * settings.learner.epochs + epoch
        ways = Ways(road, FIRST, mode, now, task, Used.of([Use(last)]), Used.of([Use()]), terms=terms)
        for quote in quoted(mode, world, room(left(ways)[0]), other, sender):
            name = mode.mode, quote.kind
            posted[name] += 1
            largest[name] = max(largest.get(name, quote), quote, key=lambda one: one.floats)
            if why := stopped(ways, Load([quote.kind], np.array([[quote.floats, quote.bytes]])))[0]:
                refused[name, why] += 1
            else:
                last = now
                crossed.setdefault(name, {}).setdefault(task, []).append(quote)
    lines = []
    for mode in settings.sharing:
        if mode.mode not in edges.modes:
            continue
        tasks = [task for task, _, one in moments(settings) if one == mode]
        most = [one for one in (edge.limit, limit(mode.budget)) if one is not None and one.per == "task"]
        for free in mode.quote(world, Room(), other):
            name = mode.mode, free.kind
            if name not in largest:
                continue
            one, sent = largest[name], crossed.get(name, {}).values()
            price = one.items, free.items, one.floats, one.bytes
            times = tasks.count(tasks[-1]), len(set(tasks)), posted[name]
            forbidden = sum(refused[name, why] for why in POLICY)
            kept = refused[name, AT_REST], refused[name, OVER_BUDGET], forbidden
            totals = (sum(carried(quotes, most, unit) for quotes in sent) for unit in ("floats", "bytes"))
            lines.append(Line(*name, edges, *price, *times, *kept, *totals))
    return lines


def carried(quotes: Sequence[Quote], most: Sequence[Limit], unit: str) -> int:
    """What crosses an edge in a task, in floats or bytes, at most."""
    sizes: list[int] = [getattr(one, unit) for one in quotes]
    return min([sum(sizes), *(one.amount for one in most if one.unit == unit)])


def quoted(mode: Sharing, world: World, room: Room, other: World, sender: Lane) -> list[Quote]:
    """What a mode quotes from a `sender` in `world` to a lane in the `other`, with the bytes that receivers expect."""
    quotes = mode.quote(world, room, other)
    return [one._replace(bytes=weight(mode.expects(other, one.kind, sender), one.items)) for one in quotes]


def total(lines: Sequence[Line]) -> int:
    """The bytes of all lines on all edges, at most: modes share what an edge carries in a task."""
    found = 0
    for edges in dict.fromkeys(one.edges for one in lines):
        here = [one for one in lines if one.edges == edges]
        most, sent = limit(edges.budget), sum(one.total_bytes for one in here)
        if most is not None and (most.unit, most.per) == ("bytes", "task"):
            sent = min(sent, most.amount * max(one.tasks for one in here))
        found += edges.number * sent
    return found


class Fit(NamedTuple):
    """Whether the smallest mail of a mode fits a link that is not closed."""

    fits: bool
    least: Quote  # the smallest mail, or question and answer together
    most: Limit  # what it must fit
    budget: str  # the setting that says so


def fit(worlds: Sequence[World], mode: Sharing) -> dict[tuple[Lane, Lane], Fit | None]:
    """How a mode fits each link that it uses and that is open, with a limit or (None) without.

    Questions and answers go over a link at the same exchange: both must fit.
    """
    world, home = worlds[0], {lane: one for one in worlds for lane in one.lanes}
    found: dict[tuple[Lane, Lane], Fit | None] = {}
    known: dict[tuple[World, World], Quote] = {}
    for (sender, receiver), edge in world.edges.items():
        if not mode.uses(world, sender, receiver):
            continue
        usual = edge.budget == world.fleet.network.budget
        limits = {"network.budget" if usual else "network.edges": edge.limit}
        limits[f"sharing.{mode.mode}.budget"] = limit(mode.budget)
        said = {name: most for name, most in limits.items() if most is not None}
        if any(not most.amount for most in said.values()):
            continue
        ends = home[sender], home[receiver]
        if ends not in known:
            kinds = quoted(mode, ends[0], Room(0, 0), ends[1], sender)
            count = sum if mode.both_ways else max
            known[ends] = Quote("", 1, *(count(getattr(one, unit) for one in kinds) for unit in ("floats", "bytes")))
        least = known[ends]
        tries = [Fit(getattr(least, most.unit) <= most.amount, least, most, name) for name, most in said.items()]
        found[sender, receiver] = min(tries, key=lambda one: one.fits, default=None)
    return found


def limited(settings: Settings) -> bool:
    """Is there a budget anywhere?"""
    said = settings.network.budget, *(link.budget for link in settings.network.edges)
    return any(limit(one) is not None for one in (*said, *(mode.budget for mode in settings.sharing)))


def feasible(worlds: Sequence[World]) -> None:
    """Raise for a mode of which no mail could ever pass: a policy forbids all of it, or on no link that it uses the
    smallest fits."""
    sites.check(worlds)
    if not limited(worlds[0].fleet):
        return
    for mode in worlds[0].fleet.sharing:
        tries = fit(worlds, mode).values()
        bad = [one for one in tries if one is not None and not one.fits]
        if not bad or len(bad) < len(tries):
            continue
        one = max(bad, key=lambda one: one.most.amount)
        what = "smallest question and answer are together" if mode.both_ways else "smallest message is"
        need = one.least.floats if one.most.unit == "floats" else one.least.bytes
        enough = Limit(need, one.most.unit, one.most.per)
        raise SettingsError(
            f"mode `{mode.mode}` could never send anything: its {what} {shown(one.least.bytes)} ({one.least.floats:,} "
            f"floats), and no link that it uses carries more than {one.most} ({one.budget}); set {one.budget} to "
            f"{enough.said!r} or more, or share by another mode"
        )


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
