"""What a dataset is: its files, where they come from, and how they become a bank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from shoal.data.bank import Bank
from shoal.errors import UserError


class DataError(UserError):
    """A dataset is unknown, missing, damaged or cannot be downloaded; the message says what to do."""


@dataclass(frozen=True)
class File:
    """A file as its authors publish it, uncompressed: `path` is below the data folder, as torchvision lays it out."""

    path: str
    size: int
    md5: str
    sha256: str = ""  # where it is known: against attackers too

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Download:
    """A compressed file at a host (`.gz` of one file, or `.tar.gz`) and the files that it holds."""

    name: str
    size: int
    md5: str
    files: tuple[File, ...]


@dataclass(frozen=True)
class Content:
    """The verified, uncompressed bytes of a file, and where they were read, for error messages."""

    path: Path
    data: bytes


@dataclass(frozen=True)
class Carried:
    """A file that an installed package carries, and how to install that."""

    package: str
    path: str  # below the package
    size: int
    sha256: str
    install: str

    @property
    def place(self) -> Path | None:
        """Where it is; None: the package is not installed. Nothing of it is imported."""
        spec = find_spec(self.package)
        found = Path(spec.origin).parent / self.path if spec and spec.origin else None
        return found if found and found.is_file() else None

    def content(self, name: str) -> Content:
        """Its bytes, if they are those that were published."""
        place = self.place
        if place is None:
            raise self.missing(name)
        data = place.read_bytes()
        if sha256(data).hexdigest() != self.sha256:
            raise DataError(
                f"{place} is damaged: it is not the file of {self.size} bytes that the package {self.package} was "
                f"known to have; install it again: {self.install}"
            )
        return Content(place, data)

    def missing(self, name: str) -> DataError:
        return DataError(
            f"dataset `{name}` comes with the package {self.package}, which is not installed: {self.install}"
        )


@dataclass(frozen=True)
class Dataset:
    """An entry of the table `DATASETS`.

    `read` turns the contents of `downloads` (by file name) into a bank; it is called with the dataset's name, because
    datasets in one format share a reader. A small dataset can be `shipped` in the package instead of downloaded; its
    reader then gets no contents; or another package has it (`carried`). A dataset with `parts` is the join of other
    datasets and has no reader of its own.
    """

    name: str
    about: str
    licence: str
    citation: str
    read: Callable[[str, Mapping[str, Content]], Bank] | None = None
    hosts: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    shipped: Path | None = None
    carried: Carried | None = None
    parts: tuple[str, ...] = ()
    says: Mapping[str, Any] = field(default_factory=dict)  # of a fleet, where the user is silent, as in a settings file

    def __post_init__(self) -> None:
        if (self.read is None) == (not self.parts):
            raise ValueError(f"dataset `{self.name}` must have either a reader or parts, and not both")

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(file for download in self.downloads for file in download.files)
