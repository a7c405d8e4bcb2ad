"""What a program brings as objects, under names that settings can hold."""

import sys
from operator import attrgetter
from typing import Any

from shoal.doors import Table, is_door
from shoal.errors import SettingsError
from shoal.models.table import MODELS

LOCALS: dict[tuple[str, str], Any] = {}  # by a table's group and a name, what was added here, as it was given


def named(table: Table[Any], thing: Any) -> str:
    """A name by which the table finds a thing: its name there, or where it is imported from; what cannot be imported
    is added under its own name, for as long as this program runs."""
    if isinstance(thing, str):
        return thing
    for name, entry in table.entries.items():
        if entry is thing or LOCALS.get((table.group, name)) is thing:
            return name
    entry = made(thing) if table is MODELS else thing
    door = where(thing)
    if door and entry is thing:
        table.find(door)  # says what is wrong with it
        return door
    own = getattr(thing, "__name__", type(thing).__name__).replace("<lambda>", table.noun)
    name, count = door or own, 1
    while name in table:
        count += 1
        name = f"{own}-{count}"
    table.add(name, entry)
    LOCALS[table.group, name] = thing
    return name


def made(thing: Any) -> Any:
    """A line of the table of models from a net's class, or from a function that makes one."""
    from torch import nn

    from shoal.models.table import Entry
    from shoal.models.wrapped import wrapped

    if isinstance(thing, Entry):
        return thing
    if isinstance(thing, nn.Module):
        kind = type(thing).__name__
        raise SettingsError(
            f"the model is one {kind} that exists already, and every agent needs one of its own; give what makes it: "
            f"model={kind}, or model=lambda: {kind}(...)"
        )
    if not callable(thing):
        raise SettingsError(
            f"the model cannot be {thing!r}; give a name ({', '.join(MODELS)}), the class of a net, or a function that "
            "makes one"
        )
    return wrapped(thing)


def where(thing: Any) -> str:
    """Where something can be imported from, as `package.module:Name`; empty: nowhere."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    door = f"{module}:{name}"
    if not module or not name or not is_door(door):
        return ""
    try:
        return door if attrgetter(name)(sys.modules[module]) is thing else ""
    except (KeyError, AttributeError):
        return ""


def settled(table: Table[Any], kind: type, name: str) -> type:
    """A class of modes or learners that settings can name: one that cannot be imported is added under its own name."""
    if where(kind) or any(entry is kind for entry in table.entries.values()):
        return kind
    before = LOCALS.get((table.group, name))
    if before is not None and before.__qualname__ == kind.__qualname__:  # the same lines, run again
        table.remove(name)
    table.add(name, kind)
    LOCALS[table.group, name] = kind
    return kind
