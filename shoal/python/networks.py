"""Networks as values: so many agents, and who of them can send to whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from shoal.errors import SettingsError


@dataclass(frozen=True)
class Graph:
    """A network: its agents, and what a settings file says of it under [network]. `agents` is None where it connects
    as many as there are."""

    agents: int | None
    table: Mapping[str, Any]

    def __repr__(self) -> str:
        said = {name: value for name, value in self.table.items() if name not in ("graph", "edges")}
        words = [str(self.agents), *(f"{name}={value!r}" for name, value in said.items())]
        return f"{self.table['graph']}({', '.join(words)})"


def named(graph: str, agents: int, limits: dict[str, Any]) -> Graph:
    """A graph by its name; limits that are None are left to the settings."""
    if not isinstance(agents, int) or isinstance(agents, bool) or agents < 1:
        raise SettingsError(f"{graph} cannot have {agents!r} agents; say a whole number of at least 1: {graph}(5)")
    said = {name: value for name, value in limits.items() if value is not None}
    return Graph(agents, MappingProxyType({"graph": graph, **said}))


def complete(agents: int, budget: int | str | None = None, every: int | None = None, **conditions: Any) -> Graph:
    """Everyone can send to everyone.

    >>> import shoal
    >>> shoal.complete(4, every=10)
    complete(4, every=10)
    """
    return named("complete", agents, {"budget": budget, "every": every, **conditions})


def ring(agents: int, budget: int | str | None = None, every: int | None = None, **conditions: Any) -> Graph:
    """Each agent has two neighbours. `budget` is what a link carries, `every` the epochs between two exchanges;
    further keywords are settings of the network, such as `loss`, `delay` and `down`.

    >>> import shoal
    >>> network = shoal.ring(5, budget=2000)
    >>> network, network.agents, dict(network.table)
    (ring(5, budget=2000), 5, {'graph': 'ring', 'budget': 2000})
    """
    return named("ring", agents, {"budget": budget, "every": every, **conditions})


def server(agents: int, budget: int | str | None = None, every: int | None = None, **conditions: Any) -> Graph:
    """All can send to agent 0, and agent 0 to all.

    >>> import shoal
    >>> shoal.server(3)
    server(3)
    """
    return named("server", agents, {"budget": budget, "every": every, **conditions})


def tree(agents: int, budget: int | str | None = None, every: int | None = None, **conditions: Any) -> Graph:
    """A random tree, another for each seed.

    >>> import shoal
    >>> shoal.tree(6)
    tree(6)
    """
    return named("tree", agents, {"budget": budget, "every": every, **conditions})


def random(
    agents: int, p: float | None = None, budget: int | str | None = None, every: int | None = None, **conditions: Any
) -> Graph:
    """Each pair is connected with chance p (0.5 if nothing is said), another graph for each seed.

    >>> import shoal
    >>> shoal.random(8, p=0.3)
    random(8, p=0.3)
    """
    return named("random", agents, {"p": p, "budget": budget, "every": every, **conditions})


def connected(
    agents: int, p: float | None = None, budget: int | str | None = None, every: int | None = None, **conditions: Any
) -> Graph:
    """A random tree, and each other pair with chance p: everyone can reach everyone.

    >>> import shoal
    >>> shoal.connected(8, p=0.1)
    connected(8, p=0.1)
    """
    return named("connected", agents, {"p": p, "budget": budget, "every": every, **conditions})


def disconnected(agents: int) -> Graph:
    """No one can send to anyone.

    >>> import shoal
    >>> shoal.disconnected(4)
    disconnected(4)
    """
    return named("disconnected", agents, {})


def listed(edges: Any) -> Graph:
    """The network of a list of edges: pairs (sender, receiver), or tables as in a settings file."""
    links = [link(edge) for edge in edges]
    if not links:
        raise SettingsError(
            'the network is an empty list of edges; list pairs (sender, receiver), or say "disconnected"'
        )
    return Graph(None, MappingProxyType({"graph": "edges", "edges": links}))


def link(edge: Any) -> Any:
    """An edge as a table; what is one already stays."""
    if isinstance(edge, (tuple, list)):
        if len(edge) != 2:
            raise SettingsError(
                f"an edge is a pair (sender, receiver), got {edge!r}; limits are said as a table: "
                '{"sender": 0, "receiver": 1, "budget": 5000}'
            )
        return {"sender": edge[0], "receiver": edge[1]}
    return edge


def drawn(graph: Any) -> Graph:
    """The network of a networkx graph, whose nodes are the agents 0, 1, ... An undirected edge leads both ways; edges
    may have attributes `budget` and `every`."""
    agents = graph.number_of_nodes()
    strange = [node for node in graph.nodes if node not in range(agents)]
    if strange:
        raise SettingsError(
            f"the nodes of a graph of {agents} agents are the numbers 0 to {agents - 1}, got {strange[0]!r}; rename "
            "them, e.g. with networkx.convert_node_labels_to_integers"
        )
    links = []
    for one, other, said in graph.edges(data=True):
        limits = {name: said[name] for name in ("budget", "every") if name in said}
        ways = [(one, other)] if graph.is_directed() else [(one, other), (other, one)]
        links += [{"sender": sender, "receiver": receiver, **limits} for sender, receiver in ways]
    table: dict[str, Any] = {"graph": "edges", "edges": links} if links else {"graph": "disconnected"}
    return Graph(agents, MappingProxyType(table))
