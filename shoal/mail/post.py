"""The post: the only way from one agent to another. It prices, refuses, records and delivers.

It trusts no mail. Whatever is handed to it or arrives becomes a verdict, and none of it ends a run: `dispatch` says
what may leave, `carriage` what becomes of it on its way and when it is there, and `judgement` what its receivers
accept.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from shoal.agents.lanes import moment
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.letters.ledger import Settled
from shoal.letters.letter import Quote, Room
from shoal.letters.links import Links
from shoal.letters.mail import ACCEPTED, UNDER_WAY, Expected, Mail, identify
from shoal.letters.table import Table, Words, words
from shoal.mail import dispatch
from shoal.mail.carriage import are_there, taken
from shoal.mail.filters import Ways, left, room, usual
from shoal.mail.judgement import counted_once, judged, seen_late
from shoal.mail.policy import permitted
from shoal.own_code import for_whom, running
from shoal.units import limit

if TYPE_CHECKING:
    from shoal.sharing.contract import Sharing

T = TypeVar("T")
Observe = Callable[[Mail, str], None]  # is told of every mail that was posted, with its verdict


@dataclass
class Post:
    """The post of one stack at one moment, for one mode.

    What it does for senders that are here reads only what is theirs: limits of their edges, and what has left. What it
    does for receivers that are here reads only the mail, and what they have sent themselves.
    """

    world: World
    stack: Stack
    mode: "Sharing"
    notes: dict[Lane, Any] = field(default_factory=dict)  # what a lane notes for itself between two verbs
    named: Counter[str] = field(default_factory=Counter)  # how many mails have asked for an id
    asking: bool = False  # is it the time of questions?
    verb: str = ""  # which mail comes now: that of `ask`, or that of `answer`; empty: any
    gone: list[Table] = field(default_factory=list)  # what has left: all that senders know of their mail
    spoken: dict[str, np.ndarray] = field(default_factory=dict)  # which links mail of a kind has left over: bool [E]
    heard: dict[str, np.ndarray] = field(default_factory=dict)  # over which links mail of a kind was accepted: codes
    drafts: dict[tuple[Lane, Lane, str], Mapping[str, Any]] = field(default_factory=dict)  # what mail was written from
    arrived: list[Table] = field(default_factory=list)  # what was accepted when it came, until it is collected
    found: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)  # what `once` has found, and of what
    waited: set[str] = field(default_factory=set)  # the ids of what has been under way before
    settled: list[Settled] = field(default_factory=list)  # what receivers have said of mail that had been under way
    time: float = -1.0  # the moment; who does not say it has that of its lanes
    acts: bool = True  # are its lanes at an exchange by their own clocks? Others only answer
    whole: bool = True  # are all lanes of the fleet at this exchange, at one point of their clocks?
    waits: dict[Lane, float] = field(default_factory=dict)  # until when a lane waits for answers to what it has asked
    room: np.ndarray | None = None  # what links still carry, until something leaves
    means: dict[int, dict[str, Tensor]] | None = None  # of models that have come, by rows, if found for all at once

    # When it is

    def __post_init__(self) -> None:
        if self.time < 0:
            self.time = float(self.now)

    @cached_property
    def own(self) -> bool:
        """Have lanes clocks of their own?"""
        return "moment" in self.stack.clock

    @cached_property
    def now(self) -> int:
        """The moment, in epochs since the first task."""
        return self.stack.task * self.world.settings.learner.epochs + self.stack.epoch

    @cached_property
    def when(self) -> int:
        """The epoch in which links and agents are as they are now."""
        return moment(self.world.settings, self.stack.task, self.stack.epoch)

    def sent_at(self, table: Table) -> np.ndarray:
        """When letters were sent, in epochs since the first task: int64 [M]."""
        found: np.ndarray = table.task * self.world.settings.learner.epochs + table.epoch
        return found

    @cached_property
    def asynchronous(self) -> bool:
        """Does everybody go on, and mail come when it comes?"""
        return self.world.fleet.clock.pace == "asynchronous" and self.own

    @cached_property
    def prompt(self) -> bool:
        """Does all mail that comes at all come at once?"""
        return self.world.prompt and usual()

    # Who is there

    @cached_property
    def away(self) -> frozenset[Lane]:
        """The lanes, here and elsewhere, that are absent now."""
        return self.world.absent(self.when)

    @cached_property
    def silent(self) -> frozenset[Lane]:
        """The lanes that are here and have diverged."""
        return self.stack.silent

    def learns(self, lane: Lane) -> bool:
        """Has a lane, here or elsewhere, still a task now?"""
        return self.stack.task < self.world.far_ends[lane]

    def out(self, lane: Lane) -> list[Lane]:
        """Whom a lane can send to by this mode, now. An agent whose stream has ended goes on answering, but asks for
        nothing and is sent nothing; one that has diverged is silent, and so is one that is absent. Nobody knows who
        else is."""
        if lane in self.silent or lane in self.away:
            return []
        others = self.world.neighbours(self.mode).get(lane, [])
        if self.own:  # what tasks others are at, nobody knows; only who has begun
            return [other for other in others if self.world.begins[other] <= self.time]
        if self.world.even:
            return others
        if self.asking:
            return others if self.learns(lane) else []
        return [other for other in others if self.learns(other)]

    def gone_at(self, places: np.ndarray) -> np.ndarray:
        """Which of some lanes, by their places among all peers, are absent now: bool."""
        absent = np.zeros(len(self.world.peers), bool)
        absent[[self.world.places[lane] for lane in self.away]] = True
        found: np.ndarray = absent[places]
        return found

    @cached_property
    def there_now(self) -> np.ndarray:
        """Which of all peers are here and not absent: bool."""
        here: np.ndarray = self.world.rows >= 0
        return here & ~self.gone_at(np.arange(len(here))) if self.away else here

    def rows(self, places: np.ndarray) -> np.ndarray:
        """The rows here of lanes by their places among all peers; -1: they are elsewhere."""
        found: np.ndarray = self.world.rows[places]
        return found

    def running(self, verb: str, lanes: Sequence[Lane] = ()) -> AbstractContextManager[None]:
        """What goes wrong inside goes wrong in a verb of the mode, for some lanes, or for any that are here."""
        stack = self.stack
        what = f"`{verb}` of the mode `{self.mode.mode}`"
        return running(self.mode, what, lambda: for_whom(lanes or stack.lanes, stack.task, stack.epoch))

    # Making mail

    def mail(
        self, lane: Lane, other: Lane, kind: str, payload: Mapping[str, Tensor], items: int, reply: str = ""
    ) -> Mail:
        """A mail from a lane that is here, dated now."""
        mode, task, epoch = self.mode.mode, self.stack.task, self.stack.epoch
        name = identify(lane, other, mode, kind, task, epoch)
        if reply and self.own:  # who rests is asked again and again at one point of its own stream
            name += f".{reply.rpartition('/')[2]}"
        self.named[name] += 1
        if self.named[name] > 1:  # nobody else names mail of this edge, so that the count is the same in every run
            name = f"{name}.{self.named[name]}"
        return Mail(lane, other, mode, kind, payload, items, name, reply, task, epoch)

    def reply(self, question: Mail, kind: str, payload: Mapping[str, Tensor], items: int) -> Mail:
        """A mail back to the sender of another."""
        return self.mail(question.receiver, question.sender, kind, payload, items, question.id)

    def names(self, table: Table) -> Words:
        """The ids of letters of lanes that are here, where what they reply to is part of their names: who rests is
        asked again and again at one point of its own stream."""
        plain, replies = replace(table, names=None).ids.tolist(), table.questions.tolist()
        return words(
            f"{name}.{reply.rpartition('/')[2]}" if reply else name for name, reply in zip(plain, replies, strict=True)
        )

    def asked(self, answers: Table, at: int) -> Mapping[str, Tensor] | None:
        """What the letter holds that an answer replies to, if its receiver has really sent it to this sender at this
        exchange."""
        reply, (sender, receiver) = answers.question(at), answers.ends(at)
        for table in self.gone if reply else ():
            asked = table.places.get(reply, -1)
            if asked >= 0 and table.ends(asked) == (receiver, sender):
                return table.payload(asked)
        return None

    def sent_by(self, lane: Lane, kind: str) -> list[Mail]:
        """The mail of some kind that a lane that is here has sent, in the order of its links."""
        place, index = self.world.places[lane], self.world.links(self.mode).index
        rows = ((table, at) for table in self.gone for at in table.by_sender(place) if table.kind[at] == kind)
        return sorted((table[at] for table, at in rows), key=lambda mail: index[mail.sender, mail.receiver])

    def left_now(self, table: Table, at: np.ndarray) -> None:
        """Note that letters have left over links at some places."""
        self.gone.append(table)
        for kind in table.kinds:
            over = self.spoken.setdefault(kind, np.zeros(len(self.world.links(self.mode)), bool))
            over[at[table.among_kinds([kind])]] = True

    def has_left(self, kinds: Words, at: np.ndarray) -> np.ndarray:
        """Has mail of a kind left over a link at this exchange before? bool [M]."""
        found = np.zeros(len(at), bool)
        for kind in self.spoken.keys() & set(kinds.tolist()):
            found |= (kinds == kind) & self.spoken[kind][at]
        return found

    def leaves(self, table: Table) -> list[float] | None:
        """When letters leave: an answer after its question has come. None: now."""
        if not self.asked_at:
            return None
        return [self.asked_at.get(reply, self.time) for reply in table.questions.tolist()]

    @cached_property
    def batched(self) -> bool:
        """Can lanes that are here speak all at once? Nothing of what they say is looked at one by one then, whatever
        links carry."""
        fleet = self.world.fleet
        if fleet.faulty or fleet.policy or self.silent or self.world.device.type != "cpu":
            return False
        if not self.whole:  # who is asked by its own clock is at another point of its stream
            return self.acts and not self.mode.both_ways
        return self.world.even

    @cached_property
    def links(self) -> Links:
        """The edges over which lanes that are here send by this mode now, sender after sender, as arrays."""
        links = self.world.links(self.mode)
        if self.own and self.time < self.world.begun:
            begun = np.array([self.world.begins[lane] <= self.time for lane in self.world.peers])[links.receivers]
            return links.take(np.flatnonzero(begun))
        return links.take(np.flatnonzero(~self.gone_at(links.senders))) if self.away else links

    def table(
        self,
        kind: str,
        content: Mapping[str, Tensor],
        first: np.ndarray,
        items: np.ndarray,
        at: np.ndarray | None = None,
    ) -> Table:
        """A letter of one kind over each of `links`, or those `at` some places, dated now: the first axis of every
        tensor counts items, and a letter holds so many from the `first` on."""
        links, clock = self.links if at is None else self.links.take(at), (self.stack.task, self.stack.epoch)
        return Table.at(links, self.mode.mode, kind, clock, [content], first, items)

    def once(self, what: tuple[Any, ...], of: object, find: Callable[[], T]) -> T:
        """What is found out of some object but once at this exchange: the same payload may go to many."""
        name = *what, id(of)
        if name not in self.found:
            self.found[name] = of, find()  # the object stays alive, so that no other can have its id
        found: T = self.found[name][1]
        return found

    # What mail of the mode looks like

    @cached_property
    def quotes(self) -> dict[str, Quote]:
        """The largest mail of each kind that the mode sends over an edge without limits."""

        def find() -> dict[str, Quote]:
            with self.running("quote"):
                return {one.kind: one for one in self.mode.quote(self.world, Room())}

        return self.world.once(("quotes", self.mode), find)

    @cached_property
    def looks(self) -> dict[tuple[str, int], Mapping[str, Expected]]:
        """What `look` has been told."""
        return {}

    def look(self, kind: str, sender: Lane) -> Mapping[str, Expected]:
        """What mail of some kind from a sender must look like, which is the same from all of its kind."""

        def find() -> Mapping[str, Expected]:
            with self.running("expects"):
                return self.mode.expects(self.world, kind, sender)

        name = kind, id(self.world.of(sender))
        if name not in self.looks:
            self.looks[name] = self.world.once(("look", self.mode, *name), find)
        return self.looks[name]

    def known(self, kind: str) -> bool:
        """Has the mode mail of some kind, at this time?"""
        asks = kind in self.mode.asking
        now = not self.verb or asks == (self.verb == "ask")
        return now and (kind in self.quotes or not self.quotes)

    # For senders

    def ways(self, at: np.ndarray | None = None) -> Ways:
        """The links of the mode, or those at some places, as they are now."""
        links, mode, ledger, policy = self.world.links(self.mode), self.mode, self.stack.ledger, self.world.fleet.policy
        if at is None:
            at = np.arange(len(links))
        terms = [self.world.terms(*ends) for ends in links.take(at).pairs] if policy else ()
        uses = ledger.every.of(links, at), ledger.share(mode.mode).of(links, at)
        return Ways(self.world.roads(mode), at, mode, self.now, self.stack.task, *uses, self.when, terms)

    @property
    def rooms(self) -> np.ndarray:
        """What each link of the mode still carries now, floats and bytes, nothing while it rests: float64 [M, 2]."""
        if self.room is None:
            self.room = left(self.ways())
        return self.room

    def left(self, sender: Lane, receiver: Lane) -> Room:
        """What a link still carries now, in floats and bytes. `fitting` says how many items that is."""
        return room(self.rooms[self.world.links(self.mode).index[sender, receiver]])

    @property
    def limited(self) -> bool:
        """Carries any link not all that one likes?"""
        return not self.free and bool(np.isfinite(self.rooms).any())

    @cached_property
    def free(self) -> bool:
        """Do links always carry all that one likes, as far as settings say?"""
        roads = self.world.roads(self.mode)
        most = usual() and np.isinf(roads.limits.amount).all() and limit(self.mode.budget) is None
        return bool(most and (roads.every == 1).all() and not roads.weather.breaks)

    def permitted(self, lane: Lane, others: Sequence[Lane], kind: str, classes: np.ndarray) -> np.ndarray:
        """Which of some items, of classes [n] or of several each [n, K], may be in mail of a kind from a lane to all of
        `others`, by the policy of its site: bool [n], the first before the last. What is not permitted keeps the whole
        mail from leaving, and a neighbour to whom no such mail may go at all does not count."""
        if not self.world.fleet.policy:
            return np.ones(len(classes), bool)
        return permitted(self, lane, others, kind, classes)

    send = dispatch.send

    # For receivers

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """The verdicts of receivers that are here on mail that has arrived. What they accept lies in the inbox until it
        is due."""
        table = mails if isinstance(mails, Table) else Table.of(mails)
        table = table.among(self.world.peers)
        verdicts, there = np.full(len(table), UNDER_WAY, object), are_there(self, table)
        now = table if there.all() else table.take(np.flatnonzero(there))
        said = judged(self, now)
        counted_once(self, now, said)
        verdicts[there], good = said, np.flatnonzero(said == ACCEPTED)
        if len(good):
            self.arrived.append(now if len(good) == len(now) else now.take(good))
        self.stack.inbox.hold(table.take(np.flatnonzero(~there)))
        found: list[str] = verdicts.tolist()
        return found

    def collect(self, asked: bool) -> Table:
        """Take what is there of this mode: questions, or all that is none; first what has been under way."""
        late = taken(self, asked)
        if len(late):
            late = late.take(np.flatnonzero(seen_late(self, late) == ACCEPTED))
        now, rest = list[Table](), list[Table]()
        for table in self.arrived:
            mine = table.among_kinds(self.mode.asking) == asked
            for some, where in ((now, mine), (rest, ~mine)):
                if where.any():
                    some.append(table if where.all() else table.take(np.flatnonzero(where)))
        self.arrived = rest
        found = Table.joined([late, *now], self.world.peers)
        if self.asynchronous and found.due.any():
            if asked:
                self.asked_at |= dict(zip(found.ids.tolist(), found.due.tolist(), strict=True))
            else:
                for lane, rows in found.boxes.items():
                    self.waits[lane] = max(float(found.due[rows].max()), self.waits.get(lane, -1.0))
        return found

    @cached_property
    def asked_at(self) -> dict[str, float]:
        """When questions that lanes here have collected came, by their ids."""
        return {}

    def was_late(self, table: Table, at: int) -> bool:
        """Was a letter under way before this exchange?"""
        return bool(self.waited) and table.id(at) in self.waited
