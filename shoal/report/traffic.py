"""Networks as pictures: who sent how much to whom, and what was refused."""

from collections.abc import Iterable, Iterator, Sequence
from math import atan2, degrees, dist, sqrt
from typing import NamedTuple

import networkx as nx  # type: ignore[import-untyped]
import polars as pl

from shoal.configure.entries import network_kind
from shoal.doors import is_door
from shoal.errors import UserError
from shoal.network.edges import edges
from shoal.network.graphs import DRAWN, is_file
from shoal.network.picture import Point, arrange
from shoal.report.compare import UNSENT, Group, Row
from shoal.report.numbers import ALL, short
from shoal.runs.read import Run
from shoal.units import shown

# A picture of more agents or edges is a solid disc: then so many groups of agents are drawn instead.
MANY, DENSE, GROUPS = 100, 600, 16
Mail = dict[tuple[int, int], Row]  # what was posted on each directed edge
SUMS = ("bytes", "messages", "refused", "lost", "late", "age", "aged")  # `aged`: over how many links ages are summed
NOTHING: Row = {**dict.fromkeys(SUMS, 0.0), "why": None}
LOST = ("lost", "receiver absent")  # verdicts on mail that was paid for and never came


class Picture(NamedTuple):
    """Networks of a group: agents and directed edges in pixels, by run and seed."""

    agents: list[Row]
    edges: list[Row]
    size: int  # agents that are drawn as one


def pictures(group: Group, width: float, height: float) -> Picture:
    """The network of each run that shares: who sent how much to whom, and what was refused.

    Graphs that are drawn anew for every seed have a picture per seed, others one, with the mean over seeds.
    """
    nodes: list[Row] = []
    lines: list[Row] = []
    mails: dict[tuple[str, int | None], Mail] = {}
    pairs: dict[tuple[str, int | None], set[tuple[int, int]]] = {}
    for entry in group.entries:
        run = entry.run
        if not run.modes or "ledger" not in run.tables:
            continue
        graph = run.settings["network"].get("graph")
        ledger, seeds = run.tables["ledger"], sorted(set(run.seeds.tolist()))
        for seed in seeds if graph in DRAWN else [None]:
            of_seed = ledger if seed is None else ledger.filter(pl.col("seed") == seed)
            mails[entry.label, seed] = mail = posted(of_seed, len(seeds) if seed is None else 1, ages(run, seed))
            pairs[entry.label, seed] = linked(run, seeds[0] if seed is None else seed) | mail.keys()
    size = grouping([len(set(entry.run.agents)) for entry in group.entries], list(map(len, pairs.values())))
    mails = {name: joined(mail, size) for name, mail in mails.items()}
    # One scale for all pictures, so that runs can be compared.
    most = max((one["bytes"] for mail in mails.values() for one in mail.values()), default=0.0)
    for entry in group.entries:
        agents = {int(agent) // size for agent in entry.run.agents}
        for seed in (seed for label, seed in mails if label == entry.label):
            there = {(one // size, two // size) for one, two in pairs[entry.label, seed]}
            there = {pair for pair in there if pair[0] != pair[1]}
            places = layout(there, agents, width, height)
            own = {"run": entry.label, "seed": ALL if seed is None else str(seed)}
            nodes += [
                {
                    **own,
                    "agent": group.called(agent) if size == 1 else str(agent * size),
                    "x": short(x, 5),
                    "y": short(y, 5),
                }
                for agent, (x, y) in places.items()
            ]
            drawn = drawn_edges(there, places, mails[entry.label, seed], most)
            last = max(int(agent) for agent in entry.run.agents)
            for line in drawn:
                ends = {end: group.called(line[end]) if size == 1 else named(int(line[end]), size, last)
                        for end in ("sender", "receiver")}  # fmt: skip
                lines.append({**own, **line, **ends})
    return Picture(nodes, lines, size)


def grouping(agents: Sequence[int], edges: Sequence[int]) -> int:
    """How many agents are drawn as one, in pictures of so many agents and edges."""
    few = max(agents, default=0) <= MANY and max(edges, default=0) <= DENSE
    return 1 if few else -(-max(agents) // GROUPS)


def named(group: int, size: int, last: int) -> str:
    """The agents of a group, `20` or `20-29`; the last agent of all is `last`."""
    first, end = group * size, min((group + 1) * size - 1, last)
    return str(first) if first == end else f"{first}-{end}"


def joined(mail: Mail, size: int) -> Mail:
    """What groups of so many agents posted to each other."""
    if size == 1:
        return mail
    found: Mail = {}
    for (sender, receiver), one in mail.items():
        ends = sender // size, receiver // size
        if ends[0] == ends[1]:
            continue
        before = found.get(ends, NOTHING)
        sums = {name: before[name] + one[name] for name in SUMS}
        found[ends] = {**sums, "why": before["why"] or one["why"]}
    return found


def ages(run: Run, seed: int | None) -> dict[tuple[int, int], float]:
    """How old what receivers knew was on average, in epochs, by edge: of a seed, or the mean over all."""
    table = run.tables.get("links")
    if table is None or "age" not in table.columns or not table["age"].dtype.is_numeric():
        return {}
    mine = table if seed is None else table.filter(pl.col("seed") == seed)
    mean = mine.group_by("sender", "receiver").agg(pl.col("age").mean()).drop_nulls().drop_nans()
    return {(sender, receiver): float(age) for sender, receiver, age in mean.iter_rows()}


def posted(ledger: pl.DataFrame, seeds: int, old: dict[tuple[int, int], float]) -> Mail:
    """What was posted on each directed edge: bytes per task, messages per seed, and the age of what its receiver knew.
    Mail that never left costs nothing."""
    sent = ~pl.col("verdict").is_in(UNSENT)
    refused = pl.col("verdict") != "accepted"
    many = pl.col("messages") if "messages" in ledger.columns else pl.lit(1)
    table = ledger.group_by("sender", "receiver").agg(
        ((pl.col("bytes") * sent).sum() / pl.struct("seed", "task").n_unique()).alias("bytes"),
        (sent * many).sum().alias("messages"),
        (refused * many).sum().alias("refused"),
        pl.col("verdict").is_in(LOST).sum().alias("lost"),
        (~refused & (pl.col("late") > 0) if "late" in ledger.columns else pl.lit(False)).sum().alias("late"),
        pl.col("verdict").filter(refused).mode().sort().first().alias("why"),
    )
    return {
        ends: {
            **{name: row[name] / seeds for name in ("messages", "refused", "lost", "late")}, "bytes": row["bytes"],
            "why": row["why"], "age": old.get(ends, 0.0), "aged": float(ends in old),
        }
        for row in table.to_dicts()
        for ends in [(row["sender"], row["receiver"])]
    }  # fmt: skip


def linked(run: Run, seed: int) -> set[tuple[int, int]]:
    """The edges that the settings give a seed, with mail or without; none if this version does not know the graph."""
    try:
        said = run.settings["network"]
        # A run directory holds its edges itself: to show it, no other file is opened, and nobody's code imported.
        if any(is_file(one["graph"]) or is_door(one["graph"]) for one in (said, *said.get("changes", ()))):
            return set()
        kind = network_kind(said)
        network = kind.model_validate({name: value for name, value in said.items() if name in kind.model_fields})
        return {edge[:2] for edge in edges(network, int(run.settings["agents"]), seed)}
    except (UserError, ValueError):
        return set()


def layout(pairs: Iterable[tuple[int, int]], agents: Iterable[int], width: float, height: float) -> dict[int, Point]:
    """Places of agents in a picture of a given size."""
    graph = nx.empty_graph(0)
    graph.add_nodes_from(sorted({int(agent) for agent in agents}))
    graph.add_edges_from(pairs)
    places = arrange(graph)
    (left, right), (top, bottom) = ((min(axis), max(axis)) for axis in zip(*places.values(), strict=True))
    rim = 24.0
    scale = min((width - 2 * rim) / max(right - left, 1e-9), (height - 2 * rim) / max(bottom - top, 1e-9), 2.5)
    across, down = (width - scale * (right - left)) / 2, (height - scale * (bottom - top)) / 2
    return {agent: (across + scale * (x - left), down + scale * (y - top)) for agent, (x, y) in places.items()}


def drawn_edges(pairs: Iterable[tuple[int, int]], places: dict[int, Point], mail: Mail, most: float) -> Iterator[Row]:
    """Edges as lines from rim to rim, as thick as their traffic; there and back lie beside each other."""
    pairs = sorted(pairs)
    both = set(pairs)
    radius = node_radius(len(places))
    thickest = min(4.0, 26 / sqrt(len(both) + 1))  # thinner than the head of an arrow
    for sender, receiver in pairs:
        one = mail.get((sender, receiver), NOTHING)
        (x, y), (x2, y2) = places[sender], places[receiver]
        length = dist((x, y), (x2, y2)) or 1.0
        dx, dy = (x2 - x) / length, (y2 - y) / length
        wide = 0.5 + thickest * one["bytes"] / most if one["bytes"] else 0.8
        aside = radius * 0.27 if (receiver, sender) in both else 0.0
        near, far = radius + 1, radius + 6
        start = x + dx * near - dy * aside, y + dy * near + dx * aside
        end = x2 - dx * far - dy * aside, y2 - dy * far + dx * aside
        yield {
            "sender": str(sender), "receiver": str(receiver),
            "x": short(start[0], 5), "y": short(start[1], 5), "x2": short(end[0], 5), "y2": short(end[1], 5),
            "xm": short((start[0] + end[0]) / 2, 5), "ym": short((start[1] + end[1]) / 2, 5),
            "angle": round(degrees(atan2(dy, dx)) + 90), "width": short(wide, 3), "silent": not one["bytes"],
            "bytes": short(one["bytes"], 6), "sent": shown(one["bytes"]), "messages": short(one["messages"], 4),
            "refused": short(one["refused"], 4), "why": one["why"] or "",
            "lost": short(one["lost"], 4), "late": short(one["late"], 4),
            "age": short(one["age"] / one["aged"], 3) if one["aged"] else None,
        }  # fmt: skip


def node_radius(agents: int) -> float:
    return 15.0 if agents <= 12 else 11.0 if agents <= 30 else 7.0
