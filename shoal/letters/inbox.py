"""What lanes have accepted and not yet absorbed: letters under way, as they came."""

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.links import Numbers
from shoal.letters.mail import Mail
from shoal.letters.table import Table


class Inbox:
    """Tables of letters, in the order in which they came."""

    def __init__(self, mails: Iterable[Mail] = ()) -> None:
        self.parts: list[Table] = []
        self.hold(Table.of(mails))

    def hold(self, table: Table) -> None:
        """Keep some letters."""
        if len(table):
            self.parts.append(table)

    def add(self, other: "Inbox") -> None:
        """Keep all that is in another inbox, behind what is here."""
        self.parts += other.parts

    def take(self, which: Callable[[Table], Numbers], peers: tuple[Lane, ...] = ()) -> Table:
        """Take out what is wanted: `which` says it of the letters of a table between some peers, bool [M]."""
        found, rest = list[Table](), list[Table]()
        for table in (part.among(peers) if peers else part for part in self.parts):
            wanted = which(table)
            if wanted.any():
                found.append(table if wanted.all() else table.take(np.flatnonzero(wanted)))
            if not wanted.all():
                rest.append(table.take(np.flatnonzero(~wanted)) if wanted.any() else table)
        self.parts = rest
        return Table.joined(found, peers)

    def forget(self, lanes: Collection[Lane]) -> None:
        """Throw away what is for some lanes."""

        def theirs(table: Table) -> Numbers:
            found: Numbers = np.array([lane in lanes for lane in table.links.peers])[table.links.receivers]
            return found

        self.parts = [one.take(np.flatnonzero(~gone)) for one in self.parts if not (gone := theirs(one)).all()]

    def __iter__(self) -> Iterator[Mail]:
        return (mail for table in self.parts for mail in table)

    def __len__(self) -> int:
        return sum(map(len, self.parts))
