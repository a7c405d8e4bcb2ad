"""Letters that have been posted, with a verdict on each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.links import Numbers
from shoal.letters.mail import ACCEPTED, Mail
from shoal.letters.table import Table, Words, words


@dataclass(frozen=True, eq=False)
class Posted(Sequence[tuple[Mail, str]]):
    """Letters that have been posted, with the verdict on each so far."""

    table: Table
    verdicts: Words

    @classmethod
    def of(cls, posted: Iterable[tuple[Mail, str]], peers: tuple[Lane, ...] = ()) -> "Posted":
        """Single letters and their verdicts."""
        every = list(posted)
        return cls(Table.of((mail for mail, _ in every), peers), words(verdict for _, verdict in every))

    @classmethod
    def joined(cls, posted: Sequence["Posted"], peers: tuple[Lane, ...]) -> "Posted":
        """All that several have posted, one after the other."""
        verdicts = np.concatenate([words([]), *(one.verdicts for one in posted)])
        return cls(Table.joined([one.table for one in posted], peers), verdicts)

    @property
    def places(self) -> Numbers:
        """int64 [N]: the letters that reach their receivers."""
        return np.flatnonzero(self.verdicts == ACCEPTED)

    @property
    def arriving(self) -> Table:
        """These letters."""
        at = self.places
        return self.table if len(at) == len(self) else self.table.take(at)

    def take(self, at: Numbers) -> "Posted":
        """Some of them, in their order."""
        return Posted(self.table.take(at), self.verdicts[at])

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, at: int) -> tuple[Mail, str]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[Mail, str]]: ...
    def __getitem__(self, at: int | slice) -> tuple[Mail, str] | list[tuple[Mail, str]]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return self.table[at], str(self.verdicts[at])

    def __iter__(self) -> Iterator[tuple[Mail, str]]:
        return zip(self.table, self.verdicts.tolist(), strict=True)
