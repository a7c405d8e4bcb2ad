"""The picture of what scores promise and what modules deliver, and the table beside it."""

import io
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.files import begins, columns, save
from shoal.network.svg import plain
from shoal_paper.transfer.measure import Found, Rank, Route, table

PICTURE = begins('class="promise"')


def write(found: Found, title: str, file: Path) -> Path:
    """Write the picture, and beside it the table that it shows; returns the table's place."""
    beside = file.with_suffix(".csv")
    rows = io.BytesIO()
    table(found).write_csv(rows)
    save(file, picture(found, title), "give --out another place", PICTURE)
    return save(beside, rows.getvalue(), "give --out another place", columns(*table(found).columns))


# Plain colours, no CSS variables: not every program that shows an SVG knows those.
STYLE = """
.promise { background: #ffffff; font: 12px system-ui, sans-serif; }
.promise .back { fill: #ffffff; }
.promise text { fill: #1f2937; }
.promise .head { font-size: 16px; font-weight: 600; }
.promise .name { font-size: 13px; font-weight: 600; }
.promise .small { font-size: 10px; }
.promise .none { fill: #c9ced6; }
.promise .blank { fill: #ffffff; }
.promise .axis { stroke: #7b8494; stroke-width: 1; fill: none; }
.promise .dot { fill: #1d4ed8; fill-opacity: 0.45; }
@media (prefers-color-scheme: dark) {
  .promise { background: #111827; }
  .promise .back { fill: #111827; }
  .promise text { fill: #e5e7eb; }
  .promise .none { fill: #374151; }
  .promise .blank { fill: #111827; }
  .promise .axis { stroke: #8b94a5; }
  .promise .dot { fill: #93c5fd; }
}
"""
# Both can be told apart by everyone: viridis for scores; for gains orange is a loss, blue a gain.
SCORES = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
GAINS = ("#a34700", "#ee9a3a", "#f7f7f7", "#5aa5d8", "#0b4f9c")
WIDE = 4  # panels beside each other
TOP, MARGIN = 80.0, 52.0  # above all panels; above and left of each, for names
LENGTH, PLOT = 260.0, 170.0  # of a panel, if its cells are not too narrow then; height of a plot


class Axis(NamedTuple):
    """Tasks as rows or columns of a panel: agents apart, and where each task begins."""

    places: Mapping[tuple[int, int], float]
    cell: float
    size: float


class Panel(NamedTuple):
    """A heat map: what it shows of each pair, from which value to which in which colours."""

    name: str
    values: Mapping[Route, float]
    low: float
    high: float
    colours: Sequence[str]
    form: str


def picture(found: Found, title: str) -> str:
    """Scores and gains as heat maps, and below each score its gains, as an SVG that needs nothing else."""
    title = plain(title)
    routes = [trial.route for trial in found.trials]
    tasks = sorted({(route.agent, route.task) for route in routes})
    sources = sorted({(route.sender, route.source) for route in routes})
    down, across = axis(tasks, 440), axis(sources, LENGTH)
    length = max(across.size, LENGTH)
    width, height = MARGIN + length + 20, MARGIN + down.size + 76 + PLOT + 36
    panels = panels_of(found)
    parts = []
    for at, panel in enumerate(panels):
        inner = heat(panel, down, across) + legend(panel, MARGIN + down.size + 12, length, at)
        if panel.name in found.metrics:
            inner += plot(found, panel, length, MARGIN + down.size + 76)
        x, y = at % WIDE * width, TOP + at // WIDE * height
        parts += [f'<g transform="translate({x:.1f} {y:.1f})">', *inner, "</g>"]
    facts = (
        f"gain: points of validation accuracy after {found.epochs} epoch{'s' * (found.epochs > 1)} over a fresh "
        f"module, {number(found.gain, '+.1f')} on average"
    )
    rule = f"{len(routes)} pairs (agent:task): rows receive, columns send; grey: no such pair"
    right, bottom = max(min(len(panels), WIDE) * width, 6.4 * len(facts)), TOP + -(-len(panels) // WIDE) * height
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" class="promise" role="img" width="{right:.0f}" '
        f'height="{bottom:.0f}" viewBox="0 0 {right:.0f} {bottom:.0f}">',
        f"<title>{title}</title>",
        f"<desc>{rule}; {facts}. {'. '.join(said(name, one) for name, one in found.ranks.items())}.</desc>",
        f"<style>{STYLE}</style>",
        '<rect class="back" width="100%" height="100%"/>',
        f'<text class="head" x="16" y="26">{title}</text>',
        f'<text x="16" y="46">{rule}</text>',
        f'<text x="16" y="64">{facts}</text>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


def said(metric: str, one: Rank) -> str:
    """A correlation in words."""
    return f"{metric}: rho {number(one.rho, '.2f')}, within a task {number(one.within, '.2f')}"


def axis(tasks: Sequence[tuple[int, int]], length: float) -> Axis:
    """Tasks beside each other, a little room between agents; about so long, if that makes sensible cells."""
    agents = sorted({agent for agent, _ in tasks})
    cell = float(np.clip(length / (len(tasks) + (len(agents) - 1) / 3), 5, 24))
    places = {task: at * cell + agents.index(task[0]) * cell / 3 for at, task in enumerate(tasks)}
    return Axis(places, cell, max(places.values()) + cell)


def panels_of(found: Found) -> list[Panel]:
    """A panel for each metric, and one for the gain, whose colours part at 0."""
    panels = []
    for metric in found.metrics:
        values = {trial.route: trial.scores[metric] for trial in found.trials}
        told = [value for value in values.values() if isfinite(value)] or [0.0]
        panels.append(Panel(metric, values, min(told), max(told), SCORES, ".2f"))
    gains = {trial.route: trial.gain for trial in found.trials}
    # A few extremes would make all others pale: they share the last colour.
    most = float(np.quantile(np.abs(list(gains.values())), 0.95)) or 1.0
    return [*panels, Panel("gain", gains, -most, most, GAINS, "+.0f" if most >= 2 else "+.1f")]


def heat(panel: Panel, down: Axis, across: Axis) -> list[str]:
    """A heat map with its names."""
    wide, high = across.cell - 1, down.cell - 1
    lines = [
        f'<text class="name" x="{MARGIN:.0f}" y="14">{panel.name}</text>',
        f'<rect class="none" x="{MARGIN:.1f}" y="{MARGIN:.1f}" width="{across.size:.1f}" height="{down.size:.1f}"/>',
    ]
    lines += names(across, sideways=False) + names(down, sideways=True)
    for route, value in panel.values.items():
        x, y = MARGIN + across.places[route[2:]], MARGIN + down.places[route[:2]]
        fill = f'fill="{colour(panel, value)}"' if isfinite(value) else 'class="blank"'
        lines.append(
            f'<rect {fill} x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}">'
            f"<title>{route.sender}:{route.source} to {route.agent}:{route.task}, {panel.name} "
            f"{number(value, panel.form)}</title></rect>"
        )
    return lines


def names(along: Axis, sideways: bool) -> list[str]:
    """agent:task at each row or column; where there is no room, only the agent, at its first task."""
    roomy = along.cell >= 8
    size = min(10.0, along.cell) if roomy else 9.0
    lines, before = [], -1
    for (agent, task), place in along.places.items():
        text = f"{agent}:{task}" if roomy else f"{agent}" * (agent != before)
        before = agent
        middle = MARGIN + place + along.cell / 2 + size / 3
        spot = f"{MARGIN - 4:.1f} {middle:.1f}" if sideways else f"{middle:.1f} {MARGIN - 4:.1f}"
        turn = ") rotate(-90" * (not sideways and roomy)
        anchor = ' text-anchor="end"' * sideways
        if text:
            lines.append(f'<text font-size="{size:.0f}"{anchor} transform="translate({spot}{turn})">{text}</text>')
    return lines


def legend(panel: Panel, top: float, length: float, at: int) -> list[str]:
    """The colours of a panel from the lowest to the highest value."""
    stops = [
        f'<stop offset="{place / (len(panel.colours) - 1):.2f}" stop-color="{one}"/>'
        for place, one in enumerate(panel.colours)
    ]
    middle = (panel.low + panel.high) / 2
    values = [value for value in panel.values.values() if isfinite(value)]
    low = number(panel.low, panel.form) + " or less" * (min(values, default=0.0) < panel.low)
    high = number(panel.high, panel.form) + " or more" * (max(values, default=0.0) > panel.high)
    ticks = [(0.0, "start", low), (0.5, "middle", number(middle, panel.form)), (1.0, "end", high)]
    lines = [
        f'<defs><linearGradient id="colours{at}">{"".join(stops)}</linearGradient></defs>',
        f'<rect fill="url(#colours{at})" x="{MARGIN:.1f}" y="{top:.1f}" width="{length:.1f}" height="10"/>',
        *(
            f'<text class="small" text-anchor="{anchor}" x="{MARGIN + share * length:.1f}" y="{top + 22:.1f}">'
            f"{text}</text>"
            for share, anchor, text in ticks
        ),
    ]
    if blank := len(panel.values) - len(values):
        words = f"blank: no score ({blank} pair{'s' * (blank > 1)})"
        lines.append(f'<text class="small" x="{MARGIN:.1f}" y="{top + 36:.1f}">{words}</text>')
    return lines


def plot(found: Found, panel: Panel, length: float, top: float) -> list[str]:
    """Each pair's score and gain as a dot, with the correlation as the title."""
    one = found.ranks[panel.name]
    gains = [trial.gain for trial in found.trials]
    low, high = min(0.0, *gains), max(0.0, *gains)
    spread = (high - low) or 1.0

    def height(gain: float) -> float:
        return top + 4 + (PLOT - 8) * (high - gain) / spread

    lines = [
        f'<text x="{MARGIN:.1f}" y="{top - 8:.1f}">{said("gain", one)}</text>',
        f'<path class="axis" d="M{MARGIN:.1f} {top:.1f}v{PLOT:.1f}h{length:.1f}"/>',
        f'<path class="axis" stroke-dasharray="3 3" d="M{MARGIN:.1f} {height(0):.1f}h{length:.1f}"/>',
        f'<text class="small" x="{MARGIN + 8:.1f}" y="{top + PLOT + 14:.1f}">{number(panel.low, panel.form)}</text>',
        f'<text class="small" text-anchor="end" x="{MARGIN + length - 8:.1f}" y="{top + PLOT + 14:.1f}">'
        f"{number(panel.high, panel.form)}</text>",
        f'<text class="small" text-anchor="middle" x="{MARGIN + length / 2:.1f}" y="{top + PLOT + 14:.1f}">'
        f"{panel.name}</text>",
    ]
    # A tick that would lie on that of 0 is left out.
    ticks = [0.0, *(gain for gain in (low, high) if abs(gain) > 0.08 * spread)]
    lines += [
        f'<text class="small" text-anchor="end" x="{MARGIN - 5:.1f}" y="{height(gain) + 3:.1f}">'
        f"{number(gain, '+.0f')}</text>"
        for gain in ticks
    ]
    for trial in found.trials:
        score = panel.values[trial.route]
        if isfinite(score):
            x = MARGIN + 12 + (length - 24) * share(panel, score)
            lines.append(f'<circle class="dot" cx="{x:.1f}" cy="{height(trial.gain):.1f}" r="2.5"/>')
    return lines


def share(panel: Panel, value: float) -> float:
    """Where a value lies between the lowest, 0, and the highest, 1; in the middle if they are the same."""
    return float(np.clip((value - panel.low) / (panel.high - panel.low), 0, 1)) if panel.high > panel.low else 0.5


def colour(panel: Panel, value: float) -> str:
    """The colour of a value, between those of the panel."""
    at = share(panel, value) * (len(panel.colours) - 1)
    first = min(int(at), len(panel.colours) - 2)
    low, high = ([int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in panel.colours[first : first + 2])
    return "#" + "".join(f"{round(a + (b - a) * (at - first)):02x}" for a, b in zip(low, high, strict=True))


def number(value: float, form: str) -> str:
    """A value as people read it: what rounds to 0 is 0, and NaN is undefined."""
    text = format(value, form)
    return "undefined" if text == "nan" else text.lstrip("+-") if not float(text) else text
