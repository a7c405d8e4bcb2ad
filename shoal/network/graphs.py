"""Graphs by name: who is connected with whom, in a fleet of so many agents."""

from collections.abc import Callable

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from shoal.doors import Table, is_door

Draw = Callable[[int, float, np.random.Generator], nx.Graph]


def complete(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """Everybody is connected with everybody."""
    return nx.complete_graph(n)


def ring(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """Everybody has two neighbours, in a circle."""
    return nx.cycle_graph(n) if n > 1 else nx.empty_graph(n)  # networkx would loop one agent


def server(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """All are connected with agent 0, the hub, which learns like any other."""
    return nx.star_graph(n - 1)


def disconnected(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """Nobody is connected with anybody."""
    return nx.empty_graph(n)


def tree(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """One of the n^(n - 2) labelled trees, each as likely as any other: a tree is its Prüfer sequence."""
    if n == 1:
        return nx.empty_graph(1)
    return nx.from_prufer_sequence(generator.integers(n, size=n - 2).tolist())


def random(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """G(n, p): each pair with chance p, maybe in several components.

    Each pair has one number whatever p is: a seed's graph with a lower p is a part of its graph with a higher one.
    """
    graph = nx.empty_graph(n)
    for one in range(n - 1):  # row by row: all pairs of a large fleet at once would not fit into memory
        there = np.flatnonzero(generator.random(n - 1 - one) < p) + one + 1
        graph.add_edges_from((one, other) for other in there.tolist())
    return graph


def connected(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """The seed's random tree, and each other pair with chance p."""
    return nx.compose(tree(n, p, generator), random(n, p, generator))


# Undirected: each line becomes two edges. Called with the number of agents, p and the seed's generator.
BUILT_IN: dict[str, Draw] = {
    "complete": complete,
    "ring": ring,
    "server": server,
    "tree": tree,
    "random": random,
    "connected": connected,
    "disconnected": disconnected,
}
GRAPHS: Table[Draw] = Table("graph", BUILT_IN, "shoal.graphs", callable)
DRAWN = ("tree", "random", "connected")  # differ from seed to seed
# Of the others: are two different agents of so many connected? It is known without drawing the graph.
FIXED: dict[str, Callable[[int, int, int], bool]] = {
    "complete": lambda n, one, other: True,
    "ring": lambda n, one, other: (one - other) % n in (1, n - 1),
    "server": lambda n, one, other: 0 in (one, other),
    "disconnected": lambda n, one, other: False,
}


def is_file(graph: str) -> bool:
    """Does a graph's name mean a file? A bare word never does: a typo would otherwise pass for one."""
    return not is_named(graph) and bool(set(graph) & set("./\\"))


def is_named(graph: str) -> bool:
    """Does a graph's name mean a function that makes it?"""
    return graph in GRAPHS or is_door(graph)
