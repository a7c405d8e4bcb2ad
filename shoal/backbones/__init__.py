"""Backbones: frozen nets before all others. What one makes of every row is computed once, kept on disk, and read from
then on in the place of the rows."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import data
from shoal.backbones.table import BACKBONES, Backbone, Extractor, extractor_of, named
from shoal.data.bank import Bank, Numbers
from shoal.data.store import cache
from shoal.errors import UserError
from shoal.files import save

if TYPE_CHECKING:
    from shoal.settings.groups import Settings

__all__ = ["BACKBONES", "Backbone", "Extractor", "bank_of", "features", "named"]
BATCH = 64  # rows at a time
MANY = 1_000  # rows, from which on it is said that they are read


def bank_of(settings: "Settings", folder: Path | None = None) -> Bank:
    """The data of a run as its agents read it; `folder` wins over `machine.data`."""
    said = Path(settings.machine.data) if settings.machine.data else None
    return through(data.load(settings.dataset, folder or said), settings.backbone)


def through(bank: Bank, backbone: str) -> Bank:
    """A bank whose rows are what a backbone makes of those of another; without one, that other."""
    if not backbone:
        return bank
    peak = bank.peak if bank.scale == "peak" else 1
    found = features(backbone, bank.images, peak, bank.name)
    return replace(bank, images=found, peak=1, scale="none", view=None, columns=())


def features(backbone: Any, rows: Numbers, peak: int = 1, name: str = "rows") -> Numbers:
    """What a backbone makes of raw rows [N, ...], which are divided by `peak`: float32 [N, F]. It is computed once, in
    batches, and then read from the user's cache by a digest of rows and backbone.

    A backbone is a name (`shoal list backbones`), a file `net.onnx`, `package.module:make`, or an `nn.Module`.

    >>> import numpy as np, shoal, torch
    >>> shoal.features(torch.nn.Flatten(), np.ones((5, 2, 3), np.float32)).shape
    (5, 6)
    """
    made = extractor_of(named(backbone))
    place = cache() / "features" / f"{digest(made, rows, peak)}.npy"
    kept = read(place, len(rows))
    if kept is not None:
        return kept
    found = computed(made, rows, peak, name)
    with suppress(UserError):  # where it cannot be kept, it is computed again the next time
        save(place, packed(found), "free some room")
    return found


def digest(made: Extractor, rows: Numbers, peak: int) -> str:
    """Letters that name rows and backbone, every number of both."""
    found = hashlib.blake2b(digest_size=16)
    found.update(repr((made.digest, peak, rows.dtype.str, rows.shape)).encode())
    found.update(np.ascontiguousarray(rows).data)
    return found.hexdigest()


def packed(found: Numbers) -> bytes:
    """Features as a file of numpy."""
    from io import BytesIO

    content = BytesIO()
    np.save(content, found, allow_pickle=False)
    return content.getvalue()


def read(place: Path, count: int) -> Numbers | None:
    """Features that were kept; None: there are none, or they are damaged."""
    try:
        found: Numbers = np.load(place, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    good = found.dtype == np.float32 and found.ndim == 2 and len(found) == count and bool(np.isfinite(found).all())
    return found if good else None


def computed(made: Extractor, rows: Numbers, peak: int, name: str) -> Numbers:
    """Features of all rows, batch by batch, under a bar where one can be seen."""
    parts: list[Numbers] = []
    with bar(f"{made.name} reads {name}", len(rows)) as tell:
        for at in range(0, len(rows), BATCH):
            batch = rows[at : at + BATCH].astype(np.float32) / np.float32(peak)
            said = np.asarray(made.run(batch), np.float32)
            parts.append(flat(said, made, len(batch)))
            tell(len(batch))
    found = np.concatenate(parts)
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise UserError(
            f"the backbone `{made.name}` gives row {row} a value that is not a number; mend it, or give another"
        )
    return found


def flat(said: Numbers, made: Extractor, count: int) -> Numbers:
    """What a backbone says of a batch as [n, F]: means over places of a picture [n, F, h, w] or of a series [n, t,
    F]."""
    if said.ndim == 4:
        said = said.mean((2, 3))
    elif said.ndim == 3:
        said = said.mean(1)
    if said.ndim != 2 or len(said) != count or not said.shape[1]:
        raise UserError(
            f"the backbone `{made.name}` makes {list(said.shape)} of {count} rows, and [{count}, F], "
            f"[{count}, F, h, w] or [{count}, t, F] are wanted; give one that ends in features"
        )
    return said


@contextmanager
def bar(words: str, total: int) -> Iterator[Any]:
    """A progress bar where somebody can see it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if total >= MANY and not console.is_terminal:
        console.print(f"{words}: {total:,} rows, once; what it makes of them is kept", highlight=False, soft_wrap=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(words, total=total)
        yield lambda count: shown.update(task, advance=count)
