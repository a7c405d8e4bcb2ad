"""One agent at an exchange, the letters that come to it and those that have left it: all that a mode sees."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from shoal.agents.evaluate import Trained, accuracy, nets
from shoal.agents.events import due
from shoal.agents.received import Arrived
from shoal.agents.slots import slots
from shoal.agents.stack import MEAN, STEPS, VAR
from shoal.data.tasks import Lane, Task
from shoal.learners.fisher import fisher
from shoal.learners.second import second_learned
from shoal.learners.slopes import memories, slope, slope_on
from shoal.learners.step import Tensors
from shoal.letters.mail import Mail, identify
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.models import dropout
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.accept import helps
from shoal.sharing.agent import Agent
from shoal.sharing.contract import Sharing
from shoal.sharing.drafts import Draft, form_of, within
from shoal.sharing.images import store

T = TypeVar("T")


class Sent(NamedTuple):
    """A letter that has left its sender, whatever becomes of it: what a receiver would see of it."""

    tensors: Mapping[str, Tensor]
    items: int
    draft: Draft  # what its sender had written, of which the first items have left; empty, where a companion wrote


class Present(Agent):
    """One agent at an exchange: also whom it can send to, what its links still carry, and what becomes of what it
    receives."""

    def __init__(self, post: Post, row: int) -> None:
        super().__init__(post.world, post.stack, row, post.mode.owner)
        self._post = post
        self.answered = False  # has it answered a question at this exchange?
        self.told: Mapping[int, Received] = {}  # questions that need no answer, by the neighbours they have come from

    @property
    def neighbours(self) -> list[int]:
        """The agents that it can send to by this mode, now."""
        return [other.agent for other in self._post.out(self._lane)]

    @property
    def links(self) -> int:
        """How many agents it is linked with by this mode, whether they are there now or not."""
        return len(self._world.neighbours(self._post.mode)[self._lane])

    @property
    def slots(self) -> int:
        """For how many neighbours at most an agent keeps something, whoever is there."""
        return slots(self._world).most

    def slot(self, other: int) -> int:
        """Where in what it keeps for each of its neighbours it keeps what is for one of them (`slots`)."""
        return slots(self._world).of(self._lane, Lane(self.seed, other))

    def permitted(self, kind: str, to: int, classes: np.ndarray) -> np.ndarray:
        """Which of some items, by their classes, may be in such a letter by the policy of its site: bool [n]."""
        return self._post.permitted(self._lane, [Lane(self.seed, to)], kind, classes)

    def become(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights of the names that it has in the place of its own, of which they may be the first; Adam's moments
        stay. It is remembered whether that changes anything."""
        for name, value in weights.items():
            now = self._stack.params[name][self._row, : len(value)]
            if not torch.equal(now, value):
                self._stack.moved[self._row] = True
                now.copy_(value)

    @property
    def mean(self) -> Tensors | None:
        """The mean of its own model and those that have come, if it was found for all agents at once; nothing, if none
        have come."""
        return None if self._post.means is None else self._post.means.get(self._row, {})

    @property
    def coming(self) -> Task | None:
        """The task that it learns next, if it has one."""
        stream = self._world.streams[self._row]
        return stream[self.task + 1] if self.task + 1 < self._world.ends[self._row] else None

    def begin_with(self, weights: Mapping[str, Tensor], task: int | None = None) -> Callable[[], None]:
        """Take weights for a task, its current one if none is said, in the place of its own, with an optimizer that
        begins anew; what is returned undoes it."""
        moments = [self._stack.of(owner) for owner in (MEAN, VAR, STEPS)]
        places = [(part[name], name) for part in (self._stack.params, *moments) for name in weights]
        at = self._row, self.task if task is None else task
        before = [place[at].clone() for place, _ in places]
        for number, (place, name) in enumerate(places):
            place[at] = weights[name] if number < len(weights) else 0

        def undo() -> None:
            for (place, _), value in zip(places, before, strict=True):
                place[at] = value

        return undo

    @property
    def scores(self) -> Tensor:
        """Its validation accuracy on its tasks so far when the exchange began, [T]; zero where there is nothing to
        test."""
        tasks = range(self.task + 1)
        found = self._post.once(
            ("accuracy",),
            self._stack,
            lambda: accuracy(self._world, self._stack, "validation", tasks).nan_to_num(),
        )
        return found[self._row]

    @property
    def net(self) -> Trained:
        return self._post.once(("nets",), self._stack, lambda: nets(self._world, self._stack))[self._row]

    def matters(self, rule: str, samples: int) -> Tensors:
        """How much each of its weights matters to it when the exchange began (`fisher`)."""
        find = partial(fisher, self._world, self._stack, rule, samples)
        return self.mine(self._post.once(("fisher", rule, samples), self._stack, find))

    def slope(self, samples: int) -> Tensors:
        """The gradient of its loss on some rows that it trains on, at the weights that it began the exchange with."""
        find = partial(slope, self._world, self._stack, samples)
        return self.mine(self._post.once(("slope", samples), self._stack, find))

    def remembered_slope(self, samples: int) -> Tensors:
        """The gradient of its loss on some of its memories, at its weights as they are now."""
        find = partial(memories, self._world, self._stack, samples)
        batch, usage = self._post.once(("memories", samples), self._stack, find)[self._row]
        return slope_on(self._world, self._stack, self._row, batch, usage)

    def learned(self, weights: Tensors, epochs: int) -> Tensors:
        """What other weights in common would be after so many epochs (`second_learned`)."""
        row = [self._row]
        world, stack = self._world.piece(row), self._stack.take(row, [self._lane])
        found = second_learned(world, stack, {name: one[None] for name, one in weights.items()}, epochs)
        return {name: one[0] for name, one in found.items()}

    def mine(self, every: Tensors) -> Tensors:
        """Its own part of what is found for all agents that are here at once."""
        return {name: tensor[self._row] for name, tensor in every.items()}

    @property
    def prompt(self) -> bool:
        """Does all mail that comes at all come at once? Else answers can be late."""
        return self._post.prompt

    @property
    def last(self) -> bool:
        """Is this the last exchange of the mode in its current task?"""
        return is_last(self._world.settings, self._post.mode, self.task, self.epoch)

    def validated(self, tasks: Iterable[int]) -> dict[int, tuple[Tensor, Tensor]]:
        """What it says of the validation rows of tasks that it has met, logits [n, K], and their labels [n]."""
        known = {task: self._validates(task) for task in tasks}
        logits = self.net.logits_of({task: rows for task, (rows, _) in known.items()})
        return {task: (logits[task], labels) for task, (_, labels) in known.items()}

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        """The classes of images of its own, as the data counts them."""
        bank = self._world.bank
        found: np.ndarray = bank.labels[bank.base(rows)]
        return found

    def unlabelled(self, task: int, count: int) -> np.ndarray:
        """At most so many images of the classes of a task, as rows of the bank, that it neither learns from nor
        validates on; others may. Their labels say of which classes they are, and nobody else looks at them."""
        bank, stream = self._world.bank, self._world.streams[self._row]
        own = np.concatenate([getattr(one, name) for one in stream for name in ("train", "validation")])
        free = np.flatnonzero(~bank.test & np.isin(bank.labels, stream[task].classes))
        found: np.ndarray = key(*self._lane, self._owner, "pool", task).permutation(np.setdiff1d(free, own))
        return found[:count]

    def train_without_dropout(self) -> None:
        """From now on, for good."""
        dropout.switch_off(self._stack.of(dropout.OWNER)["off"], [self._row])

    def fits(self, kind: str, to: int) -> int:
        """How many items of such a letter the link to a neighbour still carries."""
        post, other = self._post, Lane(self.seed, to)
        form = form_of(post, kind, other)
        return within(post, form, other, form.most, post.left(self._lane, other)) if post.limited else form.most

    def sent(self, kind: str) -> dict[int, Sent]:
        """What of its letters of a kind has left at this exchange so far, by the neighbour that it has left for."""
        drafts, mails = self._post.drafts, self._post.sent_by(self._lane, kind)
        every = ((mail, drafts.get((mail.sender, mail.receiver, kind), {})) for mail in mails)
        return {mail.receiver.agent: Sent(mail.payload, mail.items, draft) for mail, draft in every}

    def once(self, what: str, find: Callable[[], T]) -> T:
        """What is found out of it but once at this exchange."""
        return self._post.once((what, self._lane), self._stack, find)

    def running(self, verb: str) -> AbstractContextManager[None]:
        """What goes wrong inside goes wrong in its part of some verb."""
        return self._post.running(verb, [self._lane])

    def note(self, what: Any) -> None:
        """Note something until the exchange is over."""
        self._post.notes[self._lane] = what

    @property
    def noted(self) -> Any:
        """What was noted; None: nothing."""
        return self._post.notes.get(self._lane)

    def receive(self, arrived: Arrived, rule: str, once: bool) -> None:
        """Put images into the buffers of their tasks, by a rule (`received.store`)."""
        store(self._post, self._lane, arrived, rule, once)

    def helped_by(self, arrived: Arrived) -> bool:
        """Would images that have arrived help it on its own validation images?"""
        return helps(self._post, self._lane, arrived)

    def images(self, rows: np.ndarray) -> Tensor:
        """Images of its own, as they are sent."""
        return self._world.images(rows)

    @property
    def outputs(self) -> np.ndarray:
        """For each of its tasks so far and every class of the data the output that stands for it: int64 [T, classes],
        -1: none."""
        found: np.ndarray = self._world.outputs[self._row, : self.task + 1]
        return found

    def read(self, images: Tensor) -> Tensor:
        """What its net reads of images that were sent."""
        return self._world.encode(images, self._lane)


class Received:
    """A letter that has come to an agent."""

    def __init__(self, post: Post, table: Table, at: int) -> None:
        self.post, self.table, self.at = post, table, at
        self.kind: str = table.kind[at]
        self.sender = table.ends(at)[0].agent

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """What it holds, by name."""
        return self.table.payload(self.at)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def once(self, what: str, find: Callable[[], T]) -> T:
        """What is found out of it but once, to however many it has come."""
        return self.post.once((what,), self.tensors, find)

    @property
    def mail(self) -> Mail:
        """It with its address."""
        return self.table[self.at]

    @property
    def asked(self) -> Mapping[str, Tensor] | None:
        """The question that it replies to, if that was asked at this exchange."""
        return self.post.asked(self.table, self.at)

    @property
    def late(self) -> bool:
        """Has it been under way since an earlier exchange?"""
        return self.post.was_late(self.table, self.at)

    @property
    def clock(self) -> tuple[int, int]:
        """The task of its sender when it was sent, and how many epochs of it were done."""
        return int(self.table.task[self.at]), int(self.table.epoch[self.at])

    def replies_to(self, kind: str, task: int, epoch: int) -> bool:
        """Does it reply to what its receiver has asked by mail of some kind at such a point of its stream?"""
        mail = self.mail
        return mail.reply == identify(mail.receiver, mail.sender, mail.mode, kind, task, epoch)


def is_last(settings: Settings, mode: Sharing, task: int, epoch: int) -> bool:
    """Does a mode not act again in a task, when so many epochs of it are done?"""
    return not any(mode in due(settings, task, later) for later in range(epoch + 1, settings.learner.epochs + 1))


def agent_of(post: Post, lane: Lane) -> Present:
    """An agent that is here, the same one for the whole exchange."""
    return post.once(("agent", lane), post, lambda: Present(post, post.world.row[lane]))


def received(post: Post, letter: Mail | Table, at: int = 0) -> Received:
    """A letter as its receiver sees it, by its row if it is in a table."""
    return Received(post, letter if isinstance(letter, Table) else Table.of([letter], post.world.peers), at)
