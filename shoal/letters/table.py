"""Tables: letters as columns, a row each. A letter (`Mail`) is made of a row when somebody looks at it.

There is one table for one letter and for a million, whoever has sent them, whenever they left and wherever they go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.letters.links import Links, Numbers
from shoal.letters.mail import Joined, Mail, frozen, identify, packable, wire

Words = np.ndarray  # object
Look = tuple[tuple[str, torch.dtype, torch.Size], ...]  # names, types and shapes
WHOLE = -1  # stands for the first item of a letter that holds all of a content, whose tensors may be of any shape
PLAIN = ("mode", "kind", "task", "epoch", "first", "items", "due")  # columns that are taken and joined as they are


@dataclass(frozen=True, eq=False)
class Table(Sequence[Mail]):
    """Letters over some links. The first axis of every tensor of a content counts items, of which a letter holds so
    many from its `first` on, so that letters to many can hold the same; or a letter holds a content as it is."""

    links: Links
    mode: Words
    kind: Words
    task: Numbers  # int64 [M]: the clocks of their senders
    epoch: Numbers
    contents: Sequence[Mapping[str, Tensor]]
    which: Numbers  # int64 [M]: in which content each is
    first: Numbers  # int64 [M]
    items: Numbers  # int64 [M]
    due: Numbers  # [M]: when each can be absorbed; what is past is at once
    names: Words | None = None  # their ids, where ends, kind and clock do not say all
    replies: Words | None = None  # the ids of the letters that they reply to,
    answers: str = ""  # or of which kind these are, if each replies to one over the link back at the same moment
    weighed: Numbers | None = None  # what `weights` are, where that is known
    made: dict[tuple[int, int, int], Mapping[str, Tensor]] = field(default_factory=dict)  # what `payload` has made

    @classmethod
    def at(
        cls,
        links: Links,
        mode: str,
        kind: str,
        clock: tuple[int, int],
        contents: Sequence[Mapping[str, Tensor]],
        first: Numbers,
        items: Numbers,
        **more: Any,
    ) -> "Table":
        """Letters of one mode, kind and moment, in one content if nothing else is said."""
        count = len(links)
        return cls(
            links,
            np.full(count, mode, object),
            np.full(count, kind, object),
            np.full(count, clock[0], np.int64),
            np.full(count, clock[1], np.int64),
            contents,
            more.pop("which", np.zeros(count, np.int64)),
            first,
            items,
            np.zeros(count, np.int64),
            **more,
        )

    @classmethod
    def none(cls, peers: tuple[Lane, ...]) -> "Table":
        """No letters."""
        no, none = np.zeros(0, np.int64), np.zeros(0, object)
        return cls(Links(peers, no, no), none, none, no, no, (), no, no, no, no)

    @classmethod
    def of(cls, mails: Iterable[Mail], peers: tuple[Lane, ...] = ()) -> "Table":
        """Single letters as a table; what is in it by its first axis can be cut there."""
        every = list(mails)
        if not every:
            return cls.none(peers)
        place = {lane: at for at, lane in enumerate(peers)}
        ends = [(place.setdefault(one.sender, len(place)), place.setdefault(one.receiver, len(place))) for one in every]
        contents = {id(one.payload): one.payload for one in every}
        number = {name: at for at, name in enumerate(contents)}

        def column(name: str) -> Numbers:
            return np.array([getattr(one, name) for one in every])

        return cls(
            Links(peers if len(place) <= len(peers) else tuple(place), *np.array(ends, np.int64).T),
            words(one.mode for one in every),
            words(one.kind for one in every),
            column("task"),
            column("epoch"),
            list(contents.values()),
            np.array([number[id(one.payload)] for one in every], np.int64),
            np.array([0 if itemised(one) else WHOLE for one in every], np.int64),
            column("items"),
            column("due"),
            words(one.id for one in every),
            words(one.reply for one in every),
        )

    @classmethod
    def joined(cls, tables: Sequence["Table"], peers: tuple[Lane, ...] = ()) -> "Table":
        """Tables one after the other, between some peers."""
        some = [one for one in tables if len(one)]
        if len(some) <= 1:
            return some[0] if some else cls.none(peers)
        if any(one.links.peers is not some[0].links.peers for one in some):
            every = tuple(dict.fromkeys(lane for one in some for lane in one.links.peers))
            some = [one.among(every) for one in some]
        contents = {id(content): content for one in some for content in one.contents}
        number = {name: at for at, name in enumerate(contents)}
        places = [np.array([number[id(content)] for content in one.contents] or [0], np.int64) for one in some]
        which = np.concatenate([place[one.which] for place, one in zip(places, some, strict=True)])
        columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in some]) for name in PLAIN}
        ends = (np.concatenate([getattr(one.links, end) for one in some]) for end in ("senders", "receivers"))
        alike = len({one.answers for one in some}) == 1 and all(one.replies is None for one in some)
        return cls(
            Links(some[0].links.peers, *ends),
            contents=list(contents.values()),
            which=which,
            names=None if all(one.names is None for one in some) else np.concatenate([one.ids for one in some]),
            replies=None if alike else np.concatenate([one.questions for one in some]),
            answers=some[0].answers if alike else "",
            weighed=None if any(one.weighed is None for one in some) else np.concatenate([one.weights for one in some]),
            **columns,
        )

    def compact(self) -> "Table":
        """The same letters without contents that none of them holds."""
        used = np.unique(self.which)
        if len(used) == len(self.contents):
            return self
        contents = [self.contents[at] for at in used.tolist()]
        return replace(self, contents=contents, which=np.searchsorted(used, self.which), made={})

    def take(self, at: Numbers) -> "Table":
        """Some of these letters, in their order."""
        columns = {name: getattr(self, name)[at] for name in (*PLAIN, "which")}
        weighed = vars(self).get("weights", self.weighed)
        names, replies, weighed = (None if one is None else one[at] for one in (self.names, self.replies, weighed))
        found = replace(self, links=self.links.take(at), names=names, replies=replies, weighed=weighed, **columns)
        if len(self.kinds) == 1 and len(at):
            vars(found)["kinds"] = self.kinds
        return found.compact() if len(self.contents) > 1 else found

    def among(self, peers: tuple[Lane, ...]) -> "Table":
        """The same letters between places among other peers, and behind these those that are not among them."""
        if self.links.peers is peers or self.links.peers == peers:
            return self
        place = {lane: at for at, lane in enumerate(peers)}
        there = np.array([place.setdefault(lane, len(place)) for lane in self.links.peers], np.int64)
        ends = there[self.links.senders], there[self.links.receivers]
        return replace(self, links=Links(tuple(place), *ends))

    def holding(self, payloads: Mapping[int, Mapping[str, Tensor]]) -> "Table":
        """The same letters, but for what some of them hold, by their places."""
        if not payloads:
            return self
        at, number = np.array(list(payloads)), len(self.contents)
        which, first = self.which.copy(), self.first.copy()
        which[at], first[at] = number + np.arange(len(at)), WHOLE
        contents = [*self.contents, *payloads.values()]
        return replace(self, contents=contents, which=which, first=first, weighed=None, made={}).compact()

    def trimmed(self) -> "Table":
        """The same letters, in contents that hold nothing else."""
        found, first, contents = self.compact(), self.first.copy(), list[Mapping[str, Tensor]]()
        order = np.argsort(found.which, kind="stable")
        ends = np.searchsorted(found.which[order], np.arange(len(found.contents) + 1))
        for held, begin, end in zip(found.contents, ends, ends[1:], strict=False):
            rows = order[begin:end]
            if (first[rows] == WHOLE).any():
                contents.append(held)
                continue
            width = int(self.items[rows].max()) + 1
            cuts, which = np.unique(first[rows] * width + self.items[rows], return_inverse=True)
            start, items = np.divmod(cuts, width)
            behind = items.cumsum() - items
            at = torch.from_numpy(np.repeat(start - behind, items) + np.arange(items.sum()))
            contents.append({name: one[at] for name, one in held.items()})
            first[rows] = behind[which]
        return replace(found, contents=contents, first=first, made={})

    # What they hold

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of letters that there are."""
        return tuple(dict.fromkeys(self.kind.tolist()))

    def among_kinds(self, kinds: Sequence[str]) -> Numbers:
        """Which letters are of some kinds: bool [M]."""
        if len(self.kinds) == 1:
            return np.full(len(self), self.kinds[0] in kinds)
        return np.array([kind in kinds for kind in self.kind.tolist()], bool)

    @cached_property
    def looks(self) -> list[Look]:
        """What the items of each content are like."""
        return [tuple((name, one.dtype, one.shape[1:]) for name, one in sorted(held.items())) for held in self.contents]

    @cached_property
    def alike(self) -> bool:
        """Are all letters of one kind, and is what they hold items that are alike? Then `content` has all of it."""
        if not len(self):
            return False
        used = np.unique(self.which).tolist()
        return len(self.kinds) == 1 and bool((self.first >= 0).all()) and len({self.looks[at] for at in used}) == 1

    @cached_property
    def content(self) -> Mapping[str, Tensor]:
        """All contents one after the other, where they are alike."""
        return self.contents[0] if len(self.contents) == 1 else Joined(self.contents)

    @cached_property
    def start(self) -> Numbers:
        """int64 [M]: where in `content` the items of each letter begin."""
        lengths = [len(next(iter(held.values()))) for held in self.contents]
        before = np.cumsum([0, *lengths])
        found: Numbers = before[self.which] + self.first
        return found

    @cached_property
    def spread(self) -> tuple[Numbers, Numbers]:
        """For every item of every letter, which letter it is in, and where it is in `content`."""
        one = np.repeat(np.arange(len(self)), self.items)
        start = np.repeat(self.start - (self.items.cumsum() - self.items), self.items)
        return one, start + np.arange(len(one))

    @cached_property
    def weights(self) -> Numbers:
        """int64 [M, 2]: how many numbers each letter carries, and how many bytes it weighs."""
        if self.weighed is not None:
            return self.weighed
        whole = self.first == WHOLE
        numbers = {look: at for at, look in enumerate(dict.fromkeys(self.looks))}
        group = np.array([numbers[look] for look in self.looks], np.int64)[self.which]
        group[whole] = len(numbers) + self.which[whole]
        code = group * (int(self.items.max(initial=0)) + 1) + self.items
        _, some, which = np.unique(code, return_index=True, return_inverse=True)
        pairs = [self.weight(at) for at in some.tolist()]
        return np.array(pairs, np.int64).reshape(-1, 2)[which]

    def weight(self, at: int) -> tuple[int, int]:
        """Numbers and bytes of one letter."""
        content, items = self.contents[self.which[at]], int(self.items[at])
        cut = self.first[at] != WHOLE
        shapes = [
            (name, one.dtype, (items, *one.shape[1:]) if cut else tuple(one.shape))
            for name, one in sorted(content.items())
        ]
        return sum(prod(shape) for *_, shape in shapes), wire(tuple(shapes))

    @property
    def floats(self) -> Numbers:
        """int64 [M]: how many numbers each letter carries."""
        return self.weights[:, 0]

    @property
    def bytes(self) -> Numbers:
        """int64 [M]: what each letter weighs."""
        return self.weights[:, 1]

    def payload(self, at: int) -> Mapping[str, Tensor]:
        """What a letter holds, in memory of its own."""
        which, first, items = int(self.which[at]), int(self.first[at]), int(self.items[at])
        held = self.contents[which]
        if first == WHOLE or (first == 0 and all(len(one) == items for one in held.values())):
            return held
        name = which, first, items
        if name not in self.made:
            found = {key: tensor[first : first + items] for key, tensor in held.items()}
            self.made[name] = frozen(found) if packable(found) else found
        return self.made[name]

    # What they are called, and who has written them

    def id(self, at: int) -> str:
        """The id of a letter."""
        if self.names is not None:
            return str(self.names[at])
        return identify(*self.ends(at), self.mode[at], self.kind[at], self.task[at], self.epoch[at])

    @cached_property
    def ids(self) -> Words:
        """The ids of all letters."""
        return words(self.id(at) for at in range(len(self)))

    def question(self, at: int) -> str:
        """The id of the letter that one replies to; empty: to none."""
        if self.replies is not None:
            return str(self.replies[at])
        if not self.answers:
            return ""
        sender, receiver = self.ends(at)
        return identify(receiver, sender, self.mode[at], self.answers, self.task[at], self.epoch[at])

    @property
    def questions(self) -> Words:
        """Those of all letters."""
        return words(self.question(at) for at in range(len(self)))

    def answered(self, links: Links) -> tuple[Numbers, Numbers] | None:
        """Which of some links go back to those who ask by these letters, int64 [N], and for each of them the question:
        those of each who answers together, in their order. None: a question has no link back, or shares it."""
        order = np.argsort(self.links.receivers, kind="stable")
        back = links.find(self.links.turned)[order]
        fine = len(back) and back.min() >= 0 and len(np.unique(back)) == len(back)
        return (back, order) if fine else None

    @cached_property
    def boxes(self) -> dict[Lane, list[int]]:
        """Everybody's letters, in their order, by the lanes that receive them."""
        found: dict[Lane, list[int]] = {}
        for at, to in enumerate(self.links.receivers.tolist()):
            found.setdefault(self.links.peers[to], []).append(at)
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each letter is, by its id."""
        return {name: at for at, name in enumerate(self.ids.tolist())}

    @cached_property
    def senders(self) -> tuple[Numbers, Numbers]:
        """The rows in the order of their senders' places, and these places."""
        order = np.argsort(self.links.senders, kind="stable")
        return order, self.links.senders[order]

    def by_sender(self, place: int) -> list[int]:
        """The rows of letters from a peer, by its place."""
        order, senders = self.senders
        rows: list[int] = order[slice(*np.searchsorted(senders, [place, place + 1]))].tolist()
        return rows

    def ends(self, at: int) -> tuple[Lane, Lane]:
        """The lanes that send and receive a letter."""
        return self.links.peers[self.links.senders[at]], self.links.peers[self.links.receivers[at]]

    def one(self, at: int) -> Mail:
        """The letter in a row."""
        clock = int(self.task[at]), int(self.epoch[at])
        held = self.payload(at) if self.contents else {}
        head = *self.ends(at), self.mode[at], self.kind[at], held, int(self.items[at])
        found = Mail(*head, self.id(at), self.question(at), *clock, self.due[at].item())
        if not self.contents:  # it is elsewhere, and what it weighs is known
            vars(found).update(zip(("floats", "bytes"), self.weights[at].tolist(), strict=True))
        return found

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

    def __iter__(self) -> Iterator[Mail]:
        return (self.one(at) for at in range(len(self)))


def words(some: Iterable[str]) -> Words:
    """Words as a column."""
    every = list(some)
    found = np.empty(len(every), object)
    found[:] = every
    return found


def itemised(mail: Mail) -> bool:
    """Does every tensor of a letter count its items by its first axis?"""
    held = mail.payload
    return bool(held) and packable(held) and all(one.shape[:1] == (mail.items,) for one in held.values())
