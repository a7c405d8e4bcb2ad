"""What there is to choose from, as tables on the terminal. Heavy imports happen inside the functions."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from rich.markup import escape
from rich.table import Table

from shoal.console import console
from shoal.doors import told
from shoal.units import shown

if TYPE_CHECKING:
    from shoal.data import Status
    from shoal.doors import Table as Entries
    from shoal.learners.contract import Learner
    from shoal.sharing.contract import Sharing


def show_settings() -> None:
    """Every setting, and what the protocols set."""
    from shoal.configure.checks import fields
    from shoal.settings.groups import Kind
    from shoal.settings.part import flatten
    from shoal.settings.protocols import EXAMPLE, PROTOCOLS, switches

    table = Table("setting", "default", "meaning", box=None)
    for name, field in fields():
        table.add_row(name, default(field), meaning(field))
        if name == "kinds":
            for own in ("name", "agents", "model"):
                table.add_row(f"  kinds.{own}", "", Kind.model_fields[own].description)
            table.add_row("  kinds.net.*, kinds.learner.*", "", "else the fleet's; epochs are the same for all")
    console.print(table)
    console.print("\nThe protocol sets what the user does not; of agents alone*:")
    table = Table("setting", *PROTOCOLS, box=None)
    sets = [dict(flatten(switches(protocol, *EXAMPLE))) for protocol in PROTOCOLS]
    for name in dict.fromkeys(name for one in sets for name in one):
        values = [one.get(name, "") for one in sets]
        if len(set(values)) > 1 or len(sets) == 1:
            table.add_row(name, *values)
    console.print(table)
    console.print(f"* {' on '.join(EXAMPLE)}; a protocol may set others for other nets, data and modes")


def choices(kind: Any) -> Iterator[str]:
    """The words that a type allows."""
    for one in get_args(kind):
        if isinstance(one, str):
            yield one
        else:
            yield from choices(one)


def default(field: Any) -> str:
    """What a setting is where nobody says it, as TOML has it; empty: it must be said."""
    return "" if field.is_required() else json.dumps(field.default)


def meaning(field: Any) -> str:
    """What a setting is for; if it is one of some words that this does not say, these too."""
    words = list(choices(field.annotation))
    told = field.description or ""
    return told if all(word in told for word in words) else f"{told} ({', '.join(words)})"


def show_entries(title: str, table: "Entries[Any]", also: str) -> None:
    """What is in a table, a line each."""
    shown = Table(title, "what it is", box=None)
    for name in table:
        shown.add_row(f"[bold]{escape(name)}[/]", escape(headline(table, name)))
    console.print(shown)
    if also:
        console.print(f"\n{also}", highlight=False, markup=False)


def show_entry(what: str, table: "Entries[Any]", name: str) -> None:
    """What one entry of a table is, and its settings, if it has some."""
    entry = table.find(name)
    console.print(f"[bold]{escape(name)}[/]: {escape(headline(table, name))}", highlight=False)
    show_text(entry)
    if what == "sharing":
        show_mode(name, entry)
    elif what == "learners":
        show_learner(entry)
    else:
        show_own(what, name)


def show_text(entry: Any) -> None:
    """What a mode, learner or scenario says of itself beyond its first paragraph: formula, source, price."""
    from rich.markdown import Markdown

    _, _, rest = (inspect.getdoc(entry) or "").partition("\n\n")
    if rest and isinstance(entry, type):
        console.print()
        console.print(Markdown(rest))


def headline(table: "Entries[Any]", name: str) -> str:
    """What an entry is, in a line, and where it comes from unless it is built in or its name says it."""
    origin = table.origin(name) if name in table else "built in"
    return told(table, name) + f" [from {origin}]" * (origin != "built in")


def show_mode(name: str, kind: "type[Sharing]") -> None:
    """Every setting of a sharing mode."""
    from shoal.configure.checks import fields
    from shoal.settings.groups import FAIR
    from shoal.settings.protocols import EXAMPLE, PROTOCOLS, switches

    others = [protocol for protocol in PROTOCOLS if protocol != FAIR]
    table = Table("setting", "default", *(f"{protocol}*" for protocol in others), "meaning", box=None)
    sets = [switches(protocol, *EXAMPLE, (name,))["sharing"].get(name, {}) for protocol in others]
    for own, field in fields(kind):
        if own != "mode":
            differs = [json.dumps(one[own]) if own in one else "" for one in sets]
            table.add_row(f"sharing.{own}", default(field), *differs, meaning(field))
    console.print()
    console.print(table)
    if others:
        said = " or ".join(f"protocol={protocol}" for protocol in others)
        console.print(f"\n* with {said}, {' on '.join(EXAMPLE)}; it may set others for other nets, data and modes")


def show_learner(kind: "type[Learner]") -> None:
    """The settings that a learner has alone."""
    from shoal.configure.checks import fields
    from shoal.learners.contract import Learner

    table = Table("setting", "default", "meaning", box=None)
    for name, field in fields(kind):
        if name not in Learner.model_fields:
            table.add_row(f"learner.{name}", default(field), meaning(field))
    if table.row_count:
        console.print()
        console.print(table)
    console.print("\nEvery learner also has those that `shoal list settings` shows for all.")


def show_own(what: str, name: str) -> None:
    """The settings that a scenario, a model's nets or a graph's network have alone."""
    from shoal.configure.entries import net_kind
    from shoal.data.scenarios import kind_of
    from shoal.network.graphs import kind_of as network_by
    from shoal.settings.groups import Net, Network, Tasks
    from shoal.settings.part import Part

    ways: dict[str, tuple[str, type[Part], Callable[[str], type[Part]]]] = {
        "scenarios": ("tasks", Tasks, kind_of),
        "models": ("net", Net, net_kind),
        "graphs": ("network", Network, network_by),
    }
    if what not in ways:
        return
    group, base, of = ways[what]
    table = Table("setting", "default", "meaning", box=None)
    for own, field in of(name).model_fields.items():
        if own not in base.model_fields:
            table.add_row(f"{group}.{own}", default(field), meaning(field))
    if table.row_count:
        console.print()
        console.print(table)


def show_experiments() -> None:
    """Settings files that come with shoal, by the names that commands take."""
    from shoal.configure.reading import experiments

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
