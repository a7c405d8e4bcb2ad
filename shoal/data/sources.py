"""Data of one's own: `Data` holds it in Python, and `SCHEME:PATH?...` names it in a settings file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.data.bank import Bank
from shoal.data.dataset import DataError

MEMORY = "memory"  # the scheme of data that a Python program holds
BROUGHT: dict[str, "Data"] = {}  # by name, what this program has brought


@dataclass(frozen=True, eq=False)
class Data:
    """What agents learn from: rows with their targets and, if the data says so, whose they are and when they came.

    >>> import numpy as np, shoal
    >>> x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    >>> data = shoal.Data.from_arrays(x, y, agent=np.arange(60) % 2)
    >>> len(data.bank), data.bank.sources
    (60, ('0', '1'))
    """

    bank: Bank

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, agent: Any = None, task: Any = None, time: Any = None, test: Any = None
    ) -> "Data":
        """Data of arrays or tensors with one row, and one value, for each example."""
        x, y = np.asarray(x), np.asarray(y)
        names, labels = np.unique(y, return_inverse=True)
        sites, source = np.unique(np.zeros(len(x), int) if agent is None else np.asarray(agent), return_inverse=True)
        held = np.arange(len(x)) % 5 == 4 if test is None else np.asarray(test)
        peak = 1
        return cls(
            Bank(
                "arrays", x, labels, source, held, peak, tuple(map(str, names)), tuple(map(str, sites)),
                task=None if task is None else np.asarray(task), time=time, scale="standard",
            )
        )  # fmt: skip

    @property
    def name(self) -> str:
        """What settings call it: the same data has the same name in every program."""
        return f"{MEMORY}:{self.bank.digest}"

    def says(self) -> dict[str, Any]:
        """What the data says of a fleet where the user is silent, as in a settings file."""
        return {}


# How each scheme turns what stands behind its colon into data.
SCHEMES: dict[str, Callable[[str], Data]] = {}


def is_source(name: str) -> bool:
    """Does a dataset's name say where data of one's own is?"""
    return name.partition(":")[0] in (MEMORY, *SCHEMES)


def bring(data: Data) -> str:
    """Let this program find data by its name."""
    BROUGHT[data.name] = data
    return data.name


def read(name: str) -> Data:
    """The data that a name says."""
    scheme, _, rest = name.partition(":")
    if name in BROUGHT:
        return BROUGHT[name]
    if scheme == MEMORY:
        raise DataError(
            f"`{name}` is data that a Python program held in memory; run that program again, which finds its runs and "
            "goes on with them"
        )
    return SCHEMES[scheme](rest)


def beside(name: str, folder: Path) -> str:
    """The name with its path from where a settings file is."""
    return name
