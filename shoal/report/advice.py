"""The chart of an advice: what candidates bring against what they cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import altair as alt

from shoal.report.export import export
from shoal.report.style import BYTES, FLAT, Style, finish, upright

STYLE = Style(page=False, order=())
WIDTH, HEIGHT = 620, 360
LINE = 13  # pixels between the names of candidates over the budget
LETTERS = 100  # in a line of the sentence above the chart
REACH = 8  # points of accuracy that the chart shows beyond the lowest and the highest
SMALL = 1000  # bytes up to which the axis is even; beyond, it is logarithmic


def chart(rows: Sequence[Mapping[str, Any]], budget: int | None) -> alt.LayerChart:
    """Accuracy on validation rows (of no sharing, and the gain over it, with its 95 % interval) against bytes per link
    and task; the budget is a line, and what is over it stands in grey, a line for each."""
    ran = within(
        sorted((point(row) for row in rows if row["validation_accuracy"] is not None), key=lambda one: one["bytes"])
    )
    over = [{"candidate": row["candidate"], "bytes": row["price"]} for row in rows if row["over_budget"]]
    most = max([row["bytes"] for row in [*ran, *over]] + [budget or 0, SMALL])
    across = alt.X(
        "bytes:Q",
        title="bytes per link and task, at most",
        # To the right of the last one there is room for its name.
        scale=alt.Scale(type="symlog", constant=SMALL, nice=False, domain=[0, 4 * most]),
        axis=alt.Axis(grid=False, values=ticks(most), labelExpr=BYTES),
    )
    height = alt.Y(
        "accuracy:Q", title="accuracy on validation rows, %", scale=alt.Scale(zero=False, padding=16), axis=upright()
    )
    lowest = alt.Y(
        "low:Q", title="accuracy on validation rows, %", scale=alt.Scale(zero=False, padding=16), axis=upright()
    )
    layers: list[alt.Chart] = []
    if budget is not None:
        line = alt.Chart(alt.InlineData(values=[{"bytes": budget, "text": "budget"}]))
        layers.append(line.mark_rule(color=FLAT["given"], strokeDash=[6, 4]).encode(x=across))
        layers.append(line.mark_text(color=FLAT["given"], align="left", dx=5, y=8).encode(x=across, text="text:N"))
    for at, one in enumerate(over):
        grey, place = alt.Chart(alt.InlineData(values=[one])), HEIGHT - 10 - LINE * at
        layers.append(grey.mark_tick(color=FLAT["none"], thickness=2, y=place).encode(x=across))
        name = grey.mark_text(color=FLAT["none"], align="left", dx=6, fontSize=11, y=place)
        layers.append(name.encode(x=across, text="candidate:N"))
    raced = alt.Chart(alt.InlineData(values=ran))
    layers += [
        raced.mark_rule(color=FLAT["good"], strokeWidth=1.6).encode(x=across, y=lowest, y2="high:Q"),
        raced.mark_point(color=FLAT["good"], filled=True, size=70, opacity=1).encode(x=across, y=height),
    ]
    for side, down in enumerate((-10, 12)):  # names stand above and below in turn, so that neighbours have room
        named = alt.Chart(alt.InlineData(values=ran[side::2]))
        layers.append(
            named.mark_text(color=FLAT["ink"], align="left", dx=7, dy=down, fontSize=12).encode(
                x=across, y=height, text="candidate:N"
            )
        )
    whole: Any = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return whole  # type: ignore[no-any-return]


def point(row: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate that has run, with its interval."""
    accuracy, gain = row["validation_accuracy"], row["gain"]
    ends = {side: gain if row[f"gain_{side}"] is None else row[f"gain_{side}"] for side in ("low", "high")}
    spread = {side: accuracy - gain + end for side, end in ends.items()}
    return {"candidate": row["candidate"], "bytes": row["price"], "accuracy": accuracy, **spread}


def within(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same points, with intervals cut where they leave the chart: of two seeds, one can be as wide as the scale."""
    levels = [one["accuracy"] for one in points]
    least, most = min(levels, default=0) - REACH, min(100, max(levels, default=0) + REACH)
    return [{**one, "low": max(one["low"], least), "high": min(one["high"], most)} for one in points]


def ticks(most: float) -> list[float]:
    """Where the axis has numbers: 0, and 1, 2 and 5 times the powers of ten that are reached."""
    found, step = [0.0], float(SMALL)
    while step <= most:
        found += [one * step for one in (1, 2, 5) if one * step <= most]
        step *= 10
    return found


def draw(rows: Sequence[Mapping[str, Any]], budget: int | None, sentence: str, folder: Path) -> list[Path]:
    """The chart as files advise.svg, .png and .pdf, under its sentence."""
    title = {"text": wrap(sentence, LETTERS), "fontSize": 12, "fontWeight": "normal", "lineHeight": 16}
    return export({**finish(chart(rows, budget), STYLE), "title": title}, folder, "advise")
