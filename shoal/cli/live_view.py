"""A live fleet on the terminal: how each agent is, and its links."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal.errors import UserError
from shoal.live.fleets import HOME, Home, agents_of
from shoal.live.serving import Running
from shoal.live.store import Store
from shoal.units import shown

SILENT = 15.0  # seconds after which a link is said to be silent


def homes_of(folder: Path) -> list[Home]:
    """The agents in a folder: those of a fleet, or the one that it is of."""
    return [Home.read(folder)] if (folder / HOME).exists() else agents_of(folder)


def statuses(homes: Iterable[Home]) -> list[dict[str, Any]]:
    """How agents are: what they say or, of those that do not run, what their letters say."""
    found = []
    for home in homes:
        try:
            found.append({**Running(home.folder).status(), "there": True})
        except UserError:
            found.append(asleep(home))
    return found


def asleep(home: Home) -> dict[str, Any]:
    """What is known of an agent that does not run."""
    links, refused = list[dict[str, Any]](), list[tuple[int, str, int]]()
    if home.letters.exists():
        store = Store(home.letters, safe=False)
        for peer, sent, come, *_ in store.rows("SELECT * FROM links ORDER BY peer"):
            links.append({"peer": peer, "sent": sent, "come": come, "waiting": 0, "age": None, "reached": False})
        refused = store.refusals()
        store.close()
    ended = (home.record / "summary.json").exists()
    return {"agent": home.agent, "name": home.name, "there": False, "ended": ended, "links": links, "refused": refused}


def table(found: Iterable[Mapping[str, Any]]) -> Table:
    """A line for each agent."""
    shape = Table(box=None, pad_edge=False)
    for name in ("agent", "task", "epoch", "accuracy", "sent / come", "wait", "refused", "links"):
        shape.add_column(name, no_wrap=name != "links")
    for one in found:
        links = one["links"]
        out, into = sum(link["sent"] for link in links), sum(link["come"] for link in links)
        refused = sum(count for _, _, count in one["refused"])
        if not one["there"]:
            state = "has ended" if one["ended"] else "[red]not there[/]"
            shape.add_row(one["name"], state, "", "", f"{out} / {into}", "", str(refused), "")
            continue
        state = f"{one['task']} of {one['tasks']}" + (" done" if one["finished"] else "")
        accuracy = "" if one["accuracy"] is None else f"{100 * one['accuracy']:.1f} %"
        again = " again" if one["catching_up"] else ""
        waiting = sum(link["waiting"] for link in links)
        linked_with = f"waits for {one['waits']}" if one["waits"] else "  ".join(linked(link) for link in links)
        shape.add_row(
            *(one["name"], f"{state}{again}", str(one["epoch"]), accuracy, f"{out} / {into}", str(waiting)),
            *(str(refused), linked_with),
        )
    return shape


def linked(link: Mapping[str, Any]) -> str:
    """A link in a word: whom with, and since when it is silent."""
    peer, age = link["peer"], link["age"]
    if age is None:
        return f"[yellow]{peer} never[/]"
    if link["done"] and not link["reached"]:
        return f"[green]{peer} has ended[/]"
    if not link["reached"]:
        return f"[red]{peer} cut {age:.0f} s[/]"
    return f"[yellow]{peer} {age:.0f} s[/]" if age > SILENT else f"[green]{peer}[/]"


def details(found: Mapping[str, Any]) -> list[str]:
    """What one agent has exchanged with each neighbour, and refused, in sentences."""
    lines = []
    for link in found["links"]:
        carried = f", {shown(link['bytes_sent'])} out, {shown(link['bytes_come'])} in" if "bytes_sent" in link else ""
        lines.append(f"agent {link['peer']}: {link['sent']} letters to it, {link['come']} from it{carried}")
    lines += [f"refused of agent {peer}: {why}, {count} times" for peer, why, count in found["refused"]]
    return lines
