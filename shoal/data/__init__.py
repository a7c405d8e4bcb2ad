"""Datasets: what there is, where it lies, how to get it. Needs numpy only: listing data must not wait for torch."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shoal.data import download, store
from shoal.data.bank import Bank, join
from shoal.data.cifar import CIFAR100
from shoal.data.dataset import DataError, Dataset, Download, File
from shoal.data.digits import DIGITS
from shoal.data.download import Progress
from shoal.data.idx import FASHIONMNIST, KMNIST, MNIST
from shoal.data.parking import PARKING
from shoal.data.sources import SCHEMES, Data, is_source, read
from shoal.data.spam import SPAM
from shoal.data.watches import WATCHES
from shoal.doors import Table, is_door
from shoal.errors import nearly

__all__ = [
    "DATASETS",
    "Bank",
    "Data",
    "DataError",
    "Dataset",
    "Download",
    "File",
    "Progress",
    "Status",
    "fetch",
    "find",
    "join",
    "load",
    "status",
]

COMBINED = Dataset(
    name="combined",
    about="mnist, kmnist and fashionmnist side by side, 30 classes",
    licence="that of each part",
    citation="that of each part",
    parts=("mnist", "kmnist", "fashionmnist"),
)

BUILT_IN: dict[str, Dataset] = {
    "digits": DIGITS,
    "mnist": MNIST,
    "kmnist": KMNIST,
    "fashionmnist": FASHIONMNIST,
    "cifar100": CIFAR100,
    "combined": COMBINED,
    "watches": WATCHES,
    "parking": PARKING,
    "spam": SPAM,
}
DATASETS: Table[Dataset] = Table("dataset", BUILT_IN, "shoal.datasets", lambda entry: isinstance(entry, Dataset))


@dataclass(frozen=True)
class Status:
    """A row of `shoal data list`. `where` is the folder that holds the files, `size` their bytes on disk."""

    name: str
    present: bool
    where: Path | None
    size: int
    note: str


def pick(name: str) -> Dataset:
    """The table's entry, or an error that lists what there is."""
    scheme, colon, _ = name.partition(":")
    hint = nearly(scheme, SCHEMES).replace("`?", ":`?") if colon and name not in DATASETS else ""
    if hint and "." not in scheme and find_spec(scheme) is None:
        raise DataError(f"`{name}` names no dataset; {hint}{', '.join(SCHEMES)} can be read")
    if name in DATASETS or is_door(name):
        return DATASETS.find(name)
    usual = "use one of these, yours as package.module:Name, or a file of yours as csv:PATH?label=NAME"
    hint = nearly(name, DATASETS).strip() or usual
    raise DataError(f"unknown dataset `{name}`; there are {', '.join(DATASETS)}; {hint}")


def find(name: str, folder: Path | None = None) -> Path | None:
    """The first folder that holds all files of the dataset, or None.

    Searched are `folder` (`--data`), `$SHOAL_DATA`, the user cache, in this order. A dataset that is shipped lies in
    the package. The parts of a joined dataset may lie in different folders: then this is the folder of the first part.
    """
    if is_source(name):
        return Path()
    dataset = pick(name)
    if dataset.parts:
        found = [find(part, folder) for part in dataset.parts]
        return found[0] if None not in found else None
    if dataset.shipped:
        return dataset.shipped.parent
    if dataset.carried:
        return dataset.carried.place(folder)
    return next((p.folder for p in store.places(folder) if not store.absent(dataset, p.folder)), None)


def load(name: str, folder: Path | None = None) -> Bank:
    """The bank of a dataset, from the folder that `find` names; every byte is checked against the published md5. Data
    of one's own (`csv:PATH`, ...) is read from where its name says."""
    if is_source(name):
        return read(name).bank
    dataset = pick(name)
    if dataset.parts:
        return join([load(part, folder) for part in dataset.parts], name)
    assert dataset.read is not None  # a dataset has parts or a reader
    if dataset.carried:
        return dataset.read(name, dataset.carried.contents(name, folder))
    place = find(name, folder)
    if place is None:
        raise missing(dataset, folder)
    return dataset.read(name, {file.name: store.content(dataset, file, place) for file in dataset.files})


def missing(dataset: Dataset, folder: Path | None) -> DataError:
    """The error for a dataset that is in none of the places, or only in part."""
    looked = []
    for place in store.places(folder):
        gone = store.absent(dataset, place.folder)
        if not place.folder.is_dir():
            note = "no such folder"
        elif len(gone) == len(dataset.files):
            note = "not there"
        else:
            note = f"only in part, missing {', '.join(file.path for file in gone)}"
        looked.append(f"{place.name} {place.folder}: {note}")
    wanted = store.wanted(dataset, store.places(folder)[0].folder)
    return DataError(
        f"dataset `{dataset.name}` was not found ({'; '.join(looked)}); run `shoal data get {dataset.name}`, set "
        f"machine.data or $SHOAL_DATA to a folder that torchvision has filled, or {wanted}"
    )


def fetch(name: str, folder: Path | None = None, progress: Progress = lambda name, done, total: None) -> Path:
    """Download a dataset into `folder`, or `$SHOAL_DATA`, or the user cache; returns the folder that now holds it.

    Files that are there and undamaged are not downloaded again; damaged ones are replaced.
    """
    dataset = pick(name)
    for part in dataset.parts:
        fetch(part, folder, progress)
    if dataset.carried:
        dataset.carried.contents(name, folder)
        return dataset.carried.home(name, folder)
    if dataset.shipped:
        return dataset.shipped.parent
    place = store.places(folder)[0].folder
    download.fetch(dataset, place, progress)
    return place


def status(folder: Path | None = None) -> list[Status]:
    """What there is, in the order of the table; looks at names and sizes only, so it answers at once."""
    return [inspect(dataset, folder) for dataset in DATASETS.values()]


def inspect(dataset: Dataset, folder: Path | None) -> Status:
    """The row of one dataset."""
    if dataset.parts:
        rows = [inspect(DATASETS[part], folder) for part in dataset.parts]
        gone = [row.name for row in rows if not row.present]
        note = f"needs {', '.join(gone)}" if gone else dataset.about
        return Status(dataset.name, not gone, None if gone else rows[0].where, sum(row.size for row in rows), note)
    where = find(dataset.name, folder)
    if dataset.carried:
        note = dataset.about if where else str(dataset.carried.missing(dataset.name))
        return Status(dataset.name, where is not None, where, dataset.carried.size if where else 0, note)
    if where is None:
        note = f"not found: shoal data get {dataset.name}"
        for place in store.places(folder):
            gone_files = store.absent(dataset, place.folder)
            if len(gone_files) < len(dataset.files):
                note = (
                    f"{place.folder} lacks {', '.join(file.path for file in gone_files)}: shoal data get {dataset.name}"
                )
                break
        return Status(dataset.name, False, None, 0, note)
    if dataset.shipped:
        return Status(dataset.name, True, where, dataset.shipped.stat().st_size, dataset.about)
    size = 0
    for file in dataset.files:
        path = store.locate(file, where)
        assert path is not None  # find() has just seen it
        size += path.stat().st_size
        if path.name == file.name and path.stat().st_size != file.size:
            note = f"damaged: {path} has {path.stat().st_size} bytes instead of {file.size}"
            return Status(dataset.name, False, where, size, note)
    return Status(dataset.name, True, where, size, dataset.about)
