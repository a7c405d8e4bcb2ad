"""What a dataset is: its files, where they come from, and how they become a bank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shoal.data.bank import Bank
from shoal.errors import UserError

if TYPE_CHECKING:
    from shoal.data.carried import Carried


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
    carried: "Carried | None" = None
    parts: tuple[str, ...] = ()
    says: Mapping[str, Any] = field(default_factory=dict)  # of a fleet, where the user is silent, as in a settings file

    def __post_init__(self) -> None:
        if (self.read is None) == (not self.parts):
            raise ValueError(f"dataset `{self.name}` must have either a reader or parts, and not both")

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(file for download in self.downloads for file in download.files)
