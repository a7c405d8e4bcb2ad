"""Small tables as charts. A figure is a Vega-Lite chart, its rows, and the switches that choose among them.

The same figures go into the page, where switches choose rows and colours are CSS variables (so that light and dark need
no second drawing), and into files, where a switch over runs becomes a small multiple and colours are plain.
"""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

import altair as alt

from shoal.report import network, numbers, times
from shoal.report.compare import Group, Row
from shoal.report.figure import Figure, Switch, agents_switch, runs_switch
from shoal.report.numbers import ALL, DROPPED, GIVEN, HOME, LEVEL, MORE
from shoal.report.style import BYTES, Style, finish, look, rows, size, upright


def figures(group: Group, style: Style) -> list[Figure]:
    """All figures of a group, those that have nothing to show left out."""
    found = [
        learning(group, style),
        matrix(group, style),
        None if style.page else matrix(group, style, MORE),
        network.network(group, style),
        cost(group, style, "final"),
        cost(group, style, "auc"),
        times.spending(group, style),
        times.timeline(group, style),
        growth(group, style),
        origin(group, style),
    ]
    return [figure for figure in found if figure is not None]


def learning(group: Group, style: Style) -> Figure | None:
    """Learning curves with bands."""
    table = numbers.curves(group)
    if not table:
        return None
    names = [entry.label for entry in group.entries]
    colour, dash, shape = look(style, names)
    x = alt.X(
        "epoch:Q",
        title="epochs within a task",
        axis=alt.Axis(grid=False, tickCount=6, tickMinStep=1),
        scale=alt.Scale(nice=False),
    )
    title, scale = "mean test accuracy over the tasks so far, %", alt.Scale(zero=False, nice=True)
    y = alt.Y("mean:Q", title=title, scale=scale, axis=upright())
    tips = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("epoch:Q", title="epoch"),
        alt.Tooltip("mean:Q", title="accuracy, %", format=".2f"),
        alt.Tooltip("low:Q", title="mean - error", format=".2f"),
        alt.Tooltip("high:Q", title="mean + error", format=".2f"),
    ]
    base = alt.Chart(rows())
    band = base.mark_area(opacity=0.1, strokeWidth=0).encode(
        x=x, y=alt.Y("low:Q", title=title, scale=scale, axis=upright()), y2="high:Q", color=colour
    )
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash)
    point = base.mark_point(size=46, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips)
    chart = alt.layer(band, line, point).properties(**size(style, 340))
    tasks = sorted({row["task"] for row in table} - {ALL}, key=int)
    options = tuple((task, f"while learning task {task}") for task in tasks)
    if any(row["task"] == ALL for row in table):
        options = ((ALL, f"mean of tasks {tasks[0]} to {tasks[-1]}" if len(tasks) > 1 else "all"), *options)
    first = {"agent": ALL, "task": options[0][0]}
    ends = {row["run"]: row["mean"] for row in table if all(row[key] == value for key, value in first.items())}
    last = ", ".join(f"{name} {value:.2f} %" for name, value in ends.items())
    some = any(row["low"] is not None for row in table)
    part = [entry.label for entry in group.entries if not entry.run.complete and entry.run.done > entry.run.initial]
    return Figure(
        "learning-curves",
        "Learning curves",
        "Mean test accuracy over all tasks so far, while a task after the initial ones is being learned: 0 is before "
        "any training on it, the last point is after all of it. "
        + ("Bands: ± one standard error over seeds." if some else "There is one seed, so there are no bands.")
        + f" Not finished, so with lines for single tasks only: {'; '.join(part)}."
        * bool(part and options[0][0] == ALL),
        f"Lines of mean test accuracy over epochs within a task, one per run. At the end: {last}.",
        finish(chart, style),
        {"rows": table},
        (runs_switch(table, group, many=True), agents_switch(table, group), Switch("task", "Task", options)),
        (
            ("run", "run"),
            ("epoch", "epoch"),
            ("mean", "accuracy, %"),
            ("low", "mean - error"),
            ("high", "mean + error"),
        ),
        wide=True,
    )


def matrix(group: Group, style: Style, only: str = LEVEL) -> Figure | None:
    """Accuracy of every task over time, as a heat map; in a page with its gains, in files one of the two."""
    table = numbers.matrices(group)
    if not any(row["show"] == only for row in table):
        return None
    count = max(row["task"] for row in table)
    initial = group.entries[0].run.initial
    level = [row for row in table if row["agent"] == ALL and row["show"] == LEVEL]
    # Before the initial tasks are learned all is chance, which would take all the colours there are.
    later = [row["mean"] for row in level if row["task"] >= initial] or [row["mean"] for row in level]
    low, high = min(later), max(max(later), min(later) + 1)
    most = max((abs(row["mean"]) for row in table if row["show"] == MORE and row["agent"] == ALL), default=0.0) or 1.0
    ticks = alt.Axis(labelAngle=0, domain=False, ticks=False, orient="top" if style.page else "bottom")
    domain = list(range(1, count + 1))
    x = alt.X("task:O", title="at the end of task", axis=ticks, scale=alt.Scale(domain=domain))
    side = alt.Axis(domain=False, ticks=False, title="tested on task")
    y = alt.Y("tested:O", axis=side, scale=alt.Scale(domain=domain))
    tips = [
        alt.Tooltip("task:O", title="at the end of task"),
        alt.Tooltip("tested:O", title="tested on task"),
        alt.Tooltip("show:N", title="shown"),
        alt.Tooltip("mean:Q", title="%, or points", format=".2f"),
    ]
    legend = (
        alt.Legend(title="%" if only == LEVEL else "points", gradientLength=200, gradientThickness=10)
        if not style.page
        else None
    )
    base = alt.Chart(rows()).encode(x=x, y=y)
    scales = {
        LEVEL: alt.Scale(scheme="viridis", domain=[low, high], clamp=True),
        MORE: alt.Scale(scheme="blueorange", reverse=True, domain=[-most, most], domainMid=0, clamp=True),
    }
    dark = {
        LEVEL: f"datum.mean <= {low + 0.55 * (high - low):.6g}",
        MORE: f"abs(datum.mean) > {0.7 * most:.6g}",
    }
    digits = {LEVEL: ".1f" if count <= 10 else ".0f", MORE: "+.1f"}
    layers = []
    for show, scale in scales.items() if style.page else [(only, scales[only])]:
        part = base.transform_filter(f"datum.show == '{show}'")
        layers.append(
            part.mark_rect(cornerRadius=2, stroke=style.colour("paper"), strokeWidth=1.5).encode(
                color=alt.Color("mean:Q", scale=scale, legend=legend), tooltip=tips
            )
        )
        if count <= 20:
            layers.append(
                part.mark_text(fontSize=11 if count <= 12 else 8, fontWeight=500).encode(
                    text=alt.Text("mean:Q", format=digits[show]),
                    color=alt.condition(dark[show], alt.value("#ffffff"), alt.value("#101418")),
                )
            )
    chart: Any = alt.layer(*layers)
    if style.page:
        chart = chart.resolve_scale(color="independent").properties(**size(style, 380))
    else:
        table = [row for row in table if row["show"] == only]
        chart = facet(chart.properties(width=260, height=230), group, table)
    switch = runs_switch(table, group)
    first = [row for row in level if row["run"] == switch.first]
    shows = tuple((show, show) for show in (LEVEL, MORE) if any(row["show"] == show for row in table))
    end = [row["mean"] for row in first if row["task"] == max(row["task"] for row in first)]
    return Figure(
        "accuracy-matrix" if only == LEVEL else "gain-matrix",
        "Accuracy of every task over time" if only == LEVEL else "Gain over the baseline, task by task",
        "A column is a moment, the end of a task; a row is a task that is tested then. A row that gets darker to the "
        "right is a task that is being forgotten. Brighter is better. "
        + "Gains: blue is more than the baseline, orange less; a baseline has none. " * (len(shows) > 1)
        + (f"Tasks 1 to {initial} are learned together, at the end of task {initial}." if initial > 1 else ""),
        f"Heat map of test accuracy, tested task by time. At the end of {switch.first}: tasks from "
        f"{min(end):.1f} to {max(end):.1f} %.",
        finish(chart, style),
        {"rows": table},
        (switch, agents_switch(table, group), Switch("show", "Show", shows)),
        (("task", "at the end of task"), ("tested", "tested on task"), ("mean", "%, or points")),
    )


def facet(chart: Any, group: Group, table: Sequence[Row]) -> Any:
    """A small multiple over runs, for files."""
    names = [value for value, _ in runs_switch(table, group).options]
    for part in (chart, *(chart.layer if isinstance(chart, alt.LayerChart) else ())):
        part.data = alt.Undefined  # else it would be drawn whole in every panel
    return chart.facet(
        data=rows(), facet=alt.Facet("run:N", sort=names, header=alt.Header(title=None)), columns=min(3, len(names))
    )


PAID = "sent per link and task"
SCORES = {"final": ("final accuracy", "final accuracy, %"), "auc": ("AUC", "AUC, % of its maximum")}


def cost(group: Group, style: Style, name: str) -> Figure | None:
    """A score against what it cost, with the Pareto front."""
    table = numbers.costs(group, name)
    if len(table) < 2 or not any(row["sent"] for row in table):
        return None
    best = numbers.front(table)
    word, unit = SCORES[name]
    colour, _, shape = look(style, [entry.label for entry in group.complete])
    sent = [row["sent"] for row in table if row["sent"]]
    right = max(sent)
    scale, axis = alt.Scale(zero=True, domainMax=1.05 * right), alt.Axis(grid=False, tickCount=6, labelExpr=BYTES)
    if max(sent) > 40 * min(sent):  # its own ticks would all be at the dear end, on each other
        scale = alt.Scale(type="symlog", constant=min(sent) / 2, domainMax=1.3 * right)
        axis = alt.Axis(grid=False, values=decades(min(sent), max(sent)), labelExpr=BYTES, labelOverlap="greedy")
    x = alt.X("sent:Q", title=PAID, scale=scale, axis=axis)
    height = alt.Scale(zero=False, nice=True)
    y = alt.Y("mean:Q", title=unit, scale=height, axis=upright())
    tips = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("mean:Q", title=unit, format=".2f"),
        alt.Tooltip("low:Q", title="mean - error", format=".2f"),
        alt.Tooltip("high:Q", title="mean + error", format=".2f"),
        alt.Tooltip("said:N", title=PAID),
    ]
    # The front goes on to the right edge: whoever pays more and gets less is below it.
    line = [{"sent": row["sent"], "mean": row["mean"]} for row in best] + [{"sent": right, "mean": best[-1]["mean"]}]
    steps = alt.Chart(rows("front")).mark_line(
        interpolate="step-after", strokeWidth=1.5, strokeDash=[5, 4], color=style.colour("ink"), opacity=0.55
    ).encode(x=x, y=y)  # fmt: skip
    base = alt.Chart(rows())
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(
        x=x, y=alt.Y("low:Q", title=unit, scale=height, axis=upright()), y2="high:Q", color=colour
    )
    # Hollow, because runs of one cost and accuracy lie on each other, and no point may leave its place.
    points = base.mark_point(size=110, strokeWidth=2, opacity=1).encode(
        x=x, y=y, color=colour, shape=shape, tooltip=tips
    )
    chart = alt.layer(steps, bars, points).properties(**size(style, 300, 460))
    names = "; ".join(f"{row['run']} ({row['mean']:.2f} % for {row['said']})" for row in best)
    same = "; ".join(" and ".join(part) for part in numbers.together(table))
    return Figure(
        f"{name}-against-bytes",
        f"{word[0].upper()}{word[1:]} against bytes on the wire",
        "Up and left is better. The dashed line is the Pareto front: no run beats those on it for as much or less. "
        "Bars: ± one standard error over seeds." + f" (Nearly) on each other: {same}." * bool(same),
        f"Points of {word} over bytes sent per link and task. On the Pareto front: {names}.",
        finish(chart, style),
        {"rows": table, "front": line},
        (runs_switch(table, group, many=True),),
        (("run", "run"), ("said", PAID), ("mean", unit), ("low", "mean - error"), ("high", "mean + error")),
    )


def decades(low: float, high: float) -> list[float]:
    """Ticks of an axis that is nearly logarithmic: 0, then 1, 2, 5, 10, 20, ..."""
    steps = (step * 10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1) for step in (1, 2, 5))
    return [0.0, *(step for step in steps if low / 2 <= step <= high)]


def growth(group: Group, style: Style) -> Figure | None:
    """When modules were added."""
    table = numbers.grown(group)
    if not table:
        return None
    known = bool(numbers.origins(group))
    names = [HOME, GIVEN, DROPPED] if known else [HOME, DROPPED]
    colours = {HOME: style.colour("good"), GIVEN: style.colour("given"), DROPPED: style.colour("none")}
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal", columns=1 if style.page and known else 3)
    order = {name: at for at, name in enumerate(names)}
    share: dict[str, Any] = {"title": "% of the modules tried", "tickCount": 5}
    side = upright(**share) if style.page else alt.Axis(domain=False, ticks=False, **share)
    chart: Any = (
        alt.Chart(rows())
        .transform_calculate(rank=f"indexof({[HOME, GIVEN, DROPPED]!r}, datum.outcome)")
        .mark_bar(stroke=style.colour("paper"), strokeWidth=1)
        .encode(
            x=alt.X("task:O", title="tried for task", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title=alt.Undefined, stack="zero", scale=alt.Scale(domain=[0, 100]), axis=side),
            color=alt.Color("outcome:N", legend=legend, scale=alt.Scale(
                domain=list(order), range=[colours[name] for name in order])),
            fillOpacity=alt.condition(alt.datum.outcome == DROPPED, alt.value(0.35), alt.value(1.0)),
            order=alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("task:O", title="task"), alt.Tooltip("outcome:N", title="outcome"),
                alt.Tooltip("number:Q", title="modules"), alt.Tooltip("trials:Q", title="of"),
                alt.Tooltip("share:Q", title="%", format=".1f"),
            ],
        )
    )  # fmt: skip
    if style.page:
        chart = chart.properties(**size(style, 300))
    else:
        chart = facet(chart.properties(width=220, height=170), group, table)
    switch = runs_switch(table, group)
    given = {row["run"] for row in table if row["outcome"] == GIVEN}
    switch = switch._replace(begin=next((at for at, (name, _) in enumerate(switch.options) if name in given), 0))
    mine = [row for row in table if row["run"] == switch.first and row["agent"] == ALL]
    kept, tried = sum(row["number"] for row in mine if row["outcome"] != DROPPED), sum(row["number"] for row in mine)
    source = (
        "Modules that started as another agent's have a colour of their own."
        if known
        else "All modules are home-grown: none that started as another agent's was kept."
    )
    return Figure(
        "modules",
        "When modules were added",
        "Every task after the initial ones tries a new module, and keeps it if it helps on validation data. " + source,
        f"Bars of modules kept and dropped, by task. {switch.first}: {kept} of {tried} kept.",
        finish(chart, style),
        {"rows": table},
        (switch, agents_switch(table, group)),
        (("task", "task"), ("outcome", "outcome"), ("number", "modules"), ("trials", "of"), ("share", "%")),
    )


def origin(group: Group, style: Style) -> Figure | None:
    """Where kept modules came from."""
    table = numbers.origins(group)
    if not table:
        return None
    numbers_ = sorted({int(row[name]) for row in table for name in ("agent", "origin")})
    agents = [group.called(agent) for agent in numbers_]
    table = [{**row, **{name: group.called(row[name]) for name in ("agent", "origin")}} for row in table]
    most = max(row["number"] for row in table)
    ticks = alt.Axis(labelAngle=0, domain=False, ticks=False, orient="top" if style.page else "bottom")
    side = alt.Axis(domain=False, ticks=False, title="kept by agent")
    base = alt.Chart(rows()).encode(
        x=alt.X("origin:O", title="from agent", axis=ticks, scale=alt.Scale(domain=agents)),
        y=alt.Y("agent:O", axis=side, scale=alt.Scale(domain=agents)),
    )
    cell = base.mark_rect(cornerRadius=2, stroke=style.colour("paper"), strokeWidth=1.5).encode(
        color=alt.Color("number:Q", scale=alt.Scale(scheme="viridis", domain=[0, most]), legend=None),
        tooltip=[
            alt.Tooltip("agent:N", title="kept by agent"), alt.Tooltip("origin:N", title="from agent"),
            alt.Tooltip("number:Q", title="modules"), alt.Tooltip("tasks:N", title="from tasks"),
        ],
    )  # fmt: skip
    text = base.mark_text(fontSize=11, fontWeight=500).encode(
        text="number:Q", color=alt.condition(alt.datum.number > 0.55 * most, alt.value("#101418"), alt.value("#ffffff"))
    )
    chart: Any = alt.layer(cell, text)
    if style.page:
        chart = chart.properties(**size(style, 300))
    else:
        chart = facet(chart.properties(width=230, height=200), group, table)
    switch = runs_switch(table, group)
    mine = [row for row in table if row["run"] == switch.first]
    return Figure(
        "lineage",
        "Where modules came from",
        "Kept modules that started as another agent's: a row is the agent that kept them, a column the agent that made "
        "them; over all seeds and tasks.",
        f"Table of modules by keeper and maker. {switch.first}: {sum(row['number'] for row in mine)} modules.",
        finish(chart, style),
        {"rows": table},
        (switch,),
        (("agent", "kept by agent"), ("origin", "from agent"), ("number", "modules"), ("tasks", "from tasks")),
    )
