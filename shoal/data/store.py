"""Where datasets lie on this machine, and reading their files so that a damaged one is never used."""

import gzip
import hashlib
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from shoal.data.dataset import Content, DataError, Dataset, File


@dataclass(frozen=True)
class Place:
    """A folder that may hold datasets, and how the user names it."""

    name: str
    folder: Path


def cache() -> Path:
    """The folder for downloads of this user, where the operating system wants it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "shoal"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "shoal"
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG standard: a relative path is invalid and must be ignored.
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "shoal"


def places(folder: Path | None) -> tuple[Place, ...]:
    """The folders to search, first one first; a download goes into the first."""
    found = []
    if folder is not None:
        found.append(Place("the given folder", home(folder, "--data")))
    if os.environ.get("SHOAL_DATA"):
        found.append(Place("$SHOAL_DATA", home(os.environ["SHOAL_DATA"], "$SHOAL_DATA")))
    found.append(Place("the user cache", cache()))
    return tuple(found)


def home(folder: Path | str, name: str) -> Path:
    """A folder with `~` written out, that can be looked into."""
    try:
        found = Path(folder).expanduser()
        found.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(f"cannot look for data in {name} = {str(folder)[:200]}: {why}; name another folder") from None
    return found


def locate(file: File, folder: Path) -> Path | None:
    """The file below the folder, or its `.gz`; the plain one is preferred because it is faster to read."""
    path = folder / file.path
    packed = path.with_name(f"{path.name}.gz")
    return next((p for p in (path, packed) if p.is_file()), None)


def absent(dataset: Dataset, folder: Path) -> tuple[File, ...]:
    """The files of the dataset that are not below the folder."""
    return tuple(file for file in dataset.files if locate(file, folder) is None)


def wanted(dataset: Dataset, folder: Path) -> str:
    """Which files to put where, to do by hand what a download would do."""
    spots: dict[Path, list[str]] = {}
    for file in dataset.files:
        path = folder / file.path
        spots.setdefault(path.parent, []).append(path.name)
    return "; ".join(f"put {', '.join(names)} (each as it is or as .gz) into {spot}" for spot, names in spots.items())


def damaged(path: Path, expected: str, found: str, name: str) -> DataError:
    """The error for a file that is there but is not what its authors published."""
    return DataError(
        f"{path} is damaged: expected {expected}, found {found}; "
        f"delete it, then run `shoal data get {name}` or copy the published file there again"
    )


def content(dataset: Dataset, file: File, folder: Path) -> Content:
    """The uncompressed bytes of a file, compared with its published size, md5 and (where it is known) SHA-256.

    The comparison is made at every load: it takes a tenth of a second for MNIST, a third for CIFAR-100, and pixels that
    a disk or a copy has changed would otherwise show up as results nobody can explain. It is made after decompression,
    so a file that someone has packed again is as good as the original.
    """
    path = locate(file, folder)
    if path is None:
        raise DataError(f"{folder / file.path} is missing; run `shoal data get {dataset.name}`")
    expected = f"{file.size} bytes"
    try:
        if path.suffix == ".gz" and path.name != file.name:
            with gzip.open(path) as stream:
                # One byte more than expected is enough to know that it is too long.
                data = stream.read(file.size + 1)
            if len(data) > file.size:
                raise damaged(path, f"{expected} when unpacked", "more", dataset.name)
        else:
            size = path.stat().st_size
            if size != file.size:
                raise damaged(path, expected, f"{size} bytes", dataset.name)
            data = path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"gzip of {expected}", f"a broken file ({error})", dataset.name) from error
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}; make it readable, or take the data from another folder"
        ) from error
    if len(data) != file.size:
        raise damaged(path, expected, f"{len(data)} bytes", dataset.name)
    if wrong := differs(data, file):
        raise damaged(path, *wrong, dataset.name)
    return Content(path, data)


def differs(data: bytes, file: File) -> tuple[str, str] | None:
    """The checksum that bytes should have, and the one they have, where these are not the same. An attacker can make
    another file of the same md5, but none of the same SHA-256."""
    for name, expected, found in (
        ("md5", file.md5, digest(data)),
        ("SHA-256", file.sha256, hashlib.sha256(data).hexdigest() if file.sha256 else ""),
    ):
        if found != expected:
            return f"{name} {expected}", f"{name} {found}"
    return None


def digest(data: bytes) -> str:
    """The md5 of some bytes: against accidents, not attackers, hence allowed where md5 is banned for security."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
