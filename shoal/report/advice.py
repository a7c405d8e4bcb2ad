"""The chart of an advice: what candidates bring, and what they cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import altair as alt

from shoal.report.export import export
from shoal.report.style import FLAT, Style, finish
from shoal.units import shown

STYLE = Style(page=False, order=())
WIDTH, ROW, LETTER = 300, 22, 13  # pixels: so narrow that a phone shows it nearly as it is
LETTERS = 90  # in a line of the sentence above the chart
REACH = 8  # points of accuracy that the chart shows beyond the lowest and the highest


def chart(rows: Sequence[Mapping[str, Any]]) -> alt.LayerChart:
    """A line for each candidate with its bytes per link and task, the best first: its accuracy on validation rows (of
    no sharing, and the gain over it, with its interval, corrected for all that were looked at). What is over the budget
    stands below in grey, and what no sharing comes to is a line from top to bottom."""
    ran = within([point(row) for row in rows if row["validation_accuracy"] is not None])
    ran.sort(key=lambda one: -one["accuracy"])
    over = [{"label": label(row), "text": "over the budget"} for row in rows if row["over_budget"]]
    across = alt.X("accuracy:Q", title="accuracy on validation rows, %", scale=alt.Scale(zero=False, nice=False))
    names = [one["label"] for one in [*ran, *over]]
    room = int(0.62 * LETTER * max(map(len, names), default=0))  # letters may be wider where it is seen
    down = alt.Y(
        "label:N", title=None, sort=names,
        axis=alt.Axis(
            labelLimit=room, minExtent=room, labelFontSize=LETTER, ticks=False, domain=False, grid=False
        ),
    )  # fmt: skip
    raced = alt.Chart(alt.InlineData(values=ran))
    layers: list[alt.Chart] = [
        raced.mark_rule(color=FLAT["good"], strokeWidth=1.6).encode(
            y=down, x=alt.X("low:Q", title="accuracy on validation rows, %"), x2="high:Q"
        ),
        raced.mark_point(color=FLAT["good"], filled=True, size=70, opacity=1).encode(y=down, x=across),
    ]
    if alone := [one for one in ran if one["alone"]]:
        same = alt.Chart(alt.InlineData(values=alone[:1]))
        layers.insert(0, same.mark_rule(color=FLAT["none"], strokeDash=[4, 4]).encode(x=across))
    if over:
        grey = alt.Chart(alt.InlineData(values=over))
        layers.append(
            grey.mark_text(color=FLAT["none"], align="left", fontSize=11).encode(y=down, x=alt.value(4), text="text:N")
        )
    whole: Any = alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW))
    return whole  # type: ignore[no-any-return]


def label(row: Mapping[str, Any]) -> str:
    """A candidate and what it has sent over a link in a task or, if it has not run, may send."""
    cost = row["sent"] or row["price"]
    return f"{row['candidate']}, {shown(cost)}" if cost else "shares nothing"


def point(row: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate that has run, with its interval."""
    accuracy, gain = row["validation_accuracy"], row["gain"]
    ends = {side: gain if row[f"gain_{side}"] is None else row[f"gain_{side}"] for side in ("low", "high")}
    spread = {side: accuracy - gain + end for side, end in ends.items()}
    return {"label": label(row), "accuracy": accuracy, "alone": not row["price"], **spread}


def within(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same points, with intervals cut where they leave the chart: of two seeds, one can be as wide as the scale."""
    levels = [one["accuracy"] for one in points]
    least, most = min(levels, default=0) - REACH, min(100, max(levels, default=0) + REACH)
    return [{**one, "low": max(one["low"], least), "high": min(one["high"], most)} for one in points]


def draw(rows: Sequence[Mapping[str, Any]], sentence: str, folder: Path) -> list[Path]:
    """The chart as files advise.svg, .png and .pdf, under its sentence."""
    title = {"text": wrap(sentence, LETTERS), "fontSize": 12, "fontWeight": "normal", "lineHeight": 16}
    return export({**finish(chart(rows), STYLE), "title": title}, folder, "advise")
