"""Mail between workers: parcels that the driver of a run hands on unopened, and letters, what it knows of each mail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.bundle import Links, Lot
from shoal.letters.mail import ACCEPTED, Envelope, Mail, envelope_of, unpack

OWN = -1  # stands for the worker itself where parcels are counted


@dataclass(frozen=True)
class Parcel:
    """The mail of one worker for another, packed; which payload each mail has."""

    envelopes: list[Envelope]
    which: list[int]
    payloads: list[np.ndarray]  # uint8, a safetensors file each

    def opened(self) -> list[Mail]:
        """All mails; those that were sent the same payload share it."""
        blank = [unpack(self.envelopes[0], content.tobytes()).payload for content in self.payloads]
        return [Mail(**one._asdict(), payload=blank[at]) for one, at in zip(self.envelopes, self.which, strict=True)]


class Letter:
    """A mail that is elsewhere, as far as it must be known here: its address and weight, and where it lies, as the
    so-many-th in a parcel, or among what its worker keeps for lanes of its own."""

    def __init__(self, envelope: Envelope, floats: int, bytes_: int, at: int, parcel: Any = None) -> None:
        self.envelope, self.floats, self.bytes, self.at, self.parcel = envelope, floats, bytes_, at, parcel
        self.sender, self.receiver, self.mode, self.kind, self.items = envelope[:5]
        self.id, self.task, self.epoch = envelope.id, envelope.task, envelope.epoch


# Of every mail: its address, its weight in floats and bytes, the worker that it is for, its place there, its verdict.
Receipt = list[tuple[Envelope, int, int, int, int, str]]


def letters(receipt: Receipt | Lot, parcels: Sequence[Any]) -> Sequence[tuple[Any, str]]:
    """What a worker has sent, for whoever drives the run: letters, or a bundle for lanes of its own that lacks its
    content. A parcel is whatever leads to it."""
    if isinstance(receipt, Lot):
        return receipt
    return [
        (Letter(envelope, floats, bytes_, at, None if worker == OWN else parcels[worker]), verdict)
        for envelope, floats, bytes_, worker, at, verdict in receipt
    ]


def bare(lot: Lot) -> Lot:
    """A bundle that has left, and its verdicts, without what it holds and whose it is: its weights are known."""
    links = Links((), lot.bundle.links.senders, lot.bundle.links.receivers)
    found = replace(lot.bundle, links=links, content={})
    vars(found).update(floats=lot.bundle.floats, bytes=lot.bundle.bytes)  # both are found once
    return Lot(found, lot.verdicts)


def alike(lots: Sequence[Lot]) -> bool:
    """Are bundles of one kind?"""
    return len({(lot.bundle.mode, lot.bundle.kind) for lot in lots}) == 1


def merged(lots: Sequence[Lot], peers: tuple[Lane, ...]) -> Lot:
    """What workers have sent to lanes of their own, all of one kind, as one bundle in the order of senders."""
    bundles = [lot.bundle for lot in lots]
    order = np.argsort(np.concatenate([one.links.senders for one in bundles]), kind="stable")

    def every(parts: Iterable[np.ndarray]) -> np.ndarray:
        found: np.ndarray = np.concatenate(list(parts))[order]
        return found

    due = [np.zeros(len(one), np.int64) if one.due is None else one.due for one in bundles]
    found = replace(
        bundles[0],
        links=Links(peers, every(one.links.senders for one in bundles), every(one.links.receivers for one in bundles)),
        first=every(one.first for one in bundles),
        items=every(one.items for one in bundles),
        due=None if all(one.due is None for one in bundles) else every(due),
    )
    vars(found).update(floats=every(one.floats for one in bundles), bytes=every(one.bytes for one in bundles))
    if not any(lot.verdicts for lot in lots):
        return Lot(found)
    words = [word for lot in lots for word in (lot.verdicts or [ACCEPTED] * len(lot))]
    return Lot(found, [words[at] for at in order.tolist()])


def singled(lot: Lot) -> list[tuple[Letter, str]]:
    """A bundle without content as letters."""
    place = {at: place for place, at in enumerate(lot.places.tolist() if lot.verdicts else range(len(lot)))}
    weights = zip(lot.bundle.floats.tolist(), lot.bundle.bytes.tolist(), strict=True)
    return [
        (Letter(envelope_of(mail), *weight, place.get(at, OWN)), verdict)
        for at, ((mail, verdict), weight) in enumerate(zip(lot, weights, strict=True))
    ]


def addressed(mails: Sequence[Letter]) -> tuple[list[tuple[int, int]], list[Any]]:
    """Where letters lie, in which of some parcels and where in it, and those parcels."""
    parcels: dict[int, tuple[int, Any]] = {}
    found = []
    for one in mails:
        if one.parcel is None:
            found.append((OWN, one.at))
        else:
            found.append((parcels.setdefault(id(one.parcel), (len(parcels), one.parcel))[0], one.at))
    return found, [parcel for _, parcel in parcels.values()]
