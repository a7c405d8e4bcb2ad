"""A log: rows of numbers in the order of writing, which a checkpoint keeps as one block."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Log:
    """Rows of `columns`, all of one type."""

    columns: tuple[str, ...]
    dtype: type[np.generic]
    blocks: list[np.ndarray] = field(default_factory=list)

    @property
    def rows(self) -> np.ndarray:
        """All rows in one block."""
        if len(self.blocks) != 1:
            empty = np.zeros((0, len(self.columns)), self.dtype)
            self.blocks = [np.concatenate(self.blocks) if self.blocks else empty]
        return self.blocks[0]

    def write(self, rows: Sequence[tuple[float, ...]]) -> None:
        if rows:
            self.blocks.append(np.array(rows, self.dtype))

    def column(self, name: str) -> np.ndarray:
        found: np.ndarray = self.rows[:, self.columns.index(name)]
        return found

    def __len__(self) -> int:
        return len(self.rows)
