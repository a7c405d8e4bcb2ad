"""What a figure is: a Vega-Lite chart, its rows, and the switches that choose among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.report.compare import Group, Row
from shoal.report.numbers import ALL


class Switch(NamedTuple):
    """What a reader can choose: one value, or several if `many`."""

    field: str
    title: str
    options: tuple[tuple[str, str], ...]  # value and text
    many: bool = False
    begin: int = 0  # the option that is chosen at first

    @property
    def first(self) -> str:
        return self.options[self.begin][0]


@dataclass(frozen=True)
class Figure:
    """A chart with its rows. Switches choose among the rows of those tables that have the switch's field."""

    name: str
    title: str
    says: str  # what it shows and how to read it
    alt: str  # the same for those who do not see it, with its main numbers
    spec: dict[str, Any]
    tables: dict[str, list[Row]]
    switches: tuple[Switch, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()  # of the table of numbers beside it: field and title
    table: str = "rows"
    wide: bool = False
    fixed: bool = False  # its size does not follow the room it has


def agents_switch(table: Sequence[Row], group: Group) -> Switch:
    numbers = sorted({row["agent"] for row in table} - {ALL}, key=int)
    said = {one: group.called(one) if group.named else f"agent {one}" for one in numbers}
    return Switch("agent", "Site" if group.named else "Agent", ((ALL, "all agents"), *said.items()))


def runs_switch(table: Sequence[Row], group: Group, many: bool = False) -> Switch:
    there = {row["run"] for row in table}
    names = [entry.label for entry in group.entries if entry.label in there]
    return Switch("run", "Runs" if many else "Run", tuple((name, name) for name in names), many)
