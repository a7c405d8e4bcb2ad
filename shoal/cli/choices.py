"""What there is to choose from, as tables on the terminal. Heavy imports happen inside the functions."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from rich.markup import escape
from rich.table import Table

from shoal.cli.terminal import console
from shoal.doors import line
from shoal.units import shown

if TYPE_CHECKING:
    from shoal.data import Status
    from shoal.doors import Table as Entries


def show_settings() -> None:
    """Every setting, and what the protocols set."""
    from shoal.settings.checks import fields
    from shoal.settings.groups import FAIR, Kind
    from shoal.settings.part import flatten
    from shoal.settings.protocols import EXAMPLE, PAPER, switches

    table = Table("setting", "default", "meaning", box=None)
    for name, field in fields():
        table.add_row(name, "" if field.is_required() else json.dumps(field.default), meaning(field))
        if name == "kinds":
            for own in ("name", "agents", "model"):
                table.add_row(f"  kinds.{own}", "", Kind.model_fields[own].description)
            table.add_row("  kinds.net.*, kinds.learner.*", "", "else the fleet's; epochs are the same for all")
    console.print(table)
    console.print("\nThe protocol sets what the user does not: `fair` and `paper` differ in these, for agents alone.")
    table = Table("setting", FAIR, f"{PAPER}*", box=None)
    fair, paper = (dict(flatten(switches(protocol, *EXAMPLE))) for protocol in (FAIR, PAPER))
    for name in {**fair, **paper}:
        if fair.get(name) != paper.get(name):
            table.add_row(name, fair.get(name, ""), paper.get(name, ""))
    console.print(table)
    console.print("* modular nets on mnist; other rows of Table 1 may differ")


def choices(kind: Any) -> Iterator[str]:
    """The words that a type allows."""
    for one in get_args(kind):
        if isinstance(one, str):
            yield one
        else:
            yield from choices(one)


def meaning(field: Any) -> str:
    """What a setting is for; if it is one of some words that this does not say, these too."""
    words = list(choices(field.annotation))
    told = field.description or ""
    return told if all(word in told for word in words) else f"{told} ({', '.join(words)})"


def show_entries(title: str, table: "Entries[Any]", also: str) -> None:
    """What is in a table, what each is, and where it comes from."""
    shown = Table(title, "what it is", "from", box=None)
    for name, entry in table.items():
        shown.add_row(f"[bold]{name}[/]", escape(line(entry)), table.origin(name))
    console.print(shown)
    if also:
        console.print(f"\n{also}", highlight=False)


def headline(table: "Entries[Any]", name: str) -> str:
    """What an entry is, in a line, and where it comes from unless it is built in."""
    origin = table.origin(name)
    return line(table[name]) + f" [from {origin}]" * (origin != "built in")


def show_modes() -> None:
    """Every setting of every sharing mode."""
    from shoal.settings.checks import fields
    from shoal.settings.protocols import EXAMPLE, PAPER, switches
    from shoal.sharing.modes import MODES

    table = Table("setting", "default", f"{PAPER}*", "meaning", box=None)
    for mode, kind in MODES.items():
        table.add_row(f"[bold]{mode}[/]", "", "", escape(headline(MODES, mode)))
        paper = switches(PAPER, *EXAMPLE, (mode,))["sharing"].get(mode, {})
        for name, field in fields(kind):
            if name != "mode":
                differs = json.dumps(paper[name]) if name in paper else ""
                table.add_row(f"  sharing.{name}", json.dumps(field.default), differs, meaning(field))
    console.print(table)
    console.print("\n* with protocol=paper, modular nets on mnist; other rows of Table 1 may differ")


def show_learners() -> None:
    """Every learner and its own settings."""
    from shoal.learners.contract import Learner
    from shoal.learners.table import LEARNERS
    from shoal.settings.checks import fields

    table = Table("setting", "default", "meaning", box=None)
    for method, kind in LEARNERS.items():
        table.add_row(f"[bold]{method}[/]", "", escape(headline(LEARNERS, method)))
        for name, field in fields(kind):
            if name not in Learner.model_fields:
                table.add_row(f"  learner.{name}", json.dumps(field.default), meaning(field))
    console.print(table)
    console.print("\nEvery learner also has those that `shoal list settings` shows for all.")


def show_experiments() -> None:
    """Settings files that come with shoal, by the names that commands take."""
    from shoal.settings.reading import experiments

    table = Table("experiment", "what it is", box=None)
    for name, file in experiments().items():
        table.add_row(name, file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "))
    console.print(table)
    console.print("\n`shoal run NAME KEY=VALUE...` runs one; wherever a settings file is expected, its name will do.")


def show_data(rows: Iterable["Status"]) -> None:
    """Which datasets are here."""
    from shoal.data import DATASETS

    table = Table("dataset", "here", "where", "size", "note", box=None)
    for row in rows:
        size = shown(row.size) if row.present else ""
        origin = DATASETS.origin(row.name)
        note = row.note + f" [from {origin}]" * (origin != "built in")
        table.add_row(row.name, "yes" if row.present else "no", escape(str(row.where or "")), size, escape(note))
    console.print(table)
