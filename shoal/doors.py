"""Tables with doors: what can be chosen by name, and how a stranger's own comes in.

A table has what is built in; `add` puts in what a program brings; an installed package brings its own by an entry point
in the table's group; and `package.module:Name` names whatever can be imported.
"""

import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, Generic, TypeVar

from shoal.errors import SettingsError

T = TypeVar("T")
Check = Callable[[Any], bool]
DOOR = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:Name


class Table(Mapping[str, T], Generic[T]):
    """What can be chosen by name: a mapping that is read, and added to by `add` alone.

    `noun` is what an entry is called in messages, `group` the entry points that packages bring theirs by, `check` tells
    whether something is such an entry, `also` are words that are allowed where a name is, though no entry has them. An
    entry that is heavy to import is given as `package.module:Name`, and imported when it is asked for.
    """

    def __init__(
        self,
        noun: str,
        entries: Mapping[str, T | str],
        group: str,
        check: Check = lambda entry: True,
        also: tuple[str, ...] = (),
    ) -> None:
        self.noun, self.group, self.check, self.also = noun, group, check, also
        self.entries: dict[str, T | str] = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name in self.entries:
            entry = self.entries[name]
            return self.brought(entry) if isinstance(entry, str) else entry
        point = self.points()[name]
        return self.brought(f"{point.module}:{point.attr}")

    def __iter__(self) -> Iterator[str]:
        return iter([*self.entries, *self.points()])

    def __len__(self) -> int:
        return len(self.entries) + len(self.points())

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self.points()

    def add(self, name: str, entry: T) -> T:
        """Put in an entry under a name that is free."""
        if name in self:
            raise SettingsError(f"there is a {self.noun} `{name}` already; choose another name for {entry!r}")
        self.entries[name] = self.checked(name, entry)
        return entry

    def remove(self, name: str) -> None:
        """Take out what was added."""
        del self.entries[name]

    def find(self, name: str) -> T:
        """The entry of this name, or what `package.module:Name` names."""
        if name in [*self]:  # looks at all of them, so that no name is taken twice
            return self[name]
        if is_door(name):
            return self.brought(name)
        raise SettingsError(self.unknown(name))

    def unknown(self, name: str) -> str:
        """The sentence about a name that is not in the table."""
        close = difflib.get_close_matches(name, list(self), n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        allowed = ", ".join([*self, *self.also])
        return f"there is no {self.noun} `{name}`; {hint}allowed: {allowed}, or one of yours as package.module:Name"

    def door(self, name: str, entry: Any) -> str:
        """What finds a class again: its name, if the table has it under that, or else where it is imported from."""
        return name if name in self and self[name] is entry else f"{entry.__module__}:{entry.__qualname__}"

    def points(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, by name; none has the name of another entry."""
        points = installed(self.group, tuple(sys.path))
        for name, point in points.items():
            if name in self.entries:
                raise SettingsError(
                    f"`{point.value}`, installed with {maker(point)}, has the name of the {self.noun} `{name}`, which "
                    "is there already; rename its entry point, or uninstall that package"
                )
        return points

    def brought(self, door: str) -> T:
        """What `package.module:Name` names."""
        module, _, name = door.partition(":")
        try:
            home = import_module(module)
        except Exception as error:  # a stranger's module can fail in any way
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise SettingsError(
                f"the {self.noun} `{door}` cannot be used, because importing `{module}` fails with {why}; install it, "
                "mend it, or put its folder on PYTHONPATH"
            ) from error
        try:
            found = attrgetter(name)(home)
        except AttributeError:
            raise SettingsError(
                f"the {self.noun} `{door}` cannot be used, because the module `{module}` has no `{name}`; name "
                "something that it has"
            ) from None
        return self.checked(door, found)

    def checked(self, name: str, entry: Any) -> T:
        if not self.check(entry):
            raise SettingsError(f"`{name}` is no {self.noun}, but {entry!r}; see `{self.group}` in CONTRIBUTING.md")
        return entry  # type: ignore[no-any-return]


def is_door(name: str) -> bool:
    """Does a name say where something is imported from?"""
    return DOOR.fullmatch(name) is not None


@lru_cache
def installed(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points of a group in packages on a path; looking them up takes a moment, so it is done once."""
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if point.name in points and points[point.name].value != point.value:
            raise SettingsError(
                f"{maker(points[point.name])} and {maker(point)} both bring `{point.name}` for {group}; uninstall one"
            )
        points[point.name] = point
    return points


def maker(point: EntryPoint) -> str:
    """The package that an entry point came with."""
    return point.dist.name if point.dist else "another package"


def is_a(base: type) -> Check:
    """A check for subclasses."""
    return lambda entry: isinstance(entry, type) and issubclass(entry, base)
