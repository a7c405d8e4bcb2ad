"""Graphs by name: who is connected with whom, in a fleet of so many agents. What a graph's function asks for by name,
with a default, are settings of its network."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
from pydantic import create_model

from shoal.doors import Table, is_door
from shoal.settings.groups import Network

Draw = Callable[..., nx.Graph]  # of agents, p and a generator, and by name of what it asks for


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


def geometric(
    n: int, p: float, generator: np.random.Generator, radius: float = 0.3, speed: float = 0.0, epoch: int = 0
) -> nx.Graph:
    """Agents in a square of side 1 are connected if they are at most a radius apart, and move if they have a speed.

    Each begins anywhere, goes in any direction, and is reflected by the sides: where it is in an epoch needs no memory.
    """
    start, angle = generator.random((n, 2)), generator.random(n) * 2 * np.pi
    way = (start + speed * epoch * np.stack([np.cos(angle), np.sin(angle)], 1)) % 2
    graph = nx.empty_graph(n)
    graph.add_edges_from(near(1 - np.abs(1 - way), radius).tolist())
    return graph


def near(places: np.ndarray, radius: float) -> np.ndarray:
    """All pairs of places [N, 2] in a square of side 1 that are at most a radius apart, int64 [M, 2], the first lower.

    The square is cut into cells that are no smaller than the radius, so that only nine cells have to be looked at.
    """
    side = max(1, min(int(1 / radius), int(len(places) ** 0.5) + 1))
    cell = np.minimum((places * side).astype(np.int64), side - 1)
    number = cell[:, 0] * side + cell[:, 1]
    order = np.argsort(number, kind="stable")
    found = []
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            other = cell + np.array([dx, dy])
            inside = ((other >= 0) & (other < side)).all(1)
            wanted = np.where(inside, other[:, 0] * side + other[:, 1], side * side)
            first = np.searchsorted(number[order], wanted)
            many = np.searchsorted(number[order], wanted, "right") - first
            one = np.repeat(np.arange(len(places)), many)
            at = np.repeat(first - (many.cumsum() - many), many) + np.arange(len(one))
            two = order[at]
            close = (one < two) & (((places[one] - places[two]) ** 2).sum(1) <= radius**2)
            found.append(np.stack([one[close], two[close]], 1))
    pairs = np.concatenate(found)
    return pairs[np.lexsort([pairs[:, 1], pairs[:, 0]])]


# Undirected: each line becomes two edges. Called with the number of agents, p and the seed's generator, and by name
# with `radius`, `speed` and `epoch` (since the first task), if it asks for them: one that asks for the epoch changes.
BUILT_IN: dict[str, Draw] = {
    "complete": complete,
    "ring": ring,
    "server": server,
    "tree": tree,
    "random": random,
    "connected": connected,
    "disconnected": disconnected,
    "geometric": geometric,
}
GRAPHS: Table[Draw] = Table("graph", BUILT_IN, "shoal.graphs", callable)
DRAWN = ("tree", "random", "connected", "geometric")  # differ from seed to seed
# Of the others: are two different agents of so many connected? It is known without drawing the graph.
FIXED: dict[str, Callable[[int, int, int], bool]] = {
    "complete": lambda n, one, other: True,
    "ring": lambda n, one, other: (one - other) % n in (1, n - 1),
    "server": lambda n, one, other: 0 in (one, other),
    "disconnected": lambda n, one, other: False,
}


class Asking(Network):
    """A network whose graph has settings of its own; each such graph has a class below this one."""

    def __reduce__(self) -> Any:
        return again, (dict(self),)


def again(values: dict[str, Any]) -> Network:
    """A network with settings of its graph, in another process."""
    return kind_of(values["graph"]).model_construct(**values)


KINDS: dict[Any, type[Network]] = {}  # by the graph's function


def kind_of(graph: str) -> type[Network]:
    """The class that checks what is said of a network with this graph."""
    if not is_named(graph):
        return Network
    make = GRAPHS.find(graph)
    if make not in KINDS:
        asked = list(inspect.signature(make).parameters.values())[3:]
        own = [
            one for one in asked if one.name not in (*Network.model_fields, "epoch") and one.default is not one.empty
        ]
        hints = get_type_hints(make) if own else {}
        fields: Any = {one.name: (hints.get(one.name, type(one.default)), one.default) for one in own}
        KINDS[make] = create_model(getattr(make, "__name__", "Own"), __base__=Asking, **fields) if own else Network
    return KINDS[make]


def is_file(graph: str) -> bool:
    """Does a graph's name mean a file? A bare word never does: a typo would otherwise pass for one."""
    return not is_named(graph) and bool(set(graph) & set("./\\"))


def is_named(graph: str) -> bool:
    """Does a graph's name mean a function that makes it?"""
    return graph in GRAPHS or is_door(graph)
