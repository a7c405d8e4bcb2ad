"""Graphs: by name, from files, with limits; their facts, their pictures, and what is said about what cannot be."""

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import networkx as nx  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cli.terminal import spans
from shoal.configure.entries import network_of
from shoal.errors import SettingsError
from shoal.network.edges import Edge, edges, settle
from shoal.network.facts import facts
from shoal.network.files import read
from shoal.network.graphs import DRAWN, GRAPHS, kind_of
from shoal.network.picture import LINES, picture
from shoal.settings.groups import Link, Network
from shoal.settings.part import Budget
from tests.command import Done, call, command

names = st.sampled_from(sorted(GRAPHS))
agents = st.integers(1, 12)
seeds = st.integers(0, 2**32 - 1)
chances = st.floats(0, 1)
patient = settings(deadline=None)  # a busy machine is no failure
SVG = "{http://www.w3.org/2000/svg}"


def link(sender: int, receiver: int, budget: Budget | None = None, every: int | None = None) -> Link:
    return Link(sender=sender, receiver=receiver, budget=budget, every=every)


def one_way(*pairs: tuple[int, int]) -> list[Edge]:
    return [Edge(sender, receiver, None, 1) for sender, receiver in pairs]


def pairs(found: Iterable[Edge]) -> set[tuple[int, int]]:
    return {(edge.sender, edge.receiver) for edge in found}


def directed(found: Iterable[Edge], n: int) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pairs(found))
    return graph


def written(folder: Path, content: str, name: str = "graph.txt") -> Path:
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return file


def xml(inside: str, kind: str = "directed") -> str:
    keys = '<key id="b" for="edge" attr.name="budget" attr.type="string"/>'
    keys += '<key id="e" for="edge" attr.name="every" attr.type="double"/>'
    space = 'xmlns="http://graphml.graphdrawing.org/xmlns"'
    return f'<graphml {space}>{keys}<graph edgedefault="{kind}">{inside}</graph></graphml>'


def drawn_by(graph: str, p: float) -> Network:
    """A network with such a graph, and p if it has one."""
    return network_of({"graph": graph, **({"p": p} if "p" in kind_of(graph).model_fields else {})})


@patient
@given(names, agents, chances, seeds)
def test_every_named_graph_has_edges_both_ways_between_its_agents_in_order(
    name: str, n: int, p: float, seed: int
) -> None:
    found = edges(drawn_by(name, p), n, seed)
    assert found == tuple(sorted(found, key=lambda edge: (edge.receiver, edge.sender)))
    assert len(pairs(found)) == len(found)
    assert {(receiver, sender) for sender, receiver in pairs(found)} == pairs(found)
    for edge in found:
        assert edge.sender != edge.receiver
        assert type(edge.sender) is type(edge.receiver) is int
        assert edge.sender in range(n)
        assert edge.receiver in range(n)
        assert edge[2:4] == (None, 1)


@patient
@given(names, agents, chances, seeds)
def test_the_same_seed_draws_the_same_graph(name: str, n: int, p: float, seed: int) -> None:
    assert edges(drawn_by(name, p), n, seed) == edges(drawn_by(name, p), n, seed)


@patient
@given(st.sampled_from(sorted(set(GRAPHS) - set(DRAWN))), agents, seeds)
def test_a_fixed_graph_is_the_same_in_every_seed(name: str, n: int, seed: int) -> None:
    assert edges(Network(graph=name), n, seed) == edges(Network(graph=name), n, 0)


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawn_graph_differs_from_seed_to_seed(name: str) -> None:
    assert len({edges(Network(graph=name), 8, seed) for seed in range(10)}) > 5


@patient
@given(agents)
def test_degrees_of_the_fixed_graphs(n: int) -> None:
    def received(name: str) -> list[int]:
        found = [edge.receiver for edge in edges(Network(graph=name), n, 0)]
        return [found.count(agent) for agent in range(n)]

    assert received("complete") == [n - 1] * n
    assert received("ring") == [min(n - 1, 2)] * n
    assert received("server") == [n - 1, *[1] * (n - 1)]
    assert received("disconnected") == [0] * n


def test_a_ring_joins_neighbours() -> None:
    assert pairs(edges(Network(graph="ring"), 4, 0)) >= {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert pairs(edges(Network(graph="ring"), 2, 0)) == {(0, 1), (1, 0)}
    assert edges(Network(graph="ring"), 1, 0) == ()


@patient
@given(agents, chances, seeds)
def test_a_tree_is_a_tree_whatever_p(n: int, p: float, seed: int) -> None:
    found = edges(drawn_by("tree", p), n, seed)
    assert len(found) == 2 * (n - 1)
    assert nx.is_tree(directed(found, n).to_undirected())
    assert found == edges(Network(graph="tree"), n, seed)


def test_every_labelled_tree_is_as_likely() -> None:
    counts: dict[frozenset[tuple[int, int]], int] = {}
    for seed in range(1600):
        tree = frozenset(pairs(edges(Network(graph="tree"), 4, seed)))
        counts[tree] = counts.get(tree, 0) + 1
    assert len(counts) == 16  # Cayley: 4^2
    assert min(counts.values()) > 60  # 100 each; 60 is four standard deviations
    assert max(counts.values()) < 140


@patient
@given(agents, chances, seeds)
def test_a_connected_graph_is_connected_and_holds_the_tree(n: int, p: float, seed: int) -> None:
    found = edges(drawn_by("connected", p), n, seed)
    assert nx.is_strongly_connected(directed(found, n))
    assert pairs(found) >= pairs(edges(Network(graph="tree"), n, seed))


@patient
@given(agents, seeds)
def test_the_limits_of_p(n: int, seed: int) -> None:
    complete = edges(Network(graph="complete"), n, 0)
    assert edges(drawn_by("random", 0.0), n, seed) == ()
    assert edges(drawn_by("random", 1.0), n, seed) == complete
    assert edges(drawn_by("connected", 0.0), n, seed) == edges(Network(graph="tree"), n, seed)
    assert edges(drawn_by("connected", 1.0), n, seed) == complete


@patient
@given(st.sampled_from(["random", "connected"]), agents, chances, chances, seeds)
def test_a_lower_p_takes_edges_away_and_brings_no_new_ones(
    name: str, n: int, one: float, two: float, seed: int
) -> None:
    less, more = (pairs(edges(drawn_by(name, p), n, seed)) for p in sorted((one, two)))
    assert less <= more


def test_p_is_the_share_of_pairs() -> None:
    found = sum(len(edges(drawn_by("random", 0.3), 10, seed)) for seed in range(200))
    assert found / (200 * 90) == pytest.approx(0.3, abs=0.03)


def test_edges_have_the_limits_of_the_network() -> None:
    assert {edge[2:4] for edge in edges(Network(budget=50, every=3), 3, 0)} == {(50, 3)}


def test_a_link_gives_one_direction_limits_of_its_own() -> None:
    said = (link(0, 1, budget=7), link(1, 0, every=9), link(1, 2, budget="unlimited"), link(2, 1, budget=0))
    found = edges(Network(graph="ring", budget=50, every=3, edges=said), 3, 0)
    limits = {edge[:2]: edge[2:4] for edge in found}
    assert limits == {
        (0, 1): (7, 3),
        (1, 0): (50, 9),
        (1, 2): (None, 3),
        (2, 1): (0, 3),
        (0, 2): (50, 3),
        (2, 0): (50, 3),
    }


def test_a_link_of_a_drawn_graph_counts_in_the_seeds_that_have_the_edge() -> None:
    network = Network(graph="random", edges=(link(0, 1, budget=7),))
    has = [pairs(edges(network, 4, seed)) & {(0, 1)} != set() for seed in range(20)]
    assert set(has) == {True, False}
    for seed, there in enumerate(has):
        plain = edges(Network(graph="random"), 4, seed)
        assert pairs(plain) == pairs(edges(network, 4, seed))
        assert [edge for edge in edges(network, 4, seed) if edge.budget is not None] == [Edge(0, 1, 7, 1)] * there


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - set(DRAWN) - {"complete"}))
def test_a_link_that_a_fixed_graph_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f'limits for 1 -> 3, .*"{name}" with 4 agents does not have; take it out'):
        edges(Network(graph=name, edges=(link(1, 3, budget=7),)), 4, 0)


def test_listed_edges_are_the_graph_and_stay_one_way() -> None:
    network = Network(graph="edges", budget=9, edges=(link(2, 0), link(0, 1, every=4), link(1, 0, budget="unlimited")))
    assert edges(network, 3, 0) == (Edge(1, 0, None, 1), Edge(2, 0, 9, 1), Edge(0, 1, 9, 4))


@pytest.mark.parametrize("graph", ["edges", "random", "complete"])
@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([link(0, 5)], r"has the edge 0 -> 5, but with agents = 4 the last agent is 3; set agents = 6 or more"),
        ([link(4, 0), link(0, 1)], r"has the edge 4 -> 0, but with agents = 4 .* set agents = 5 or more"),
        ([link(2, 2)], r"has the edge 2 -> 2, but an agent sends nothing to itself"),
        ([link(0, 1), link(1, 0), link(0, 1, budget=3)], r"has the edge 0 -> 1 twice; keep one"),
    ],
)
def test_links_that_cannot_be_are_refused_in_any_graph(graph: str, links: list[Link], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^network.edges {said}"):
        edges(Network(graph=graph, edges=tuple(links)), 4, 0)


def test_a_file_with_agents_that_do_not_exist_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "0 5\n")
    with pytest.raises(SettingsError, match=f"^{file} has the edge 0 -> 5, but with agents = 4 the last agent is 3"):
        edges(Network(graph=str(file)), 4, 0)


def test_no_listed_edges_are_refused() -> None:
    with pytest.raises(SettingsError, match=r'needs network.edges, which is empty; .* graph = "disconnected"'):
        settle(Network(graph="edges"))


@pytest.mark.parametrize(("typo", "meant"), [("rign", "ring"), ("Complete", "complete"), ("edge", "edges")])
@pytest.mark.parametrize("links", [(), (link(0, 1, budget=3),)])
def test_a_typo_is_no_file_also_beside_limits_of_edges(typo: str, meant: str, links: tuple[Link, ...]) -> None:
    with pytest.raises(SettingsError, match=f'cannot be "{typo}"; did you mean "{meant}"\\? allowed: complete, ring'):
        edges(Network(graph=typo, edges=links), 4, 0)


@pytest.mark.parametrize("word", ["", "zzz"])
def test_a_strange_word_gets_the_list_of_graphs(word: str) -> None:
    with pytest.raises(SettingsError, match=f'cannot be "{word}"; allowed: complete, .*, edges, or a graph file'):
        settle(Network(graph=word))


def test_an_edge_list_is_read_with_comments_blanks_and_limits(tmp_path: Path) -> None:
    text = "\ufeff# who to whom\n\n0 1\n1 0 500   # costs\n\t1 2 unlimited 4\r\n2\t0 0 10"
    said = (link(0, 1), link(1, 0, 500), link(1, 2, "unlimited", 4), link(2, 0, 0, 10))
    assert read(written(tmp_path, text)) == said
    amounts = "0 1 20kB/task\n1 0 20 kB/task 3\n1 2 500 floats\n"
    assert read(written(tmp_path, amounts)) == (link(0, 1, "20 kB/task"), link(1, 0, "20 kB/task", 3), link(1, 2, 500))


def test_settling_takes_the_file_in_once(tmp_path: Path) -> None:
    file = written(tmp_path, "0 1\n1 2 50\n")
    network = Network(graph=str(file), budget=9, every=2)
    settled = settle(network)
    assert settled == network.model_copy(update={"graph": "edges", "edges": (link(0, 1), link(1, 2, 50))})
    assert edges(network, 3, 0) == edges(settled, 3, 0) == (Edge(0, 1, 9, 2), Edge(1, 2, 50, 2))
    file.unlink()
    assert settle(settled) == settled
    assert edges(settled, 3, 5) == (Edge(0, 1, 9, 2), Edge(1, 2, 50, 2))
    assert Network.model_validate_json(settled.model_dump_json(), strict=False) == settled


@patient
@given(names)
def test_settling_leaves_named_graphs_alone(name: str) -> None:
    network = Network(graph=name, edges=(link(0, 1, budget=3),))
    assert settle(network) is network


def test_a_file_in_this_folder_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "0 1\n", "links")
    written(tmp_path, "1 0\n", "links.txt")
    assert settle(Network(graph="./links")).edges == (link(0, 1),)
    assert settle(Network(graph="links.txt")).edges == (link(1, 0),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1\n0 x\n", r"line 2 of .*graph.txt, `0 x`: an agent is a whole number from 0, got `x`; a line is SENDER"),
        ("-1 0", r"an agent is a whole number from 0, got `-1`"),
        ("0 1.5", r"got `1.5`"),
        ("n0 n1", r"got `n0`"),
        ("0 9999999999999999999999", r"got `9999999999999999999999`"),
        ("0", r"line 1 of .*`0`: it has 1 word; a line is"),
        ("0,1", r"it has 1 word; a line is"),
        ("0 1 2 3 4", r"it has 5 words; a line is"),
        ("0 1 -5", r"a budget cannot be '-5'; allowed: a whole number of floats per exchange from 0, an amount"),
        ("0 1 2.5", r"a budget cannot be '2.5'"),
        ("0 1 lots", r"a budget cannot be 'lots'"),
        ("0 1 20 parsecs", r"a whole number from 1, got `parsecs`"),
        (
            "0 1 20 kB/s",
            r"a budget cannot be '20 kB/s': it is per exchange or per task; say what a link carries per second",
        ),
        ("0 1 5 0", r"the epochs between exchanges are a whole number from 1, got `0`"),
        ("0 1 5 often", r"a whole number from 1, got `often`"),
        ("3 3", r"graph.txt has the edge 3 -> 3, but an agent sends nothing to itself"),
        ("0 1\n1 0\n0 1 5", r"graph.txt has the edge 0 -> 1 twice"),
        ("", r'graph.txt has no edges; for agents without any, set graph = "disconnected"'),
        ("# nothing\n\n", r"has no edges"),
    ],
)
def test_a_bad_edge_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        settle(Network(graph=str(written(tmp_path, text))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["gone.txt", "gone.graphml"])
def test_a_missing_file_is_named_in_full(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"no graph file {tmp_path / name}; graphs by name: complete"):
        read(tmp_path / name)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*: Is a directory; give an edge list"):
        read(tmp_path)
    with pytest.raises(SettingsError, match=r"cannot read .*null.*; give an edge list"):
        read(Path("a\0.txt"))
    (tmp_path / "bytes.txt").write_bytes(b"0 1\n\xff\xfe")
    with pytest.raises(SettingsError, match=r"cannot read .*bytes.txt as an edge list: byte 4 is not UTF-8"):
        read(tmp_path / "bytes.txt")


@patient
@given(names, st.integers(2, 8), seeds)
def test_graphml_by_networkx_comes_back(tmp_path_factory: pytest.TempPathFactory, name: str, n: int, seed: int) -> None:
    found = edges(Network(graph=name), n, seed)
    if not found:
        return
    folder = tmp_path_factory.mktemp("graphml")
    both, single = directed(found, n), directed(found, n).to_undirected()
    for graph, file in ((both, "both.graphml"), (single, "single.XML")):
        nx.write_graphml(graph, folder / file)
        settled = settle(Network(graph=str(folder / file)))
        assert edges(settled, n, 0) == found


def test_graphml_limits_come_along_in_both_directions(tmp_path: Path) -> None:
    graph = nx.Graph()
    graph.add_edge(0, 1, budget=500, every=4)
    graph.add_edge(1, 2, weight=0.5)
    nx.write_graphml(graph, tmp_path / "limits.graphml")
    assert set(read(tmp_path / "limits.graphml")) == {link(0, 1, 500, 4), link(1, 0, 500, 4), link(1, 2), link(2, 1)}
    graph = nx.DiGraph()
    graph.add_edge(0, 1, budget="20 kB/task")
    nx.write_graphml(graph, tmp_path / "bytes.graphml")
    assert read(tmp_path / "bytes.graphml") == (link(0, 1, "20 kB/task"),)


def test_graphml_as_other_tools_write_it(tmp_path: Path) -> None:
    text = (
        '<node id="n0"><port name="p"/></node><node id="n1"/><node id="n2"/>'
        '<edge id="e0" source="n0" target="n1"><data key="b">unlimited</data><data key="e">3.0</data></edge>'
        '<edge id="e1" source="n2" target="n1"><data key="b">20</data></edge>'
    )
    assert read(written(tmp_path, xml(text), "n.graphml")) == (link(0, 1, "unlimited", 3), link(2, 1, 20))
    default = xml(text).replace('"double"/>', '"double"><default>6</default></key>')
    assert read(written(tmp_path, default, "n.graphml")) == (link(0, 1, "unlimited", 3), link(2, 1, 20, 6))


NODES = '<node id="0"/><node id="1"/>'
EDGE = '<edge source="0" target="1"/>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"cannot read .*graph.graphml as GraphML: no element found"),
        ("<graphml><graph>", r"cannot read .* as GraphML: no element found"),
        ("<svg/>", r"cannot read .* as GraphML: file not successfully read as graphml"),
        (xml(NODES + EDGE).replace("double", "quaternion"), r"as GraphML: 'quaternion'"),
        (xml(NODES + '<edge source="0" target="1"><data key="z">1</data></edge>'), r"Bad GraphML data: no key z"),
        (xml(NODES + '<edge source="0" target="1"><data key="e">x</data></edge>'), r"could not convert string"),
        (xml(NODES + '<edge source="0" target="1" directed="false"/>'), r"directed=false edge found in directed graph"),
        (xml(NODES), r'has no edges; for agents without any, set graph = "disconnected"'),
        (
            xml('<node id="hub"/>' + NODES + EDGE),
            r"a node's id must be an agent's number such as `3` or `n3`, got `hub`",
        ),
        (xml('<node id="-1"/>' + NODES + EDGE), r"got `-1`; rename the node"),
        (xml('<node id="0.5"/>' + NODES + EDGE), r"got `0.5`"),
        (xml('<node id="n1"/>' + NODES + EDGE), r"nodes `n1` and `1` are both agent 1; rename one"),
        (xml(NODES + '<edge source="0"/>'), r"got `None`"),
        (xml(NODES + '<edge source="1" target="1"/>'), r"has the edge 1 -> 1, but an agent sends nothing to itself"),
        (xml(NODES + EDGE + EDGE), r"has the edge 0 -> 1 twice"),
        (xml(NODES + EDGE + '<edge source="1" target="0"/>', "undirected"), r"has the edge 0 -> 1 twice"),
        (xml(NODES + 2 * EDGE.replace("<edge", '<edge id="e"')), r"1 of 2 edges are in another or an inner graph, or"),
        (xml(NODES + EDGE + f'</graph><graph edgedefault="directed">{NODES}{EDGE}'), r"1 of 2 edges are in another"),
        (xml(NODES + '<edge source="0" target="1"><data key="b">-3</data></edge>'), r"edge 0 -> 1 of .*cannot be '-3'"),
        (xml(NODES + '<edge source="0" target="1"><data key="b"/></edge>'), r"a budget cannot be ''"),
        (xml(NODES + '<edge source="0" target="1"><data key="e">0</data></edge>'), r"a whole number from 1, got `0`"),
        (xml(NODES + '<edge source="0" target="1"><data key="e">2.5</data></edge>'), r"got `2.5`"),
        (xml(NODES + '<edge source="0" target="1"><data key="e">inf</data></edge>'), r"got `inf`"),
        (xml(NODES + '<edge source="0" target="1"><data key="e">nan</data></edge>'), r"got `nan`"),
    ],
)
def test_a_bad_graphml_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        settle(Network(graph=str(written(tmp_path, text, "graph.graphml"))))
    assert "\n" not in str(caught.value)


WHOLE = xml(NODES + '<edge source="0" target="1"><data key="b">5</data><data key="e">2</data></edge>').encode()


@patient
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 20), st.binary(max_size=3), st.sampled_from([".txt", ".xml"]))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, at: int, length: int, new: bytes, suffix: str
) -> None:
    file = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    file.write_bytes(WHOLE[:at] + new + WHOLE[at + length :])
    said = ""
    try:
        assert read(file)
    except SettingsError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


@pytest.mark.parametrize(
    ("name", "n", "gap"),
    [
        ("complete", 2, 1.0),
        ("complete", 8, 1.0),
        ("ring", 2, 1.0),
        ("ring", 4, 2 / 3),  # eigenvalues 1, 1/3, 1/3, -1/3
        ("ring", 6, 1 / 3),  # (1 + 2 cos(2 pi k / 6)) / 3: 1, 2/3, 2/3, 0, 0, -1/3
        ("server", 3, 0.5),  # W = [1 1 1]/3, [1 1 0]/2, [1 0 1]/2: 1, 1/2, -1/6
        ("disconnected", 2, 0.0),
        ("disconnected", 8, 0.0),
        ("complete", 1, 1.0),
    ],
)
def test_spectral_gaps_by_hand(name: str, n: int, gap: float) -> None:
    assert facts(edges(Network(graph=name), n, 0), n).gap == pytest.approx(gap, abs=1e-8)


def test_the_gap_averages_what_is_received_not_what_is_sent() -> None:
    # Agent 0 hears no one and keeps its value, 1 and 2 take half of it each round; W = [1 0 0], [1 1 0]/2, [1 0 1]/2.
    assert facts(one_way((0, 1), (0, 2)), 3).gap == pytest.approx(0.5)
    # Agents 1 and 2 hear no one, so they never agree; W = [1 1 1]/3, [0 1 0], [0 0 1].
    assert facts(one_way((1, 0), (2, 0)), 3).gap == pytest.approx(0)


@patient
@given(names, agents, seeds)
def test_the_gap_is_positive_exactly_when_a_named_graph_is_connected(name: str, n: int, seed: int) -> None:
    found = edges(drawn_by(name, 0.3), n, seed)
    graph = facts(found, n)
    assert 0 <= graph.gap <= 1
    assert (graph.gap > 1e-6) == (len(graph.components) == 1)


@patient
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_facts_agree_with_networkx_on_any_directed_graph(case: tuple[int, set[tuple[int, int]]]) -> None:
    n, chosen = case
    found = one_way(*sorted(pair for pair in chosen if pair[0] != pair[1]))
    graph, expected = facts(found, n), directed(found, n)
    strong = nx.is_strongly_connected(expected)
    assert (graph.agents, graph.edges) == (n, len(found))
    assert graph.diameter == (nx.diameter(expected) if strong else None)
    assert graph.reach == tuple(frozenset(nx.descendants(expected, agent)) for agent in range(n))
    assert set(map(frozenset, graph.components)) == set(map(frozenset, nx.weakly_connected_components(expected)))
    assert [len(part) for part in graph.components] == sorted(map(len, graph.components), reverse=True)
    assert graph.isolated == tuple(sorted(nx.isolates(expected)))
    largest = expected.subgraph(graph.components[0])
    assert graph.largest == (nx.diameter(largest) if nx.is_strongly_connected(largest) else None)
    received, sent = (dict(degree).values() for degree in (expected.in_degree, expected.out_degree))
    assert graph.receives == (min(received), sum(received) / n, max(received))
    assert graph.sends == (min(sent), sum(sent) / n, max(sent))


def test_facts_of_a_path_and_two_agents_apart() -> None:
    graph = facts(one_way((0, 1), (1, 2)), 5)
    assert graph.reach == (frozenset({1, 2}), frozenset({2}), frozenset(), frozenset(), frozenset())
    assert graph.components == ((0, 1, 2), (3,), (4,))
    assert (graph.isolated, graph.diameter, graph.largest) == ((3, 4), None, None)
    assert graph.receives == (0, 0.4, 1)
    assert facts(edges(Network(graph="ring"), 8, 0), 8).diameter == 4


def test_numbers_in_few_words() -> None:
    assert spans([7, 0, 1, 2, 3, 9, 10]) == "0-3, 7, 9-10"
    assert spans([]) == ""


@patient
@given(names, st.integers(1, 25), st.floats(0.1, 0.9), seeds)
def test_a_picture_has_a_circle_for_each_agent_and_a_line_for_each_pair(name: str, n: int, p: float, seed: int) -> None:
    found = edges(drawn_by(name, p), n, seed)
    svg = ET.fromstring(picture(found, n, "a title"))
    circles = svg.findall(f"{SVG}circle")
    assert len(circles) == n
    assert len(svg.findall(f"{SVG}line")) == len(found) // 2
    assert sorted(int(text.text or "") for text in svg.iter(f"{SVG}text") if text.get("class") == "number") == [
        *range(n)
    ]
    assert not [line for line in svg.iter(f"{SVG}line") if line.get("marker-end")]
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    places = [complex(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in circles]
    for at, one in enumerate(places):
        assert 17 < one.real < width - 17
        assert 17 < one.imag < height - 17
        assert all(abs(one - two) > 34 for two in places[:at]), "agents lie on each other"


def test_a_picture_is_the_same_each_time_and_needs_nothing_else() -> None:
    found = edges(Network(graph="connected"), 12, 3)
    text = picture(found, 12, "twelve")
    assert text == picture(found, 12, "twelve")
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1  # the namespace
    assert "href" not in text


def test_a_picture_has_arrows_for_one_way_and_labels_for_limits_of_their_own() -> None:
    found = [
        Edge(1, 0, 100, 2), Edge(0, 1, 100, 2), Edge(2, 1, 100, 2), Edge(3, 2, 100, 5), Edge(2, 3, None, 2),
        Edge(4, 3, 7, 2), Edge(3, 4, 7, 2),
    ]  # fmt: skip
    svg = ET.fromstring(picture(found, 5, "limits"))
    lines = svg.findall(f"{SVG}line")
    assert len(lines) == 5
    assert sum(line.get("marker-end") is not None for line in lines) == 3
    labels = [text.text for text in svg.iter(f"{SVG}text") if text.get("class") == "limit"]
    assert labels == ["3 → 2: every 5 epochs", "2 → 3: unlimited", "7 floats"]
    assert [text.text for text in svg.iter(f"{SVG}text")][-1] == "other edges: 100 floats, every 2 epochs"


def test_a_picture_tells_screen_readers_what_it_is_whatever_the_title() -> None:
    svg = ET.fromstring(picture((), 1, 'a <b> & "c" \0\x1b\ud800 ü'))
    assert svg.attrib["role"] == "img"
    assert svg[0].tag == f"{SVG}title"
    assert svg[0].text == 'a <b> & "c" ??? ü'
    assert (svg[1].text or "") == "1 agent, 0 links; no edges"


def test_a_large_picture_needs_no_scipy() -> None:
    found = edges(drawn_by("random", 0.01), 520, 0)
    assert len(ET.fromstring(picture(found, 520, "many")).findall(f"{SVG}circle")) == 520


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(done: Done, name: str) -> list[str]:
    return next(line.split() for line in done.out.splitlines() if line.split()[:1] == [name])


def test_the_command_shows_a_graph_and_writes_its_picture(here: Path) -> None:
    assert call("network", "ring").err == ""
    assert not list(here.iterdir())  # nobody has asked for a picture
    done = call("network", "ring", "--out", "ring.svg")
    assert (done.code, done.err) == (0, "written to ring.svg\n")
    assert done.out.splitlines()[0] == "ring, 8 agents"
    assert row(done, "edges")[1] == "16"
    assert row(done, "diameter")[1] == "4"
    assert row(done, "spectral")[2] == "0.195"
    assert row(done, "0") == ["0", "1,", "7", "1,", "7", "all"]
    assert len(ET.parse(here / "ring.svg").getroot().findall(f"{SVG}circle")) == 8


@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_the_command_shows_every_graph_of_any_size(here: Path, name: str, n: int) -> None:
    chance = ["--p", 0.1] if "p" in kind_of(name).model_fields else []
    done = call("network", name, "--agents", n, *chance, "--seed", 4, "--out", "x.svg")
    assert (done.code, done.err) == (0, "written to x.svg\n")
    assert done.out.startswith(name)
    assert len(ET.parse(here / "x.svg").getroot().findall(f"{SVG}circle")) == n


def test_many_agents_are_listed_by_component(here: Path) -> None:
    written(here, "0 1\n1 0\n2 3\n")
    done = call("network", "graph.txt", "--agents", 25)
    assert "component of 2 agents, each can reach all others: 0-1" in done.out
    assert "component of 2 agents, not each can reach all others: 2-3" in done.out
    assert done.out.endswith("isolated: 4-24\n")


def test_the_command_takes_limits_p_and_seed(here: Path) -> None:
    done = call(
        "network", "random", "--p", 1, "--seed", 3, "--agents", 3, "--budget", 40, "--every", 5, "--out", "random.svg"
    )
    assert done.out.startswith("random, p 1.0, seed 3, 3 agents\n")
    assert row(done, "edges")[1] == "6"
    assert "all edges: 40 floats, every 5 epochs" in (here / "random.svg").read_text(encoding="utf-8")


def test_the_command_takes_a_budget_in_bytes_and_refuses_what_is_none(here: Path) -> None:
    assert call("network", "ring", "--agents", 3, "--budget", "20 kB/task", "--out", "ring.svg").code == 0
    assert "all edges: 20 kB/task, every epoch" in (here / "ring.svg").read_text(encoding="utf-8")
    for budget, said in (
        ("20 parsecs", "cannot be '20 parsecs'; allowed: "),
        ("20 kB/s", "per second as network.bandwidth"),
    ):
        refused = call("network", "ring", "--budget", budget)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err


def test_a_graph_file_has_as_many_agents_as_it_names(here: Path) -> None:
    written(here, "0 1\n1 4 500\n", "chain.txt")
    done = call("network", here / "chain.txt")
    assert done.out.splitlines()[0] == "chain, 5 agents"
    assert row(done, "diameter")[1] == "infinite"
    assert row(done, "0") == ["0", "1", "-", "1,", "4"]
    assert call("network", "chain.txt", "--agents", 7).out.splitlines()[0] == "chain, 7 agents"
    refused = call("network", "chain.txt", "--agents", 3)
    assert (refused.code, refused.out) == (2, "")
    assert "has the edge 1 -> 4, but with agents = 3" in refused.err


def test_a_settings_file_shows_its_network_and_options_win(here: Path) -> None:
    written(here, 'agents = 5\nseed = 7\n[network]\ngraph = "tree"\nbudget = 10\n', "fleet.toml")
    done = call("network", "fleet.toml", "--out", "fleet.svg")
    assert (done.code, done.err) == (0, "written to fleet.svg\n")
    assert done.out.splitlines()[0] == "tree, seed 7, 5 agents"
    assert "all edges: 10 floats, every epoch" in (here / "fleet.svg").read_text(encoding="utf-8")
    assert call("network", "fleet.toml", "--agents", 3, "--seed", 1).out.splitlines()[0] == "tree, seed 1, 3 agents"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rign"], 'did you mean "ring"?'),
        (["edges"], "needs network.edges"),
        (["gone.txt"], "no graph file"),
        (["gone.toml"], "no settings file"),
        (["ring", "--out", "ring.png"], "the picture cannot be ring.png; give --out a name that ends in .svg"),
        (["ring", "--out", "gone/ring.svg"], "cannot write gone/ring.svg: there is no folder gone; give --out"),
        (["ring", "--agents", "1001"], "cannot show ring with 1001 agents, only up to 1000"),
        (["ring", "--seed", "4294967296"], "`seed` cannot be 4294967296"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(here: Path, words: list[str], said: str) -> None:
    done = call("network", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not list(here.iterdir())


def test_the_command_does_not_wait_for_torch(here: Path) -> None:
    words = [*command()[:1], "-X", "importtime", *command("network", "tree")[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "networkx" in imported
    assert not {"torch", "polars", "safetensors", "scipy"} & imported


def test_of_a_dense_graph_some_lines_are_drawn_and_the_caption_says_so() -> None:
    network = Network(graph="complete", edges=(Link(sender=3, receiver=9, budget=7),))
    sends = edges(network, 100, 0)
    drawn = picture(sends, 100, "dense")
    assert LINES <= drawn.count("<line ") <= LINES + 2
    assert "of 4,950 lines 1,500 are drawn, by chance" in drawn
    assert "7 floats" in drawn
    assert drawn == picture(sends, 100, "dense")
    assert "by chance" not in picture(edges(Network(graph="complete"), 50, 0), 50, "smaller")
