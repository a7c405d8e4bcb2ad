"""Files that appear whole or not at all, in the place of none that somebody else wrote."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from shoal.errors import UserError

HEAD = 4096  # bytes of a file that show who wrote it
Mark = Callable[[str], bool]  # is this the beginning of a file of ours?


def save(file: Path, content: bytes | str, advice: str, mark: Mark | None = None) -> Path:
    """Write a file beside its place, then move it there, so that it is whole whatever happens.

    With a `mark`, a file that does not begin like one of ours stays, and is an error. `advice` says what to do if it
    cannot be written: "give --out another place".
    """
    replaceable(file, mark)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A folder's name may be no text at all.
        settle(put(file, content if isinstance(content, bytes) else content.encode("utf-8", "replace")), file)
    except (OSError, ValueError) as error:  # no file can have such a name
        with suppress(OSError, ValueError):
            beside(file).unlink()
        raise UserError(f"cannot write {file}: {getattr(error, 'strerror', None) or error}; {advice}") from None
    return file


def beside(file: Path) -> Path:
    """Where a file is written before it is moved to its place."""
    return file.with_name(f"{file.name}.part")


def put(file: Path, content: bytes) -> Path:
    """Write a file beside its place, and say where it is; `settle` moves it there."""
    part = beside(file)
    with fresh(part) as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())
    return part


def fresh(part: Path) -> BinaryIO:
    """A new file to write to. What a kill has left there is removed; a link is removed and never followed."""
    part.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(part, flags, 0o666), "wb")


def settle(part: Path, file: Path) -> None:
    """Move a file to its place for good: the folder too is on the disk when this is done, where the system can do
    that."""
    part.replace(file)
    with suppress(OSError):
        handle = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replaceable(file: Path, mark: Mark | None) -> None:
    """Raise if there is something in a file's place that must stay: what is no plain file, and with a `mark` what
    somebody else wrote. An empty file is nobody's."""
    if not file.name:
        raise UserError(f"cannot write {file}: it is a folder; give the name of a file")
    try:
        there = file.stat()
        if not stat.S_ISREG(there.st_mode):
            what = "a folder" if stat.S_ISDIR(there.st_mode) else "no plain file"
            raise UserError(f"cannot write {file}: it is {what}; give the name of a file")
        if mark is None or not there.st_size:
            return
        with file.open("rb") as source:
            head = source.read(HEAD).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):  # there is nothing to lose
        return
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"cannot write {file}: {getattr(error, 'strerror', None) or error}; choose another place for it"
        ) from None
    if not mark(head):
        raise UserError(f"{file} is there already, and shoal did not write it; move it away, or choose another name")


def begins(*words: str) -> Mark:
    """The mark of a file that has one of some words at its beginning."""
    return lambda head: any(word in head for word in words)


def columns(*names: str) -> Mark:
    """The mark of a CSV that has at least half of some columns."""
    return lambda head: 2 * len(set(names) & set(head.splitlines()[0].strip("\ufeff").split(","))) >= len(names)
