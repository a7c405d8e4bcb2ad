"""Graphs by name: who is connected with whom, in a fleet of so many agents. What a graph's function asks for by name,
with a default, are settings of its network, and so is `p` of one that needs agents, p and a generator."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from shoal.doors import Table, is_door
from shoal.settings.asking import asking
from shoal.settings.groups import Network

Draw = Callable[..., nx.Graph]  # of agents, p if it needs it, and a generator; by name of what it asks for
Chance = Annotated[float, Field(ge=0, le=1, description="chance of an edge")]
Radius = Annotated[
    PositiveFloat, Field(description="how far apart agents in a square of side 1 can be and are connected")
]
P = 0.5  # where nobody says it
Speed = Annotated[NonNegativeFloat, Field(description="how far agents move in an epoch")]


def complete(n: int, generator: np.random.Generator) -> nx.Graph:
    """Everybody is connected with everybody."""
    return nx.complete_graph(n)


def ring(n: int, generator: np.random.Generator) -> nx.Graph:
    """Everybody has two neighbours, in a circle."""
    return nx.cycle_graph(n) if n > 1 else nx.empty_graph(n)  # networkx would loop one agent


def server(n: int, generator: np.random.Generator) -> nx.Graph:
    """All are connected with agent 0, the hub, which learns like any other."""
    return nx.star_graph(n - 1)


def disconnected(n: int, generator: np.random.Generator) -> nx.Graph:
    """Nobody is connected with anybody."""
    return nx.empty_graph(n)


def tree(n: int, generator: np.random.Generator) -> nx.Graph:
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
    return nx.compose(tree(n, generator), random(n, p, generator))


def geometric(
    n: int, generator: np.random.Generator, radius: Radius = 0.3, speed: Speed = 0.0, epoch: int = 0
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


# Undirected: each line becomes two edges. One that asks for the `epoch` (since the first task) may change with it.
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


def draw(make: Draw, agents: int, generator: np.random.Generator, epoch: int = 0, **said: Any) -> nx.Graph:
    """The graph of so many agents in an epoch; what nobody has said is at its default."""
    if "epoch" in inspect.signature(make).parameters:
        said["epoch"] = epoch
    p = said.pop("p", P)
    return make(agents, *((p,) if needs_chance(make) else ()), generator, **said)


def needs_chance(make: Draw) -> bool:
    """Is a function called with agents, p and a generator, or with agents and a generator?"""
    every = inspect.signature(make).parameters.values()
    return sum(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in every) > 2


def kind_of(*graphs: str) -> type[Network]:
    """The class that checks what is said of a network with this graph, or with these, one after the other."""
    makes = tuple(GRAPHS.find(graph) for graph in dict.fromkeys(graphs) if is_named(graph))
    chance: Any = {"p": (Chance, P)} if any(map(needs_chance, makes)) else {}
    return asking(makes, Network, "epoch", **chance)


def asked_of(network: Network) -> dict[str, Any]:
    """What the graph of a network asks for, and what the network says of it or else its default."""
    own = kind_of(network.graph).model_fields
    return {
        name: getattr(network, name, field.default) for name, field in own.items() if name not in Network.model_fields
    }


def is_file(graph: str) -> bool:
    """Does a graph's name mean a file? A bare word never does: a typo would otherwise pass for one."""
    return not is_named(graph) and bool(set(graph) & set("./\\"))


def is_named(graph: str) -> bool:
    """Does a graph's name mean a function that makes it?"""
    return graph in GRAPHS or is_door(graph)
