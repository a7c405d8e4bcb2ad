"""Facts about a graph: who reaches whom, in how many hops, and how fast averaging agrees."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from shoal.network.edges import Edge


class Degrees(NamedTuple):
    """How many neighbours the agents have."""

    least: int
    mean: float
    most: int


class Facts(NamedTuple):
    """What a graph does to a message; budgets and frequencies do not count."""

    agents: int
    edges: int  # directed
    receives: Degrees  # from how many: in-degrees
    sends: Degrees  # to how many: out-degrees
    diameter: int | None  # hops of the longest shortest path; None: infinite, some agent cannot reach some other
    largest: int | None  # the same inside the largest component, the one with the lowest agent if there are several
    gap: float  # see `gap`
    components: tuple[tuple[int, ...], ...]  # weakly connected, the largest first
    isolated: tuple[int, ...]  # agents without any edge
    reach: tuple[frozenset[int], ...]  # reach[i]: the others that something agent i knows can get to, by any path


def facts(edges: Sequence[Edge], agents: int) -> Facts:
    """The facts of a graph of `agents` agents."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from((edge.sender, edge.receiver) for edge in edges)
    hops: dict[int, dict[int, int]] = dict(nx.all_pairs_shortest_path_length(graph))
    components = sorted((tuple(sorted(part)) for part in nx.weakly_connected_components(graph)), key=size)

    def diameter(part: Sequence[int]) -> int | None:
        if any(len(hops[agent]) < len(part) for agent in part):
            return None
        return max(max(hops[agent].values()) for agent in part)

    return Facts(
        agents=agents,
        edges=len(edges),
        receives=degrees([degree for _, degree in graph.in_degree]),
        sends=degrees([degree for _, degree in graph.out_degree]),
        diameter=diameter(range(agents)),
        largest=diameter(components[0]),
        gap=gap(edges, agents),
        components=tuple(components),
        isolated=tuple(part[0] for part in components if len(part) == 1),
        reach=tuple(frozenset(hops[agent]) - {agent} for agent in range(agents)),
    )


def size(part: Sequence[int]) -> tuple[int, int]:
    """Sorts components: the largest first, then the one with the lowest agent."""
    return -len(part), min(part)


def degrees(counts: Sequence[int]) -> Degrees:
    return Degrees(min(counts), sum(counts) / len(counts), max(counts))


def gap(edges: Iterable[Edge], agents: int) -> float:
    """The spectral gap 1 - |lambda_2| of averaging: how fast agents that average what they receive come to agree.

    One round replaces x by W x with W[i, j] = 1 / (1 + d_i) for j = i and for each of the d_i agents j that send to i.
    W's largest eigenvalue is 1; disagreement shrinks in the long run by |lambda_2|, the second largest absolute value,
    per round. 1: one round is enough (complete graph, and one agent alone); 0: they never agree (disconnected).
    """
    weights = np.eye(agents)
    for edge in edges:
        weights[edge.receiver, edge.sender] = 1
    weights /= weights.sum(1, keepdims=True)
    sizes = np.sort(np.abs(np.linalg.eigvals(weights)))
    return float(np.clip(1 - sizes[-2], 0, 1).round(9)) if agents > 1 else 1.0
