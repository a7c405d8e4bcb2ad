"""Draws: which images an agent learns and validates on, and which classes its tasks have. Packages bring theirs by the
door `shoal.draws`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from shoal.data.bank import Bank
from shoal.data.tasks import Lane, Stream
from shoal.doors import Table, is_door
from shoal.errors import SettingsError
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks

Random = np.random.Generator | np.random.RandomState
# The classes of each of a lane's tasks, from the ids of those that its data has.
Choose = Callable[[np.ndarray, Tasks, Lane, Random], list[tuple[int, ...]]]
# The stream of every lane; that of a seed's joint agent is its common start alone.
Scenario = Callable[[Bank, Settings, Sequence[Lane]], tuple[Stream, ...]]


@dataclass(frozen=True, eq=False)
class Lot:
    """What a lane has drawn: rows of the bank, in the order in which its tasks take them, and classes of tasks."""

    train: np.ndarray
    validation: np.ndarray
    classes: list[tuple[int, ...]]


def source_of(bank: Bank, lane: Lane) -> int:
    """Agent i of a bank with several sources meets source i mod their number only."""
    return max(lane.agent, 0) % len(bank.sources)


class Pool:
    """What can be drawn from a bank: the rows and classes of each of its sources."""

    def __init__(self, bank: Bank, settings: Settings, choose: Choose) -> None:
        self.bank, self.tasks, self.agents, self.choose = bank, settings.tasks, settings.agents, choose
        self.rows, self.ids = cache(self._rows), cache(self._ids)

    def _rows(self, source: int) -> np.ndarray:
        return np.flatnonzero((self.bank.source == source) & ~self.bank.test)

    def _ids(self, source: int) -> np.ndarray:
        return np.unique(self.bank.labels[self.bank.source == source])

    def cut(self, shuffled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is trained on, and what is held out."""
        at = int((1 - self.tasks.held_out) * len(shuffled))
        return shuffled[:at], shuffled[at:]

    def classes(self, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
        return self.choose(self.ids(source_of(self.bank, lane)), self.tasks, lane, rng)


@dataclass(frozen=True)
class Draw:
    """A rule by which lanes draw: `deal` gives the lot of any lane of a pool. Where lots depend on how many agents
    there are, they are drawn `together`."""

    about: str
    deal: Callable[[Pool], Callable[[Lane], Lot]]
    together: bool = False


def by_agent(pool: Pool) -> Callable[[Lane], Lot]:
    def lot(lane: Lane) -> Lot:
        train, validation = pool.cut(key(*lane, "split").permutation(pool.rows(source_of(pool.bank, lane))))
        return Lot(train, validation, pool.classes(lane, key(*lane, "classes")))

    return lot


def by_fleet(pool: Pool) -> Callable[[Lane], Lot]:
    def lot(lane: Lane) -> Lot:
        source = source_of(pool.bank, lane)
        name = pool.bank.sources[source]
        train, validation = (
            key(*lane, "order", name, part).permutation(rows)
            for part, rows in enumerate(pool.cut(key(lane.seed, "split", name).permutation(pool.rows(source))))
        )
        return Lot(train, validation, pool.classes(lane, key(*lane, "classes", name)))

    return lot


BUILT_IN: dict[str, Draw | str] = {
    "agent": Draw("every agent splits the training images for itself", by_agent),
    "fleet": Draw("the fleet splits them once: nobody validates on what another trains on", by_fleet),
}
DRAWS: Table[Draw] = Table("draw", BUILT_IN, "shoal.draws", lambda entry: isinstance(entry, Draw))


def chosen(name: str) -> Draw:
    """The draw of a name, or what is allowed."""
    if name not in DRAWS and not is_door(name):
        raise SettingsError(f"`tasks.draw` cannot be {name!r}; allowed: {', '.join(map(repr, DRAWS))}")
    return DRAWS.find(name)


def lots(bank: Bank, settings: Settings, choose: Choose) -> Callable[[Lane], Lot]:
    """What lanes draw, by the rule that `tasks.draw` names (docs/protocol.md, section 1)."""
    by, every = chosen(settings.tasks.draw).deal(Pool(bank, settings, choose)), settings.tasks.repeat
    return by if every is None else lambda lane: by(lane._replace(seed=lane.seed % every))


def private(tasks: Tasks) -> None:
    """Raise if agents that have rows of their own are to have a common start."""
    if tasks.common:
        raise SettingsError(f"with tasks.scenario = {tasks.scenario!r} tasks are agents' own; say tasks.common=false")
