"""A run as one picture that moves (SVG, no script): agents on their network, letters on their way, accuracy as it
grows. It shows one seed, over and over, and stands still where pictures do not move."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from shoal import files
from shoal.errors import UserError
from shoal.network.picture import Point
from shoal.report.compare import UNSENT
from shoal.report.traffic import layout, linked
from shoal.runs.checked import Array
from shoal.runs.read import Run
from shoal.units import plural

MOST = 24  # agents that can be told apart
SECONDS, REST = 14.0, 3.0  # of what is learned, and of the end, before it begins again
WIDTH, HEIGHT, NET, TOP = 760, 400, 340, 54  # pixels: of all, of the network, and above it
FLIGHT = 0.026  # of the whole time that a letter is on its way
STYLE = (
    "text{font-family:system-ui,Liberation Sans,Helvetica,Arial,sans-serif;fill:#1f2430}"
    ".back{fill:#fff}.edge,.axis{stroke:#c3c8d0}.rim{fill:#fff;stroke:#5b6472;stroke-width:1.5}.full{fill:#0072b2}"
    ".letter{fill:#d55e00}.each{stroke:#9ab8cf}.mean{stroke:#0072b2;stroke-width:2.5}"
    ".task{stroke:#e3e6ea}path{fill:none}.name{paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "@media (prefers-color-scheme:dark){text{fill:#e8eaee}.back,.rim{fill:#14171c}.rim{stroke:#aab2be}"
    ".edge,.axis{stroke:#4a5260}.each{stroke:#31536e}.full{fill:#4aa5e0}.mean{stroke:#4aa5e0}.letter{fill:#f0772a}"
    ".task{stroke:#2a2f38}.name{stroke:#14171c}}"
)


class Course(NamedTuple):
    """What one seed's agents know at each moment: moments from 0 to 1, accuracy[agents, moments]."""

    agents: list[int]
    moments: Array
    accuracy: Array

    @property
    def low(self) -> float:
        """Where the scale of accuracy begins."""
        return min(0.5, float(np.floor(self.accuracy.min() * 10) / 10))

    def share(self, values: Array) -> Array:
        """Accuracies as parts of that scale."""
        return np.clip((values - self.low) / (1 - self.low), 0, 1)


def film(run: Run, file: Path) -> Path:
    """Draw a run into an SVG file."""
    return files.save(file, drawn(run), "give --film another place")


def drawn(run: Run) -> str:
    """The picture of a run's first seed."""
    seed = int(run.seeds.min())
    course = course_of(run, seed)
    if not len(course.moments):
        raise UserError(f"{run.folder} has no measurement yet, so there is nothing to draw; let it learn a task first")
    if len(course.agents) > MOST:
        raise UserError(
            f"{run.folder} has {len(course.agents)} agents, and a film shows at most {MOST}; use a smaller fleet"
        )
    pairs = {pair for pair in linked(run, seed) if set(pair) <= set(course.agents)} if run.modes else set()
    places = {agent: (x, y + TOP) for agent, (x, y) in layout(pairs, course.agents, NET, HEIGHT - TOP - 50).items()}
    title = f"{run.settings['dataset']}, {plural(len(course.agents), 'agent')}: {run.method}"
    says = (
        f"{len(course.agents)} agents learn {run.tasks} tasks; mean accuracy over the tasks so far ends at "
        f"{course.accuracy[:, -1].mean():.0%}."
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>{escape(title)}</title><desc>{escape(says)}</desc><style>{STYLE}</style>',
        '<rect class="back" width="100%" height="100%"/>',
        f'<text x="20" y="26" font-weight="bold">{escape(title)}</text>',
        '<text x="20" y="44" font-size="12">discs fill with what agents know; dots are letters on their way</text>',
        *(f'<path class="edge" d="M{spot(places[one])}L{spot(places[two])}"/>' for one, two in sorted(pairs)
          if one < two or (two, one) not in pairs),
        *letters(run, seed, course, places),
        *agents(run, course, places),
        *curve(run, course),
        "</svg>",
        "",
    ])  # fmt: skip


def course_of(run: Run, seed: int) -> Course:
    """The mean accuracy of each agent over the tasks that it has met, at all moments at which a fleet is tested."""
    own = np.flatnonzero(run.seeds == seed)
    with np.errstate(invalid="ignore"):
        met = run.accuracy[own]  # [agents, task, epoch, tested]
        there = ~np.isnan(met)
        mean = np.where(there, met, 0).sum(3) / np.where(there.any(3), there.sum(3), np.nan)
    flat = mean.reshape(len(own), -1)
    known = ~np.isnan(flat).any(0)
    ends = run.epochs / max(run.epochs.max(), 1)
    moments = ((np.arange(run.tasks)[:, None] + ends[None]) / run.tasks).reshape(-1)
    return Course([int(one) for one in run.agents[own]], moments[known], flat[:, known])


def spot(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def moving(name: str, moments: Sequence[float], values: Sequence[object], how: str = "linear") -> str:
    """An attribute that changes with time, held through the rest at the end."""
    whole = SECONDS + REST
    times = [min(max(one, 0.0), 1.0) * SECONDS / whole for one in moments]
    if times[0] > 0:
        times, values = [0.0, *times], [values[0], *values]
    if times[-1] < 1:
        times, values = [*times, 1.0], [*values, values[-1]]
    kind = 'animateMotion keyPoints="' if name == "motion" else f'animate attributeName="{name}" values="'
    return (
        f'<{kind}{";".join(map(str, values))}" keyTimes="{";".join(f"{one:.4f}" for one in times)}" '
        f'calcMode="{how}" dur="{whole:g}s" repeatCount="indefinite"'
    )


def agents(run: Run, course: Course, places: Mapping[int, Point]) -> list[str]:
    """Discs that fill with what an agent knows."""
    lines = []
    radius = 20.0 if len(places) <= 12 else 13.0
    for at, agent in enumerate(course.agents):
        x, y = places[agent]
        sizes = [f"{radius * one:.1f}" for one in np.sqrt(course.share(course.accuracy[at]))]
        name = run.sites[agent] if run.sites else str(agent)
        grows = moving("r", course.moments.tolist(), sizes)
        lines += [
            f'<circle class="rim" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>',
            f'<circle class="full" cx="{x:.1f}" cy="{y:.1f}" r="{sizes[-1]}">{grows}/></circle>',
            f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}" font-size="12" text-anchor="middle">{escape(name)}</text>',
        ]
    return lines


def letters(run: Run, seed: int, course: Course, places: Mapping[int, Point]) -> list[str]:
    """A dot for each link, which sets out whenever something is sent over it: an answer after what it answers."""
    ledger = run.tables.get("ledger")
    if ledger is None or not {"epoch", "kind"} <= set(ledger.columns):
        return []
    own = ledger.filter((pl.col("seed") == seed) & ~pl.col("verdict").is_in(UNSENT))
    last = max(int(run.epochs.max()), 1)
    trips: dict[tuple[int, int], dict[float, bool]] = {}
    for task, epoch, sender, receiver, kind, verdict in own.select(
        "task", "epoch", "sender", "receiver", "kind", "verdict"
    ).iter_rows():
        if sender not in places or receiver not in places:
            continue
        # Labels of epochs in records begin at 1 and end beyond the last one; a letter goes between two of them.
        at = (int(task) + min(int(epoch), last) / last) / run.tasks + FLIGHT * (kind == "answer")
        known = trips.setdefault((sender, receiver), {})
        known[at] = known.get(at, False) or verdict == "accepted"
    lines = []
    for (sender, receiver), sent in sorted(trips.items()):
        times: list[float] = []
        points: list[str] = []
        seen: list[str] = []
        for at, came in sorted(sent.items()):
            if times and at < times[-1]:
                continue
            # At its start without being seen, on the way, at the receiver (or lost half-way), gone again.
            times += [at, at, at + FLIGHT, at + FLIGHT]
            points += ["0", "0", "1" if came else "0.5", "0"]
            seen += ["0", "1", "1", "0"]
        path = f"M{spot(places[sender])}L{spot(places[receiver])}"
        lines.append(
            f'<circle class="letter" r="4" opacity="0">{moving("motion", times, points)} path="{path}"/>'
            f"{moving('opacity', times, seen, 'discrete')}/></circle>"
        )
    return lines


def curve(run: Run, course: Course) -> list[str]:
    """Accuracy against time, drawn from left to right: each agent, and their mean."""
    left, right, top, bottom = NET + 90.0, WIDTH - 24.0, TOP + 10.0, HEIGHT - 60.0
    low = course.low
    across = left + (right - left) * course.moments

    def path(values: Array) -> str:
        down = bottom - (bottom - top) * course.share(values)
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, down, strict=True))

    lines = [
        f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>',
        *(
            f'<text x="{left - 8}" y="{bottom - (bottom - top) * (level - low) / (1 - low) + 4:.1f}" font-size="12" '
            f'text-anchor="end">{level:.0%}</text>'
            for level in (low, (1 + low) / 2, 1.0)
        ),
        f'<text x="{left}" y="{top - 16}" font-size="12">accuracy on all tasks so far: each agent, and the mean</text>',
        f'<clipPath id="past"><rect x="{left}" y="{top - 4}" height="{bottom - top + 8}" width="{right - left}">'
        f"{moving('width', [0.0, 1.0], [0, f'{right - left:.1f}'])}/></rect></clipPath>",
    ]
    for task in range(1, run.tasks):
        x = left + (right - left) * task / run.tasks
        lines.append(f'<path class="task" d="M{x:.1f} {top}V{bottom}"/>')
    lines.append('<g clip-path="url(#past)">')
    lines += [f'<path class="each" d="{path(one)}"/>' for one in course.accuracy]
    lines += [f'<path class="mean" d="{path(course.accuracy.mean(0))}"/>', "</g>"]
    for task in range(run.tasks):
        x = left + (right - left) * (task + 0.5) / run.tasks
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" font-size="12" text-anchor="middle">{task + 1}</text>')
    lines.append(
        f'<text x="{(left + right) / 2:.1f}" y="{bottom + 38}" font-size="12" text-anchor="middle">task</text>'
    )
    return lines
