"""Arrays, tensors and lists with a row for each example, as a bank."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank, Column, Numbers, numbers
from shoal.data.dataset import DataError

CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency
MANY = 20  # so many different whole numbers may be classes, however few rows there are
HELD = 5  # of so many rows, one is for testing, where nothing says which are
FEW = 3  # rows of which one can be spared
CLASSES, NUMBERS = "classes", "numbers"  # what can be predicted
# What people call the parts of their data. Rows for validation are for testing where nothing else is.
TRAIN_WORDS, TEST_WORDS, BETWEEN = ("train", "training"), ("test", "testing"), ("val", "valid", "validation", "dev")


def bank_of(
    name: str,
    x: Any,
    y: Any,
    agent: Any = None,
    task: Any = None,
    time: Any = None,
    test: Any = None,
    predict: str | None = None,
    columns: tuple[Column, ...] = (),
    wanted: tuple[str, ...] = (),
) -> Bank:
    """A bank of rows x[N, ...] with one value each of the rest (`Data.from_arrays` says of which kinds); of rows of a
    table, its `columns` and those that are `wanted`."""
    images, picture = rows_of(x)
    count = len(images)
    if not count:
        raise DataError(f"there are no rows in `{name}`; give at least one")
    answers = one_each(y, "y", count, wide=True)
    labels, classes, targets = answered(answers, predict)
    source, sites = named(np.zeros(count, np.int64) if agent is None else one_each(agent, "agent", count), "agent")
    when = None if time is None else seconds(one_each(time, "time", count))
    number = None if task is None else numbered(one_each(task, "task", count), source, when)
    if test is None:
        held = held_out(labels, source, number, when)
    else:
        held = tested(one_each(test, "test", count))
        both(held, name)
    return Bank(
        name=name,
        images=images,
        labels=labels,
        source=source,
        test=held,
        peak=max(1, int(images[~held].max())) if picture else 1,
        classes=classes,
        sources=(name,) if agent is None else sites,
        task=number,
        time=when,
        targets=targets,
        scale="peak" if picture else "standard",
        columns=columns,
        wanted=wanted,
    )


def array(given: Any, what: str) -> NDArray[Any]:
    """An array, tensor, series or list as a numpy array; rows of different shapes are refused."""
    if hasattr(given, "detach"):  # a torch tensor, wherever it is
        if given.device.type == "meta":
            raise DataError(f"{what} is a tensor without values (on the device meta); load them first")
        tensor = given.detach().to_dense().cpu() if given.is_sparse else given.detach().cpu()
        try:
            return np.asarray(tensor.numpy())
        except TypeError:  # a type that numpy does not have, such as bfloat16
            return np.asarray(tensor.float().numpy())
    try:
        found: NDArray[Any] = np.asarray(given)
        if found.dtype == object and found.ndim == 1 and len(found) and isinstance(found[0], (np.ndarray, list, tuple)):
            found = np.stack([np.asarray(row) for row in found])
    except ValueError:
        raise ragged(given, what) from None
    if found.dtype == object and found.ndim == 1 and len(found) and hasattr(found[0], "detach"):
        return np.stack([array(row, what) for row in found])
    return found


def ragged(given: Sequence[Any], what: str) -> DataError:
    """The error for rows that differ in shape, which names two of them."""
    first = np.shape(given[0])
    for at, row in enumerate(given):
        try:
            shape = np.shape(row)
        except ValueError:
            return DataError(f"row {at} of {what} has parts of different lengths; pad or cut them to one length")
        if shape != first:
            return DataError(
                f"rows of {what} have different shapes: row 0 has {list(first)}, row {at} has {list(shape)}; pad or "
                "cut them to one shape, or give numbers that describe each row"
            )
    return DataError(f"{what} cannot be read as one array; give rows of numbers that all have the same shape")


def rows_of(x: Any) -> tuple[Numbers, bool]:
    """The rows [N, ...] as a bank has them, channels first, and whether they are pictures made of bytes.

    Rows of four axes whose last is 1, 3 or 4 long, and the second is not, are taken for pictures with channels last.
    """
    raw = array(x, "x")
    if raw.ndim == 0:
        raise DataError(f"x must have a row for each example, as in [N, columns], got the single value {raw}")
    found = raw[:, None] if raw.ndim == 1 and raw.dtype.kind in "biuf" else raw
    if found.ndim == 4 and found.shape[-1] in CHANNELS and found.shape[1] not in CHANNELS:
        found = np.moveaxis(found, -1, 1)
    if found.ndim == 4 and found.shape[1] == 1:
        found = found[:, 0]
    picture = raw.dtype == np.uint8 and found.ndim in (3, 4)
    return np.ascontiguousarray(numbers(found, "x")), picture


def one_each(given: Any, what: str, count: int, wide: bool = False) -> NDArray[Any]:
    """One value for each row; `wide`: or several numbers."""
    found = array(given, what)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    shape = "one value, or a row of numbers," if wide else "one value"
    if found.ndim not in ((1, 2) if wide else (1,)) or len(found) != count:
        raise DataError(
            f"{what} must have {shape} for each of the {count} rows of x, got shape {list(found.shape)}; give x and "
            f"{what} in the same order and length"
        )
    return found


Answers = tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float32] | None]


def answered(y: NDArray[Any], predict: str | None) -> Answers:
    """Labels, the names of classes and, if numbers are to be predicted, these."""
    if predict not in (None, CLASSES, NUMBERS):
        raise DataError(f'predict must be "{CLASSES}" or "{NUMBERS}", got {predict!r}')
    if y.dtype == object:
        y = plain(y, "y")
    if predict is None:
        predict = guessed(y)
    if predict == NUMBERS:
        if y.dtype.kind == "U":
            raise DataError(
                f'y has words, such as {str(y.ravel()[0])!r}, and predict="{NUMBERS}" needs numbers; leave predict '
                "out, and each word is a class"
            )
        targets = numbers(y[:, None] if y.ndim == 1 else y, "y").astype(np.float32)
        return np.zeros(len(y), np.int64), ("numbers",), targets
    if y.ndim == 2:
        raise DataError(
            f"y has shape {list(y.shape)}, and a class is one value for each row; give y.argmax(1), or names"
        )
    labels, classes = named(y, "y")
    if len(classes) < 2:
        raise DataError(
            f"all rows have the class {classes[0]!r}, and agents need at least two to tell apart; give rows of another "
            f'class, or say predict="{NUMBERS}" if y are numbers to predict'
        )
    return labels, classes, None


def guessed(y: NDArray[Any]) -> str:
    """Are y classes or numbers? Whole numbers are classes, also where they are floats, and numbers with a fraction
    are to be predicted, as are several floats in a row. What could be both is asked for."""
    if y.dtype.kind not in "iuf":
        return CLASSES
    if y.ndim == 2:
        if np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all():
            raise DataError(
                f"y has shape {list(y.shape)} with a single 1 in each row; give y.argmax(1) if these are classes, or "
                f'say predict="{NUMBERS}"'
            )
        if y.dtype.kind == "f":
            return NUMBERS
        raise DataError(
            f"y has shape {list(y.shape)} of whole numbers; give one value for each row if these are classes, or say "
            f'predict="{NUMBERS}"'
        )
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            numbers(y, "y")  # says which
        if (y % 1).any():
            return NUMBERS
    found, each = np.unique(y, return_counts=True)
    count = len(found)
    # Ids of classes have no gaps and several rows each; what else is many could be either.
    ids = bool((np.diff(found) == 1).all()) and found[0] in (0, 1) and each.min() >= HELD
    if count > MANY and not ids:
        raise DataError(
            f'y has {count} different whole numbers in {len(y)} rows; say predict="{NUMBERS}" if they are to be '
            f'predicted, or predict="{CLASSES}" if each is a class'
        )
    return CLASSES


def plain(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Objects as numbers, if all are, or else as words; none may be missing."""
    flat = list(values.ravel())
    missing = [at for at, one in enumerate(flat) if one is None or one != one]
    if missing:
        raise DataError(
            f"{what} has no value in {len(missing)} of {len(flat)} rows, the first is row {missing[0]}; say what to "
            "put there, or leave out these rows"
        )
    if all(isinstance(one, (int, float, np.number)) for one in flat):
        return np.array(flat).reshape(values.shape)
    return np.array([str(one) for one in flat]).reshape(values.shape)


def named(values: NDArray[Any], what: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Ids of values, and their names: numbers in their order, also where they are words, and words in theirs."""
    if values.dtype == object:
        values = plain(values, what)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            numbers(values, what)  # says which
        if not (values % 1).any():
            values = values.astype(np.int64)
    if values.dtype.kind == "U" and all(word.isascii() and word.isdigit() for word in values):
        values = np.array([int(word) for word in values])
    found, ids = np.unique(values, return_inverse=True)
    return ids.astype(np.int64), tuple(str(one) for one in found.tolist())


def seconds(values: NDArray[Any]) -> NDArray[np.float64]:
    """Times as numbers; dates become seconds since 1970."""
    if values.dtype.kind in "OU":
        try:
            values = np.array([stripped(one) for one in values]).astype("datetime64[us]")
        except (ValueError, TypeError):
            raise DataError(
                f"time must be numbers, or dates such as 2026-03-01T12:00, got {str(values[0])!r}; give one of "
                "these for each row"
            ) from None
    if values.dtype.kind in "mM":
        missing = np.flatnonzero(np.isnat(values))
        if len(missing):
            raise DataError(
                f"time is missing in {len(missing)} rows, the first is row {missing[0]}; say when they were taken, or "
                "leave out these rows"
            )
        unit = f"{values.dtype.str[1]}8[us]"
        return values.astype(unit).astype(np.int64) / 1e6
    if values.dtype.kind not in "biuf":
        raise DataError(f"time must be numbers or dates, got {values.dtype}; give one for each row")
    return values.astype(np.float64)


def stripped(moment: Any) -> Any:
    """A date as numpy reads it: in UTC, without saying so."""
    if getattr(moment, "tzinfo", None) is not None:
        return (moment - moment.utcoffset()).replace(tzinfo=None)
    return moment.removesuffix("Z") if isinstance(moment, str) else moment


def numbered(values: NDArray[Any], source: NDArray[np.int64], time: NDArray[np.float64] | None) -> NDArray[np.int64]:
    """Tasks counted from 0 for each agent: in the order in which they begin or, without times, of their names."""
    ids, _ = named(values, "task")
    found = np.zeros(len(ids), np.int64)
    for one in np.unique(source):
        mine = np.flatnonzero(source == one)
        present = np.unique(ids[mine])
        if time is not None:
            begins = [time[mine[ids[mine] == task]].min() for task in present]
            present = present[np.argsort(begins, kind="stable")]
        place = {int(task): at for at, task in enumerate(present)}
        found[mine] = [place[int(task)] for task in ids[mine]]
    return found


def held_out(
    labels: NDArray[np.int64],
    source: NDArray[np.int64],
    task: NDArray[np.int64] | None,
    time: NDArray[np.float64] | None,
) -> NDArray[np.bool_]:
    """The rows to test on where nothing says which: of every class in every task of every agent a fifth, spread over
    its rows in the order of time, or of the data, and one at least of three or more. Of a task of three rows in all one
    is spared too, whatever its class."""
    held = np.zeros(len(labels), np.bool_)
    order = np.arange(len(labels)) if time is None else np.argsort(time, kind="stable")
    part = np.zeros(len(labels), np.int64) if task is None else task
    keys = np.stack([source, part, labels], 1)[order]
    for group in groups(keys):
        rows = order[group]
        if len(rows) >= FEW:
            count = max(1, round(len(rows) / HELD))
            # In the middle of as many equal parts.
            held[rows[((np.arange(count) + 0.5) * len(rows) / count).astype(np.int64)]] = True
    for group in groups(keys[:, :2]):
        rows = order[group]
        if len(rows) >= FEW and not held[rows].any():
            held[rows[len(rows) // 2]] = True
    return held


def groups(keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Which rows of keys [N, k] are the same, each group in its order."""
    _, ids = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(ids.ravel(), kind="stable")
    return np.split(order, np.cumsum(np.bincount(ids.ravel()))[:-1])


def tested(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows are for testing, from True and False, 0 and 1, or words such as train and test."""
    if values.dtype == object:
        values = plain(values, "test")
    if values.dtype.kind in "biuf" and np.isin(values, (0, 1)).all():
        return values.astype(np.bool_)
    if values.dtype.kind == "U":
        lower = np.char.lower(values)
        if np.isin(lower, ("true", "false")).all():
            return np.asarray(lower == "true")
        if is_split(np.unique(lower).tolist()):
            # Where nothing is called test, what is called validation is for testing.
            chosen = TEST_WORDS if np.isin(lower, TEST_WORDS).any() else BETWEEN
            return np.isin(lower, chosen)
    raise DataError(
        "test must be True or False for each row, or a word such as train and test, got "
        f"{', '.join(str(one) for one in np.unique(values)[:4].tolist())}; give one of these"
    )


def is_split(words: Sequence[str]) -> bool:
    """Are these words what people call the parts of their data?"""
    return bool(words) and all(word.lower() in (*TRAIN_WORDS, *TEST_WORDS, *BETWEEN) for word in words)


def both(held: NDArray[np.bool_], name: str) -> None:
    """Raise if there is nothing to learn from, or nothing to test on."""
    if held.all() or not held.any():
        what, lack = ("test", "learn from") if held.all() else ("training", "test on")
        raise DataError(
            f"all {len(held)} rows of `{name}` are {what} rows, so there is nothing to {lack}; mark some of them, or "
            "leave `test` out to hold out a fifth"
        )
