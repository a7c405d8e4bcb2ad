"""Graphs of one's own with settings of their own."""

import pickle
import tomllib
from collections.abc import Iterator

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest

import shoal
from shoal.configure.reading import override, resolve
from shoal.errors import SettingsError
from shoal.network.edges import edges
from shoal.network.graphs import GRAPHS
from shoal.settings.groups import Settings
from shoal.settings.writing import toml


def circulant(n: int, p: float, generator: np.random.Generator, reach: int = 1) -> nx.Graph:
    """Everybody is connected with all that are at most so many places away."""
    return nx.circulant_graph(n, range(1, reach + 1))


@pytest.fixture
def graph() -> Iterator[str]:
    GRAPHS.add("circulant", circulant)
    yield "circulant"
    GRAPHS.remove("circulant")


def degree(settings: Settings) -> int:
    return sum(edge.receiver == 0 for edge in edges(settings.network, settings.agents, settings.seed))


def test_what_a_graph_asks_for_by_name_is_a_setting_of_its_network(graph: str) -> None:
    near, far = (Settings(agents=8, sharing="fedavg", network={"graph": graph, "reach": one}) for one in (1, 3))
    assert (degree(near), degree(far)) == (2, 6)
    assert near == Settings(agents=8, sharing="fedavg", network=graph)
    assert near.identity() != far.identity()
    assert Settings(**tomllib.loads(toml(far))) == far
    assert resolve(override({}, ["agents=8", "sharing=fedavg", f"network={graph}", "network.reach=3"])) == far
    assert pickle.loads(pickle.dumps(far)) == far
    fleet = shoal.Fleet("digits", agents=8, sharing="fedavg", network={"graph": circulant, "reach": 3})
    assert degree(fleet.settings) == 6


def test_a_setting_of_a_graph_is_checked_by_that_graph(graph: str) -> None:
    with pytest.raises(SettingsError, match=r"`network.reach` cannot be 'far'; allowed: a whole number"):
        Settings(network={"graph": graph, "reach": "far"})
    with pytest.raises(SettingsError, match=r"unknown setting `network.raech`; did you mean `network.reach`\?"):
        Settings(network={"graph": graph, "raech": 2})
    with pytest.raises(
        SettingsError, match=r'network.reach = 2 is for network.graph = "circulant", got "ring"; leave it out'
    ):
        Settings(network={"graph": "ring", "reach": 2})
