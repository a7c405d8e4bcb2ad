"""What sharing will cost, as something to look at and to count with."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import polars as pl

from shoal.agents.world import World
from shoal.data.sources import is_source, meaning
from shoal.fleet.pace import pace
from shoal.fleet.size import size
from shoal.sharing import sites
from shoal.sharing.plan import Line, plan
from shoal.sharing.plan import total as total_of
from shoal.units import plural, shown


@dataclass(frozen=True, eq=False)
class Costs:
    """What a run will send, at most: a `table` with a row for each kind of mail over links with the same limits, and
    the `total` of bytes in all; and the `data`, a row for each agent and task, with what looks wrong with it among the
    `notes`."""

    table: pl.DataFrame
    total: int
    head: str
    notes: tuple[str, ...]
    needs: str  # memory and, if asked for, time by the first steps
    data: pl.DataFrame  # a row per agent and task of the first seed: whose it is, its classes, and its rows

    def __str__(self) -> str:
        return "\n".join([self.head, self.needs, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<p>{escape(self.head)}<br>{escape(self.needs)}</p><ul>{lines}</ul>"


def costs(worlds: Sequence[World], timed: bool = False) -> Costs:
    """The costs of a run that is prepared, and how long it takes if that is to be `timed`."""
    settings, edges = worlds[0].fleet, worlds[0].edges
    lines = plan(worlds)
    table = pl.DataFrame(
        [row(line) for line in lines],
        schema={
            "mode": pl.String, "kind": pl.String, "links": pl.Int64, "bytes": pl.Int64,
            "bytes_per_link_task": pl.Float64, "messages": pl.Int64, "refused": pl.Int64, "bytes_total": pl.Int64,
        },
    )  # fmt: skip
    total = total_of(lines)
    lanes = f"{settings.agents} agents, {settings.seeds} seed{'s' * (settings.seeds > 1)}"
    head = f"{lanes}, {settings.network.graph}: {plural(len(edges), 'link')}"
    if total:
        head += f", which carry at most {shown(total)} in all"
    silent = [mode.mode for mode in settings.sharing if not any(line.mode == mode.mode for line in lines)]
    notes = [*map(told, lines), *(f"{mode} never sends anything: no link carries it" for mode in silent)]
    if not settings.sharing:
        notes = ["nothing is shared"]
    learners = [world.settings.learner for world in worlds]
    doubts = [sentence for one in learners for sentence in (one.doubt, one.unused(settings.sharing))]
    doubts += [mode.doubt for mode in settings.sharing]
    notes += [doubt for doubt in dict.fromkeys(doubts) if doubt] + sites.said(worlds)
    who, streams = meaning.gathered(worlds)
    if is_source(settings.dataset):
        notes += meaning.said(worlds[0].bank, settings.agents, who, streams)
    wanted = size(settings, worlds[0].bank)
    needs = wanted.timed(pace(worlds)) if timed else f"about {wanted.memory}"
    return Costs(table, total, head, tuple(notes), needs, meaning.overview(worlds[0].bank, who, streams))


def row(line: Line) -> dict[str, object]:
    """A kind of mail: its largest message, and what goes over a link in a task and over all links in the run."""
    links = line.edges.number
    return {
        "mode": line.mode,
        "kind": line.kind,
        "links": links,
        "bytes": line.bytes,
        "bytes_per_link_task": line.total_bytes / line.tasks,
        "messages": links * line.posted,
        "refused": links * (line.resting + line.over + line.forbidden),
        "bytes_total": links * line.total_bytes,
    }


def told(line: Line) -> str:
    """The same in words."""
    links = f"{line.edges.number} link{'s' * (line.edges.number > 1)}"
    said = f"{line.mode}, {line.kind}: {shown(line.total_bytes / line.tasks)} per link and task on {links}"
    why = {"the link rests": line.resting, "over budget": line.over, "a policy forbids them": line.forbidden}
    lost = [f"{count:,} because {reason}" for reason, count in why.items() if count]
    if not lost:
        return said
    return (
        f"{said}; of {line.posted:,} messages on each, refused are {' and '.join(lost).replace('because over', 'over')}"
    )
