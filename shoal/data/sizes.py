"""How large data of somebody else is, told by its headers before it is read, and which files are read at all."""

import ast
import os
import stat
import struct
import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from shoal.data.dataset import DataError
from shoal.units import shown

LIMIT = "SHOAL_MEMORY"  # bytes that data may take, if it is said
USUAL = 2 * 10**9  # if it is not
HEAD = 10_000  # bytes of the header of an array, at most
COLUMN = 8  # bytes of a number of a table
LETTER = 4  # bytes of a letter of an array
DEEPEST = 20  # structs in each other in the footer of a table


def limit() -> int:
    """Bytes that data of one's own may take in memory."""
    said = os.environ.get(LIMIT, "")
    try:
        found = int(float(said)) if said else USUAL
    except (ValueError, OverflowError):
        raise DataError(f"{LIMIT} cannot be {said!r}; say a number of bytes, as in {LIMIT}=8e9") from None
    if found <= 0:
        raise DataError(f"{LIMIT} cannot be {said!r}; say a number of bytes above 0, as in {LIMIT}=8e9")
    return found


def affordable(needed: int, what: str) -> None:
    """Raise for data that would take more memory than it may."""
    if needed > limit():
        raise DataError(
            f"{what} would take about {shown(needed)} of memory, and data may take {shown(limit())}; make it smaller, "
            f"or set {LIMIT}={needed:.0e} if you mean it"
        )


def regular(path: Path, what: str = "") -> Path:
    """A path, if it leads to a regular file; what waits for somebody who writes, or never ends, is not opened."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {what or path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise DataError(f"cannot read {what or path}: it is {kind}; name a file that is there")
    return path


def inside(path: Path, folder: Path) -> Path:
    """A path, if it leads to something in a folder, whatever links are in between."""
    try:
        if path.resolve().is_relative_to(folder.resolve()):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise DataError(f"{path} is not in {folder}, and no other files are read; put it there")


def of_array(head: bytes, name: str) -> int:
    """Bytes of the array that the header of a `.npy` file describes."""
    if head[:6] != b"\x93NUMPY" or len(head) < 12:
        raise DataError(f"cannot read {name}: it is no array of numpy; save it with numpy.save")
    long = head[6] > 1
    length, at = (struct.unpack("<I", head[8:12])[0], 12) if long else (struct.unpack("<H", head[8:10])[0], 10)
    try:
        said = ast.literal_eval(head[at : at + min(length, HEAD)].decode("latin1"))
        shape, kind = said["shape"], said["descr"]
        size = int(kind[2:]) * (4 if kind[1] == "U" else 1)
        if not all(isinstance(one, int) and one >= 0 for one in shape):
            raise ValueError(shape)
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, MemoryError, RecursionError):
        raise DataError(f"cannot read {name}: its header is damaged, or it holds objects; save it again") from None
    return int(prod(shape)) * size


def of_npy(file: Path) -> int:
    """Bytes of the array in a file, which must be all there."""
    with regular(file).open("rb") as source:
        needed = of_array(source.read(HEAD + 12), str(file))
    if needed > file.stat().st_size:
        raise DataError(f"cannot read {file}: its header says {shown(needed)}, and it ends before; save it again")
    return needed


def of_npz(file: Path) -> int:
    """Bytes of all arrays in a file."""
    total = 0
    try:
        with zipfile.ZipFile(regular(file)) as held:
            for one in held.infolist():
                with held.open(one) as source:
                    needed = of_array(source.read(HEAD + 12), f"`{one.filename}` in {file}")
                if needed > one.file_size:
                    raise DataError(f"cannot read `{one.filename}` in {file}: it ends before its array; save it again")
                total += max(needed, one.file_size)
    except DataError:
        raise
    except Exception as error:  # what a damaged stream makes of its decoder
        raise DataError(f"cannot read {file}: {error}; save it with numpy.savez, without objects in it") from None
    return total


def of_parquet(file: Path) -> int:
    """Bytes of a table, by its footer: all its values as numbers, the same as one array, and scaled; and its pages."""
    said = file.stat().st_size
    try:
        with regular(file).open("rb") as source:
            source.seek(max(0, said - 8))
            length, mark = struct.unpack("<I4s", source.read(8))
            if mark != b"PAR1" or length > said - 12:
                raise ValueError("it has no footer that can be read")
            source.seek(said - 8 - length)
            footer = Compact(source.read(length)).fields()
        chunks = [chunk[3] for group in footer[4] for chunk in group[1]]  # ids as in the format's description
        values, pages = sum(chunk[5] for chunk in chunks), sum(max(chunk[6], chunk[7]) for chunk in chunks)
        if not chunks and footer[3]:
            raise ValueError("it has rows and no columns")
    except (ValueError, LookupError, TypeError, struct.error, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot read {file} as a table: its footer is damaged ({error}); save it again") from None
    return int(3 * COLUMN * values + pages)


class Compact:
    """Structs of numbers, bytes and lists in the compact protocol of Thrift, which Parquet writes its footer in."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def number(self) -> int:
        """A number of seven bits in each byte."""
        found = shift = 0
        while (one := self.byte()) & 0x80:
            found, shift = found | (one & 0x7F) << shift, shift + 7
            if shift > 63:
                raise ValueError("a number has no end")
        return found | one << shift

    def signed(self) -> int:
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def fields(self, deep: int = 0) -> dict[int, Any]:
        """The fields of a struct by their ids."""
        found: dict[int, Any] = {}
        last = 0
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            found[last] = kind == 1 if kind in (1, 2) else self.value(kind, deep + 1)
        return found

    def value(self, kind: int, deep: int) -> Any:
        if deep > DEEPEST:
            raise ValueError("it is nested too deeply")
        if kind in (1, 2, 3):  # what is true or false takes a byte in lists
            return self.byte()
        if kind in (4, 5, 6):
            return self.signed()
        if kind == 7 or kind == 8:
            length = 8 if kind == 7 else self.number()
            self.at += length
            if self.at > len(self.content):
                raise ValueError("it ends too early")
            return self.content[self.at - length : self.at]
        if kind in (9, 10):
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.number()
            if count > len(self.content):
                raise ValueError("a list is longer than the footer")
            return [self.value(head & 15, deep + 1) for _ in range(count)]
        if kind == 12:
            return self.fields(deep + 1)
        raise ValueError(f"it has something of kind {kind}")


def of_words(rows: int, longest: int) -> int:
    """Bytes of a column of words as an array, in which each takes as much as the longest."""
    return 2 * LETTER * rows * longest


def of_pictures(sizes: Sequence[tuple[int, int]], what: str) -> None:
    """Raise for pictures of (width, height) that would not fit, with their colours."""
    affordable(2 * 3 * sum(width * height for width, height in sizes), what)
