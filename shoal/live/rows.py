"""The rows of a live agent: read on its own host, named as the fleet names them, and learned task by task as they come.

A task is learned when it is whole: when rows of a later one are there, or nothing has changed for some seconds. From
how many rows, and which, is noted beside the journal, so that rows which are changed or gone afterwards are found out.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from shoal.agents.world import World
from shoal.backbones import bank_of
from shoal.data.bank import Bank
from shoal.data.draws import source_of
from shoal.data.rows import Source, parts_of
from shoal.data.sources.names import beside, stamp_of
from shoal.data.tasks import Lane
from shoal.errors import SettingsError, UserError
from shoal.live.crew import world_of
from shoal.live.fleets import Home, content
from shoal.live.store import Store
from shoal.settings.groups import Settings
from shoal.units import listed

LOOK = 1.0  # seconds between two looks at whether rows have come
PARTS = ("images", "labels", "source", "test", "task", "time", "targets")  # of a bank, with an entry for each row


@dataclass
class Rows:
    """What an agent reads on its host, and how far it has come."""

    home: Home
    settings: Settings
    store: Store
    tell: Callable[[str], None] = lambda sentence: None
    seen: Any = None  # how the data looked last,
    since: float = 0.0  # since when,
    next: float = 0.0  # and when to look again
    looked: tuple[int, bool] | None = None  # for which task it was looked at, and had it not changed for long enough?
    told: set[str] = field(default_factory=set)

    @property
    def watched(self) -> bool:
        """Do rows come while the agent runs?"""
        return self.home.watch is not None

    @property
    def dataset(self) -> str:
        """What is read on this host."""
        return beside(self.home.data, self.home.folder.resolve()) if self.home.data else self.settings.dataset

    def bank(self) -> Bank:
        """All rows that are there now."""
        bank = bank_of(self.settings.model_copy(update={"dataset": self.dataset}))
        if not self.home.source.exists():
            return bank
        source = Source.read(content(self.home.source, "it says how the fleet names rows; `shoal live renew` makes it"))
        return named_as(bank, source, self.home)

    def world(self, tasks: int) -> World:
        """The world of the agent; where rows come while it runs, with its first tasks alone."""
        bank = self.bank()
        if self.watched:
            self.unchanged(bank)
            bank = self.until(bank, tasks)
        return world_of(self.settings, bank, self.home.agent)

    def mine(self, bank: Bank, task: int) -> np.ndarray:
        """Which rows are the agent's own, of a task."""
        if bank.task is None:
            raise SettingsError(f"`{bank.name}` does not name the task of each row; say task=... in live.data")
        found: np.ndarray = own(bank, self.home.agent) & (bank.task == task)
        return found

    def until(self, bank: Bank, task: int) -> Bank:
        """A bank of the agent's own rows, those before a task, one task after the other: no row's number changes when
        more come."""
        return kept(bank, np.concatenate([np.flatnonzero(self.mine(bank, at)) for at in range(task)]))

    def own(self) -> Bank:
        """A bank of the agent's own rows, of the tasks that it has taken."""
        bank = self.bank()
        return self.until(bank, len(self.store.tasks())) if self.watched else own_of(bank, self.home.agent)

    def unchanged(self, bank: Bank) -> None:
        """Raise if the rows of tasks that were taken are not what they were."""
        for task, (count, digest) in enumerate(self.store.tasks()):
            rows = self.mine(bank, task)
            if digest_of(bank, rows) != digest:
                raise UserError(
                    f"{self.home.name} has learned task {task + 1} from {count} rows, and `{bank.name}` has "
                    f"{int(rows.sum())}{' others' * (int(rows.sum()) == count)}; restore them, what has come since "
                    "belongs to a later task"
                )

    def come(self, task: int) -> bool:
        """Have all rows up to a task come? Then they are taken."""
        now = time.monotonic()
        if task < len(self.store.tasks()):
            return True
        if now < self.next:
            return False
        self.next = now + min(LOOK, self.home.watch or LOOK)
        try:
            return self.look(task, now)
        except UserError as error:
            if str(error) not in self.told:
                self.told.add(str(error))
                self.tell(f"{self.home.name} waits for rows of task {task + 1}: {error}")
        return False

    def look(self, task: int, now: float) -> bool:
        """Take the rows up to a task if they have come and are whole."""
        stamp = stamp_of(self.dataset)
        if stamp != self.seen:
            self.seen, self.since, self.looked = stamp, now, None
        quiet = now - self.since >= (self.home.watch or 0)
        if self.looked == (task, quiet):
            return False
        self.looked = task, quiet
        bank = self.bank()
        self.unchanged(bank)
        new = {at: self.mine(bank, at) for at in range(len(self.store.tasks()), task + 1)}
        whole = quiet or self.mine(bank, task + 1).any()
        if not whole or not all(rows.any() for rows in new.values()):
            return False
        world_of(self.settings, self.until(bank, task + 1), self.home.agent)  # raises if they cannot be learned
        self.store.take_tasks([(at, int(rows.sum()), digest_of(bank, rows)) for at, rows in new.items()])
        return True

    def first(self, learned: int, wait: Callable[[float], None]) -> World:
        """The world of an agent that begins, or goes on after some tasks, as soon as the rows are there."""
        tasks = max(self.settings.tasks.initial, min(learned + 1, self.settings.tasks.count))
        while self.watched and not self.come(tasks - 1):
            wait(LOOK)
        return self.world(tasks)


def kept(bank: Bank, rows: np.ndarray) -> Bank:
    """A bank of some of its rows."""
    found: dict[str, Any] = {name: getattr(bank, name) for name in PARTS}
    part: dict[str, Any] = {name: None if one is None else one[rows] for name, one in found.items()}
    return replace(bank, **part)


def own(bank: Bank, agent: int) -> np.ndarray:
    """Which rows are those of an agent's site."""
    found: np.ndarray = bank.source == source_of(bank, Lane(0, agent))
    return found


def own_of(bank: Bank, agent: int) -> Bank:
    """A bank of the rows of an agent's site."""
    return kept(bank, own(bank, agent))


def digest_of(bank: Bank, rows: np.ndarray) -> str:
    """Letters that name all that is known of some rows."""
    found = blake2b(digest_size=8)
    for name in ("images", "labels", "test", "time", "targets"):
        if (one := getattr(bank, name)) is not None:
            found.update(np.ascontiguousarray(one[rows]).data)
    return found.hexdigest()


def named_as(bank: Bank, source: Source, home: Home) -> Bank:
    """A bank with the classes, sites and columns of its fleet, whose numbers mean the same to all agents."""
    who = f"{home.name} reads `{bank.name}`, which has"
    remedy = "mend the data, or make the fleet again with data that has all of it"
    columns, wanted = ([one.name for one in some] for some in (bank.columns, source.columns))
    if columns != wanted or (bank.targets is None) == source.numeric:
        has, had = (listed(some) or "no columns" for some in (columns, wanted))
        raise UserError(f"{who} {has}, and the fleet was made with {had}; {remedy}")
    images = widened(bank, source, who, remedy) if columns else bank.images
    if images.shape[1:] != source.shape:
        raise UserError(f"{who} rows of shape {list(images.shape[1:])}, and the fleet {list(source.shape)}; {remedy}")
    if strange := [one for one in bank.classes if one not in source.classes]:
        raise UserError(f"{who} the class {strange[0]!r}, and the fleet knows {listed(source.classes)}; {remedy}")
    classes = np.array([source.classes.index(one) for one in bank.classes])
    if len(bank.sources) == 1 and home.data:  # what lies on a host is of its agent
        sites = np.array([home.agent % len(source.sites)])
    elif strange := [one for one in bank.sources if one not in source.sites]:
        raise UserError(f"{who} rows of {strange[0]!r}, and the fleet is at {listed(source.sites)}; {remedy}")
    else:
        sites = np.array([source.sites.index(one) for one in bank.sources])
    return replace(
        bank, images=images, labels=classes[bank.labels], source=sites[bank.source], peak=source.peak,
        classes=source.classes, sources=source.sites, columns=source.columns,
    )  # fmt: skip


def widened(bank: Bank, source: Source, who: str, remedy: str) -> np.ndarray:
    """Rows with a column for every word that the fleet knows."""
    if bank.columns == source.columns:
        return bank.images
    has = [name for one in bank.columns for name in parts_of(one)]
    if strange := [name for name in has if name not in source.spelt]:
        raise UserError(f"{who} {strange[0]}, which the fleet does not know; {remedy}")
    found = np.zeros((len(bank), len(source.spelt)), bank.images.dtype)
    found[:, [source.spelt.index(name) for name in has]] = bank.images
    return found


def together(banks: Sequence[Bank]) -> Bank:
    """The rows of several hosts of a fleet as one bank."""
    found: dict[str, Any] = {name: [getattr(one, name) for one in banks] for name in PARTS}
    joined: dict[str, Any] = {name: None if some[0] is None else np.concatenate(some) for name, some in found.items()}
    return replace(banks[0], **joined)
