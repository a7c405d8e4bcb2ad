"""What lanes have accepted and not yet absorbed: mail under way, as it came."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Numbers
from shoal.letters.mail import Mail

# Some mails, and which of them, int64 [n].
Some = tuple[Sequence[Mail], Numbers]
ONLY = np.zeros(1, np.int64)


class Inbox:
    """Single mails, and of bundles those that have not been taken: no mail of a bundle is made before somebody looks at
    it."""

    def __init__(self, mails: Iterable[Mail] = ()) -> None:
        self.parts: list[Some] = [([mail], ONLY) for mail in mails]

    def append(self, mail: Mail) -> None:
        self.parts.append(([mail], ONLY))

    def hold(self, bundle: Bundle, at: Numbers) -> None:
        """Keep some mails of a bundle."""
        if len(at):
            self.parts.append((bundle, at))

    def add(self, other: "Inbox") -> None:
        """Keep all that is in another inbox, behind what is here."""
        self.parts += other.parts

    def take(self, wanted: Callable[[Mail], bool], which: Callable[[Bundle], Numbers | None]) -> list[Some]:
        """Take out what is wanted: `which` says of the mails of a bundle what `wanted` says of one, bool [M]; None: of
        none."""
        found, rest = list[Some](), list[Some]()
        for mails, at in self.parts:
            if not isinstance(mails, Bundle):
                (found if wanted(mails[0]) else rest).append((mails, at))
            elif (there := which(mails)) is None or not (mine := there[at]).any():
                rest.append((mails, at))
            elif mine.all():
                found.append((mails, at))
            else:
                found.append((mails, at[mine]))
                rest.append((mails, at[~mine]))
        self.parts = rest
        return found

    def forget(self, lanes: Collection[Lane]) -> None:
        """Throw away what is for some lanes."""

        def theirs(bundle: Bundle) -> Numbers:
            peers = bundle.links.peers
            return np.array([peers[one] in lanes for one in bundle.links.receivers.tolist()])

        self.take(lambda mail: mail.receiver in lanes, theirs)

    def __iter__(self) -> Iterator[Mail]:
        return each(self.parts)

    def __len__(self) -> int:
        return sum(len(at) for _, at in self.parts)


def each(some: Iterable[Some]) -> Iterator[Mail]:
    """Mails one by one."""
    return (mails[one] for mails, at in some for one in at.tolist())
