"""The picture of a graph: where agents lie, and the SVG."""

from collections import Counter
from collections.abc import Sequence
from math import cos, dist, pi, sin, sqrt

import networkx as nx  # type: ignore[import-untyped]

from shoal.files import begins
from shoal.network.edges import Edge, conditions
from shoal.network.facts import size
from shoal.network.svg import plain
from shoal.rng import key

NETWORK = begins('class="network"')  # a picture of ours
GAP = 56.0  # pixels between the middles of two agents in a picture, at least
LINES = 1500  # of a graph that are drawn
RADIUS = 17.0  # of an agent in a picture


def limits(budget: int | str | None, every: int) -> tuple[str, str]:
    """An edge's limits in words."""
    return (
        "unlimited" if budget is None else f"{budget} floats" if isinstance(budget, int) else budget,
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
    title = plain(title)
    usual = Counter(map(words, edges)).most_common(1)[0][0] if edges else ()
    others = any(words(edge) != usual for edge in edges)
    caption = f"{'other edges' if others else 'all edges'}: {', '.join(usual)}" if edges else "no edges"
    drawn, told = sampled(edges, usual)
    caption += told
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
    for edge in drawn:
        back = table.get((edge.receiver, edge.sender))
        both = back is not None and words(back) == words(edge)
        if both and edge.sender > edge.receiver:
            continue
        (x1, y1), (x2, y2) = shorten(places[edge.sender], places[edge.receiver], 0 if back is None or both else 5)
        arrow = "" if both else ' marker-end="url(#arrow)"'
        lines.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{arrow}/>')
        own = [word for word in words(edge) if word not in usual] or list(words(edge)) * (words(edge) != usual)
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
        f"<desc>{agents} agent{'s' * (agents > 1)}, {len(edges)} links; {caption}</desc>",
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


def words(edge: Edge) -> tuple[str, ...]:
    """An edge's limits and conditions in words."""
    return *limits(edge.budget, edge.every), *conditions(edge)


def sampled(edges: Sequence[Edge], usual: tuple[str, ...]) -> tuple[Sequence[Edge], str]:
    """The edges that are drawn, and what is said of it: of a dense graph some, because all would be a solid disc, and
    those with limits of their own."""
    pairs = sorted({(min(edge[:2]), max(edge[:2])) for edge in edges})
    if len(pairs) <= LINES:
        return edges, ""
    chosen = {pairs[at] for at in key(0, "picture").choice(len(pairs), LINES, replace=False)}
    found = [edge for edge in edges if (min(edge[:2]), max(edge[:2])) in chosen or words(edge) != usual]
    return found, f"; of {len(pairs):,} lines {LINES:,} are drawn, by chance"


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
