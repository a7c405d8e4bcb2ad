"""Other ways to count what was sent than in the floats and bytes that left. They are computed afterwards, from settings
and ledger: nothing that runs knows of them. Packages bring theirs by the door `shoal.counts`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.doors import Table

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.letters.ledger import Ledger
    from shoal.settings.groups import Settings
    from shoal.sharing.plan import Line


@dataclass(frozen=True)
class Count:
    """A way to count: its `title`, the `floats` of every message in a ledger, int64, and those of the largest message
    that a line of `shoal check` tells of (`quote`). It is a column of the ledger, by its name in the table."""

    title: str
    floats: Callable[["Settings", "Ledger"], np.ndarray]
    quote: Callable[["World", "Line"], int]


COUNTS: Table[Count] = Table("way to count", {}, "shoal.counts", lambda entry: isinstance(entry, Count))


def counted(settings: "Settings", ledger: "Ledger") -> dict[str, np.ndarray]:
    """The floats of every message, counted in every other way."""
    return {name: COUNTS[name].floats(settings, ledger) for name in COUNTS}
