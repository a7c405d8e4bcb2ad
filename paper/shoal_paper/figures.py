"""The paper's figures, drawn from the CSVs: learning curves, gain against budget, gain by graph."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from shoal.errors import UserError
from shoal.report.export import export
from shoal.report.style import DASHES, FLAT, SHAPES, Style, finish, upright
from shoal.study.cells import Row, read_csv
from shoal_paper import budget, links, topology
from shoal_paper import grid as learners
from shoal_paper.table1 import DATASETS, METHODS, MODELS, alike

MODES = ("data", "federated", "modmod")
# Okabe & Ito's colours again; what averages models is warm.
COLOURS = {
    "vanilla": "#000000", "alone": "#5a5a5a", "data": "#0072b2", "fedavg": "#d55e00", "fedprox": "#b97f00",
    "fedcurv": "#7a5230", "fedfish": "#8a8a8a", "modmod": "#009e73", "hybrid": "#b8578c", "federated": "#d55e00",
    "recv": "#0072b2",
}  # fmt: skip
# Of learners, in figures where they are what is told apart.
LEARNERS = {
    "none": "#000000", "ewc": "#d55e00", "replay": "#0072b2", "derpp": "#009e73", "modular": "#b8578c",
    "frozen": "#b97f00",
}  # fmt: skip
STYLE = Style(page=False, order=())


def draw(folder: Path, place: Path, families: Iterable[str]) -> list[Path]:
    """The figures of some families, from the CSVs in a folder, a set for each protocol that has rows."""
    written = []
    for what in families:
        rows = read_csv(folder / f"{what}.csv")
        for protocol in ("paper", "fair"):
            try:
                here = most([row for row in rows if row["protocol"] == protocol])
                chart = FIGURES[what](here)
                title = {"text": TITLES[what], "subtitle": subtitle(protocol, here), "subtitleColor": FLAT["ink"]}
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"cannot make sense of {folder / f'{what}.csv'} ({error}); restore it, or move it away"
                ) from None
            if chart:
                written += export({**finish(chart, STYLE), "title": title}, place, f"{what}-{protocol}")
    return written


TITLES = {
    "curves": "Mean test accuracy over the tasks so far, %, against epochs within a task",
    "budget": "Gain over agents alone, %, against floats allowed per directed edge and task",
    "topology": "Gain over agents alone, %, on eight graphs",
    links.NAME: "Gain in final accuracy over agents alone, points, when mail is lost or agents are gone",
    "compression": "Final accuracy of FedAvg, %, by codec; dashed: agents alone",
    learners.NAME: "Gain in final accuracy over agents alone with the same learner, points",
}


def subtitle(protocol: str, rows: Sequence[Row]) -> str:
    """What the rows are."""
    seeds = sorted({row["seeds"] for row in rows})
    named = [name for name in DATASETS if any(row["dataset"] == name for row in rows)]
    return f"protocol {protocol}, {' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])}, {', '.join(named)}"


def most(rows: Sequence[Row]) -> list[Row]:
    """Of every cell the run with most seeds; of a dataset and a model, cells of one draw."""
    names = ("dataset", "model", "learner", "method", "mode", "graph", "p", "loss", "absent", *budget.VARIED)
    found = []
    for same in budget.grouped(alike(rows), names).values():
        top = max(row["seeds"] for row in same)
        found += [row for row in same if row["seeds"] == top]
    return found


def curves(rows: Sequence[Row]) -> Any:
    """A panel for each dataset and model, a line with its band for each method."""
    kept = [
        {**row, "low": row["accuracy"] - row["se_seeds"], "high": row["accuracy"] + row["se_seeds"]}
        if row["se_seeds"] is not None
        else row
        for row in rows
    ]
    methods = [name for name in METHODS if any(row["method"] == name for row in kept)]
    colour = coloured("method", methods)
    dashes = [list(DASHES[METHODS.index(name) % len(DASHES)]) for name in methods]
    dash = alt.StrokeDash("method:N", legend=None, scale=alt.Scale(domain=methods, range=dashes))
    x = alt.X("epoch:Q", title="epochs", axis=alt.Axis(grid=False, tickCount=5))
    y = alt.Y("accuracy:Q", title=None, scale=alt.Scale(zero=False), axis=upright())

    def panel(dataset: str, model: str) -> Any:
        here = [row for row in kept if (row["dataset"], row["model"]) == (dataset, model)]
        base = alt.Chart(alt.InlineData(values=here))
        band = base.mark_area(opacity=0.1).encode(
            x=x, y=alt.Y("low:Q", title=None, scale=alt.Scale(zero=False), axis=upright()), y2="high:Q", color=colour
        )
        line = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, strokeDash=dash)
        return alt.layer(band, line).properties(width=230, height=190, title=heading(f"{dataset}, {model}"))

    return grid(kept, panel)


def budgets(rows: Sequence[Row]) -> Any:
    """A panel for each model: every run a small point, the mean over datasets a large one, a line through these."""
    kept = [row for row in rows if row["mode"] in MODES and row["gain"] is not None]
    spots = []
    for (model, mode), same in budget.grouped(kept, ("model", "mode")).items():
        found = budget.points(budget.whole(same, budget.setting))
        spots += [{"model": model, "mode": mode, "gain": one.gain, "floats": one.setting} for one in found]
    lines = []
    for (model, mode), same in budget.grouped(spots, ("model", "mode")).items():
        gains, sent = [one["gain"] for one in same], [one["floats"] for one in same]
        slope = budget.marginal(gains, sent)
        if slope is not None:
            middle = sum(math.log(one) for one in sent) / len(sent)
            for one in (min(sent), max(sent)):
                height = sum(gains) / len(gains) + slope * (math.log(one) - middle)
                lines.append({"model": model, "mode": mode, "floats": one, "gain": height})
    colour, shape = modes_look(kept)
    x = alt.X(
        "floats:Q", title="floats, log", scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(grid=False, format="~s", tickCount=5),
    )  # fmt: skip
    y = alt.Y("gain:Q", title=None, scale=alt.Scale(zero=True), axis=upright())

    def panel(model: str) -> Any:
        def chart(table: Sequence[Row]) -> alt.Chart:
            return alt.Chart(alt.InlineData(values=[row for row in table if row["model"] == model]))

        runs = [{**row, "floats": budget.setting(row)} for row in kept]
        return alt.layer(
            zero(),
            chart(runs).mark_point(size=22, opacity=0.45, filled=False).encode(x=x, y=y, color=colour, shape=shape),
            chart(lines).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
            chart(spots).mark_point(size=70, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
        ).properties(width=340, height=240, title=heading(model))

    return row_of(kept, panel)


def graphs(rows: Sequence[Row]) -> Any:
    """A panel for each model: the mean over datasets with its error over seeds."""
    found = [
        {
            **one,
            "where": topology.word(one["graph"], one["p"]),
            "low": one["gain"] - (one["gain_se"] or 0),
            "high": one["gain"] + (one["gain_se"] or 0),
        }
        for one in topology.conclude({"topology": list(rows)})["topology_mean"]
    ]
    order = [topology.word(*graph) for graph in topology.GRAPHS]
    colour, shape = modes_look(found)
    x = alt.X("where:N", title=None, sort=order, axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("mode:N", sort=list(MODES))
    y = alt.Y("gain:Q", title=None, axis=upright())

    def panel(model: str) -> Any:
        base = alt.Chart(alt.InlineData(values=[one for one in found if one["model"] == model]))
        error = base.mark_rule(strokeWidth=1.6).encode(
            x=x, xOffset=offset, y=alt.Y("low:Q", title=None, axis=upright()), y2="high:Q", color=colour
        )
        point = base.mark_point(size=60, filled=True, opacity=1).encode(
            x=x, xOffset=offset, y=y, color=colour, shape=shape
        )
        return alt.layer(zero(), error, point).properties(width=430, height=240, title=heading(model))

    return row_of(found, panel)


def conditions(rows: Sequence[Row]) -> Any:
    """Gain against loss, of all agents, and against absent agents, of those that stay: a line for each method."""
    kept = [
        {**row, "low": row["gain"] - (row["gain_se"] or 0), "high": row["gain"] + (row["gain_se"] or 0)}
        for row in rows
        if row["method"] != "alone" and row["gain"] is not None
    ]
    if not kept:
        return None
    methods = [name for name in links.METHODS if any(row["method"] == name for row in kept)]
    colour = coloured("method", methods)
    y = alt.Y("gain:Q", title=None, axis=upright())

    def panel(name: str, title: str, here: Sequence[Row]) -> Any:
        base = alt.Chart(alt.InlineData(values=list(here)))
        x = alt.X(f"{name}:Q", title=title, axis=alt.Axis(grid=False, values=sorted({one[name] for one in here})))
        error = base.mark_rule(strokeWidth=1.2, opacity=0.6).encode(
            x=x, y=alt.Y("low:Q", title=None, axis=upright()), y2="high:Q", color=colour
        )
        line = base.mark_line(strokeWidth=1.8, point={"filled": True, "size": 50}).encode(x=x, y=y, color=colour)
        return alt.layer(zero(), error, line).properties(width=300, height=220, title=heading(title))

    lost = panel("loss", "share of mail that is lost", [one for one in kept if not one["absent"]])
    gone = panel("absent", "agents of eight that are gone", [one for one in kept if one["absent"]])
    return alt.hconcat(lost, gone).resolve_scale(y="shared")


def codecs(rows: Sequence[Row]) -> Any:
    """Final accuracy with its error over seeds against bytes, a point for each way to send models, with its name; a
    line for agents alone."""
    shown = [
        {**row, "low": row["final_accuracy"] - (row["final_accuracy_se"] or 0),
         "high": row["final_accuracy"] + (row["final_accuracy_se"] or 0)}
        for row in rows
    ]  # fmt: skip
    sent, alone = ([row for row in shown if (row["method"] == "vanilla") == one] for one in (False, True))
    if not sent:
        return None
    base = alt.Chart(alt.InlineData(values=sent))
    x = alt.X(
        "bytes_per_link_task:Q", title="bytes per link and task, log",
        scale=alt.Scale(type="log", nice=False, padding=30), axis=alt.Axis(grid=False, format="~s", tickCount=5),
    )  # fmt: skip
    y = alt.Y("final_accuracy:Q", title=None, scale=alt.Scale(zero=False), axis=upright())
    return alt.layer(
        alt.Chart(alt.InlineData(values=alone)).mark_rule(strokeDash=[3, 3], opacity=0.5).encode(y=y),
        base.mark_rule(opacity=0.4).encode(x=x, y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_point(size=60, filled=True, opacity=1, color=COLOURS["fedavg"]).encode(x=x, y=y),
        base.mark_text(align="left", dx=7, dy=-6, fontSize=11).encode(x=x, y=y, text="method:N"),
    ).properties(width=520, height=300)


def by_learner(rows: Sequence[Row]) -> Any:
    """Gain with its error by what is shared, a panel for each dataset, a line for each learner: where lines cross, the
    order of two ways of sharing depends on the learner."""
    kept = [
        {**row, "gain": row["final_accuracy_difference"],
         "low": row["final_accuracy_difference"] - (row["final_accuracy_difference_se"] or 0),
         "high": row["final_accuracy_difference"] + (row["final_accuracy_difference_se"] or 0)}
        for row in rows if row["final_accuracy_difference"] is not None
    ]  # fmt: skip
    if not kept:
        return None
    names = [name for name in LEARNERS if any(row["learner"] == name for row in kept)]
    methods = [name for name in learners.METHODS if any(row["method"] == name for row in kept)]
    colour = coloured("learner", names, LEARNERS)
    x = alt.X("method:N", title=None, sort=methods, axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("learner:N", sort=names)

    def panel(dataset: str) -> Any:
        base = alt.Chart(alt.InlineData(values=[row for row in kept if row["dataset"] == dataset]))
        low, y = (alt.Y(f"{name}:Q", title=None, axis=upright()) for name in ("low", "gain"))
        line = base.mark_line(strokeWidth=1, opacity=0.5).encode(x=x, xOffset=offset, y=y, color=colour)
        error = base.mark_rule(strokeWidth=1.6).encode(x=x, xOffset=offset, y=low, y2="high:Q", color=colour)
        point = base.mark_point(size=60, filled=True, opacity=1).encode(x=x, xOffset=offset, y=y, color=colour)
        return alt.layer(zero(), line, error, point).properties(width=430, height=260, title=heading(dataset))

    shown = [panel(name) for name in DATASETS if any(row["dataset"] == name for row in kept)]
    return alt.hconcat(*shown).resolve_scale(y="shared")


FIGURES = {
    "curves": curves, "budget": budgets, "topology": graphs, links.NAME: conditions, "compression": codecs,
    learners.NAME: by_learner,
}  # fmt: skip


def coloured(field: str, names: Sequence[str], colours: Mapping[str, str] = COLOURS) -> alt.Color:
    """A method, mode or learner has the same colour in all figures, whichever are there."""
    legend = alt.Legend(title=None, symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3)
    return alt.Color(f"{field}:N", legend=legend, scale=alt.Scale(domain=names, range=[colours[one] for one in names]))


def modes_look(rows: Sequence[Row]) -> tuple[alt.Color, alt.Shape]:
    names = [name for name in MODES if any(row["mode"] == name for row in rows)]
    shapes = [SHAPES[MODES.index(name)] for name in names]
    return coloured("mode", names), alt.Shape("mode:N", legend=None, scale=alt.Scale(domain=names, range=shapes))


def heading(words: str) -> alt.TitleParams:
    """The title of a panel, on one height with those beside it."""
    return alt.TitleParams(words, frame="group", fontSize=13, offset=12)


def zero() -> Any:
    """Where sharing neither brings nor takes anything."""
    return alt.Chart(alt.InlineData(values=[{"gain": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.5).encode(y="gain:Q")


def row_of(rows: Sequence[Row], panel: Any) -> Any:
    """A panel for each model that has rows; None if there is none."""
    models = [model for model in MODELS if any(row["model"] == model for row in rows)]
    return alt.hconcat(*(panel(model) for model in models)).resolve_scale(y="shared") if models else None


def grid(rows: Sequence[Row], panel: Any) -> Any:
    """Datasets side by side, models one above the other; None if there are no rows."""
    there = {(row["dataset"], row["model"]) for row in rows}
    if not there:
        return None
    lines = [
        alt.hconcat(*(panel(dataset, model) for dataset in DATASETS if (dataset, model) in there))
        for model in MODELS
        if any(model == one for _, one in there)
    ]
    return alt.vconcat(*lines)
