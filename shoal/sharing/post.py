"""The post: the only way from one agent to another. It prices, refuses, records and delivers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.config import Sharing
from shoal.mail import ACCEPTED, AT_REST, KINDS, OVER_BUDGET, Mail
from shoal.stack import Stack
from shoal.tasks import Lane
from shoal.world import World


@dataclass
class Post:
    """The post at one moment, for one mode."""

    world: World
    stack: Stack
    mode: Sharing
    spent: dict[tuple[Lane, Lane], int] = field(default_factory=dict)  # by this mode, now
    notes: dict[Lane, Any] = field(default_factory=dict)  # what a lane notes for itself between two verbs
    asked: dict[tuple[Lane, Lane], Mail] = field(default_factory=dict)  # questions that have arrived

    @property
    def now(self) -> int:
        """The moment, in epochs since the first task."""
        return self.stack.task * self.world.settings.learner.epochs + self.stack.epoch

    def out(self, lane: Lane) -> list[Lane]:
        """Whom a lane can send to, and the mode does."""
        return [other for other in self.world.receivers.get(lane, []) if self.mode.uses(self.world, lane, other)]

    def left(self, sender: Lane, receiver: Lane) -> int | None:
        """The floats that the edge still carries now: zero while it rests, None without a limit."""
        if self.rests(sender, receiver):
            return 0
        edge, limits = self.world.edges[sender, receiver], []
        if edge.budget is not None:
            row, column = self.world.row[receiver], sender.agent
            again = int(self.stack.used[row, column]) == self.now
            limits.append(edge.budget - (int(self.stack.carried[row, column]) if again else 0))
        if self.mode.budget != "unlimited":
            limits.append(self.mode.budget - self.spent.get((sender, receiver), 0))
        return min(limits) if limits else None

    def rests(self, sender: Lane, receiver: Lane) -> bool:
        """Was the edge used not long ago? (Now is not long ago, but the same moment.)"""
        last = int(self.stack.used[self.world.row[receiver], sender.agent])
        return 0 <= last < self.now < last + self.world.edges[sender, receiver].every

    def carry(self, mails: Sequence[Mail], judge: Callable[[Mail], int]) -> list[Mail]:
        """Post all mails; those that leave, arrive and make sense to `judge` are delivered, in the same order."""
        used, carried, total = (tensor.numpy() for tensor in (self.stack.used, self.stack.carried, self.stack.total))
        task, epoch = self.stack.task, self.stack.epoch
        mode = self.world.settings.sharing.index(self.mode)
        judged: dict[int, int] = {}  # the same payload goes to many
        delivered, rows = [], []
        for mail in mails:
            verdict = self.stamp(mail)
            if verdict == ACCEPTED:
                row, column = self.world.row[mail.receiver], mail.sender.agent
                carried[row, column] = mail.floats + (carried[row, column] if used[row, column] == self.now else 0)
                used[row, column] = self.now
                total[row, column] += mail.floats
                edge = mail.sender, mail.receiver
                self.spent[edge] = self.spent.get(edge, 0) + mail.floats
                if id(mail.payload) not in judged:
                    judged[id(mail.payload)] = judge(mail)
                verdict = judged[id(mail.payload)]
            if verdict == ACCEPTED:
                delivered.append(mail)
            ends = mail.sender.agent, mail.receiver.agent
            size = mail.items, mail.floats, mail.bytes, mail.paper
            rows.append((mail.sender.seed, task, epoch, *ends, mode, KINDS.index(mail.kind), *size, verdict))
        self.stack.ledger.write(rows)
        return delivered

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
            if edge.budget is None:
                continue
            sent = int(self.stack.total[self.world.row[receiver], sender.agent])
            allowed = edge.budget * (self.now // edge.every + 1)
            if sent > allowed:
                raise RuntimeError(f"edge {sender} -> {receiver} carried {sent} floats where {allowed} are allowed")
