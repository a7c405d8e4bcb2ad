"""Which lanes a worker gets: as little mail as can be goes from one worker to another."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import networkx as nx  # type: ignore[import-untyped]

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.mail.lies import LIES

Traffic = Mapping[tuple[int, int], float]  # bytes that go from one agent to another in a run, at most
REFINED = 2000  # agents; a cut through more of them is not improved by exchanging pairs, which would take minutes


def traffic(whole: Sequence[World]) -> dict[tuple[int, int], float]:
    """What goes over each link in a run, at most, as `shoal check` says it; a link counts even if nothing does."""
    from shoal.sharing.plan import plan

    found = {(sender.agent, receiver.agent): 1.0 for sender, receiver in whole[0].edges}
    for line in plan(whole):
        for ends in line.edges.pairs:
            found[ends] += line.total_bytes
    return found


def deal(whole: Sequence[World], count: int) -> list[tuple[Lane, ...]]:
    """All lanes of a fleet, dealt to so many workers, none of which gets none.

    Seeds never talk, so that they stay whole where there are as many; parts of the graph that are not connected never
    talk either. What is left is cut where little mail goes. Liars that adapt look at others of their seed, which then
    stays whole.
    """
    world = whole[0]
    seeds: dict[int, list[Lane]] = {}
    for lane in world.peers:
        seeds.setdefault(lane.seed, []).append(lane)
    adaptive = any(LIES.find(fault.does).adapts for fault in world.fleet.faulty)
    count = max(1, min(count, len(seeds) if adaptive else len(world.peers)))
    if count <= len(seeds):
        return [tuple(lane for seed in part for lane in seeds[seed]) for part in shared_out(list(seeds), count)]
    weights = traffic(whole)
    links: dict[int, dict[tuple[int, int], float]] = {seed: {} for seed in seeds}
    for sender, receiver in world.edges:
        ends = sender.agent, receiver.agent
        links[sender.seed][ends] = weights[ends]
    found = []
    for at, (seed, lanes) in enumerate(seeds.items()):
        parts = count // len(seeds) + (at < count % len(seeds))
        groups = cut([lane.agent for lane in lanes], links[seed], min(parts, len(lanes)))
        found += [tuple(lane for lane in lanes if lane.agent in group) for group in map(set, groups)]
    return found


def cut(agents: Sequence[int], links: Traffic, parts: int) -> list[list[int]]:
    """Agents in so many groups of about the same size, with little traffic between groups.

    They are first put into an order in which neighbours are near each other, one connected part after the other; a cut
    through that order is then improved by exchanging agents in pairs (Kernighan & Lin 1970).
    """
    if parts == 1:
        return [list(agents)]
    graph = nx.Graph()
    graph.add_nodes_from(agents)
    for (sender, receiver), bytes_ in links.items():
        if sender in graph and receiver in graph:
            known = graph.get_edge_data(sender, receiver, {}).get("weight", 0.0)
            graph.add_edge(sender, receiver, weight=known + bytes_)
    first = -(-parts // 2)
    whole = sorted(nx.connected_components(graph), key=lambda one: (-len(one), min(one)))
    order = [agent for part in whole for agent in nx.utils.reverse_cuthill_mckee_ordering(graph.subgraph(sorted(part)))]
    size = round(len(order) * first / parts)
    size = max(first, min(len(order) - (parts - first), size))
    halves = set(order[:size]), set(order[size:])
    if len(order) <= REFINED and nx.cut_size(graph, halves[0], weight="weight"):
        one, other = nx.algorithms.community.kernighan_lin_bisection(graph, halves, weight="weight", seed=0)
        halves = (one, other) if len(one) == size else (other, one)
    return [
        group
        for half, share in zip(halves, (first, parts - first), strict=True)
        for group in cut([agent for agent in agents if agent in half], links, share)
    ]


def crossings(whole: Sequence[World], deals: Sequence[Sequence[Lane]]) -> tuple[list[float], list[float]]:
    """The bytes that leave each worker for others in a run, at most, and that come to it."""
    weights, home = traffic(whole), {lane: at for at, lanes in enumerate(deals) for lane in lanes}
    leaves, arrives = [0.0] * len(deals), [0.0] * len(deals)
    for sender, receiver in whole[0].edges:
        if home[sender] != home[receiver]:
            bytes_ = weights[sender.agent, receiver.agent] - 1
            leaves[home[sender]] += bytes_
            arrives[home[receiver]] += bytes_
    return leaves, arrives


def shared_out(things: Sequence[int], count: int) -> list[list[int]]:
    """A row of things in so many rows of about the same length."""
    bounds = [len(things) * at // count for at in range(count + 1)]
    return [list(things[first:last]) for first, last in pairwise(bounds)]
