"""Whose word a settings file is: what it would load, and whether this user has said that it may.

A settings file or a run directory may come from somebody else. What it names that is not in it - code to import, files
outside its folder, an address - is loaded if the user says so (`--trust`), has said it himself on the command line, or
has run the same settings before, which is remembered in the user's own state folder. Reading needs none of this: it
loads nothing.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from shoal.doors import is_door
from shoal.errors import SettingsError, UserError
from shoal.files import save
from shoal.units import listed

NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # a door, wherever it stands in a word
PLACES = ("machine.data",)  # settings that are paths
GRAPHS = re.compile(r"network(\.graph|\.changes\.\d+\.graph)?")
SHOWN = 4  # things that a sentence names
GIVEN: ContextVar[bool] = ContextVar("trust", default=False)  # has the user said --trust?
COMMAND: ContextVar[bool] = ContextVar("command", default=False)  # is this the command line?


class UntrustedError(SettingsError):
    """Settings would load what nobody here has said that they may."""


@contextmanager
def within_command(words: Iterable[str]) -> Iterator[None]:
    """One command: nothing is trusted yet but what its own words name, which may lie in this folder; what the user says
    in it ends with it, so that a process with several commands carries no trust from one to the next."""
    given, commanded = GIVEN.set(False), COMMAND.set(True)
    if any(NAMED.search(word) for word in words):
        reach(Path.cwd())
    try:
        yield
    finally:
        GIVEN.reset(given)
        COMMAND.reset(commanded)


def give(trust: bool) -> None:
    """What the user says of this command."""
    GIVEN.set(trust)


def reach(folder: Path) -> None:
    """Let what lies in a folder be imported in this command; last, so that it hides nothing."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def loads(raw: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What settings would load that are in a folder: what is said, and what would be done with it. Nothing is opened.

    >>> from pathlib import Path
    >>> loads({"model": "there:Net", "agents": 3, "machine": {"address": "10.0.0.7:6379"}}, Path("."))
    {'there:Net': 'import `there:Net`', '10.0.0.7:6379': 'connect to `10.0.0.7:6379`'}
    """
    from shoal.data.sources import MEMORY, is_source
    from shoal.network.graphs import is_file

    found: dict[str, str] = {}
    for path, text in strings(raw):
        if path == "machine.address":
            if text:
                found[text] = f"connect to `{text}`"
        elif path in PLACES:
            if text and outside(text, folder):
                found[text] = f"read `{text}`"
        elif path == "dataset" and is_source(text):
            scheme, _, rest = text.partition(":")
            place = rest.partition("?")[0]
            if scheme != MEMORY and outside(place, folder):
                found[text] = f"read `{place}`"
        elif (GRAPHS.fullmatch(path) and is_file(text)) or (path == "backbone" and text.endswith(".onnx")):
            if outside(text, folder):
                found[text] = f"read `{text}`"
        else:
            found |= {door: f"import `{door}`" for door in NAMED.findall(text)}
    return found


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in settings, and where it is."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from strings(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from strings(inner, f"{path}.{at}" if path else str(at))


def outside(text: str, folder: Path) -> bool:
    """Does a path lead to something that is there and not in a folder?"""
    try:
        place = Path(text).expanduser().resolve()
        return place.exists() and not place.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # no file can have such a name
        return False


def allow(
    raw: Mapping[str, Any],
    file: Path,
    own: Iterable[str] = (),
    trust: bool = False,
    as_read: Mapping[str, Any] | None = None,
) -> None:
    """Raise if settings of a file would load what this user has not allowed: not by `trust`, not by words of his `own`,
    not by an earlier run. `as_read` is what the file says by itself."""
    as_read = raw if as_read is None else as_read
    words = tuple(own)
    strange = {name: what for name, what in loads(raw, file.parent).items() if not any(name in word for word in words)}
    if not strange:
        return
    doors = any(is_door(name) for name in strange)
    if trust or GIVEN.get():
        remember(as_read)
        if doors and COMMAND.get():
            reach(Path.cwd())
        return
    before = remembered(as_read)
    if before is None:
        raise UntrustedError(
            f"{file} would {listed(strange.values(), SHOWN)}, and nobody here has allowed that; look at it, and say "
            "--trust (in Python, trust=True) if you trust whoever wrote it"
        )
    if doors and COMMAND.get():
        reach(before)


def identity(raw: Mapping[str, Any]) -> str:
    """What settings are known by, whatever they say of the machine beside where its data and its cluster are."""
    machine = raw.get("machine")
    kept = {name: machine[name] for name in ("address", "data") if name in machine} if isinstance(machine, dict) else {}
    content = json.dumps({**raw, "machine": kept}, sort_keys=True, default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def state() -> Path:
    """Where this user's own word is kept."""
    said = os.environ.get("XDG_STATE_HOME")
    return (Path(said) if said else Path.home() / ".local" / "state") / "shoal" / "trusted"


def remember(raw: Mapping[str, Any]) -> None:
    """Keep that this user runs such settings, and from where; a folder that cannot be written keeps nothing."""
    with suppress(UserError, OSError, RuntimeError):
        save(state() / identity(raw), f"{Path.cwd()}\n", "run it again with --trust")


def remembered(raw: Mapping[str, Any]) -> Path | None:
    """From where this user has run such settings before."""
    try:
        return Path((state() / identity(raw)).read_text(encoding="utf-8").rstrip("\n"))
    except (OSError, ValueError, RuntimeError):
        return None
