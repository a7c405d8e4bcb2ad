"""Names of data of one's own: `csv:PATH?label=..`, which a settings file can say, and what a program holds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from shoal.data.bank import Bank
from shoal.data.dataset import DataError
from shoal.data.sources import folder, saved, table
from shoal.data.sources.own import MEMORY, Data
from shoal.errors import UserError, nearly

SAFE = "/{}*, ()[]:;@."  # letters that stay readable in a name
FOLDERS = ("folder", "hf")  # schemes whose path is one
BROUGHT: dict[str, Data] = {}  # by name, what this program has brought
LATER: dict[str, Callable[[], Bank]] = {}  # and what it brings once somebody asks
READ: dict[str, tuple[tuple[int, int], Data]] = {}  # by name, what was read, and its `stamp_of`
# How each scheme reads a path with what stands behind the question mark, and which keys may stand there.
SCHEMES: dict[str, tuple[Callable[..., Bank], tuple[str, ...]]] = {
    "csv": (table.from_text, table.KEYS),
    "parquet": (table.from_text, table.KEYS),
    "npz": (saved.from_npz, ("predict",)),
    "folder": (folder.from_text, ("pattern", "size")),
    "hf": (saved.from_hub, (*table.KEYS, "size")),
}


def is_source(name: str) -> bool:
    """Does a dataset's name say where data of one's own is?"""
    return name.partition(":")[0] in (MEMORY, *SCHEMES)


def bring(data: Data) -> str:
    """Let this program find data by its name."""
    BROUGHT[data.name] = data
    return data.name


def bring_later(name: str, bank: Callable[[], Bank]) -> None:
    """Let this program find data by its name, which is read when somebody asks for it."""
    LATER[name] = bank


def read(name: str) -> Data:
    """The data that a name says; a file is read once, until it changes."""
    name = placed(name)
    if name not in BROUGHT and name in LATER:
        found = Data(LATER[name]())
        if found.name != name:
            raise DataError(f"the rows are those of `{found.name}`, and not of `{name}`; restore them from a copy")
        BROUGHT[name] = found
    if name in BROUGHT:
        return BROUGHT[name]
    scheme, path, options = parts(name)
    if scheme == MEMORY:
        raise DataError(
            f"`{name}` is data that a Python program held in memory; run that program again, which finds its runs and "
            "goes on with them"
        )
    make, keys = SCHEMES[scheme]
    for key in options:
        if key not in keys:
            allowed = f"{nearly(key, keys)}allowed for {scheme}: {', '.join(keys)}"
            raise DataError(f"`{key}` in `{name}` is not known; {allowed}")
    stamp = stamp_of(name)
    if name not in READ or READ[name][0] != stamp:
        READ[name] = stamp, Data(made(make, Path(path), options), name)
    return READ[name][1]


def stamp_of(name: str) -> tuple[int, int]:
    """When the file that a name says was last written, and its size; of a folder, when files last came or went, and how
    many there are."""
    scheme, path, _ = parts(placed(name))
    try:
        state = Path(path).stat()
        if not Path(path).is_dir():
            return state.st_mtime_ns, state.st_size
        inside = [(Path(place).stat().st_mtime_ns, len(files)) for place, _, files in os.walk(path)]
    except (OSError, ValueError) as error:
        kind = "folder" if scheme in FOLDERS else "file"
        why = getattr(error, "strerror", None) or error
        raise DataError(
            f"cannot read {path}, which `{scheme}:` names: {why}; name a {kind} that is there, from where "
            "the settings file is"
        ) from None
    return max(when for when, _ in inside), sum(count for _, count in inside)


def made(make: Callable[..., Bank], path: Path, options: dict[str, str]) -> Bank:
    """The bank of a file or a folder; whatever is wrong with that is a sentence."""
    try:
        return make(path, **options)
    except UserError:
        raise
    except MemoryError:
        raise DataError(f"there is not enough memory to read {path}; make it smaller") from None
    except (Exception, panic()) as error:  # a damaged file can make its reader fail in any way
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DataError(f"cannot read {path} ({why}); mend it, or name another") from None


def panic() -> type[BaseException]:
    """What polars raises where its own code fails."""
    from polars.exceptions import PanicException

    return PanicException


def parts(name: str) -> tuple[str, str, dict[str, str]]:
    """The scheme, path and options of a name."""
    scheme, _, rest = name.partition(":")
    path, asked, query = rest.partition("?")
    options: dict[str, str] = {}
    for word in query.split("&") if asked else ():
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise DataError(f"cannot read `{word}` in `{name}`; behind the ? it looks like label=species&agent=site")
        if key in options:
            raise DataError(f"`{name}` says `{key}` twice; say it once")
        options[key] = unquote(value)
    return scheme, path, options


def beside(name: str, place: Path) -> str:
    """The name with its path from the folder `place`, where a settings file is, if something is there."""
    scheme, _, rest = name.partition(":")
    path, asked, query = rest.partition("?")
    try:
        if scheme == MEMORY or not path or not (place / path).exists():
            return name
    except (OSError, ValueError):  # no file can have such a name
        return name
    return f"{scheme}:{place / path}{asked}{query}"


def placed(name: str) -> str:
    """The name with its whole path, so that it can be read from anywhere."""
    scheme, _, rest = name.partition(":")
    path, asked, query = rest.partition("?")
    if scheme == MEMORY:
        return name
    if not path:
        raise DataError(f"`{name}` names no path; say {scheme}:PATH")
    try:
        place = Path(path).expanduser().absolute()
    except (RuntimeError, OSError, ValueError) as error:  # nobody has such a home
        raise DataError(f"cannot read `{name}`: {error}; say the whole path") from None
    return f"{scheme}:{place.as_posix()}{asked}{query}"


def name_of(scheme: str, path: str | Path, options: dict[str, Any]) -> str:
    """The name of what is read from a path with options; several values are joined by commas. Empty: there is none."""
    said = {key: value for key, value in options.items() if value is not None and len(value)}
    listed = [[value] if isinstance(value, str) else [str(one) for one in value] for value in said.values()]
    if "?" in str(path) or any("," in one for some in listed for one in some if len(some) > 1):
        return ""  # a name could not say it
    words = [f"{key}={quote(','.join(some), safe=SAFE)}" for key, some in zip(said, listed, strict=True)]
    return placed(f"{scheme}:{path}{'?' if words else ''}{'&'.join(words)}")
