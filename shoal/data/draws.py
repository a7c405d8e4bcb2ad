"""Draws: which images an agent learns and validates on, and which classes its tasks have."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from shoal.data.bank import Bank
from shoal.data.tasks import JOINT, Lane
from shoal.rng import key
from shoal.settings.groups import Settings, Tasks

Random = np.random.Generator | np.random.RandomState
# The classes of each of a lane's tasks, from the ids of those that its data has.
Choose = Callable[[np.ndarray, Tasks, Lane, Random], list[tuple[int, ...]]]


@dataclass(frozen=True, eq=False)
class Lot:
    """What a lane has drawn: rows of the bank, in the order in which its tasks take them, and classes of tasks."""

    train: np.ndarray
    validation: np.ndarray
    classes: list[tuple[int, ...]]


def source_of(bank: Bank, lane: Lane) -> int:
    """Agent i of a bank with several sources meets source i mod their number only."""
    return max(lane.agent, 0) % len(bank.sources)


def lots(bank: Bank, settings: Settings, choose: Choose) -> Callable[[Lane], Lot]:
    """What lanes draw, by the rule that `tasks.draw` names (docs/protocol.md, section 1)."""
    tasks, agents = settings.tasks, settings.agents

    @cache
    def rows(source: int) -> np.ndarray:
        return np.flatnonzero((bank.source == source) & ~bank.test)

    @cache
    def ids(source: int) -> np.ndarray:
        return np.unique(bank.labels[bank.source == source])

    def cut(shuffled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = int((1 - tasks.held_out) * len(shuffled))
        return shuffled[:at], shuffled[at:]

    def by_agent(lane: Lane) -> Lot:
        source = source_of(bank, lane)
        train, validation = cut(key(*lane, "split").permutation(rows(source)))
        return Lot(train, validation, choose(ids(source), tasks, lane, key(*lane, "classes")))

    def by_fleet(lane: Lane) -> Lot:
        source = source_of(bank, lane)
        name = bank.sources[source]
        train, validation = (
            key(*lane, "order", name, part).permutation(pool)
            for part, pool in enumerate(cut(key(lane.seed, "split", name).permutation(rows(source))))
        )
        return Lot(train, validation, choose(ids(source), tasks, lane, key(*lane, "classes", name)))

    @cache
    def authors(seed: int) -> dict[Lane, Lot]:
        """One agent after the other from one stream of numbers, the common start's last."""
        rng = np.random.RandomState(seed)
        last = [JOINT] if tasks.common and len(bank.sources) == 1 else []
        found = {}
        for lane in (Lane(seed, agent) for agent in [*range(agents), *last]):
            source = source_of(bank, lane)
            train, validation = cut(rng.permutation(rows(source)))
            found[lane] = Lot(train, validation, choose(ids(source), tasks, lane, rng))
        return found

    def by_authors(lane: Lane) -> Lot:
        return authors(lane.seed)[lane]

    by, every = {"agent": by_agent, "fleet": by_fleet, "authors": by_authors}[tasks.draw], tasks.repeat
    return by if every is None else lambda lane: by(lane._replace(seed=lane.seed % every))
