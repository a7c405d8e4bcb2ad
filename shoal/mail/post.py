"""The post: the only way from one agent to another. It prices, refuses, records and delivers.

It trusts no mail. Whatever is handed to it or arrives becomes a verdict, and none of it ends a run: a sender cannot
speak for others, send where there is no edge, send more than its mode does, or count twice at an exchange.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor

from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.filters import Way, left, sent, stopped
from shoal.mail.mail import (
    ACCEPTED,
    FORGED,
    LOST,
    NO_EDGE,
    NO_TENSORS,
    NOBODY,
    ONCE,
    SENT_ALREADY,
    SILENT,
    TOO_MANY,
    TOO_MUCH,
    UNKNOWN_KIND,
    UNREADABLE,
    UNSENT,
    Expected,
    Mail,
    counted,
    fault,
    frozen,
    identify,
)
from shoal.mail.quote import Quote, Room
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
    mode: Sharing
    notes: dict[Lane, Any] = field(default_factory=dict)  # what a lane notes for itself between two verbs
    sent: dict[str, Mail] = field(default_factory=dict)  # what has left, by id: all that a sender knows of its mail
    named: Counter[str] = field(default_factory=Counter)  # how many mails have asked for an id
    asking: bool = False  # is it the time of questions?
    verb: str = ""  # which mail comes now: that of `ask`, or that of `answer`; empty: any
    gone: set[tuple[Lane, Lane, str]] = field(default_factory=set)  # the edges and kinds of what has left,
    heard: set[tuple[Lane, Lane, str]] = field(default_factory=set)  # and of what was accepted
    found: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)  # what `once` has found, and of what

    @cached_property
    def now(self) -> int:
        """The moment, in epochs since the first task."""
        return self.stack.task * self.world.settings.learner.epochs + self.stack.epoch

    @cached_property
    def silent(self) -> frozenset[Lane]:
        """The lanes that are here and have diverged."""
        return self.stack.silent

    def out(self, lane: Lane) -> list[Lane]:
        """Whom a lane can send to by this mode, now. An agent whose stream has ended goes on answering, but asks for
        nothing and is sent nothing; one that has diverged is silent."""
        if lane in self.silent:
            return []
        others = self.world.neighbours(self.mode).get(lane, [])
        if self.world.even:
            return others
        if self.asking:
            return others if self.learns(lane) else []
        return [other for other in others if self.learns(other)]

    def learns(self, lane: Lane) -> bool:
        """Has a lane, here or elsewhere, still a task now?"""
        return self.stack.task < self.world.far_ends[lane]

    def once(self, what: tuple[Any, ...], of: object, find: Callable[[], T]) -> T:
        """What is found out of some object but once at this exchange: the same payload may go to many."""
        name = *what, id(of)
        if name not in self.found:
            self.found[name] = of, find()  # the object stays alive, so that no other can have its id
        found: T = self.found[name][1]
        return found

    def mail(
        self, lane: Lane, other: Lane, kind: str, payload: Mapping[str, Tensor], items: int, reply: str = ""
    ) -> Mail:
        """A mail from a lane that is here, dated now."""
        mode, task, epoch = self.mode.mode, self.stack.task, self.stack.epoch
        name = identify(lane, other, mode, kind, task, epoch)
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
        ends = answer.receiver, answer.sender
        return mine if mine is not None and (mine.sender, mine.receiver) == ends else None

    # For senders

    def way(self, sender: Lane, receiver: Lane) -> Way:
        """An edge as it is now. Without an edge there is none, whoever asks."""
        edge, ledger = self.world.edges[sender, receiver], self.stack.ledger
        uses = ledger.use(sender, receiver), ledger.share(sender, receiver, self.mode.mode)
        return Way(edge, self.mode, self.now, self.stack.task, *uses)

    def left(self, sender: Lane, receiver: Lane) -> Room:
        """What the edge still carries now, in floats and bytes: nothing while it rests. `fitting` says how many items
        that is."""
        return left(self.way(sender, receiver))

    def send(self, mails: Iterable[Mail]) -> list[tuple[Mail, str]]:
        """Let mails of lanes that are here leave, if they may: they are paid for, whatever becomes of them.

        Each comes back as it is under way, with a verdict: ACCEPTED, as far as its sender can know, or why it is not
        under way. What is under way is a copy, one for all that hold the same payload: nobody can change it any more.
        """
        return [self.send_one(mail) for mail in mails]

    def send_one(self, mail: Mail) -> tuple[Mail, str]:
        """Let one mail leave, if it may."""
        if why := self.misaddressed(mail):
            return blank(mail, self.mode.mode), why
        ends = mail.sender, mail.receiver
        if self.excessive(mail):
            return blank(mail, self.mode.mode), TOO_MUCH
        payload = self.once(("copy",), mail.payload, lambda: frozen(mail.payload))
        if payload is None:
            return blank(mail, self.mode.mode), NO_TENSORS
        mail = replace(mail, payload=payload, items=self.items(mail, payload))
        if (*ends, mail.kind) in self.gone:
            return mail, SENT_ALREADY
        way = self.way(*ends)
        if why := stopped(way, mail):
            if why not in UNSENT:  # the ledger could not tell that it was never paid for
                raise ValueError(f"a filter stops mail as `{why}`, which is not in UNSENT; put it there")
            return mail, why
        self.sent[mail.id] = mail
        self.gone.add((*ends, mail.kind))
        self.stack.ledger.carry(mail, self.now)
        under_way = sent(way, mail)
        return (mail, LOST) if under_way is None else (under_way, ACCEPTED)

    def misaddressed(self, mail: Mail) -> str:
        """Why a mail cannot be what a lane that is here has said now to one that it has an edge to; empty: it can."""
        ends = mail.sender, mail.receiver
        if not all(type(one) is Lane and all(type(number) is int for number in one) for one in ends):
            return FORGED if type(mail.sender) is not Lane or mail.sender not in self.world.row else NO_EDGE
        if mail.sender not in self.world.row:
            return FORGED
        if ends not in self.world.edges:
            return NO_EDGE
        said = (mail.mode, mail.task, mail.epoch) == (self.mode.mode, self.stack.task, self.stack.epoch)
        if not said or not all(type(word) is str for word in (mail.kind, mail.id, mail.reply)):
            return FORGED
        name, _, number = mail.id.partition(identify(*ends, mail.mode, mail.kind, mail.task, mail.epoch))
        return "" if not name and (not number or number[1:].isdigit()) and mail.id and mail.due == 0 else FORGED

    @cached_property
    def looks(self) -> dict[tuple[str, Lane], Mapping[str, Expected]]:
        """What `look` has been told."""
        return {}

    @cached_property
    def quotes(self) -> dict[str, Quote]:
        """The largest mail of each kind that the mode sends over an edge without limits."""
        return {one.kind: one for one in self.mode.quote(self.world, Room())}

    def excessive(self, mail: Mail) -> bool:
        """Does a mail hold more than the mode ever sends? It is then not even copied."""
        if not isinstance(mail.payload, Mapping) or not self.quotes:
            return False
        quote = self.quotes.get(mail.kind) or max(self.quotes.values(), key=lambda one: one.floats)
        return sum(one.numel() for one in mail.payload.values() if isinstance(one, Tensor)) > quote.floats

    def items(self, mail: Mail, payload: Mapping[str, Tensor]) -> int:
        """How many items a mail has: what is counted in it, or else what is said, within what is possible."""
        if not self.known(mail.kind):
            return 0
        found = counted(payload, self.look(mail.kind, mail.sender))
        if found is not None:
            return found
        most = self.quotes[mail.kind].items if self.quotes else mail.items
        return min(max(0, mail.items), most, 2**62) if type(mail.items) is int else 0

    def look(self, kind: str, sender: Lane) -> Mapping[str, Expected]:
        """What mail of some kind from a sender must look like."""
        if (kind, sender) not in self.looks:
            self.looks[kind, sender] = self.mode.expects(self.world, kind, sender)
        return self.looks[kind, sender]

    def silence(self, error: Exception) -> list[tuple[Mail, str]]:
        """What is written where the code of a mode has failed: all lanes that are here have nothing to say, and why."""
        why = f"{type(error).__name__}: {error}"[:200]
        now = self.stack.task, self.stack.epoch
        lanes = [lane for lane in self.world.lanes if self.world.neighbours(self.mode).get(lane)]
        return [(Mail(lane, lane, self.mode.mode, why, {}, 0, "", "", *now), SILENT) for lane in lanes]

    # For receivers

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """The verdicts of receivers that are here on mail that has arrived. What they accept lies in the inbox until it
        is due."""
        verdicts = []
        for mail in mails:
            verdict = self.judged(mail)
            if verdict in UNSENT:
                raise ValueError(
                    f"mode `{self.mode.mode}` refuses mail that has arrived as `{verdict}`, which says that it never "
                    "left; use another word"
                )
            if verdict == ACCEPTED:
                self.heard.add((mail.sender, mail.receiver, mail.kind))
                self.stack.inbox.append(mail)
            verdicts.append(verdict)
        return verdicts

    def judged(self, mail: Mail) -> str:
        """A receiver's verdict on a mail."""
        if not self.known(mail.kind):
            return UNKNOWN_KIND
        try:
            verdict = self.fault(mail)
            if verdict == ACCEPTED:
                verdict = self.mode.objects(self, mail) or ACCEPTED
        except UserError:
            raise
        except Exception:  # whatever it is that the mail has done to the code of its receiver
            return UNREADABLE
        if verdict == ACCEPTED and (mail.sender, mail.receiver, mail.kind) in self.heard:
            return ONCE
        return verdict

    def known(self, kind: str) -> bool:
        """Has the mode mail of some kind, at this time?"""
        asks = kind in self.mode.asking
        now = not self.verb or asks == (self.verb == "ask")
        return now and (kind in self.quotes or not self.quotes)

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

    def collect(self, asked: bool) -> list[Mail]:
        """Take from the inbox what is due of this mode: questions, or all that is none."""

        def mine(mail: Mail) -> bool:
            return mail.mode == self.mode.mode and mail.due <= self.now and (mail.kind in self.mode.asking) == asked

        found = [mail for mail in self.stack.inbox if mine(mail)]
        self.stack.inbox[:] = [mail for mail in self.stack.inbox if not mine(mail)]
        return found

    def audit(self) -> None:
        """The constraint of the paper's equation 1, size(K_ji) <= b_ji f_ji C, for every edge, with 1 / `every` as the
        frequency: an edge can have been used once at the start and once for each of its periods that have passed. Of a
        budget per task, a task is the period."""
        for (sender, receiver), edge in self.world.edges.items():
            most = edge.limit
            if most is None or sender not in self.world.row:
                continue
            total = getattr(self.stack.ledger.use(sender, receiver).total, most.unit)
            times = self.now // edge.every + 1 if most.per == "exchange" else self.stack.task + 1
            if total > (allowed := most.amount * times):
                raise RuntimeError(
                    f"edge {sender} -> {receiver} carried {total} {most.unit} where {allowed} are allowed"
                )


def blank(mail: Mail, mode: str) -> Mail:
    """A mail that never leaves, as far as the ledger can hold it: who says that it is from whom, and nothing in it."""

    def lane(said: object) -> Lane:
        known = (
            isinstance(said, tuple) and len(said) == 2 and all(type(one) is int and abs(one) < 2**62 for one in said)
        )
        return Lane(*said) if known else NOBODY  # type: ignore[misc]

    clock = (one if type(one) is int and 0 <= one < 2**62 else 0 for one in (mail.task, mail.epoch))
    return Mail(lane(mail.sender), lane(mail.receiver), mode, str(mail.kind)[:200], {}, 0, "", "", *clock)
