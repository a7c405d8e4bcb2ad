"""Mail between workers: parcels that the driver of a run hands on unopened, and receipts, which say what is in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from safetensors.torch import load, save
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.links import Links
from shoal.letters.posted import Posted
from shoal.letters.table import Table

OWN = -1  # stands for the worker itself where parcels are counted


@dataclass(frozen=True)
class Parcel:
    """The mail of one worker for another: what it says is packed, each content once."""

    table: Table  # without its contents, and between no peers
    contents: list[np.ndarray]  # uint8, a safetensors file each

    which: np.ndarray  # int64 [M]: in which content each letter is

    @classmethod
    def of(cls, table: Table) -> "Parcel":
        """Some letters, packed."""
        trimmed = table.trimmed()
        contents = [np.frombuffer(save(plain(held)), np.uint8) for held in trimmed.contents]
        return cls(bare(trimmed), contents, trimmed.which)

    def opened(self, peers: tuple[Lane, ...]) -> Table:
        """All its letters; those that were sent the same payload share it."""
        links = Links(peers, self.table.links.senders, self.table.links.receivers)
        # Clones, because a tensor begins anywhere in the bytes, and how a product is summed depends on where it begins.
        contents = [{name: one.clone() for name, one in load(content.tobytes()).items()} for content in self.contents]
        return replace(self.table, links=links, contents=contents, which=self.which)


def plain(held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A content as a file can hold it: two names of it are not of the same memory."""
    return {name: one.cpu().contiguous().clone() for name, one in held.items()}


def bare(table: Table) -> Table:
    """Letters without what they hold and whose they are; what they weigh is known."""
    links = Links((), table.links.senders, table.links.receivers)
    nowhere = np.zeros(len(table), np.int64)
    return replace(table, links=links, contents=(), which=nowhere, weighed=table.weights, made={})


@dataclass(frozen=True, eq=False)
class Receipt:
    """What a worker has sent, as far as it must be known where a run is driven, and where it lies: as the so-many-th
    letter in the parcel for a worker, or among what it keeps for lanes of its own."""

    table: Table  # bare
    verdicts: np.ndarray
    strangers: tuple[Lane, ...]  # behind all peers: who was spoken of and is nobody
    worker: np.ndarray  # int64 [M]
    place: np.ndarray  # int64 [M]

    def posted(self, peers: tuple[Lane, ...]) -> Posted:
        """What was sent, between these peers."""
        every = (*peers, *self.strangers) if self.strangers else peers
        links = Links(every, self.table.links.senders, self.table.links.receivers)
        return Posted(replace(self.table, links=links), self.verdicts)


class Told(NamedTuple):
    """A receipt, and the parcels that it speaks of, one for each worker that gets any; a parcel is whatever leads to
    it."""

    receipt: Receipt
    parcels: Sequence[Any]


class Route(NamedTuple):
    """Where the letters for a worker lie: some places in each of several parcels, or among what it keeps, and in which
    order they are to be read then."""

    parts: list[tuple[int, np.ndarray]]  # the number of a parcel or OWN, and places in it
    order: np.ndarray


def routed(told: Sequence[Told], source: np.ndarray, place: np.ndarray, own: int) -> tuple[Any, ...]:
    """The route of letters that come from several workers to the one with number `own`, and the parcels that are on
    it."""
    parts, parcels = list[tuple[int, np.ndarray]](), list[Any]()
    for at in np.unique(source).tolist():
        number = OWN if at == own else len(parcels)
        parcels += [] if at == own else [told[at].parcels[own]]
        parts.append((number, place[source == at]))
    order = np.empty(len(source), np.int64)
    order[np.argsort(source, kind="stable")] = np.arange(len(source))
    return Route(parts, order), *parcels
