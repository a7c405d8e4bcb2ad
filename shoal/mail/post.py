"""The post: the only way from one agent to another. It prices, refuses, records and delivers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.filters import Way, left, sent, stopped
from shoal.mail.mail import ACCEPTED, LOST, UNSENT, Mail, fault, identify
from shoal.mail.quote import Room
from shoal.sharing.contract import Sharing

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
        under way.
        """
        return [self.send_one(mail) for mail in mails]

    def send_one(self, mail: Mail) -> tuple[Mail, str]:
        """Let one mail leave, if it may."""
        ends = mail.sender, mail.receiver
        way = self.way(*ends)
        if why := stopped(way, mail):
            if why not in UNSENT:  # the ledger could not tell that it was never paid for
                raise ValueError(f"a filter stops mail as `{why}`, which is not in UNSENT; put it there")
            return mail, why
        self.sent[mail.id] = mail
        self.stack.ledger.carry(mail, self.now)
        under_way = sent(way, mail)
        return (mail, LOST) if under_way is None else (under_way, ACCEPTED)

    # For receivers

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """The verdicts of receivers that are here on mail that has arrived. What they accept lies in the inbox until it
        is due."""
        looks: dict[tuple[int, str, Lane], str] = {}  # the same payload may have gone to many
        verdicts = []
        for mail in mails:
            name = id(mail.payload), mail.kind, mail.sender
            if name not in looks:
                expected = self.mode.expects(self.world, mail.kind, mail.sender)
                looks[name] = fault(mail.payload, expected)
            verdict = looks[name]
            if verdict == ACCEPTED:
                verdict = self.mode.objects(self, mail) or ACCEPTED
            if verdict in UNSENT:
                raise ValueError(
                    f"mode `{self.mode.mode}` refuses mail that has arrived as `{verdict}`, which says that it never "
                    "left; use another word"
                )
            if verdict == ACCEPTED:
                self.stack.inbox.append(mail)
            verdicts.append(verdict)
        return verdicts

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
