"""The post: the only way from one agent to another. It prices, refuses, records and delivers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.data.tasks import Lane
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.mail import ACCEPTED, AT_REST, KINDS, OVER_BUDGET, Mail, fault
from shoal.sharing.contract import Sharing


@dataclass
class Post:
    """The post of one stack at one moment, for one mode."""

    world: World
    stack: Stack
    mode: Sharing
    spent: dict[tuple[Lane, Lane], int] = field(default_factory=dict)  # by this mode, now
    notes: dict[Lane, Any] = field(default_factory=dict)  # what a lane notes for itself between two verbs
    asked: dict[tuple[Lane, Lane], Mail] = field(default_factory=dict)  # questions that have arrived, here or elsewhere
    sent: list[Mail] = field(default_factory=list)  # what lanes that are here have sent and its receivers accepted

    @property
    def now(self) -> int:
        """The moment, in epochs since the first task."""
        return self.stack.task * self.world.settings.learner.epochs + self.stack.epoch

    def out(self, lane: Lane) -> list[Lane]:
        """Whom a lane can send to by this mode."""
        there = self.world.receivers.get(lane, [])
        return [other for other in there if self.mode.uses(self.world, lane, other)]

    def left(self, sender: Lane, receiver: Lane) -> int | None:
        """The floats that the edge still carries now: zero while it rests, None without a limit."""
        if self.rests(sender, receiver):
            return 0
        edge, limits = self.world.edges[sender, receiver], []
        if edge.budget is not None:
            use = self.stack.ledger.use(sender, receiver)
            limits.append(edge.budget - (use.carried if use.last == self.now else 0))
        if self.mode.budget != "unlimited":
            limits.append(self.mode.budget - self.spent.get((sender, receiver), 0))
        return min(limits) if limits else None

    def rests(self, sender: Lane, receiver: Lane) -> bool:
        """Was the edge used not long ago? (Now is not long ago, but the same moment.)"""
        last = self.stack.ledger.use(sender, receiver).last
        return 0 <= last < self.now < last + self.world.edges[sender, receiver].every

    def send(self, mail: Mail) -> int:
        """Let a mail of a lane that is here leave, if it may: it is paid for, whatever its receiver will say."""
        verdict = self.stamp(mail)
        if verdict == ACCEPTED:
            self.stack.ledger.carry(mail, self.now)
            edge = mail.sender, mail.receiver
            self.spent[edge] = self.spent.get(edge, 0) + mail.floats
        return verdict

    def judge(self, mail: Mail) -> int:
        """The verdict of a receiver that is here."""
        expected = self.mode.expects(self.world, mail.kind, mail.sender)
        return fault(mail.payload, expected) or self.mode.objects(self, mail)

    def row(self, mail: Mail, verdict: int) -> tuple[int, ...]:
        """The ledger's row of a mail."""
        when, mode = (self.stack.task, self.stack.epoch), self.world.settings.sharing.index(self.mode)
        ends = mail.sender.agent, mail.receiver.agent
        size = mail.items, mail.floats, mail.bytes, mail.paper
        return (mail.sender.seed, *when, *ends, mode, KINDS.index(mail.kind), *size, verdict)

    def stamp(self, mail: Mail) -> int:
        """May this mail leave now?"""
        edge = self.world.edges[mail.sender, mail.receiver]  # no edge: no mail, whoever asks
        if self.rests(mail.sender, mail.receiver):
            return AT_REST
        left = self.left(mail.sender, mail.receiver)
        # Nothing at all goes over an edge without a budget, not even a message without content.
        shut = edge.budget == 0 or self.mode.budget == 0
        return ACCEPTED if left is None or (mail.floats <= left and not shut) else OVER_BUDGET

    def audit(self) -> None:
        """The constraint of the paper's equation 1, size(K_ji) <= b_ji f_ji C, for every edge, with 1 / `every` as the
        frequency: an edge can have been used once at the start and once for each of its periods that have passed."""
        for (sender, receiver), edge in self.world.edges.items():
            if edge.budget is None or sender not in self.world.row:
                continue
            sent = self.stack.ledger.use(sender, receiver).total
            allowed = edge.budget * (self.now // edge.every + 1)
            if sent > allowed:
                raise RuntimeError(f"edge {sender} -> {receiver} carried {sent} floats where {allowed} are allowed")


def carry(posts: Sequence[Post], mails: Iterable[Mail]) -> list[list[Mail]]:
    """Post the mails of all stacks; those that leave, arrive and make sense to their receivers are delivered to the
    stacks that these are in.

    In the order of their senders in the fleet, however it is cut into stacks.
    """
    home = {lane: at for at, post in enumerate(posts) for lane in post.world.lanes}
    place = {lane: at for at, lane in enumerate(posts[0].world.peers)}
    judged: dict[tuple[int, int], int] = {}  # the same payload goes to many
    boxes: list[list[Mail]] = [[] for _ in posts]
    rows = []
    for mail in sorted(mails, key=lambda mail: place[mail.sender]):
        sender, to = posts[home[mail.sender]], home[mail.receiver]
        verdict = sender.send(mail)
        if verdict == ACCEPTED:
            name = id(mail.payload), to
            if name not in judged:
                judged[name] = posts[to].judge(mail)
            verdict = judged[name]
        if verdict == ACCEPTED:
            sender.sent.append(mail)
            boxes[to].append(mail)
        rows.append(sender.row(mail, verdict))
    posts[0].stack.ledger.write(rows)
    return boxes
