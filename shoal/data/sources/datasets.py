"""Datasets of PyTorch, and whatever else gives `(x, y)` for a number."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from shoal.data.bank import Bank
from shoal.data.dataset import DataError
from shoal.data.sources import arrays, folder

ANSWERS = ("targets", "labels", "y")  # what datasets call what is to be learned
CHANGES = ("transform", "transforms", "target_transform")  # what makes an item differ from what is held


def bank_of(
    dataset: Any, agent: Any = None, task: Any = None, time: Any = None, test: Any = None, predict: str | None = None
) -> Bank:
    """A bank of a dataset, and of another one for testing if `test` is one."""
    name = type(dataset).__name__
    x, y = taken(dataset)
    if is_dataset(test):
        more, answers = taken(test)
        count = len(x)
        if more.shape[1:] != x.shape[1:]:
            raise DataError(
                f"rows of `test` have shape {list(more.shape[1:])}, those of the dataset {list(x.shape[1:])}; give "
                "both the same transform"
            )
        x, y = np.concatenate([x, more]), np.concatenate([y, answers])
        test = np.arange(len(x)) >= count
    return arrays.bank_of(name, x, y, agent, task, time, test, predict)


def is_dataset(given: Any) -> bool:
    """Is something a dataset, and not one value for each row?"""
    if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")) or not len(given):
        return False
    if hasattr(given, "ndim"):
        return False
    first = given[0]
    return isinstance(first, (tuple, list)) and len(first) == 2


def taken(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """The rows and answers of a dataset: as it holds them, if that is what its items are, or else item by item."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"a dataset has a length and gives (x, y) for a number, got {type(dataset).__name__}; for arrays use "
            "Data.from_arrays"
        )
    changed = any(getattr(dataset, name, None) is not None for name in CHANGES)
    held = getattr(dataset, "data", None)
    answers = next((one for name in ANSWERS if (one := getattr(dataset, name, None)) is not None), None)
    if not changed and held is not None and answers is not None and len(held) == len(answers) == len(dataset):
        return arrays.array(held, "data"), arrays.array(answers, "targets")
    tensors = getattr(dataset, "tensors", None)  # of a TensorDataset
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return arrays.array(tensors[0], "x"), arrays.array(tensors[1], "y")
    rows, found = [], []
    for at, item in enumerate(watched(dataset)):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(
                f"item {at} of the dataset must be (x, y), got {type(item).__name__}; wrap it so that it gives "
                "these two"
            )
        rows.append(row_of(item[0]))
        found.append(arrays.array(item[1], "y"))
    if len({one.ndim for one in rows}) > 1 and all(one.dtype == np.uint8 for one in rows):
        x = folder.together(rows, [f"item {at}" for at in range(len(rows))], "give all one size by a transform")
    else:
        x = arrays.array(rows, "x")
    return x, arrays.array(found, "y")


def row_of(x: Any) -> np.ndarray:
    """The x of an item: an array, a tensor, numbers, or a picture of Pillow."""
    return folder.pixels(x) if hasattr(x, "getbands") else arrays.array(x, "x")


def watched(dataset: Any) -> Iterator[Any]:
    """All items of a dataset, one after the other, with a word and, on a terminal, a bar on stderr."""
    count = len(dataset)
    print(f"reading {count} items of {type(dataset).__name__}, each once", file=sys.stderr, flush=True)
    items: Iterable[int] = range(count)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        items = track(items, "reading", console=Console(stderr=True), transient=True)
    for at in items:
        yield dataset[at]
