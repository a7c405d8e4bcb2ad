"""Modes and learners that a program brings as classes, under names that settings can hold."""

from typing import Any

from shoal.doors import Table, where


def settled(table: Table[Any], kind: type, name: str) -> type:
    """A class of modes or learners that settings can name: one that cannot be imported is added under its own name."""
    if where(kind) or any(entry is kind for entry in table.entries.values()):
        return kind
    before = table.locals.get(name)
    if before is not None and before.__qualname__ == kind.__qualname__:  # the same lines, run again
        table.remove(name)
    table.add(name, kind)
    table.locals[name] = kind
    return kind
