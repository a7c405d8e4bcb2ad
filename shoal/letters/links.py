"""Links: directed edges between lanes, as arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from shoal.data.tasks import Lane

Numbers = np.ndarray
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Links:
    """Directed edges: places in `peers`, one of them perhaps several times."""

    peers: tuple[Lane, ...]
    senders: Numbers  # int64 [M]
    receivers: Numbers  # int64 [M]

    def take(self, at: Numbers) -> "Links":
        """Some of these links, in their order."""
        return Links(self.peers, self.senders[at], self.receivers[at])

    @property
    def turned(self) -> "Links":
        """The links that lead back."""
        return Links(self.peers, self.receivers, self.senders)

    @cached_property
    def codes(self) -> Numbers:
        """A number for each, the same for the same ends: int64 [M]."""
        found: Numbers = self.senders * len(self.peers) + self.receivers
        return found

    @cached_property
    def order(self) -> Numbers:
        """In which order the codes of these links grow: int64 [M]."""
        return np.argsort(self.codes, kind="stable")

    def find(self, links: "Links") -> Numbers:
        """Which of these, that are all different, each of some links is; -1: none. Both are between the same peers.
        int64."""
        if np.array_equal(self.codes, links.codes):
            return np.arange(len(self))
        if not len(self):
            return np.full(len(links), -1)
        at = self.order[np.searchsorted(self.codes, links.codes, sorter=self.order).clip(max=len(self) - 1)]
        found: Numbers = np.where(self.codes[at] == links.codes, at, -1)
        return found

    @cached_property
    def once_each(self) -> bool:
        """Is none of these links there twice?"""
        return bool((np.diff(self.codes) > 0).all()) or len(np.unique(self.codes)) == len(self)

    @cached_property
    def lanes(self) -> Numbers:
        """Seed and agent of every peer: int64 [peers, 2]."""
        return np.array(self.peers, np.int64).reshape(-1, 2)

    @property
    def pairs(self) -> list[tuple[Lane, Lane]]:
        """The lanes at both ends of every link."""
        peers = self.peers
        return [(peers[a], peers[b]) for a, b in zip(self.senders.tolist(), self.receivers.tolist(), strict=True)]

    @cached_property
    def index(self) -> dict[tuple[Lane, Lane], int]:
        """Where each link is among these, by the lanes at its ends."""
        return {ends: at for at, ends in enumerate(self.pairs)}

    def once(self, what: tuple[object, ...], find: Callable[[], T]) -> T:
        """What is found out of these links but once, as long as it is asked for again and again; `what` says all else
        that it depends on."""
        if self.last.get("what") != what:
            self.last.update(what=what, found=find())
        found: T = self.last["found"]
        return found

    @cached_property
    def last(self) -> dict[str, Any]:
        """What `once` has found last."""
        return {}

    def __len__(self) -> int:
        return len(self.senders)
