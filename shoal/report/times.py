"""When: accuracy against the seconds, joules and bytes that agents have spent, and who was at which task when."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import polars as pl
from pydantic import ValidationError

from shoal.report.compare import Entry, Group, Row
from shoal.report.figure import Figure, Switch, runs_switch
from shoal.report.numbers import short
from shoal.report.style import Style, finish, look, rows, size, upright
from shoal.runs import metrics
from shoal.runs.checked import Array
from shoal.runs.read import Run
from shoal.settings.conditions import Interval, Presence

SPENT = {"seconds": "seconds", "joules": "joules of an agent", "bytes": "bytes that an agent has sent"}
POINTS = 80  # of a line
SHOWN = 64  # agents of a timeline, at most
EPOCHS = "epochs since the first task"


def paths(run: Run) -> Iterator[tuple[int, Array]]:
    """Of every lane with a clock: its place, and [n, 4], at each of its measurements the seconds, joules and bytes that
    it had spent and its mean accuracy over all tasks of its stream, in %, where one that it has not met counts as 0."""
    place = {lane: at for at, lane in enumerate(zip(run.seeds.tolist(), run.agents.tolist(), strict=True))}
    long = metrics.lengths(run.accuracy)
    points = {int(epoch): at for at, epoch in enumerate(run.epochs)}
    table = run.tables["time"].sort("seed", "agent", "task", "epoch")
    for (seed, agent), part in table.group_by("seed", "agent", maintain_order=True):
        at = place.get((int(str(seed)), int(str(agent))))
        if at is None:  # it diverged
            continue
        found = []
        for task, epoch, *spent in part.select("task", "epoch", *SPENT).iter_rows():
            if task < run.accuracy.shape[1] and epoch in points:
                known = run.accuracy[at, task, points[epoch]]
                if not np.isnan(known).all():
                    found.append([*spent, 100 * np.nansum(known) / max(int(long[at]), run.tasks)])
        if found:
            yield at, np.array(found, np.float64)


def spent(group: Group) -> list[Row]:
    """Mean accuracy over all tasks against what agents have spent, with its standard error over seeds."""
    found: list[Row] = []
    for entry in group.entries:
        if "time" not in entry.run.tables:
            continue
        lanes = dict(paths(entry.run))
        if not lanes:
            continue
        seeds = entry.run.seeds[list(lanes)]
        for at, name in enumerate(SPENT):
            most = max(float(path[-1, at]) for path in lanes.values())
            for x in np.linspace(0, most, POINTS) if most > 0 else [0.0]:
                values = np.array([reached(path[:, at], path[:, 3], x) for path in lanes.values()])
                mean, wide = float(values.mean()), float(metrics.error(values, seeds))
                band = {"low": short(mean - wide), "high": short(mean + wide)}
                found.append({"run": entry.label, "against": name, "x": short(x), "mean": short(mean)} | band)
    return found


def reached(spent: Array, level: Array, x: float) -> float:
    """What the last measurement by then said; before the first, what that says: with it an agent began."""
    return float(level[max(0, int(np.searchsorted(spent, x, "right")) - 1)])


def spending(group: Group, style: Style) -> Figure | None:
    """Accuracy against time, energy or bytes, where a clock has counted them."""
    table = spent(group)
    told = [name for name in SPENT if any(row["against"] == name and row["x"] for row in table)]
    if not told:
        return None
    table = [row for row in table if row["against"] in told]
    names = [entry.label for entry in group.entries]
    colour, dash, _ = look(style, names)
    x = alt.X("x:Q", title=None if style.page else SPENT[told[0]], axis=alt.Axis(grid=False, tickCount=6, format="~s"))
    title, scale = "mean test accuracy over all tasks, %", alt.Scale(zero=False, nice=True)
    y = alt.Y("mean:Q", title=title, scale=scale, axis=upright())
    tips = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("x:Q", title="spent", format=",.4~g"),
        alt.Tooltip("mean:Q", title="accuracy, %", format=".2f"),
    ]
    base = alt.Chart(rows())
    band = base.mark_area(opacity=0.1, strokeWidth=0, interpolate="step-after").encode(
        x=x, y=alt.Y("low:Q", title=title, scale=scale, axis=upright()), y2="high:Q", color=colour
    )
    line = base.mark_line(strokeWidth=2, interpolate="step-after").encode(
        x=x, y=y, color=colour, strokeDash=dash, tooltip=tips
    )
    ends = {
        row["run"]: f"{row['run']} {row['mean']:.2f} % after {row['x']:,.4g}"
        for row in table
        if row["against"] == told[0]
    }
    return Figure(
        "accuracy-against-spending",
        "Accuracy against time, energy and bytes",
        "Mean test accuracy over all tasks of a stream, where a task that has not been met counts as 0, against what "
        "an agent has spent by its own clock: the seconds that have passed for it, the joules of its steps and of what "
        "it has sent, or the bytes that it has sent. Bands: ± one standard error over seeds.",
        f"Lines of mean accuracy over {SPENT[told[0]]}, one per run. At the end: {', '.join(ends.values())}.",
        finish(alt.layer(band, line).properties(**size(style, 300)), style),
        {"rows": table},
        (
            runs_switch(table, group, many=True),
            Switch("against", "Against", tuple((name, SPENT[name]) for name in told)),
        ),
        (("run", "run"), ("x", "spent"), ("mean", "accuracy, %"), ("low", "mean - error"), ("high", "mean + error")),
        wide=True,
    )


def stays(entry: Entry) -> tuple[str, list[Row]]:
    """From when to when each agent of the first seed was at each task, and in what that is counted: seconds, or epochs
    where agents were absent at times; nothing, where all were always at the same task."""
    run = entry.run
    if "time" in run.tables:
        first = run.tables["time"].filter(pl.col("seed") == int(run.seeds.min()), pl.col("task") >= run.initial)
        part = first.group_by("agent", "task").agg(begin=pl.col("seconds").min(), end=pl.col("seconds").max())
        return "seconds", part.sort("agent", "task").to_dicts()
    epochs = int(run.settings["learner"]["epochs"])
    try:
        away = Presence.model_validate(run.settings.get("presence", {})).away(epochs)
    except ValidationError:  # another version says it in other words
        away = {}
    found: list[Row] = []
    for agent in range(int(run.settings["agents"])) if away else ():
        for task in range(run.initial, run.done):
            for begin, end in left((task * epochs, (task + 1) * epochs), away.get(agent, ())):
                found.append({"agent": agent, "task": task, "begin": begin, "end": end})
    return EPOCHS, found


def left(whole: Interval, gaps: tuple[Interval, ...]) -> Iterator[Interval]:
    """What some gaps, in their order, leave of an interval."""
    begin, end = whole
    for first, last in gaps:
        if first > begin:
            yield begin, min(first, end)
        begin = max(begin, last)
        if begin >= end:
            return
    yield begin, end


def timeline(group: Group, style: Style) -> Figure | None:
    """Who was at which task when."""
    table: list[Row] = []
    units: dict[str, None] = {}
    for entry in group.entries:
        unit, mine = stays(entry)
        mine = [row for row in mine if row["agent"] < SHOWN]
        units |= {unit: None} if mine else {}
        for row in mine:
            task = int(row["task"]) + 1
            table.append({
                "run": entry.label, "agent": group.called(row["agent"]), "task": task,
                "begin": short(float(row["begin"])), "end": short(float(row["end"])), "odd": task % 2, "unit": unit,
            })  # fmt: skip
    if not table:
        return None
    switch = runs_switch(table, group)
    first = [row for row in table if row["run"] == switch.first]
    agents = len({row["agent"] for row in table})
    tips = [alt.Tooltip("agent:N", title="agent")]
    tips += [alt.Tooltip(f"{name}:Q", title=name) for name in ("task", "begin", "end")]
    y = alt.Y("agent:O", title="site" if group.named else "agent", axis=upright(), sort=None)
    base = alt.Chart(rows())
    bars = base.mark_bar(color=style.colour("good"), height=alt.RelativeBandSize(0.8)).encode(
        x=alt.X("begin:Q", title=" or ".join(units), axis=alt.Axis(grid=False, tickCount=6, format="~s")),
        x2="end:Q",
        y=y,
        opacity=alt.condition(alt.datum.odd == 1, alt.value(0.75), alt.value(0.4)),
        tooltip=tips,
    )
    names = (
        base.transform_calculate(middle="(datum.begin + datum.end) / 2")
        .mark_text(color=style.colour("ink"), fontSize=10)
        .encode(x="middle:Q", y=y, text="task:N")
    )
    chart = alt.layer(bars, names).properties(**size(style, max(120, 22 * agents), 460))
    if not style.page:
        for part in (chart, *chart.layer):
            part.data = alt.Undefined  # else it would be drawn whole in every panel
        runs = [value for value, _ in switch.options]
        facet = alt.Facet("run:N", sort=runs, header=alt.Header(title=None))
        chart = chart.facet(data=rows(), facet=facet, columns=min(2, len(runs)))
    last = max(float(row["end"]) for row in first)
    return Figure(
        "timeline",
        "Who was where when",
        "A bar is a task that an agent was learning, with its number; gaps are rests, waits for others, or absences. "
        "The tasks after the initial ones, in the first seed"
        + (f", agents 0 to {SHOWN - 1}." if any(len(set(e.run.agents)) > SHOWN for e in group.entries) else "."),
        f"Bars of tasks by agent for {switch.first}; the last ends at {last:,.4g} {first[0]['unit']}.",
        finish(chart, style),
        {"rows": table},
        (switch,),
        (("agent", "agent"), ("task", "task"), ("begin", "from"), ("end", "to"), ("unit", "counted in")),
    )
