"""A bank: all rows of a dataset (pictures, rows of a table, series) and what is known of each, held once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.errors import UserError
from shoal.units import plural

EXACT = 2**24  # every whole number up to here is a float32
SCALES = ("peak", "standard", "none")
Numbers = NDArray[np.uint8 | np.float32]
View = Callable[[Numbers, int], Numbers]


class Column(NamedTuple):
    """A column of a table that agents read: its name and, where it had words, those that became columns of 0 and 1."""

    name: str
    words: tuple[str, ...] | None = None


# Banks compare by identity: comparing two large arrays element by element is never what a caller wants.
@dataclass(frozen=True, eq=False)
class Bank:
    """All rows of a dataset, once.

    `images[N, ...]` are raw numbers, bytes or float32: `[N, 28, 28]` for the MNIST family, `[N, 3, 32, 32]` (channel
    first) for CIFAR-100, `[N, D]` for rows of a table, `[N, channels, steps]` for series. `labels[N]` are global class
    ids: one id never means two things, also when several sources are joined. `source[N]` is an index into `sources`.
    `test[N]` marks the test rows.

    Where the data says so, `task[N]` is the task of its source that a row belongs to, counted from 0, `time[N]` when it
    was taken, in seconds or any other unit, and `targets[N, D]` the numbers to predict; then there is one class.

    `scale` says what a model reads (`shoal/data/scaling.py`): numbers divided by `peak`, the largest of the training
    rows (`peak`); moved and stretched by the mean and spread of an agent's own training rows (`standard`); or as they
    are (`none`).

    Numbers of another type are converted where that keeps every one (floats become float32), and else refused.
    """

    name: str
    images: Numbers
    labels: NDArray[np.int64]
    source: NDArray[np.int64]
    test: NDArray[np.bool_]
    peak: int
    classes: tuple[str, ...]
    sources: tuple[str, ...]
    task: NDArray[np.int64] | None = None
    time: NDArray[np.float64] | None = None
    targets: NDArray[np.float32] | None = None
    scale: str = "peak"
    view: View | None = None  # how a task sees raw rows, by a number; 0: as they are
    columns: tuple[Column, ...] = ()  # of the table that the rows come from, if they do
    wanted: tuple[str, ...] = ()  # the columns that were to be learned

    def __post_init__(self) -> None:
        def put(field: str, array: np.ndarray) -> None:
            object.__setattr__(self, field, array)

        said = f"bank `{self.name}`"
        put("images", numbers(self.images, f"{said}: images"))
        if self.images.ndim < 2:
            raise UserError(
                f"{said}: the data must have a row for each example, as in [N, columns], [N, channels, steps], "
                f"[N, height, width] or [N, channels, height, width], got shape {list(self.images.shape)}"
            )
        if not self.images.size:
            raise UserError(f"{said}: there are no rows, got shape {list(self.images.shape)}; give at least one")
        put("labels", whole(self.labels, f"{said}: labels"))
        put("source", whole(self.source, f"{said}: source"))
        put("test", marks(self.test, f"{said}: test"))
        if self.task is not None:
            put("task", whole(self.task, f"{said}: task"))
        if self.time is not None:
            put("time", finite(np.asarray(self.time, np.float64), f"{said}: time"))
        if self.targets is not None:
            put("targets", numbers(self.targets, f"{said}: targets").astype(np.float32))
        for field in ("labels", "source", "test", "task", "time"):
            array = getattr(self, field)
            if array is not None and array.shape != self.images.shape[:1]:
                raise UserError(
                    f"{said}: {field} must have one entry for each of the {len(self.images)} rows, "
                    f"got shape {list(array.shape)}"
                )
        if self.targets is not None and (self.targets.ndim != 2 or len(self.targets) != len(self.images)):
            raise UserError(
                f"{said}: targets must have shape [{len(self.images)}, numbers to predict], "
                f"got {list(self.targets.shape)}"
            )
        if self.targets is not None and len(self.classes) != 1:
            raise UserError(
                f"{said}: with targets there is one class for all rows, got {len(self.classes)}; leave targets out to "
                "learn classes"
            )
        if self.scale not in SCALES:
            raise UserError(f"{said}: scale must be one of {', '.join(SCALES)}, got {self.scale!r}")
        if self.peak < 1:
            raise UserError(f"{said}: peak must be 1 or more because pixels are divided by it, got {self.peak}")
        if self.scale != "peak" and self.peak != 1:
            raise UserError(
                f"{said}: nothing is divided by a peak with scale = {self.scale!r}, so peak must be 1, got {self.peak}"
            )
        if self.task is not None and self.task.min() < 0:
            raise UserError(f"{said}: tasks are counted from 0, got {self.task.min()}")
        for field, ids, names in (("labels", self.labels, self.classes), ("source", self.source, self.sources)):
            if len(set(names)) < len(names):
                raise UserError(f"{said}: every name in {names} must be different, or ids become ambiguous")
            if ids.min() < 0 or ids.max() >= len(names):
                raise UserError(
                    f"{said}: {field} must lie in 0..{len(names) - 1} (there are {len(names)} names), "
                    f"got {ids.min()}..{ids.max()}"
                )

    def __len__(self) -> int:
        return len(self.images)

    def base(self, rows: Any) -> Any:
        """The rows of the bank that some rows are views of: row `view * len(bank) + row` is `row`, seen by a view."""
        return rows % len(self)

    def take(self, rows: NDArray[np.int64]) -> Numbers:
        """The raw numbers of some rows, each as its view sees it: [n, ...]."""
        found: Numbers = self.images[self.base(rows)]
        views = rows // len(self)
        if self.view is None or not views.any():
            return found
        for view in np.unique(views):
            found[views == view] = self.view(found[views == view], int(view))
        return found

    @cached_property
    def digest(self) -> str:
        """Eight letters that name the content: every number, every name, the test rows and the scale."""
        found = blake2b(digest_size=4)
        found.update(repr((self.peak, self.classes, self.sources, self.scale)).encode())
        for array in (self.images, self.labels, self.source, self.test, self.task, self.time, self.targets):
            found.update(repr(None if array is None else (array.dtype.str, array.shape)).encode())
            if array is not None:
                found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


def numbers(given: Any, what: str) -> Numbers:
    """An array as bytes or float32, if that keeps its numbers: bytes where they are whole and from 0 to 255."""
    array: NDArray[Any] = np.asarray(given)
    if array.dtype in (np.uint8, np.bool_):
        return array.astype(np.uint8, copy=False)
    if array.dtype.kind in "iu":
        least, largest = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if least >= 0 and largest <= 255:
            return array.astype(np.uint8)
        if max(-least, largest) > EXACT:
            at = np.argwhere((array > EXACT) | (array < -EXACT))[0]
            raise UserError(
                f"{what} has the whole number {array[tuple(at)]} {place(at)}, and float32 keeps whole numbers up to "
                f"{EXACT} only; subtract the same number from that whole column, or leave the column out"
            )
        return array.astype(np.float32)
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            found: NDArray[np.float32] = array.astype(np.float32, copy=False)
        if found.dtype != array.dtype and not np.isfinite(found).all() and np.isfinite(array).all():
            at = np.argwhere(~np.isfinite(found))[0]
            raise UserError(
                f"{what} has {array[tuple(at)]} {place(at)}, and float32 ends at {np.finfo(np.float32).max:.3g}; "
                "give that column in a larger unit"
            )
        return finite(found, what)
    hints = {
        "c": "give the real and the imaginary parts as two columns",
        "U": "give words as columns of numbers, such as one column of 0 and 1 for each word, or texts as "
        "shoal.texts(x) with a backbone that reads them",
        "O": "give rows of numbers that all have the same shape",
        "M": "give times as `time`, or as numbers such as the hour of the day",
        "m": "give times as `time`, or as numbers such as the hour of the day",
    }
    hint = hints.get(array.dtype.kind, "give whole numbers or floats")
    raise UserError(f"{what} must be numbers, got {array.dtype}; {hint}")


def finite(array: NDArray[Any], what: str) -> NDArray[Any]:
    """The same array, if every number in it is one."""
    good = np.isfinite(array)
    if not good.all():
        at = np.argwhere(~good)[0]
        count = int((~good).sum())
        rows = int((~good).reshape(len(array), -1).any(1).sum())
        many = "values that are not numbers" if count > 1 else "value that is not a number"
        raise UserError(
            f"{what} has {count} {many}, in {plural(rows, 'row')}, the first {array[tuple(at)]} {place(at)}; say what "
            f"to put there, or leave out the row{'s' * (rows > 1)}"
        )
    return array


def place(at: NDArray[np.int64]) -> str:
    """Where in an array something is, in words."""
    row, *rest = at.tolist()
    if not rest:
        return f"in row {row}"
    return f"in row {row}, column {rest[0]}" if len(rest) == 1 else f"in row {row}, at {rest}"


def whole(given: Any, what: str) -> NDArray[np.int64]:
    """Ids as int64, if that keeps every one of them."""
    array: NDArray[Any] = np.asarray(given)
    fits = array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.isfinite(array).all())
    if not fits or (array.size and ((array % 1).any() if array.dtype.kind == "f" else array.max() > 2**63 - 1)):
        raise UserError(f"{what} must be whole numbers, the place of a name in its list, got {array.dtype}")
    return array.astype(np.int64, copy=False)


def marks(given: Any, what: str) -> NDArray[np.bool_]:
    """Marks as booleans; 0 and 1 are fine."""
    array: NDArray[Any] = np.asarray(given)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise UserError(f"{what} must be True or False for each row, got {array.dtype}")
    return array.astype(np.bool_, copy=False)


def join(banks: Sequence[Bank], name: str) -> Bank:
    """One bank of several: the class ids and sources of each are moved behind those of the banks before it."""
    if not banks:
        raise UserError(f"bank `{name}`: there is nothing to join; give at least one bank")
    first = banks[0]
    for bank in banks[1:]:
        if bank.images.shape[1:] != first.images.shape[1:]:
            raise UserError(
                f"bank `{name}`: rows of `{bank.name}` have shape {list(bank.images.shape[1:])}, those of "
                f"`{first.name}` {list(first.images.shape[1:])}; join data of one shape"
            )
        if bank.scale != first.scale:
            raise UserError(
                f"bank `{name}`: `{bank.name}` has scale {bank.scale!r}, `{first.name}` {first.scale!r}; "
                "join banks of one scale"
            )
        if bank.targets is not None or first.targets is not None:
            raise UserError(f"bank `{name}`: banks with targets cannot be joined; join banks of classes")
        # One divisor serves the whole bank, so a bank with another peak would silently be scaled wrongly.
        if bank.peak != first.peak:
            raise UserError(
                f"bank `{name}`: `{bank.name}` has peak {bank.peak}, `{first.name}` {first.peak}; "
                "join banks of one peak, or rescale the pixels first"
            )
    labels, source, at, behind = [], [], 0, 0
    for bank in banks:
        labels.append(bank.labels + at)
        source.append(bank.source + behind)
        at += len(bank.classes)
        behind += len(bank.sources)
    return Bank(
        name=name,
        images=np.concatenate([bank.images for bank in banks]),
        labels=np.concatenate(labels),
        source=np.concatenate(source),
        test=np.concatenate([bank.test for bank in banks]),
        peak=first.peak,
        classes=tuple(c for bank in banks for c in bank.classes),
        sources=tuple(s for bank in banks for s in bank.sources),
        task=together([bank.task for bank in banks]),
        time=together([bank.time for bank in banks]),
        scale=first.scale,
    )


def together(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """What all banks say of their rows, or None if one does not."""
    said = [part for part in parts if part is not None]
    return np.concatenate(said) if len(said) == len(parts) else None


def split(
    name: str,
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    classes: Sequence[str],
) -> Bank:
    """A bank of one source from its official training and test images and labels; class names get the source's name."""
    images = np.concatenate([train[0], test[0]])
    return Bank(
        name=name,
        images=images,
        labels=np.concatenate([train[1], test[1]]),
        source=np.zeros(len(images), np.int64),
        test=np.arange(len(images)) >= len(train[0]),
        peak=int(train[0].max()),
        classes=tuple(f"{name}/{c}" for c in classes),
        sources=(name,),
    )
