"""The laws of topologies."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from shoal.contracts.fleets import difference, fleet, listed, shared_only
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.fleet.run import simulate
from shoal.network.graphs import GRAPHS, Draw, draw, kind_of

SIZES, CHANCES = (1, 2, 3, 7, 10), (0.0, 0.1, 0.5, 1.0)


@contextmanager
def laws(graph: str | Draw) -> Iterator[list[Law]]:
    """The laws of a topology."""
    with listed(GRAPHS, graph) as name, finishes(f"`{name}`"):
        yield laws_of([it_draws_a_graph_of_its_agents, mail_goes_over_its_edges], name)


def it_draws_a_graph_of_its_agents(name: str) -> None:
    """Of all its agents, counted from 0, the same from the same generator."""
    make = GRAPHS.find(name)
    for agents in SIZES:
        for p in CHANCES:
            one, two = (draw(make, agents, np.random.default_rng(5), p=p) for _ in range(2))
            where = f"`{name}` with {agents} agents and p = {p}"
            law(isinstance(one, nx.Graph) and not one.is_directed(), f"{where} is an undirected networkx graph")
            law(sorted(one.nodes) == list(range(agents)), f"{where} has nodes {sorted(one.nodes)}: it needs all agents")
            law(nx.number_of_selfloops(one) == 0, f"{where} connects an agent with itself")
            law(
                set(map(frozenset, one.edges)) == set(map(frozenset, two.edges)),
                f"{where} is another graph from the same generator; draw from the generator alone",
            )


def mail_goes_over_its_edges(name: str) -> None:
    """Mail goes over the edges and nowhere else; who has none learns as alone."""
    few: dict[str, Any] = {
        "agents": 10,
        "learner": {"epochs": 2},
        "tasks": {"count": 2},
        "network": {"graph": name, **({"p": 0.1} if "p" in kind_of(name).model_fields else {})},
    }
    sharing = [{"mode": "uniform", "every": 1}]
    world = fleet("mlp", sharing=sharing, **few)
    stack, alone = simulate(world), simulate(fleet("mlp", **few))
    ends = zip(*(stack.ledger.column(end).tolist() for end in ("sender", "receiver")), strict=True)
    want = {(sender.agent, receiver.agent) for sender, receiver in world.edges}
    law(set(ends) == want, f"`{name}`: mail goes over every edge, and nowhere else")
    for lane in world.lanes:
        row = [world.row[lane]]
        ends_alone = not difference(stack.take(row, [lane]), alone.take(row, [lane]), shared_only(["uniform"]))
        law(
            ends_alone == (lane not in world.receivers),
            f"`{name}`: an agent learns as alone if it has no neighbour, and only then; agent {lane.agent} does not",
        )
