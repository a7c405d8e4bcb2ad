"""Who can send to whom: graphs by name or from a file, as directed edges with limits; their facts and their picture."""

import difflib
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import cos, dist, pi, sin, sqrt
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import ParseError, fromstring

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from shoal import svg
from shoal.config import Link, Network
from shoal.errors import SettingsError
from shoal.part import Budget
from shoal.rng import key

WHOLE = re.compile("[0-9]{1,18}")
LINE = "a line is SENDER RECEIVER [BUDGET|unlimited [EVERY]], e.g. `0 1` or `0 1 5000 10`"
GAP = 56.0  # pixels between the middles of two agents in a picture, at least
RADIUS = 17.0  # of an agent in a picture


class Edge(NamedTuple):
    """A directed connection: what `sender` posts reaches `receiver`, so much and so often."""

    sender: int
    receiver: int
    budget: int | None  # floats per exchange; None: unlimited
    every: int  # epochs between two exchanges, at least


def tree(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """One of the n^(n - 2) labelled trees, each as likely as any other: a tree is its Prüfer sequence."""
    if n == 1:
        return nx.empty_graph(1)
    return nx.from_prufer_sequence(generator.integers(n, size=n - 2).tolist())


def random(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """G(n, p): each pair with chance p, maybe in several components.

    Each pair has one number whatever p is: a seed's graph with a lower p is a part of its graph with a higher one.
    """
    senders, receivers = np.triu_indices(n, 1)
    there = generator.random(len(senders)) < p
    graph = nx.empty_graph(n)
    graph.add_edges_from(zip(senders[there].tolist(), receivers[there].tolist(), strict=True))
    return graph


def connected(n: int, p: float, generator: np.random.Generator) -> nx.Graph:
    """The seed's random tree, and each other pair with chance p."""
    return nx.compose(tree(n, p, generator), random(n, p, generator))


# Undirected: each line becomes two edges. Called with the number of agents, p and the seed's generator.
GRAPHS: dict[str, Callable[[int, float, np.random.Generator], nx.Graph]] = {
    "complete": lambda n, p, generator: nx.complete_graph(n),
    "ring": lambda n, p, generator: nx.cycle_graph(n) if n > 1 else nx.empty_graph(n),  # networkx would loop one agent
    "server": lambda n, p, generator: nx.star_graph(n - 1),  # the hub, agent 0, learns like any other
    "tree": tree,
    "random": random,
    "connected": connected,
    "disconnected": lambda n, p, generator: nx.empty_graph(n),
}
DRAWN = ("tree", "random", "connected")  # differ from seed to seed


def edges(network: Network, agents: int, seed: int) -> tuple[Edge, ...]:
    """The directed edges of one seed's fleet, sorted by receiver, then sender.

    In a named graph, `network.edges` give single edges limits of their own. A graph that is drawn may have such an edge
    in one seed and not in another; in a graph that is fixed, an edge that is not there is an error.
    """
    where = network.graph if is_file(network.graph) else "network.edges"
    network = settle(network)
    named = network.graph in GRAPHS
    distinct(network.edges, where)
    own = {(link.sender, link.receiver): link for link in network.edges}
    if own and max(map(max, own)) >= agents:
        sender, receiver = max(own, key=max)
        raise SettingsError(
            f"{where} has the edge {sender} -> {receiver}, but with agents = {agents} the last agent is {agents - 1}; "
            f"set agents = {max(sender, receiver) + 1} or more, or take the edge out"
        )
    pairs = set(own)
    if named:
        graph = GRAPHS[network.graph](agents, network.p, key(seed, "graph"))
        pairs = {pair for u, v in graph.edges for pair in ((u, v), (v, u))}
        if network.graph not in DRAWN and (strange := sorted(own.keys() - pairs)):
            sender, receiver = strange[0]
            raise SettingsError(
                f'network.edges has limits for {sender} -> {receiver}, an edge that network.graph = "{network.graph}" '
                f'with {agents} agents does not have; take it out, or set graph = "edges" and list all edges'
            )
    result = []
    for sender, receiver in sorted(pairs, key=lambda pair: pair[::-1]):
        link = own.get((sender, receiver))
        budget = network.budget if link is None or link.budget is None else link.budget
        every = network.every if link is None or link.every is None else link.every
        result.append(Edge(sender, receiver, None if budget == "unlimited" else budget, every))
    return tuple(result)


def settle(network: Network) -> Network:
    """The network as a list of edges, if its graph is a file: settings that need no file any more.

    `network.edges` beside a file give single edges of it limits of their own, as in a named graph.
    """
    if network.graph in GRAPHS:
        return network
    if network.graph == "edges":
        if not network.edges:
            raise SettingsError(
                'network.graph = "edges" needs network.edges, which is empty; list edges such as '
                '{ sender = 0, receiver = 1 }, or set graph = "disconnected"'
            )
        return network
    if not is_file(network.graph):
        names = [*GRAPHS, "edges"]
        close = difflib.get_close_matches(network.graph, names, n=1)
        mean = f'did you mean "{close[0]}"? ' if close else ""
        raise SettingsError(
            f'network.graph cannot be "{network.graph}"; {mean}allowed: {", ".join(names)}, '
            "or a graph file, with a dot or a slash in its name (./FILE)"
        )
    links = {(link.sender, link.receiver): link for link in read(Path(network.graph))}
    for own in network.edges:
        ends = own.sender, own.receiver
        if ends not in links:
            raise SettingsError(
                f"network.edges has limits for {own.sender} -> {own.receiver}, an edge that {network.graph} does not "
                "have; take it out, or add it to the file"
            )
        said = own.model_dump(exclude_none=True)
        links[ends] = links[ends].model_copy(update=said)
    return network.model_copy(update={"graph": "edges", "edges": tuple(links.values())})


def is_file(graph: str) -> bool:
    """Does a graph's name mean a file? A bare word never does: a typo would otherwise pass for one."""
    return graph not in GRAPHS and bool(set(graph) & set("./\\"))


def read(file: Path) -> tuple[Link, ...]:
    """The edges of a graph file: GraphML if it ends in .graphml or .xml, else an edge list."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise SettingsError(f"no graph file {file.absolute()}; graphs by name: {', '.join(GRAPHS)}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"cannot read {file}: {why}; give an edge list or a GraphML file") from None
    links = graphml(content, file) if file.suffix.lower() in (".graphml", ".xml") else edge_list(content, file)
    if not links:
        raise SettingsError(f'{file} has no edges; for agents without any, set graph = "disconnected"')
    distinct(links, str(file))
    return links


def edge_list(content: bytes, file: Path) -> tuple[Link, ...]:
    """The edges of a text with one on each line, `SENDER RECEIVER [BUDGET|unlimited [EVERY]]`; # starts a comment."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError(f"cannot read {file} as an edge list: byte {error.start} is not UTF-8; {LINE}") from None
    links = []
    for at, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"cannot use line {at} of {file}, `{line.strip()}`"
        if not 2 <= len(words) <= 4:
            raise SettingsError(f"{where}: it has {len(words)} word{'s' * (len(words) > 1)}; {LINE}")
        for word in words[:2]:
            if not WHOLE.fullmatch(word):
                raise SettingsError(f"{where}: an agent is a whole number from 0, got `{word}`; {LINE}")
        links.append(limited(int(words[0]), int(words[1]), words[2:3], words[3:], where))
    return tuple(links)


def graphml(content: bytes, file: Path) -> tuple[Link, ...]:
    """The edges of a GraphML text; an undirected one has each in both directions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ports, which networkx leaves out, do not change who is connected
            graph = nx.read_graphml(io.BytesIO(content))
        there = sum(element.tag.rpartition("}")[2] == "edge" for element in fromstring(content).iter())
    # Besides its own errors, networkx lets through what its parser and conversions raise.
    except (nx.NetworkXException, ParseError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise SettingsError(
            f"cannot read {file} as GraphML: {why}; mend it, or write an edge list, where {LINE}"
        ) from None
    # networkx reads the first graph of a file, not what is nested in it, and joins edges of one id.
    if graph.number_of_edges() < there:
        raise SettingsError(
            f"cannot use {file}: {there - graph.number_of_edges()} of {there} edges are in another or an inner graph, "
            "or have the id of another edge; give one flat graph with different ids"
        )
    agents: dict[str, int] = {}
    nodes: dict[int, str] = {}
    for node in graph.nodes:
        if not WHOLE.fullmatch(node.removeprefix("n")):
            raise SettingsError(
                f"cannot use {file}: a node's id must be an agent's number such as `3` or `n3`, got `{node}`; "
                "rename the node"
            )
        agents[node] = int(node.removeprefix("n"))
        if (other := nodes.setdefault(agents[node], node)) != node:
            raise SettingsError(
                f"cannot use {file}: nodes `{other}` and `{node}` are both agent {agents[node]}; rename one"
            )
    defaults = graph.graph.get("edge_default", {})  # networkx does not give them to the edges
    links = []
    for source, target, said in graph.edges(data=True):
        attributes = {**defaults, **said}
        where = f"cannot use edge {source} -> {target} of {file}"
        words = [[plain(attributes[name])] if name in attributes else [] for name in ("budget", "every")]
        ways = [(source, target)] if graph.is_directed() else [(source, target), (target, source)]
        links += [limited(agents[one], agents[two], words[0], words[1], where) for one, two in ways]
    return tuple(links)


def plain(value: object) -> str:
    """A GraphML value as a word; many tools write every number as a double, `5.0`."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def limited(sender: int, receiver: int, budgets: Sequence[str], everys: Sequence[str], where: str) -> Link:
    """A link with the limits that a file says, none or one word each."""
    budget: Budget | None = None
    for word in budgets:
        if word != "unlimited" and not WHOLE.fullmatch(word):
            raise SettingsError(f"{where}: a budget is a whole number of floats from 0, or unlimited, got `{word}`")
        budget = "unlimited" if word == "unlimited" else int(word)
    for word in everys:
        if not WHOLE.fullmatch(word) or not int(word):
            raise SettingsError(f"{where}: the epochs between exchanges are a whole number from 1, got `{word}`")
    return Link(sender=sender, receiver=receiver, budget=budget, every=int(everys[0]) if everys else None)


def distinct(links: Iterable[Link], where: str) -> None:
    """Raise for an edge from an agent to itself, and for one that is there twice."""
    seen = set()
    for link in links:
        name = f"{where} has the edge {link.sender} -> {link.receiver}"
        if link.sender == link.receiver:
            raise SettingsError(f"{name}, but an agent sends nothing to itself; take the edge out")
        if (link.sender, link.receiver) in seen:
            raise SettingsError(f"{name} twice; keep one of the two")
        seen.add((link.sender, link.receiver))


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


def spans(numbers: Iterable[int]) -> str:
    """Numbers in few words, `0-3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def limits(budget: int | None, every: int) -> tuple[str, str]:
    """An edge's limits in words."""
    return (
        "unlimited" if budget is None else f"{budget} floats",
        f"every {every} epochs" if every > 1 else "every epoch",
    )


# Plain colours, no CSS variables: not every program that shows an SVG knows those.
STYLE = """
.network { background: #ffffff; font: 14px system-ui, sans-serif; }
.network .back { fill: #ffffff; }
.network line { stroke: #7b8494; stroke-width: 1.5; }
.network path { fill: #7b8494; }
.network circle { fill: #1d4ed8; }
.network text { fill: #1f2937; text-anchor: middle; }
.network .number { fill: #ffffff; font-weight: 600; }
.network .limit { font-size: 11px; }
.network .halo { stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  .network { background: #111827; }
  .network .back { fill: #111827; }
  .network line { stroke: #8b94a5; }
  .network path { fill: #8b94a5; }
  .network circle { fill: #93c5fd; }
  .network text { fill: #e5e7eb; }
  .network .number { fill: #111827; }
  .network .halo { stroke: #111827; }
}
"""


def picture(edges: Sequence[Edge], agents: int, title: str) -> str:
    """The graph as an SVG that needs nothing else, for light and dark pages.

    A plain line is a pair of edges with the same limits; an arrow is an edge of one direction. The limits that most
    edges have stand below the graph, others at their edge.
    """
    title = svg.plain(title)
    usual = Counter(edge[2:] for edge in edges).most_common(1)[0][0] if edges else (None, 1)
    others = any(edge[2:] != usual for edge in edges)
    caption = f"{'other edges' if others else 'all edges'}: {', '.join(limits(*usual))}" if edges else "no edges"
    graph = nx.empty_graph(agents)
    graph.add_edges_from(edge[:2] for edge in edges)
    room = 1.7 if others else 1.0  # for what stands at the edges
    places = {agent: (x * room, y * room) for agent, (x, y) in arrange(graph).items()}
    width = max(max(x for x, _ in places.values()) + GAP, 8.0 * max(len(title), len(caption)))
    left = (width - max(x for x, _ in places.values()) - GAP) / 2
    places = {agent: (x + left, y + 36) for agent, (x, y) in places.items()}
    bottom = max(y for _, y in places.values()) + GAP
    lines, labels = [], []
    table = {edge[:2]: edge for edge in edges}
    for edge in edges:
        back = table.get((edge.receiver, edge.sender))
        both = back is not None and back[2:] == edge[2:]
        if both and edge.sender > edge.receiver:
            continue
        (x1, y1), (x2, y2) = shorten(places[edge.sender], places[edge.receiver], 0 if back is None or both else 5)
        arrow = "" if both else ' marker-end="url(#arrow)"'
        lines.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{arrow}/>')
        own = [word for word, one, most in zip(limits(*edge[2:]), edge[2:], usual, strict=True) if one != most]
        pair = back is not None and not both  # two arrows beside each other: their labels say which, and do not meet
        share = 0.68 if pair else 0.5
        x, y = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share + 4
        text = f"{edge.sender} → {edge.receiver}: " * pair + ", ".join(own)
        if own:  # twice: the first is wider, in the background's colour, and cuts the line
            labels += [f'<text class="limit{halo}" x="{x:.1f}" y="{y:.1f}">{text}</text>' for halo in (" halo", "")]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="network" role="img" width="{width:.0f}" '
        f'height="{bottom + 12:.0f}" viewBox="0 0 {width:.0f} {bottom + 12:.0f}">',
        f"<title>{title}</title>",
        f"<desc>{agents} agent{'s' * (agents > 1)}, {len(edges)} directed edges; {caption}</desc>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 10 5 0 10z"/></marker></defs>',
        '<rect class="back" width="100%" height="100%"/>',
        f'<text x="{width / 2:.1f}" y="24">{title}</text>',
        *lines,
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:.0f}"/>' for x, y in places.values()),
        *(f'<text class="number" x="{x:.1f}" y="{y + 5:.1f}">{agent}</text>' for agent, (x, y) in places.items()),
        *labels,
        f'<text x="{width / 2:.1f}" y="{bottom - 2:.1f}">{caption}</text>',
        "</svg>",
        "",
    ])  # fmt: skip


Point = tuple[float, float]


def shorten(start: Point, end: Point, aside: float) -> tuple[Point, Point]:
    """A line from rim to rim of two agents, moved aside."""
    length = dist(start, end)
    dx, dy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    rim, x, y = RADIUS + 2, -dy * aside, dx * aside
    return (start[0] + dx * rim + x, start[1] + dy * rim + y), (end[0] - dx * rim + x, end[1] - dy * rim + y)


def arrange(graph: nx.Graph) -> dict[int, Point]:
    """Places in pixels, GAP from all sides: components beside each other, the largest first, in rows."""
    shapes = [shape(graph.subgraph(part)) for part in sorted(nx.connected_components(graph), key=size)]
    boxes = [tuple(max(axis) - min(axis) + GAP for axis in zip(*places.values(), strict=True)) for places in shapes]
    widest = max(max(width for width, _ in boxes), 1.3 * sqrt(sum(width * height for width, height in boxes)))
    result: dict[int, Point] = {}
    right = top = tall = 0.0
    for places, (width, height) in zip(shapes, boxes, strict=True):
        if right + width > widest:
            right, top, tall = 0.0, top + tall, 0.0
        x, y = (min(axis) - GAP / 2 for axis in zip(*places.values(), strict=True))
        result |= {agent: (a - x + right + GAP / 2, b - y + top + GAP / 2) for agent, (a, b) in places.items()}
        right, tall = right + width, max(tall, height)
    return dict(sorted(result.items()))


def shape(graph: nx.Graph) -> dict[int, Point]:
    """Places of a connected graph: trees from their middle, rings and complete ones on a circle, others by springs."""
    n, lines = len(graph), graph.number_of_edges()
    if n > 2 and lines == n - 1:
        return branches(graph)
    ring = all(degree == 2 for _, degree in graph.degree)
    if not ring and lines < n * (n - 1) / 2 and n < 500:  # from 500 on, networkx needs scipy for springs
        places = nx.spring_layout(graph, iterations=300, seed=0)
        points = list(places.values())
        nearest = min(dist(one, two) for at, one in enumerate(points) for two in points[:at])
        if nearest * sqrt(n) > 0.35:  # else agents lie on each other
            scale = max(GAP * sqrt(n), 2.5 * RADIUS / nearest)
            return {agent: (scale * float(x), scale * float(y)) for agent, (x, y) in places.items()}
    return circle(list(nx.dfs_preorder_nodes(graph, min(graph))) if ring else sorted(graph))


def circle(agents: Sequence[int]) -> dict[int, Point]:
    """Places on a circle, from the top; two are level, and one is the middle."""
    n = len(agents)
    radius, top = 1.5 * GAP * max(n, 5) / (2 * pi) if n > 1 else 0, pi if n == 2 else -pi / 2
    angles = [top + 2 * pi * at / n for at in range(n)]
    return {agent: (radius * cos(angle), radius * sin(angle)) for agent, angle in zip(agents, angles, strict=True)}


def branches(graph: nx.Graph) -> dict[int, Point]:
    """Places of a tree: a star around its hub, any other downwards from its centre, a column for each leaf."""
    root = min(nx.center(graph))
    if graph.degree[root] == len(graph) - 1:
        return {root: (0.0, 0.0), **circle(sorted(graph[root]))}
    down = nx.bfs_tree(graph, root)
    depth: dict[int, int] = nx.shortest_path_length(down, root)
    leaves: dict[int, int] = {}
    for node in reversed(list(depth)):  # breadth first: children stand behind their parent
        leaves[node] = sum(leaves[child] for child in down[node]) or 1
    column = {root: 0}
    for node in depth:
        right = column[node]
        for child in down[node]:
            column[child], right = right, right + leaves[child]
    return {node: ((column[node] + leaves[node] / 2) * GAP, depth[node] * 1.25 * GAP) for node in depth}
