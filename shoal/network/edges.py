"""Who can send to whom: a fleet's directed edges with their limits."""

import inspect
import math
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import SettingsError, nearly
from shoal.network.files import distinct, read
from shoal.network.graphs import BUILT_IN, FIXED, GRAPHS, asked_of, draw, is_file, is_named
from shoal.own_code import running
from shoal.rng import key
from shoal.settings.conditions import Bursts, Drawn, Interval
from shoal.settings.groups import Link, Network
from shoal.units import UNLIMITED, Limit, limit, shown

OWN = ("budget", "every", "loss", "delay", "down", "bandwidth", "latency")  # what a single edge can have of its own


class Edge(NamedTuple):
    """A directed connection: what `sender` posts reaches `receiver`, so much and so often, if it is not lost."""

    sender: int
    receiver: int
    budget: int | str | None  # as settings say it: floats per exchange, or an amount; None: unlimited
    every: int  # epochs between two exchanges, at least
    loss: float | Bursts = 0.0
    delay: int | Drawn = 0  # epochs
    down: tuple[Interval, ...] = ()
    bandwidth: float | None = None  # bytes per second; None: as many as one likes
    latency: float = 0.0  # seconds

    @property
    def limit(self) -> Limit | None:
        """What the budget means."""
        return limit(self.budget)


def edges(network: Network, agents: int, seed: int, epoch: int = 0) -> tuple[Edge, ...]:
    """The directed edges of one seed's fleet in an epoch since the first task, sorted by receiver, then sender.

    In a named graph, `network.edges` give single edges limits of their own. A graph that is drawn may have such an edge
    in one seed and not in another; in a graph that is fixed, an edge that is not there is an error.
    """
    network = at(network, epoch)
    own = links(network, agents)
    network = settle(network)
    pairs = set(own)
    if is_named(network.graph):
        pairs = drawn(network, agents, seed, epoch)
    usual = conditioned(network)
    limits = {ends: conditioned(network, link) for ends, link in own.items()}
    ordered = sorted(pairs, key=lambda pair: pair[::-1])
    return tuple(Edge(*ends, *limits.get(ends, usual)) for ends in ordered)


def at(network: Network, epoch: int | None) -> Network:
    """The network with the graph that it has in an epoch since the first task."""
    past = [one for one in network.changes if (one.epoch or 0) <= (epoch or 0)]
    if not past:
        return network
    last = past[-1]
    said: dict[str, Any] = {"graph": last.graph, "edges": last.edges}
    return network.model_copy(update=said if last.p is None else said | {"p": last.p})


def version(network: Network, epoch: int) -> int:
    """The first epoch since which the graph has been as it is in this one."""
    here = at(network, epoch)
    if is_named(here.graph) and changes(here) and (here.graph not in BUILT_IN or asked_of(here)["speed"]):
        return epoch
    return max(((one.epoch or 0) for one in network.changes if (one.epoch or 0) <= epoch), default=0)


def moves(network: Network) -> bool:
    """Is there a graph among those of the network that is another in every epoch?"""
    starts = [0, *((one.epoch or 0) for one in network.changes)]
    return any(version(network, start + 1) > version(network, start) for start in starts if start + 1 not in starts)


def changes(network: Network) -> bool:
    """Does the function that makes the graph ask for the epoch?"""
    return "epoch" in inspect.signature(GRAPHS.find(network.graph)).parameters


def conditioned(network: Network, link: Link | None = None) -> tuple[Any, ...]:
    """Limits and conditions of an edge: what is said of it alone, or else of all."""
    own = {name: value for name in OWN if link is not None and (value := getattr(link, name)) is not None}
    budget, *rest = (own.get(name, getattr(network, name)) for name in OWN)
    return None if budget == UNLIMITED else budget, *rest


def conditions(edge: Edge) -> tuple[str, ...]:
    """What befalls mail on an edge, in words; nothing, where all of it comes at once."""
    found = []
    if isinstance(edge.loss, Bursts):
        one = edge.loss
        found.append(f"loses {one.bad:.4g} in bad times ({one.share:.4g} of all, {one.length:g} epochs each)")
        found += [f"loses {one.good:.4g} in good times"] * (one.good > 0)
    elif edge.loss:
        found.append(f"loses {edge.loss:.4g}")
    if isinstance(edge.delay, Drawn):
        one_, first = edge.delay, edge.delay.least
        span = f"{first} to {one_.most} epochs" if one_.mean is None else f"{first + one_.mean:g} epochs on average"
        found.append(f"late by {span}")
    elif edge.delay:
        found.append(f"late by {edge.delay} epoch{'s' * (edge.delay > 1)}")
    found += [] if edge.bandwidth is None else [f"{shown(edge.bandwidth)} in a second"]
    found += [f"{edge.latency:g} s under way"] * (edge.latency > 0)
    found += [f"down in epochs {first} to {last - 1}" for first, last in edge.down[:3]]
    return *found, *([f"and {len(edge.down) - 3} times more"] if len(edge.down) > 3 else [])


def drawn(network: Network, agents: int, seed: int, epoch: int = 0) -> set[tuple[int, int]]:
    """The directed edges of a graph by name; what a stranger's does wrong is said in a sentence."""
    make = GRAPHS.find(network.graph)
    with running(make, f"the graph `{network.graph}`", lambda: f" for {agents} agents", "cannot be drawn"):
        graph = draw(make, agents, key(seed, "graph"), epoch, **asked_of(network))
        if not hasattr(graph, "edges"):
            raise TypeError(f"it returns {graph!r:.100}, and a networkx graph is needed")
        pairs = {pair for u, v in graph.edges for pair in ((u, v), (v, u))}
        if network.graph not in BUILT_IN and not {end for pair in pairs for end in pair} <= set(range(agents)):
            raise ValueError(f"its nodes are not all among 0 to {agents - 1}")
    return pairs


def links(network: Network, agents: int) -> dict[tuple[int, int], Link]:
    """The edges that the user names, by their ends; one that cannot be is an error, which is found without drawing a
    graph, however large."""
    where = network.graph if is_file(network.graph) else "network.edges"
    network = settle(network)
    if is_named(network.graph):
        GRAPHS.find(network.graph)  # a stranger's must be there
    distinct(network.edges, where)
    own = {(link.sender, link.receiver): link for link in network.edges}
    for sender, receiver in sorted(own):
        if max(sender, receiver) >= agents:
            sender, receiver = max(own, key=max)
            raise SettingsError(
                f"{where} has the edge {sender} -> {receiver}, but with agents = {agents} the last agent is "
                f"{agents - 1}; set agents = {max(sender, receiver) + 1} or more, or take the edge out"
            )
        if network.graph in FIXED and not FIXED[network.graph](agents, sender, receiver):
            raise SettingsError(
                f'network.edges has limits for {sender} -> {receiver}, an edge that network.graph = "{network.graph}" '
                f'with {agents} agents does not have; take it out, or set graph = "edges" and list all edges'
            )
    return own


def count(network: Network, agents: int) -> int:
    """About how many directed edges the graph of one seed has. No graph is drawn but a stranger's."""
    if not is_named(network.graph):
        return len(settle(network).edges)
    if network.graph not in BUILT_IN:
        return len(edges(network, agents, 0))
    pairs, tree, own = agents * (agents - 1), 2 * (agents - 1), asked_of(network)
    p: float = own.get("p", 0.0)
    radius: float = min(1.0, own.get("radius", 0.0))
    # How likely two places in a square of side 1 are so near: a circle, less what of it lies outside.
    chances = {"random": p, "geometric": math.pi * radius**2 - 8 / 3 * radius**3 + radius**4 / 2}
    # In whole numbers: there may be more pairs than floats can hold.
    chosen, close = (pairs * round(chance * 10**6) // 10**6 for chance in chances.values())
    return {
        "complete": pairs, "ring": 2 * agents, "server": tree, "tree": tree, "random": chosen,
        "connected": chosen + tree, "disconnected": 0, "geometric": close,
    }[network.graph]  # fmt: skip


def settle(network: Network) -> Network:
    """The network as a list of edges, if its graph is a file: settings that need no file any more.

    `network.edges` beside a file give single edges of it limits of their own, as in a named graph.
    """
    if is_named(network.graph):
        return network
    if network.graph == "edges":
        if not network.edges:
            raise SettingsError(
                'network.graph = "edges" needs network.edges, which is empty; list edges such as '
                '{ sender = 0, receiver = 1 }, or set graph = "disconnected"'
            )
        return network
    if not is_file(network.graph):
        names = [*GRAPHS, "edges"]
        mean = nearly(network.graph, names, '"')
        raise SettingsError(
            f'network.graph cannot be "{network.graph}"; {mean}allowed: {", ".join(names)}, '
            "or a graph file, with a dot or a slash in its name (./FILE)"
        )
    links = {(link.sender, link.receiver): link for link in read(Path(network.graph))}
    for own in network.edges:
        ends = own.sender, own.receiver
        if ends not in links:
            raise SettingsError(
                f"network.edges has limits for {own.sender} -> {own.receiver}, an edge that {network.graph} does not "
                "have; take it out, or add it to the file"
            )
        said = {name: value for name in OWN if (value := getattr(own, name)) is not None}
        links[ends] = links[ends].model_copy(update=said)
    return network.model_copy(update={"graph": "edges", "edges": tuple(links.values())})
