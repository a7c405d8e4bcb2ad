"""Lanes are dealt to workers so that little mail crosses from one to another."""

from itertools import combinations
from typing import Any

import pytest

from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.configure.reading import resolve
from shoal.data import load
from shoal.data.tasks import Lane
from shoal.fleet.placement import crossings, cut, deal, traffic


def fleet(agents: int, seeds: int = 1, **network: Any) -> tuple[World, ...]:
    tasks = {"count": 2, "classes": 2, "train": 4, "validation": 2, "initial": 1}
    sharing = [{"mode": "fedavg", "every": 1}]
    raw = {"dataset": "digits", "model": "mlp", "agents": agents, "seeds": seeds, "tasks": tasks, "sharing": sharing}
    return worlds(resolve({**raw, "learner": {"epochs": 2, "memory": 4}, "network": network}), load("digits"))


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("graph", ["ring", "complete", "disconnected"])
def test_every_lane_is_dealt_once_and_nobody_gets_none(graph: str, count: int) -> None:
    whole = fleet(4, seeds=2, graph=graph)
    deals = deal(whole, count)
    assert len(deals) == count
    assert all(deals)
    assert sorted(lane for mine in deals for lane in mine) == sorted(whole[0].peers)
    assert len(deal(whole, 100)) == 8  # there are no more lanes than that


def test_seeds_stay_whole_where_there_are_enough() -> None:
    deals = deal(fleet(3, seeds=4, graph="complete"), 2)
    assert [{lane.seed for lane in mine} for mine in deals] == [{0, 1}, {2, 3}]


def test_parts_of_a_graph_that_never_talk_are_not_cut() -> None:
    pairs = [(a, b) for part in ((0, 2, 4), (1, 3, 5)) for a in part for b in part if a != b]
    edges = [{"sender": a, "receiver": b} for a, b in pairs]
    whole = fleet(6, graph="edges", edges=edges)
    deals = deal(whole, 2)
    assert sorted(tuple(lane.agent for lane in mine) for mine in deals) == [(0, 2, 4), (1, 3, 5)]
    assert sum(crossings(whole, deals)[0]) == 0


def test_a_ring_is_cut_into_arcs() -> None:
    links = {(a, (a + 1) % 12): 1.0 for a in range(12)}
    groups = cut(range(12), links, 3)
    home = {agent: at for at, group in enumerate(groups) for agent in group}
    assert sorted(map(len, groups)) == [4, 4, 4]
    assert sum(home[a] != home[b] for a, b in links) == 3


def test_heavy_links_stay_inside() -> None:
    """Two groups of four with heavy links, and light ones between all."""
    heavy = {0: 0, 3: 0, 4: 0, 7: 0, 1: 1, 2: 1, 5: 1, 6: 1}
    links = {(a, b): 100.0 if heavy[a] == heavy[b] else 1.0 for a, b in combinations(range(8), 2)}
    assert sorted(map(sorted, cut(range(8), links, 2))) == [[0, 3, 4, 7], [1, 2, 5, 6]]


def test_what_crosses_is_what_check_says_of_the_links_between() -> None:
    whole = fleet(4, graph="ring")
    halves = [tuple(Lane(0, agent) for agent in part) for part in ((0, 1), (2, 3))]
    (each,) = {round(bytes_ - 1) for bytes_ in traffic(whole).values()}
    assert each > 0
    assert sum(crossings(whole, halves)[0]) == 4 * each  # 1 -> 2, 2 -> 1, 3 -> 0, 0 -> 3
