"""Rows as a user has them, read as an agent learned to read them: the same columns, units, and names of classes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank, Column, Numbers
from shoal.data.dataset import DataError
from shoal.data.sources import arrays, table
from shoal.errors import UserError
from shoal.units import listed

WORDS = {"False": False, "True": True}


@dataclass(frozen=True)
class Source:
    """What the rows that an agent learned from are like, without the rows."""

    dataset: str
    name: str
    shape: tuple[int, ...]  # of a row
    type: str  # of its numbers
    peak: int
    scale: str
    classes: tuple[str, ...]
    sites: tuple[str, ...]
    predicts: int | None  # so many numbers; None: classes
    columns: tuple[Column, ...] = ()
    wanted: tuple[str, ...] = ()

    @classmethod
    def of(cls, bank: Bank, dataset: str) -> "Source":
        """What the rows of a bank are like."""
        return cls(
            dataset,
            bank.name,
            tuple(bank.images.shape[1:]),
            str(bank.images.dtype),
            bank.peak,
            bank.scale,
            bank.classes,
            bank.sources,
            None if bank.targets is None else bank.targets.shape[1],
            bank.columns,
            bank.wanted,
        )

    def about(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return asdict(self) | {"columns": [list(column) for column in self.columns]}

    @classmethod
    def read(cls, about: Mapping[str, Any]) -> "Source":
        """What `about` has said."""
        lists = {name: tuple(about[name]) for name in ("shape", "classes", "sites", "wanted")}
        columns = tuple(Column(name, None if words is None else tuple(words)) for name, words in about["columns"])
        return cls(**{**about, **lists, "columns": columns})

    @property
    def numeric(self) -> bool:
        """Are numbers predicted?"""
        return self.predicts is not None

    def bank(self, rows: Numbers | None = None) -> Bank:
        """A bank of such rows, or of an empty one, from which a model can be built."""
        images = np.zeros((1, *self.shape), self.type) if rows is None else rows
        none = np.zeros(len(images), np.int64)
        return Bank(
            name=self.name,
            images=images,
            labels=none,
            source=none,
            test=none.astype(bool),
            peak=self.peak,
            classes=self.classes,
            sources=self.sites,
            targets=None if self.predicts is None else np.zeros((len(images), self.predicts), np.float32),
            scale=self.scale,
            columns=self.columns,
            wanted=self.wanted,
        )

    def rows(self, x: Any, who: str) -> Numbers:
        """Raw rows [n, ...] of arrays, tensors, lists, frames or files of tables, if an agent can read them."""
        if isinstance(x, Mapping):
            raise UserError(f"rows are given as an array or a frame, got {type(x).__name__}; give polars.DataFrame(x)")
        framed = hasattr(x, "columns") or hasattr(x, "collect_schema")
        raw = self.of_table(x, who) if framed else arrays.rows_of(x)[0]
        if not framed and raw.shape[1:] != self.shape and raw.shape == self.shape:
            raise UserError(f"x is one row of shape {list(raw.shape)}, and rows are wanted; give x[None]")
        if not framed and self.columns and raw.ndim == 2 and raw.shape[1] != self.shape[0]:
            raise UserError(
                f"rows have {raw.shape[1]} columns, and {who} reads {self.shape[0]}: {listed(self.spelt)}; give these, "
                "in this order, or a frame with columns of these names"
            )
        if raw.shape[1:] != self.shape:
            raise UserError(
                f"rows have shape {list(raw.shape[1:])}, and {who} learned from rows of shape {list(self.shape)}; give "
                "rows as it learned from them"
            )
        return raw

    @property
    def spelt(self) -> list[str]:
        """The names of all numbers of a row of a table."""
        return [name for one in self.columns for name in parts_of(one)]

    def of_table(self, given: Any, who: str) -> Numbers:
        """Rows of a frame: the columns that an agent learned from, by their names."""
        frame = table.frame_of(given)
        if not self.columns:
            if len(frame.columns) != int(np.prod(self.shape)) or len(self.shape) > 1:
                raise UserError(
                    f"the frame has {len(frame.columns)} columns, and {who} learned from arrays with rows of shape "
                    f"{list(self.shape)}; give an array, or a frame with just these columns, in this order"
                )
            return arrays.rows_of(table.features(frame, [Column(one) for one in frame.columns], "x", who))[0]
        for column in self.columns:
            if column.name not in frame.columns:
                raise UserError(
                    f"the rows have no column `{column.name}`, which {who} reads; it reads "
                    f"{listed([one.name for one in self.columns])}, and there are {listed(frame.columns)}; rename or "
                    "add it"
                )
        table.lost(frame, [one.name for one in self.columns], "x", who)
        for column in self.columns:
            if column.words is not None:
                strange = [word for word in table.words_of(frame, column.name) if word not in column.words]
                if strange:
                    raise UserError(
                        f"the column `{column.name}` has {strange[0]!r}, a word that {who} has never met; it knows "
                        f"{listed(column.words)}; leave out such rows, or teach it"
                    )
        return arrays.rows_of(table.features(frame, self.columns, "x", who))[0]

    def labels(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The names of classes, as the user wrote them: numbers and truth values where all of them are."""
        return np.asarray(self.spoken)[ids]

    @property
    def spoken(self) -> list[Any]:
        """Every class as the user wrote it."""
        if set(self.classes) <= WORDS.keys():
            return [WORDS[one] for one in self.classes]
        if all(one.removeprefix("-").isascii() and one.removeprefix("-").isdigit() for one in self.classes):
            return [int(one) for one in self.classes]
        return list(self.classes)

    def ids(self, y: Any, count: int, who: str) -> NDArray[np.int64]:
        """The numbers of classes by their names, one for each of so many rows."""
        values = arrays.one_each(y, "y", count)
        if values.dtype.kind == "f" and np.isfinite(values).all() and not (values % 1).any():
            values = values.astype(np.int64)
        known = {name: at for at, name in enumerate(self.classes)}
        words = [str(one) for one in values.tolist()]
        strange = [word for word in words if word not in known]
        if strange:
            raise UserError(
                f"y has the class {strange[0]!r}, which {who} has never met; it knows {listed(self.classes)}; leave "
                "out such rows, or spell the class as the data did"
            )
        return np.array([known[word] for word in words], np.int64)

    def numbers(self, y: Any, count: int) -> NDArray[np.float64]:
        """Numbers to compare with what is predicted, [n, D]."""
        assert self.predicts is not None
        values = arrays.one_each(y, "y", count, wide=True)
        if values.dtype.kind not in "biuf" or not np.isfinite(values.astype(np.float64)).all():
            raise DataError(f"y must be numbers, which are predicted here, got {values.dtype}; give one for each row")
        found = values.astype(np.float64).reshape(count, -1)
        if found.shape[1] != self.predicts:
            raise DataError(
                f"y has {found.shape[1]} numbers for each row, and {self.predicts} are predicted; give these"
            )
        return found


def parts_of(column: Column) -> list[str]:
    """What the numbers of a column are called: itself, or a word of it for each."""
    return [column.name] if column.words is None else [f"{column.name}={word}" for word in column.words]
