"""The post: the only way from one agent to another. It prices, refuses, records and delivers.

It trusts no mail. Whatever is handed to it or arrives becomes a verdict, and none of it ends a run: `dispatch` says
what may leave, `carriage` what becomes of it on its way, `arrival` when it is there, and `judgement` what its receivers
accept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from shoal.agents.events import own
from shoal.agents.stack import Stack
from shoal.agents.world import World, moment
from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle, Links, beside, gathered
from shoal.letters.inbox import each
from shoal.letters.ledger import Settled
from shoal.letters.mail import ACCEPTED, TOO_MANY, UNDER_WAY, Expected, Mail, counted, fault, identify
from shoal.letters.quote import Quote, Room
from shoal.mail.arrival import are_there, is_there, taken
from shoal.mail.dispatch import sealed, send_all, send_each
from shoal.mail.filters import Ways, left, room, usual
from shoal.mail.judgement import all_late, all_right, seen, seen_late, sound
from shoal.mail.policy import permitted
from shoal.own_code import for_whom, running

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
    sent: dict[str, Mail] = field(default_factory=dict)  # what has left, by id: all that a sender knows of its mail
    named: Counter[str] = field(default_factory=Counter)  # how many mails have asked for an id
    asking: bool = False  # is it the time of questions?
    verb: str = ""  # which mail comes now: that of `ask`, or that of `answer`; empty: any
    gone: dict[tuple[Lane, Lane, str], Mail] = field(default_factory=dict)  # what has left, by its edge and kind
    heard: set[tuple[Lane, Lane, str]] = field(default_factory=set)  # the edges and kinds of what was accepted
    drafts: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # what mail was written from, by its id
    lots: dict[str, Bundle] = field(default_factory=dict)  # bundles that have left, by kind
    arrived: dict[str, Bundle] = field(default_factory=dict)  # and that were accepted, until they are collected
    found: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)  # what `once` has found, and of what
    fresh: set[str] = field(default_factory=set)  # the ids of what was accepted when it came,
    waited: set[str] = field(default_factory=set)  # and of what has been under way before
    settled: list[Settled] = field(default_factory=list)  # what receivers have said of mail that had been under way
    time: float = -1.0  # the moment; who does not say it has that of its lanes
    acts: bool = True  # are its lanes at an exchange by their own clocks? Others only answer
    whole: bool = True  # are all lanes of the fleet at this exchange, at one point of their clocks?
    waits: dict[Lane, float] = field(default_factory=dict)  # until when a lane waits for answers to what it has asked
    room: np.ndarray | None = None  # what links still carry, until something leaves

    # When it is

    def __post_init__(self) -> None:
        if self.time < 0:
            self.time = float(self.now)

    @cached_property
    def own(self) -> bool:
        """Have lanes clocks of their own?"""
        return own(self.stack.clock)

    @cached_property
    def now(self) -> int:
        """The moment, in epochs since the first task."""
        return self.stack.task * self.world.settings.learner.epochs + self.stack.epoch

    @cached_property
    def when(self) -> int:
        """The epoch in which links and agents are as they are now."""
        return moment(self.world.settings, self.stack.task, self.stack.epoch)

    def sent_at(self, mail: Mail) -> int:
        """When a mail was sent, in epochs since the first task."""
        return mail.task * self.world.settings.learner.epochs + mail.epoch

    @cached_property
    def asynchronous(self) -> bool:
        """Does everybody go on, and mail come when it comes?"""
        return self.own and self.world.fleet.clock.pace == "asynchronous"

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

    def asked(self, answer: Mail) -> Mail | None:
        """The mail that an answer replies to, if its receiver has really sent it to this sender at this exchange."""
        mine = self.sent.get(answer.reply)
        for bundle in self.lots.values():
            if mine is None and answer.reply in bundle.places:
                mine = bundle[bundle.places[answer.reply]]
        ends = answer.receiver, answer.sender
        return mine if mine is not None and (mine.sender, mine.receiver) == ends else None

    @cached_property
    def bundles(self) -> bool:
        """Can what lanes that are here send be bundled? Nothing of it is looked at one by one then, whatever links
        carry."""
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

    def bundle(
        self,
        kind: str,
        content: Mapping[str, Tensor],
        first: np.ndarray,
        items: np.ndarray,
        replies: str = "",
        at: np.ndarray | None = None,
    ) -> Bundle:
        """A mail of one kind over each of `links`, or those `at` some places, dated now: the first axis of every tensor
        counts items, and a mail holds so many from the `first` on."""
        links = self.links if at is None else self.links.take(at)
        return Bundle(links, self.mode.mode, kind, self.stack.task, self.stack.epoch, content, first, items, replies)

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
        with self.running("quote"):
            return {one.kind: one for one in self.mode.quote(self.world, Room())}

    @cached_property
    def looks(self) -> dict[tuple[str, Lane], Mapping[str, Expected]]:
        """What `look` has been told."""
        return {}

    def look(self, kind: str, sender: Lane) -> Mapping[str, Expected]:
        """What mail of some kind from a sender must look like."""
        if (kind, sender) not in self.looks:
            with self.running("expects"):
                self.looks[kind, sender] = self.mode.expects(self.world, kind, sender)
        return self.looks[kind, sender]

    def known(self, kind: str) -> bool:
        """Has the mode mail of some kind, at this time?"""
        asks = kind in self.mode.asking
        now = not self.verb or asks == (self.verb == "ask")
        return now and (kind in self.quotes or not self.quotes)

    def crowded(self, bundle: Bundle) -> bool:
        """Has a mail of a bundle more items than the mode ever sends?"""
        quote = self.quotes.get(bundle.kind)
        return quote is not None and int(np.max(bundle.items)) > quote.items

    def fault(self, mail: Mail) -> str:
        """The verdict on what a mail looks like."""

        def find() -> str:
            expected = self.look(mail.kind, mail.sender)
            verdict = fault(mail.payload, expected)
            if verdict == ACCEPTED and mail.kind in self.quotes:
                many = (counted(mail.payload, expected) or 0) > self.quotes[mail.kind].items
                return TOO_MANY if many else ACCEPTED
            return verdict

        return self.once(("fault", mail.kind, mail.sender), mail.payload, find)

    # For senders

    def ways(self, at: np.ndarray | None = None) -> Ways:
        """The links of the mode, or those at some places, as they are now."""
        links, mode, ledger, policy = self.world.links(self.mode), self.mode, self.stack.ledger, self.world.fleet.policy
        if at is None:
            at = np.arange(len(links))
        some = links.take(at)
        terms = [self.world.terms(*ends) for ends in some.pairs] if policy else ()
        uses = ledger.every.of(some), ledger.share(mode.mode).of(some)
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
        return bool(np.isfinite(self.rooms).any())

    def permitted(self, lane: Lane, others: Sequence[Lane], kind: str, classes: np.ndarray) -> np.ndarray:
        """Which of some items, of classes [n] or of several each [n, K], may be in mail of a kind from a lane to all of
        `others`, by the policy of its site: bool [n], the first before the last. What is not permitted keeps the whole
        mail from leaving, and a neighbour to whom no such mail may go at all does not count."""
        if not self.world.fleet.policy:
            return np.ones(len(classes), bool)
        return permitted(self, lane, others, kind, classes)

    def send(self, mails: Iterable[Mail]) -> Sequence[tuple[Mail, str]]:
        """Let mails of lanes that are here leave, if they may: they are paid for, whatever becomes of them.

        Each comes back as it is under way, with a verdict: ACCEPTED, as far as its sender can know, or why it is not
        under way. What is under way is a copy, one for all that hold the same payload: nobody can change it any more.
        """
        if isinstance(mails, Bundle) and (copy := sealed(self, mails)) is not None:
            return send_all(self, copy)
        return send_each(self, mails)

    # For receivers

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """The verdicts of receivers that are here on mail that has arrived. What they accept lies in the inbox until it
        is due. Of a bundle that all accept as it is there are none."""
        if isinstance(mails, Bundle):
            there = are_there(self, mails)
            now = mails if there.all() else mails.take(np.flatnonzero(there))
            # What lanes at different points of their streams have sent comes in several bundles.
            if not len(now) or (self.whole and all_right(self, now)):
                self.stack.inbox.hold(mails, np.flatnonzero(~there))
                if len(now):
                    self.arrived[mails.kind] = now
                    if not self.prompt:
                        names = ((*ends, now.mode, now.kind) for ends in now.links.pairs)
                        self.stack.ledger.latest.update(dict.fromkeys(names, self.now))
                return [] if now is mails else np.where(there, ACCEPTED, UNDER_WAY).tolist()
        verdicts = []
        for mail in mails:
            verdict = seen(self, mail) if is_there(self, mail) else UNDER_WAY
            if verdict in (ACCEPTED, UNDER_WAY):
                self.stack.inbox.append(mail)
            if verdict == ACCEPTED:
                self.fresh.add(mail.id)
            verdicts.append(verdict)
        return verdicts

    def collect(self, asked: bool) -> Sequence[Mail]:
        """Take from the inbox what is due of this mode: questions, or all that is none."""
        bundles = [one for kind, one in self.arrived.items() if (kind in self.mode.asking) == asked]
        self.arrived = {kind: one for kind, one in self.arrived.items() if (kind in self.mode.asking) != asked}
        some = taken(self, asked)
        if not some and len(bundles) == 1:
            return bundles[0]
        late = [one for one in some if isinstance(one[0], Bundle) or one[0][0].id not in self.fresh]
        packed = None if asked or self.mode.both_ways else gathered(late, self.world.places)
        # Of those that have been under way the newest is judged first: what it has overtaken is of no use.
        if packed is not None and not self.crowded(packed) and sound(self, packed):
            said = all_late(self, packed)
            self.waited |= said.keys()
            if len(late) == len(some):
                good = np.flatnonzero([word == ACCEPTED for word in said.values()])
                return beside([packed if len(good) == len(packed) else packed.take(good), *bundles])
        else:
            said, old = {}, sorted(each(late), key=self.sent_at, reverse=True)
            self.waited |= {mail.id for mail in old}
            for mail in old:
                said[mail.id] = seen_late(self, mail)
        found = [mail for mail in each(some) if said.get(mail.id, ACCEPTED) == ACCEPTED]
        for mail in found if self.asynchronous else []:
            if asked:
                self.asked_at[mail.id] = mail.due
            else:
                self.waits[mail.receiver] = max(mail.due, self.waits.get(mail.receiver, mail.due))
        return [*found, *(mail for one in bundles for mail in one)]

    @cached_property
    def asked_at(self) -> dict[str, float]:
        """When questions that lanes here have collected came, by their ids."""
        return {}

    def was_late(self, mail: Mail) -> bool:
        """Was a mail under way before this exchange?"""
        return mail.id in self.waited
