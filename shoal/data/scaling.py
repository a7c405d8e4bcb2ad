"""Scaling: the numbers that a model reads, from raw ones, by what an agent's own training rows say."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank, Numbers
from shoal.errors import UserError

SHOWN = 32  # columns or channels whose numbers are written one by one; of more, a summary
CHUNK = 4096  # rows at a time: squares in double precision need room


@dataclass(frozen=True, eq=False)
class Scaling:
    """What one agent does to raw rows. `shift` and `spread` have the shape of a row, with ones where they are shared:
    `[D]` for rows of a table, `[channels, 1, ...]` for anything else."""

    how: str
    rows: int
    shift: NDArray[np.float64]
    spread: NDArray[np.float64]

    def apply(self, images: Numbers) -> Numbers:
        """What the model reads of raw rows [n, ...], in float32. With `peak` they stay raw: models divide by it."""
        if self.how == "peak":
            return images
        if self.how == "none":
            return images.astype(np.float32, copy=False)
        scaled: Numbers = ((images - self.shift) / self.spread).astype(np.float32)
        return scaled

    def about(self) -> dict[str, Any]:
        """What was done, for the record: rounded numbers, or their range where there are many."""
        if self.how != "standard":
            return {"scale": self.how}
        return {"scale": self.how, "rows": self.rows, "mean": shown(self.shift), "spread": shown(self.spread)}


def scaling(bank: Bank, rows: NDArray[np.int64]) -> Scaling:
    """How an agent whose training rows are `rows` of the bank scales what it reads: of a table every column, of
    anything else every channel (the axis after the rows) gets mean 0 and standard deviation 1 over these rows.

    One that is the same in all of them is moved to 0 and not stretched. Test rows have no say: to name one is an error.
    """
    if bank.test[bank.base(rows)].any():
        raise UserError(f"bank `{bank.name}`: test rows must not say how data is scaled; give training rows only")
    if bank.scale != "standard":
        return Scaling(bank.scale, len(rows), np.zeros(1), np.ones(1))
    if not len(rows):
        raise UserError(f"bank `{bank.name}`: without training rows nothing says how data is scaled; give at least one")
    axes = (0, *range(2, bank.images.ndim))
    chunks = [bank.take(rows[at : at + CHUNK]) for at in range(0, len(rows), CHUNK)]
    count = len(rows) * np.prod(bank.images.shape[2:], dtype=np.int64)
    least = np.min([chunk.min(axes) for chunk in chunks], 0)
    constant = least == np.max([chunk.max(axes) for chunk in chunks], 0)
    mean = np.sum([chunk.sum(axes, np.float64) for chunk in chunks], 0) / count
    shift = aligned(np.where(constant, least, mean), bank)
    squares = np.sum([((chunk - shift) ** 2).sum(axes) for chunk in chunks], 0)
    spread = aligned(np.where(constant, 1.0, np.sqrt(squares / count)), bank)
    return Scaling(bank.scale, len(rows), shift, spread)


def aligned(values: NDArray[Any], bank: Bank) -> NDArray[np.float64]:
    """A number for each column or channel, in the shape of a row."""
    return values.astype(np.float64).reshape(-1, *[1] * (bank.images.ndim - 2))


def shown(values: NDArray[np.float64]) -> list[float] | dict[str, float]:
    """Some numbers, rounded to six digits, for people and JSON."""
    found = [float(f"{value:.6g}") for value in values.ravel()]
    if len(found) <= SHOWN:
        return found
    return {
        "count": len(found),
        "least": min(found),
        "median": float(f"{np.median(values):.6g}"),
        "largest": max(found),
    }
