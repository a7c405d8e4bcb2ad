"""Who can send to whom: a fleet's directed edges with their limits."""

import difflib
from pathlib import Path
from typing import NamedTuple

from shoal.errors import SettingsError
from shoal.network.files import distinct, read
from shoal.network.graphs import BUILT_IN, FIXED, GRAPHS, is_file, is_named
from shoal.rng import key
from shoal.settings.groups import Link, Network
from shoal.units import UNLIMITED, Limit, limit


class Edge(NamedTuple):
    """A directed connection: what `sender` posts reaches `receiver`, so much and so often."""

    sender: int
    receiver: int
    budget: int | str | None  # as settings say it: floats per exchange, or an amount; None: unlimited
    every: int  # epochs between two exchanges, at least

    @property
    def limit(self) -> Limit | None:
        """What the budget means."""
        return limit(self.budget)


def edges(network: Network, agents: int, seed: int) -> tuple[Edge, ...]:
    """The directed edges of one seed's fleet, sorted by receiver, then sender.

    In a named graph, `network.edges` give single edges limits of their own. A graph that is drawn may have such an edge
    in one seed and not in another; in a graph that is fixed, an edge that is not there is an error.
    """
    own = links(network, agents)
    network = settle(network)
    pairs = set(own)
    if is_named(network.graph):
        pairs = drawn(network, agents, seed)
    result = []
    for sender, receiver in sorted(pairs, key=lambda pair: pair[::-1]):
        link = own.get((sender, receiver))
        budget = network.budget if link is None or link.budget is None else link.budget
        every = network.every if link is None or link.every is None else link.every
        result.append(Edge(sender, receiver, None if budget == UNLIMITED else budget, every))
    return tuple(result)


def drawn(network: Network, agents: int, seed: int) -> set[tuple[int, int]]:
    """The directed edges of a graph by name; what a stranger's does wrong is said in a sentence."""
    try:
        graph = GRAPHS.find(network.graph)(agents, network.p, key(seed, "graph"))
        pairs = {pair for u, v in graph.edges for pair in ((u, v), (v, u))}
        if network.graph not in BUILT_IN and not {end for pair in pairs for end in pair} <= set(range(agents)):
            raise ValueError(f"its nodes are not all among 0 to {agents - 1}")
    except SettingsError:
        raise
    except Exception as error:  # it can fail in any way
        if network.graph in BUILT_IN:
            raise
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise SettingsError(
            f"the graph `{network.graph}` cannot be drawn for {agents} agents ({why}); it is a function of agents, p "
            "and a generator that returns a networkx graph"
        ) from error
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
    pairs, chance = agents * (agents - 1), round(network.p * 10**6)
    tree, chosen = 2 * (agents - 1), pairs * chance // 10**6
    return {
        "complete": pairs, "ring": 2 * agents, "server": tree, "tree": tree, "random": chosen,
        "connected": chosen + tree, "disconnected": 0,
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
        close = difflib.get_close_matches(network.graph, names, n=1)
        mean = f'did you mean "{close[0]}"? ' if close else ""
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
        said = own.model_dump(exclude_none=True)
        links[ends] = links[ends].model_copy(update=said)
    return network.model_copy(update={"graph": "edges", "edges": tuple(links.values())})
