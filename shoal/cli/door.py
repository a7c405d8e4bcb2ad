"""The door for commands: an installed package brings its own by an entry point in the group `shoal.commands`."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer import Typer

from shoal.doors import Table, installed, line
from shoal.errors import SettingsError


@dataclass(frozen=True)
class Command:
    """A command: a function that typer can call, the heading under which `shoal --help` lists it, and the examples that
    its help ends with. A plain function is a command without these."""

    run: Callable[..., Any]
    heading: str = ""
    examples: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        return line(self.run)


def made(thing: Any) -> Any:
    """A command of what an entry point leads to."""
    return Command(thing) if callable(thing) else thing


COMMANDS: Table[Command] = Table("command", {}, "shoal.commands", lambda entry: isinstance(entry, Command), make=made)


def bring(app: Typer, own: dict[str, Callable[..., Any]]) -> dict[str, Command]:
    """Give an application its `own` commands, then those of installed packages, which are returned. A package that
    cannot be imported is said when its command is called, and hinders no other; the name of one of our own is refused
    when anything is called."""
    COMMANDS.entries |= {name: Command(run) for name, run in own.items()}
    COMMANDS.built_in = frozenset(own)
    found = {}
    for name in sorted(set(installed(COMMANDS.group, tuple(sys.path))) - set(own)):
        try:
            found[name] = COMMANDS.find(name)
        except SettingsError as error:
            found[name] = Command(broken(error))
        app.command(name)(found[name].run)
    return found


def broken(error: SettingsError) -> Callable[[], None]:
    """The command of a package that cannot be used."""

    def refuse() -> None:
        """Cannot be used: its package cannot be imported."""
        raise error

    return refuse
