"""Bundles: the mail of one mode, kind and moment as arrays. A mail in it is made when somebody looks at it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.mail import ACCEPTED, Mail, frozen, identify, packable, wire

Numbers = np.ndarray
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Links:
    """The directed edges by which lanes that are here send, in the order of senders: places in `peers`."""

    peers: tuple[Lane, ...]
    senders: Numbers  # int64 [M]
    receivers: Numbers  # int64 [M]
    of: "Links | None" = None  # those that these are some of,
    at: Numbers | None = None  # and which

    def take(self, at: Numbers) -> "Links":
        """Some of these links, in their order."""
        return Links(self.peers, self.senders[at], self.receivers[at], self.root, self.places[at])

    @property
    def root(self) -> "Links":
        """The links that these are some of, or these themselves."""
        return self if self.of is None else self.of

    @property
    def places(self) -> Numbers:
        """int64 [M]: where they are among those."""
        return np.arange(len(self)) if self.at is None else self.at

    def within(self, links: "Links") -> bool:
        """Are these some of other links, none of them twice, or these themselves?"""
        if self is links:
            return True
        root = links.root
        if self.of is not root or self.at is None or not len(self.at) or (np.diff(self.at) <= 0).any():
            return False
        ends = (self.senders, root.senders), (self.receivers, root.receivers)
        if self.at[0] < 0 or self.at[-1] >= len(root) or not all(np.array_equal(a, b[self.at]) for a, b in ends):
            return False
        return links is root or bool(np.isin(self.at, links.places).all())

    def where(self, links: "Links") -> Numbers:
        """int64 [M]: where each of these is among other links of the same root; -1: it is not."""
        found = np.full(len(self.root), -1)
        found[links.places] = np.arange(len(links))
        there: Numbers = found[self.places]
        return there

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

    @cached_property
    def back(self) -> Numbers:
        """int64 [M]: which of these links leads back from the receiver of each to its sender; -1: none."""
        count = len(self.peers)
        there, back = self.senders * count + self.receivers, self.receivers * count + self.senders
        order = np.argsort(there)
        at = order[np.searchsorted(there, back, sorter=order).clip(max=len(order) - 1)] if len(order) else order
        found: Numbers = np.where(there[at] == back, at, -1)
        return found

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


@dataclass(frozen=True, eq=False)
class Bundle(Sequence[Mail]):
    """A mail for each of some links. The first axis of every tensor of `content` counts items; a mail holds `items` of
    them from `first` on, so that mails to many can hold the same."""

    links: Links
    mode: str
    kind: str
    task: int
    epoch: int
    content: Mapping[str, Tensor]  # [N, ...]
    first: Numbers  # int64 [M]
    items: Numbers  # int64 [M]
    replies: str = ""  # the kind of mail that each replies to, over the edge back at the same moment
    due: Numbers | None = None  # [M]: when each can be absorbed; what is past, or None, is at once

    @property
    def contents(self) -> Sequence[Mapping[str, Tensor]]:
        """The pieces in which `content` lies."""
        return self.content.parts if isinstance(self.content, Joined) else [self.content]

    @cached_property
    def floats(self) -> Numbers:
        """int64 [M]: how many numbers each mail carries."""
        each = sum(tensor[0].numel() if len(tensor) else 0 for tensor in self.content.values())
        found: Numbers = self.items * each
        return found

    @cached_property
    def bytes(self) -> Numbers:
        """int64 [M]: what each mail weighs."""
        sizes, which = np.unique(self.items, return_inverse=True)
        shapes = [(name, tensor.dtype, tuple(tensor.shape[1:])) for name, tensor in sorted(self.content.items())]
        prices = [wire(tuple((name, kind, (size, *rest)) for name, kind, rest in shapes)) for size in sizes.tolist()]
        found: Numbers = np.array(prices, np.int64)[which]
        return found

    @cached_property
    def payloads(self) -> dict[tuple[int, int], dict[str, Tensor]]:
        """The payloads that somebody has looked at, by where they begin and how long they are."""
        return {}

    def payload(self, at: int) -> dict[str, Tensor]:
        """What a mail holds, in memory of its own: it may be kept for longer than the bundle."""
        name = int(self.first[at]), int(self.items[at])
        if name not in self.payloads:
            first, items = name
            found = {key: tensor[first : first + items] for key, tensor in self.content.items()}
            self.payloads[name] = frozen(found) if packable(found) else found
        return self.payloads[name]

    @cached_property
    def spread(self) -> tuple[Numbers, Numbers]:
        """For every item of every mail, which mail it is in, and where it is in `content`."""
        one = np.repeat(np.arange(len(self)), self.items)
        start = np.repeat(self.first - (self.items.cumsum() - self.items), self.items)
        return one, start + np.arange(len(one))

    def take(self, at: Numbers) -> "Bundle":
        """Some of these mails, in their order."""
        due = None if self.due is None else self.due[at]
        return replace(self, links=self.links.take(at), first=self.first[at], items=self.items[at], due=due)

    def answered(self, links: Links) -> tuple[Numbers, Numbers] | None:
        """Which of some links go back to those who ask by these mails, int64 [N], and for each of them the question;
        None: a question has no link back. Those who answer find their questions in the order of these links."""
        if self.links.root is not links.root:
            return None
        back = links.root.back[self.links.places]
        if (back < 0).any():
            return None
        found = np.full(len(links.root), -1)
        found[back] = np.arange(len(self))
        order = found[links.places]
        at = np.flatnonzero(order >= 0)
        return (at, order[at]) if len(at) == len(self) else None

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each mail is, by its id."""
        return {self.id(at): at for at in range(len(self))}

    def id(self, at: int) -> str:
        return identify(*self.ends(at), self.mode, self.kind, self.task, self.epoch)

    def ends(self, at: int) -> tuple[Lane, Lane]:
        return self.links.peers[self.links.senders[at]], self.links.peers[self.links.receivers[at]]

    def __len__(self) -> int:
        return len(self.links)

    @overload
    def __getitem__(self, at: int) -> Mail: ...
    @overload
    def __getitem__(self, at: slice) -> list[Mail]: ...
    def __getitem__(self, at: int | slice) -> Mail | list[Mail]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return self.one(at % len(self))

    def one(self, at: int) -> Mail:
        """The mail at a place."""
        sender, receiver = self.ends(at)
        reply = identify(receiver, sender, self.mode, self.replies, self.task, self.epoch) if self.replies else ""
        name, items, due = self.id(at), int(self.items[at]), 0 if self.due is None else self.due[at].item()
        return Mail(
            *(sender, receiver, self.mode, self.kind, self.payload(at), items, name, reply, self.task, self.epoch, due)
        )

    def __iter__(self) -> Iterator[Mail]:
        return (self[at] for at in range(len(self)))


class Joined(Mapping[str, Tensor]):
    """What several bundles and mails hold, one after the other; a tensor of all of it is made when somebody asks."""

    def __init__(self, parts: Sequence[Mapping[str, Tensor]]) -> None:
        self.parts = parts
        self.made: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.made:
            self.made[name] = torch.cat([one[name] for one in self.parts])
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0])

    def __len__(self) -> int:
        return len(self.parts[0])


@dataclass(frozen=True, eq=False)
class Gathered(Bundle):
    """Mails of one mode and kind that left at different moments, and none of which replies to another, as a bundle:
    what is said of all of it at once. Each mail is as it came; task and epoch are nobody's."""

    parts: Sequence[Sequence[Mail]] = ()
    at: Numbers = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # [M, 2]: in which part each is, and where

    def take(self, at: Numbers) -> "Gathered":
        return replace(self, links=self.links.take(at), first=self.first[at], items=self.items[at], at=self.at[at])

    def id(self, at: int) -> str:
        part, place = self.at[at].tolist()
        mails = self.parts[part]
        return mails.id(place) if isinstance(mails, Bundle) else mails[place].id

    def sent(self, epochs: int) -> Numbers:
        """int64 [M]: when each was sent, in epochs since the first task, where a task has so many."""
        clocks = [mails if isinstance(mails, Bundle) else mails[0] for mails in self.parts]
        found: Numbers = np.array([one.task * epochs + one.epoch for one in clocks], np.int64)[self.at[:, 0]]
        return found

    def answered(self, links: Links) -> None:
        return None

    def one(self, at: int) -> Mail:
        part, place = self.at[at].tolist()
        found: Mail = self.parts[part][place]
        return found


def gathered(some: Sequence[tuple[Sequence[Mail], Numbers]], place: Mapping[Lane, int]) -> Gathered | None:
    """Some mails of bundles, and single mails, between lanes at some places among all peers, none of which is itself
    gathered; None: they are not of one kind, or do not look alike."""
    heads = [mails if isinstance(mails, Bundle) else mails[0] for mails, _ in some]
    if not heads or any(one.kind != heads[0].kind for one in heads):
        return None
    if any(one.replies if isinstance(one, Bundle) else one.reply for one in heads):
        return None
    held = {id(one): one for one in (held_by(head) for head in heads)}
    if len({look_of(head) for head in heads} | {None}) != 2:
        return None
    first, total = dict[int, int](), 0
    for name, content in held.items():
        first[name], total = total, total + len(next(iter(content.values())))
    rows: list[Numbers] = []  # int64 [4, n]: sender, receiver, first item, items
    for head, (_, which) in zip(heads, some, strict=True):
        begins = first[id(held_by(head))]
        if isinstance(head, Bundle):
            ends = head.links.senders, head.links.receivers
            rows.append(np.stack([one[which] for one in (*ends, head.first + begins, head.items)]))
        else:
            rows.append(np.array([[place[head.sender]], [place[head.receiver]], [begins], [head.items]]))
    senders, receivers, start, items = np.concatenate(rows, 1)
    at = np.stack(
        [np.repeat(np.arange(len(some)), [len(at) for _, at in some]), np.concatenate([at for _, at in some])]
    )
    links, parts = Links(tuple(place), senders, receivers), [mails for mails, _ in some]
    content = joined(list(held.values()))
    return Gathered(links, heads[0].mode, heads[0].kind, 0, 0, content, start, items, parts=parts, at=at.T)


def joined(contents: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Contents one after the other."""
    return contents[0] if len(contents) == 1 else Joined(contents)


def held_by(one: Bundle | Mail) -> Mapping[str, Tensor]:
    """What a bundle or a mail holds."""
    return one.content if isinstance(one, Bundle) else one.payload


def look_of(one: Bundle | Mail) -> tuple[tuple[str, torch.dtype, torch.Size], ...] | None:
    """Names, types and shapes of the items of a bundle or a mail; None: its tensors do not hold an item in each row."""
    held = held_by(one)
    if not held or (isinstance(one, Mail) and any(tensor.shape[:1] != (one.items,) for tensor in held.values())):
        return None
    return tuple((name, tensor.dtype, tensor.shape[1:]) for name, tensor in held.items())


def beside(bundles: Sequence[Bundle]) -> Sequence[Mail]:
    """Several bundles as one, where they are of one kind."""
    some = [one for one in bundles if len(one)]
    if len(some) <= 1:
        return some[0] if some else []
    one = some[0]
    if any(other.kind != one.kind or other.replies or other.content.keys() != one.content.keys() for other in some):
        return [mail for each in some for mail in each]
    lengths = np.cumsum([0, *(sum(len(next(iter(held.values()))) for held in each.contents) for each in some)])
    content = joined([held for each in some for held in each.contents])
    first = np.concatenate([each.first + start for each, start in zip(some, lengths, strict=False)])
    senders, receivers = (
        np.concatenate([getattr(each.links, name) for each in some]) for name in ("senders", "receivers")
    )
    links, items = Links(one.links.peers, senders, receivers), np.concatenate([each.items for each in some])
    at = np.concatenate(
        [np.stack([np.full(len(each), part), np.arange(len(each))], 1) for part, each in enumerate(some)]
    )
    return Gathered(links, one.mode, one.kind, 0, 0, content, first, items, parts=some, at=at)


@dataclass(frozen=True, eq=False)
class Lot(Sequence[tuple[Mail, str]]):
    """A bundle that has left, with the verdict on each of its mails so far."""

    bundle: Bundle
    verdicts: Sequence[str] = ()  # none: all are accepted

    @cached_property
    def places(self) -> Numbers:
        """int64 [N]: the mails that reach their receivers."""
        return np.flatnonzero([word == ACCEPTED for word in self.verdicts])

    @cached_property
    def arriving(self) -> Bundle:
        """These mails."""
        return self.bundle.take(self.places) if self.verdicts else self.bundle

    def told(self, verdicts: Sequence[str]) -> "Lot":
        """The same with what receivers say of those that reach them; nothing: they accept all."""
        if not self.verdicts or not verdicts:
            return Lot(self.bundle, verdicts or self.verdicts)
        found = list(self.verdicts)
        for at, word in zip(self.places.tolist(), verdicts, strict=True):
            found[at] = word
        return Lot(self.bundle, found)

    def __len__(self) -> int:
        return len(self.bundle)

    @overload
    def __getitem__(self, at: int) -> tuple[Mail, str]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[Mail, str]]: ...
    def __getitem__(self, at: int | slice) -> tuple[Mail, str] | list[tuple[Mail, str]]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        return self.bundle[at], self.verdicts[at] if self.verdicts else ACCEPTED

    def __iter__(self) -> Iterator[tuple[Mail, str]]:
        return (self[at] for at in range(len(self)))
