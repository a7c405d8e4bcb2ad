"""Tables with doors: what can be chosen by name, and how a stranger's own comes in.

A table has what is built in; `add` puts in what a program brings; an installed package brings its own by an entry point
in the table's group; and `package.module:Name` names whatever can be imported.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from shoal.errors import SettingsError, nearly
from shoal.own_code import brought

T = TypeVar("T")
Check = Callable[[Any], bool]
Make = Callable[[Any], Any]  # what makes an entry of something that a user brings
MAIN = "__main__"  # the program that runs
# What a door must lead to, by the group of its table.
WANTED = {
    "shoal.modes": "a subclass of shoal.sharing.contract.Sharing, or a function below @shoal.mode",
    "shoal.learners": "a subclass of shoal.learners.contract.Learner, or a function below @shoal.penalty",
    "shoal.models": "an nn.Module class, or a function that makes one",
    "shoal.backbones": "a shoal.backbones.Backbone",
    "shoal.graphs": "a function of agents, p if it needs it, and a generator that returns a networkx graph",
    "shoal.scenarios": "a function that makes the stream of every lane, or a class of Tasks with a method `streams`",
    "shoal.detectors": "a function or class that makes what has `update(x)` and `drift_detected`",
    "shoal.scores": "a shoal.sharing.scores.Metric",
    "shoal.rules": "a shoal.sharing.combine.Rule",
    "shoal.lies": "a shoal.mail.lies.Lie",
    "shoal.metrics": "a function of a run that gives a number for every lane",
    "shoal.datasets": "a shoal.data.Dataset",
    "shoal.commands": "a function that typer can call, or a shoal.cli.door.Command",
    "shoal.protocols": "a function of model, dataset, modes and initial tasks that returns groups of settings",
    "shoal.draws": "a shoal.data.draws.Draw",
    "shoal.counts": "a shoal.runs.counts.Count",
}
DOOR = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:Name
SENTENCE = re.compile(r"(?<=[.:]) (?=[A-Z])")  # where one ends


class Table(Mapping[str, T], Generic[T]):
    """What can be chosen by name: a mapping that is read, and added to by `add` alone.

    `noun` is what an entry is called in messages, `group` the entry points that packages bring theirs by, `check` tells
    whether something is such an entry, `also` are words that are allowed where a name is, though no entry has them. An
    entry that is heavy to import is given as `package.module:Name`, and imported when it is asked for.

    `make` makes an entry of what a door leads to, where that is none by itself; `ways` do so for a door behind a word,
    as in `modular-package.module:Name`.
    """

    def __init__(
        self,
        noun: str,
        entries: Mapping[str, T | str],
        group: str,
        check: Check = lambda entry: True,
        also: tuple[str, ...] = (),
        make: Make = lambda thing: thing,
        ways: Mapping[str, Make] | None = None,
    ) -> None:
        self.noun, self.group, self.check, self.also = noun, group, check, also
        self.make, self.ways = make, dict(ways or {})
        self.entries: dict[str, T | str] = dict(entries)
        self.built_in = frozenset(entries)
        self.locals: dict[str, Any] = {}  # what `named` has added, as it was given

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

    def add(self, name: str, entry: Any) -> Any:
        """Put in an entry under a name that is free."""
        if name in self:
            raise SettingsError(f"there is a {self.noun} `{name}` already; choose another name for {entry!r}")
        self.entries[name] = self.checked(name, entry)
        return entry

    def remove(self, name: str) -> None:
        """Take out what was added."""
        del self.entries[name]
        self.locals.pop(name, None)

    def find(self, name: str) -> T:
        """The entry of this name, or what `package.module:Name` names."""
        if name in [*self]:  # looks at all of them, so that no name is taken twice
            return self[name]
        if is_door(name):
            return self.brought(name)
        for word, make in self.ways.items():
            door = name.removeprefix(word)
            if door != name and is_door(door):
                return self.checked(name, make(self.led(door)))
        raise SettingsError(self.unknown(name))

    def named(self, thing: Any) -> str:
        """A name by which `find` finds something of one's own: its name in the table, or where it is imported from;
        what cannot be imported is added under its own name, for as long as this program runs."""
        if isinstance(thing, str):
            return thing
        for name, entry in self.entries.items():
            if entry is thing or self.locals.get(name) is thing:
                return name
        door = where(thing)
        if door:
            self.find(door)  # says what is wrong with it
            return door
        own = getattr(thing, "__name__", None) or getattr(thing, "name", None) or type(thing).__name__
        name = own = own.replace("<lambda>", self.noun.replace(" ", "-"))
        count = 1
        while name in self:
            count += 1
            name = f"{own}-{count}"
        self.add(name, thing)
        self.locals[name] = thing
        return name

    def origin(self, name: str) -> str:
        """Where an entry comes from: built in, added by this program, or the package that brings it."""
        if name in self.entries:
            return "built in" if name in self.built_in else "added by this program"
        dist = self.points()[name].dist
        return f"{dist.name} {dist.version}" if dist else "another package"

    def unknown(self, name: str) -> str:
        """The sentence about a name that is not in the table."""
        allowed = [*self, *self.also]
        hint = nearly(name.lower(), (word for word in allowed if word != name))
        words = ", ".join(allowed)
        return f"there is no {self.noun} `{name}`; {hint}allowed: {words}, or one of yours as package.module:Name"

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
        """The entry that `package.module:Name` names."""
        return self.checked(door, self.led(door))

    def led(self, door: str) -> Any:
        """What `package.module:Name` names, whatever it is."""
        module, _, name = door.partition(":")
        brought(module)
        try:
            home = import_module(module)
        except (Exception, SystemExit) as error:  # a stranger's module can fail in any way
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise SettingsError(
                f"the {self.noun} `{door}` cannot be used, because importing `{module}` fails with {why}; install it, "
                "mend it, or put its folder on PYTHONPATH"
            ) from error
        try:
            return attrgetter(name)(home)
        except AttributeError:
            advice = "name something that it has"
            if module == MAIN:
                advice = "it was made by another program: run that again, or put it in a module that can be imported"
            raise SettingsError(
                f"the {self.noun} `{door}` cannot be used, because the module `{module}` has no `{name}`; {advice}"
            ) from None

    def checked(self, name: str, thing: Any) -> T:
        entry = thing if self.check(thing) else self.make(thing)
        if not self.check(entry):
            raise SettingsError(f"`{name}` is no {self.noun}, but {entry!r}; name {WANTED.get(self.group, 'one')}")
        return entry  # type: ignore[no-any-return]


def is_door(name: str) -> bool:
    """Does a name say where something is imported from?"""
    return DOOR.fullmatch(name) is not None


def where(thing: Any) -> str:
    """Where something can be imported from, as `package.module:Name`; empty: nowhere."""
    own = getattr(thing, "door", None)
    if isinstance(own, str) and own:
        return own
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    door = f"{module}:{name}"
    if not module or not name or not is_door(door):
        return ""
    try:
        return door if attrgetter(name)(sys.modules[module]) is thing else ""
    except (KeyError, AttributeError):
        return ""


def told(table: Table[Any], name: str) -> str:
    """What an entry of a table is, in a line. One that is heavy to import is read in its source, not imported."""
    entry = table.entries.get(name)
    if not isinstance(entry, str):
        return line(table.find(name))
    module, _, inner = entry.partition(":")
    spec = find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == inner and (doc := ast.get_docstring(node)):
            return first_sentence(doc)
    return line(table.find(name))


def line(thing: Any) -> str:
    """What something is, in a line: its `about`, or else the first sentence of its docstring."""
    about = getattr(thing, "about", "")
    return first_sentence(about if isinstance(about, str) and about else (getattr(thing, "__doc__", None) or ""))


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, without its full stop."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return SENTENCE.split(paragraph, maxsplit=1)[0].rstrip(".")


@lru_cache
def every_point(path: tuple[str, ...]) -> EntryPoints:
    """All entry points of packages on a path; looking them up takes a moment, so it is done once for all groups."""
    return entry_points()


@lru_cache
def installed(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points of a group in packages on a path."""
    points: dict[str, EntryPoint] = {}
    for point in every_point(path).select(group=group):
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
