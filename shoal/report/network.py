"""The chart of a network: who sent how much to whom."""

from typing import Any

import altair as alt

from shoal.report import traffic
from shoal.report.compare import Group
from shoal.report.figure import Figure, Switch, runs_switch
from shoal.report.numbers import ALL
from shoal.report.style import Style, finish, rows
from shoal.units import shown

WIDTH, HEIGHT = 460, 400  # of a picture of a network, in pixels
HEAD = "M0-1L.8.9L0 .5L-.8.9Z"  # of an arrow that points up


def network(group: Group, style: Style) -> Figure | None:
    """Who sent how much to whom."""
    picture = traffic.pictures(group, WIDTH, HEIGHT)
    if not picture.agents:
        return None
    tables, named = {"edges": picture.edges, "agents": picture.agents}, group.named and picture.size == 1
    switch = runs_switch(picture.agents, group)
    switches = [switch]
    seeds = sorted({row["seed"] for row in picture.agents} - {ALL}, key=int)
    if seeds:  # a run with one graph for all seeds answers to every choice
        switches.append(Switch("seed", "Seed", tuple((seed, f"seed {seed}") for seed in seeds)))
    chart: Any = graph(style, picture, "edges", "agents", named)
    if not style.page:  # rows of two kinds cannot be a facet: a chart per run, each with its own
        drawn = (ALL, *seeds[:1])
        parts = []
        for at, (name, _) in enumerate(switch.options):
            for kind in ("edges", "agents"):
                here = [row for row in tables[kind] if row["run"] == name and row["seed"] in drawn]
                tables[f"{kind}{at}"] = here
            parts.append(graph(style, picture, f"edges{at}", f"agents{at}", named).properties(title=name))
        chart = alt.concat(*parts, columns=min(3, len(parts)))
    first = [row for row in picture.edges if row["run"] == switch.first]
    most = max((row["bytes"] for row in picture.edges), default=0.0)
    number = sum(row["refused"] > 0 for row in picture.edges)
    return Figure(
        "network",
        "The network",
        "Arrows go from sender to receiver, as thick as what they carried in a task (mean over seeds, unless "
        f"the graph is drawn anew for each); the thickest of all runs carried {shown(most)}. "
        + ("A cross, in orange, marks an edge on which mail was refused. " if number else "No mail was refused. ")
        + "Dotted edges carried nothing. " * any(row["silent"] for row in picture.edges)
        + f"A circle is {picture.size} agents, numbered from the one in it on, because there is no room for each; what "
        "they sent to each other is not drawn." * (picture.size > 1),
        f"Graph of {switch.first}: {len(first)} links, the busiest with "
        f"{shown(max((row['bytes'] for row in first), default=0))} per task; edges with refused mail: "
        f"{sum(row['refused'] > 0 for row in first)}.",
        finish(chart, style),
        tables,
        tuple(switches),
        (("sender", "from agent"), ("receiver", "to agent"), ("sent", "sent per task"), ("messages", "messages sent"),
         ("refused", "refused"), ("lost", "of them lost"), ("late", "came late"), ("why", "most often for"),
         ("age", "age of what is known, epochs")),
        table="edges",
        fixed=True,
    )  # fmt: skip


def graph(style: Style, picture: traffic.Picture, edge_rows: str, agent_rows: str, named: bool) -> Any:
    """A picture of one network, at places in pixels."""
    flat: dict[str, Any] = {"scale": None, "axis": None}
    radius = traffic.node_radius(len({row["agent"] for row in picture.agents}))
    tips = [
        alt.Tooltip("sender:N", title="from agent"),
        alt.Tooltip("receiver:N", title="to agent"),
        alt.Tooltip("sent:N", title="sent per task"),
        alt.Tooltip("messages:Q", title="messages sent", format=",.5~g"),
        alt.Tooltip("refused:Q", title="refused", format=",.5~g"),
        alt.Tooltip("lost:Q", title="of them lost", format=",.5~g"),
        alt.Tooltip("late:Q", title="came late", format=",.5~g"),
        alt.Tooltip("why:N", title="most often for"),
        alt.Tooltip("age:Q", title="age of what is known, epochs", format=".3~g"),
    ]
    tint = alt.condition(alt.datum.refused > 0, alt.value(style.colour("given")), alt.value(style.colour("good")))
    edges = alt.Chart(rows(edge_rows))
    lines = edges.mark_rule(opacity=0.6).encode(
        x=alt.X("x:Q", **flat), y=alt.Y("y:Q", **flat), x2="x2:Q", y2="y2:Q", color=tint, tooltip=tips,
        strokeWidth=alt.StrokeWidth("width:Q", scale=None),
        strokeDash=alt.condition(alt.datum.silent, alt.value([2, 3]), alt.value([1, 0])),
    )  # fmt: skip
    heads = edges.mark_point(shape=HEAD, filled=True, opacity=1, size=radius * 7).encode(
        x=alt.X("x2:Q", **flat), y=alt.Y("y2:Q", **flat), angle=alt.Angle("angle:Q", scale=None), color=tint,
        tooltip=tips,
    )  # fmt: skip
    crosses = (
        edges.transform_filter("datum.refused > 0")
        .mark_point(shape="M-1-1L1 1M-1 1L1 -1", size=60, strokeWidth=2, opacity=1, color=style.colour("given"))
        .encode(x=alt.X("xm:Q", **flat), y=alt.Y("ym:Q", **flat), tooltip=tips)
    )
    agents = alt.Chart(rows(agent_rows)).encode(x=alt.X("x:Q", **flat), y=alt.Y("y:Q", **flat))
    nodes = agents.mark_circle(size=3.14 * radius**2, opacity=1, color=style.colour("ink"))
    size = 12 if radius > 14 else 9 if radius > 10 else 6
    if named:  # a name has no room in its circle, and stands where no line comes: above those above, below the others
        away = alt.ExprRef(f"datum.y < {HEIGHT / 2} ? {-radius - 8} : {radius + 8}")
        names = agents.mark_text(color=style.colour("ink"), fontSize=max(size - 1, 8), dy=away)
    else:
        names = agents.mark_text(color=style.colour("paper"), fontWeight="bold", fontSize=size)
    names = names.encode(text="agent:N")
    return alt.layer(lines, heads, crosses, nodes, names).properties(width=WIDTH, height=HEIGHT)
