"""The files of a run directory: listed with checksums, and read with care.

A run directory may come from somebody else, or from a disk that has lost a bit. What is read of it are regular files of
a sensible size and nothing else: no device, no pipe, no link to another place. manifest.json has the SHA-256 of every
file; one that does not match is named and not used. A run of an earlier version has none, and is read as it is.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import UserError

FORMAT = 5  # of a run directory; raised when an older one cannot be continued
MANIFEST = "manifest.json"
TEXT = 64 * 2**20  # bytes of a file of settings or of JSON, at most
TABLE = 4 * 2**30  # bytes of a table
UNREADABLE = (OSError, ValueError, RecursionError)  # what reading a file and parsing it as JSON or TOML can raise


class DamagedError(ValueError):
    """Why a file of a run directory cannot be used."""


class RecordError(UserError):
    """A run directory that cannot be used or written, said in one sentence."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes."""
    # Without waiting: to open a pipe would wait for somebody who writes.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise DamagedError("it is no regular file")
        if found.st_size > most:
            raise DamagedError(f"it has {found.st_size:,} bytes, more than the {most:,} that are read of such a file")
        content = file.read(most + 1)  # it may have grown
    if len(content) > most:
        raise DamagedError(f"it has more than the {most:,} bytes that are read of such a file")
    return content


def read_whole(path: Path, most: int = TEXT) -> bytes:
    """The content of a file of a run directory; raises if it is not what the manifest says."""
    try:
        content = read_bytes(path, most)
    except IsADirectoryError:
        raise DamagedError("it is a folder") from None
    except OSError as error:
        if path.is_symlink():
            raise DamagedError("it is a link to another place; put the file itself there") from None
        raise DamagedError(error.strerror or str(error)) from None
    allowed = listed(path.parent).get(path.name)
    if allowed is not None and digest(content) not in allowed:
        raise DamagedError(f"its SHA-256 is not the one in {MANIFEST}")
    return content


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def listed(folder: Path) -> dict[str, list[str]]:
    """The SHA-256 that each file may have, by its name: one, or two where a kill may have left the file before. Empty,
    if there is no manifest, or none that is whole (`manifest_fault`)."""
    try:
        return parsed(read_bytes(folder / MANIFEST, TEXT))
    except UNREADABLE:
        return {}


def manifest_fault(folder: Path) -> str:
    """What is wrong with the manifest of a folder; empty: nothing, or it has none."""
    if not os.path.lexists(folder / MANIFEST):
        return ""
    try:
        parsed(read_bytes(folder / MANIFEST, TEXT))
    except UNREADABLE as error:
        return f"{MANIFEST} is damaged ({reason(error)}), so that no file could be verified"
    return ""


def parsed(content: bytes) -> dict[str, list[str]]:
    """What a manifest lists; raises if it does not match its own checksum."""
    found = json.loads(content)
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or found.get("digest") != digest(compact(files)):
        raise DamagedError("its content does not match its digest")
    return {str(name): [str(one) for one in sums] for name, sums in files.items()}


def manifest(files: Mapping[str, list[str]]) -> bytes:
    """A manifest that lists these checksums."""
    content = {"files": dict(sorted(files.items()))}
    return (json.dumps(content | {"digest": digest(compact(content["files"]))}, indent=2) + "\n").encode()


def compact(files: Any) -> bytes:
    return json.dumps(files, sort_keys=True).encode()


def reason(error: BaseException) -> str:
    """Why something failed, in one line, without the names of files that the sentence around it has."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:160]


def format_of(folder: Path) -> Any:
    """The format in which a folder was written; a start that is kept does not say, and has today's in its name."""
    about = folder / "about.json"
    return content(about).get("format") if about.exists() else FORMAT


def of_today(folder: Path) -> None:
    """Raise for a run of another format, whose nets cannot be read."""
    if (made := format_of(folder)) != FORMAT:
        raise RecordError(
            f"{folder} has format {made}, this shoal reads the checkpoints of format {FORMAT}; make it again with "
            f"`shoal run {folder / 'settings.toml'}`"
        )


def raw_settings(folder: Path, verified: bool) -> bytes:
    """The settings of a run directory as they are written; `verified`, as the manifest says that they were."""
    place = folder / "settings.toml"
    try:
        return read_whole(place) if verified else read_bytes(place, TEXT)
    except UNREADABLE as error:
        raise RecordError(f"cannot read {place}: {reason(error)}; restore it, or start a new run") from None


def text(content: dict[str, Any]) -> bytes:
    """A JSON file that people can read."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def content(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run directory."""
    try:
        found = json.loads(read_whole(path))
    except UNREADABLE as error:
        raise RecordError(f"cannot read {path}: {reason(error)}; restore it, or start a new run") from None
    if not isinstance(found, dict):
        raise RecordError(f"cannot read {path}: it holds no JSON object; restore it, or start a new run")
    return found
