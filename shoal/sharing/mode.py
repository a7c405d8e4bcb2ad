"""The contract of modes: three verbs of one agent, and what its letters look like, declared as data.

The post does the rest: it leaves out what a site does not permit, cuts letters to what a link still carries, prices,
carries and judges them. A mode never counts bytes, never sees a fleet, and never sees another agent.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from shoal.agents.clock import due
from shoal.agents.evaluate import Trained, accuracy, nets
from shoal.agents.stack import MEAN, STEPS, VAR
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.learners.received import Arrived
from shoal.mail.bundle import Bundle
from shoal.mail.letter import Letter
from shoal.mail.mail import Expected, Mail, by_receiver, identify
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.models import dropout
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.accept import helps
from shoal.sharing.agent import Agent
from shoal.sharing.contract import Carries, Sharing
from shoal.sharing.images import per_lane, store

T = TypeVar("T")
# What an agent writes: a tensor or an array for each name of its letter, items in order of worth; images are rows of
# the bank, which the post looks up when it knows how many leave. What it writes beside the letter stays with it.
Draft = Mapping[str, Any]


class Present(Agent):
    """One agent at an exchange: also whom it can send to, what its links still carry, and what becomes of what it
    receives."""

    def __init__(self, post: Post, row: int) -> None:
        super().__init__(post.world, post.stack, row, post.mode.owner)
        self._post = post
        self.answered = False  # has it answered a question at this exchange?

    @property
    def neighbours(self) -> list[int]:
        """The agents that it can send to by this mode, now."""
        return [other.agent for other in self._post.out(self._lane)]

    @property
    def links(self) -> int:
        """How many agents it is linked with by this mode, whether they are there now or not."""
        return len(self._world.neighbours(self._post.mode)[self._lane])

    def become(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights of the names that it has in the place of its own."""
        for name, value in weights.items():
            self._stack.params[name][self._row] = value
        self._stack.moved[self._row] = True

    def begin_with(self, weights: Mapping[str, Tensor]) -> Callable[[], None]:
        """Take weights for its current task in the place of its own, with an optimizer that begins anew; what is
        returned undoes it."""
        moments = [self._stack.of(owner) for owner in (MEAN, VAR, STEPS)]
        places = [(part[name], name) for part in (self._stack.params, *moments) for name in weights]
        at = self._row, self.task
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
        validates on. Nobody looks at their labels."""
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
        letters, left = letters_of(self._post.mode), self._post.left(self._lane, Lane(self._lane.seed, to))
        return most_of(letters, kind, self._world, left)

    def once(self, what: str, find: Callable[[], T]) -> T:
        """What is found out of it but once at this exchange."""
        return self._post.once((what, self._lane), self._stack, find)

    def note(self, what: Any) -> None:
        """Note something until the exchange is over."""
        self._post.notes[self._lane] = what

    @property
    def noted(self) -> Any:
        """What was noted; None: nothing."""
        return self._post.notes.get(self._lane)

    def receive(self, arrived: Sequence[Arrived], rule: str, once: bool) -> None:
        """Put images into the buffers of their tasks, by a rule (`received.store`)."""
        store(self._post, self._lane, arrived, rule, once)

    def helped_by(self, arrived: Sequence[Arrived]) -> bool:
        """Would images that have arrived help it on its own validation images?"""
        return helps(self._post, self._lane, arrived)

    def images(self, rows: np.ndarray) -> Tensor:
        """Images of its own, as they are sent."""
        return self._world.images(rows)

    def read(self, images: Tensor) -> Tensor:
        """What its net reads of images that were sent."""
        return self._world.encode(images, self._lane)


@dataclass(frozen=True, eq=False)
class Received:
    """A letter that has come to an agent."""

    sender: int
    kind: str
    tensors: Mapping[str, Tensor]
    post: Post
    mail: Mail

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    @property
    def asked(self) -> Mapping[str, Tensor] | None:
        """The question that it replies to, if that was asked at this exchange."""
        question = self.post.asked(self.mail)
        return None if question is None else question.payload

    @property
    def late(self) -> bool:
        """Has it been under way since an earlier exchange?"""
        return self.post.was_late(self.mail)

    def replies_to(self, kind: str, task: int, epoch: int) -> bool:
        """Does it reply to what its receiver has asked by mail of some kind at such a point of its stream?"""
        mail = self.mail
        return mail.reply == identify(mail.receiver, mail.sender, mail.mode, kind, task, epoch)


class Mode(Sharing):
    """A sharing mode as it is for one agent: `letters` says what its mail looks like, and `absorb` alone writes."""

    parallel: ClassVar[bool] = False  # do `ask` and `answer` need no gradients? Then agents share threads
    companion: ClassVar[str] = ""  # a module with `ask`, `answer`, `absorb` and `welcomes` for all agents at once

    @property
    @abstractmethod
    def letters(self) -> Mapping[str, Letter]:
        """What its letters look like, by kind; those that ask are named in `asking`."""

    def ask(self, agent: Present) -> Draft | None:  # type: ignore[override]
        """What an agent asks all its neighbours; nothing, if everybody just sends."""
        return None

    @abstractmethod
    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:  # type: ignore[override]
        """What an agent sends to another: its answer to a question or, without one, what it sends unasked."""

    @abstractmethod
    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:  # type: ignore[override]
        """Make use of what has come. It is also told of an exchange at which an agent has asked or answered, and
        nothing has come."""

    def judge(self, agent: Present, letter: Received) -> str:
        """Why a receiver does not accept a letter that looks as expected, in a word or two; empty: it does."""
        return ""

    # What follows from that, for the post

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        return self.letters[kind].look(world)

    def carries(self, kind: str) -> Carries | None:
        letter = self.letters.get(kind)
        if letter is None or not letter.holds:
            return None
        return Carries(letter.holds, letter.classes if letter.classes in letter.fields else "")

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        """A question must leave its share to the answer that goes the same way; and the answer may have all that the
        smallest question leaves, or all there is if the question leaves room for the largest answer."""
        found, letters = [], self.letters
        asked = [one.look(world) for kind, one in letters.items() if kind in self.asking and not one.leaves]
        for kind, letter in letters.items():
            rest = room if kind in self.asking or not asked else room.less(asked[0], 1)
            items = most_of(letters, kind, world, rest)
            found.append(Quote(kind, items, numbers(letter.look(world), items)))
        return found

    def objects(self, post: Post, mail: Mail) -> str:
        return self.judge(agent_of(post, mail.receiver), received(post, mail))

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        beside = companion_of(self, post)
        return beside.welcomes(self, post, bundle) if beside else type(self).judge is Mode.judge

    def asks_of(self, post: Post) -> Sequence[Mail]:
        beside = companion_of(self, post)
        mails: Sequence[Mail] | None = beside.ask(self, post) if beside else None
        if mails is not None:
            return mails
        kind = next((one for one in self.letters if one in self.asking), None)
        if kind is None:
            return []
        found = self.each(post, lambda agent: self.ask(agent) if agent.neighbours else None, "ask")
        drafts = [(lane, draft) for lane, draft in found.items() if draft is not None]
        return [mail for lane, draft in drafts for mail in posted(post, lane, kind, draft, post.out(lane))]

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        beside = companion_of(self, post)
        if beside:
            mails: Sequence[Mail] = beside.answer(self, post, questions)
            return mails
        kind = next(one for one in self.letters if one not in self.asking)
        boxes = by_receiver(questions)
        alike = self.letters[kind].alike and not self.both_ways

        def drafts(agent: Present) -> list[tuple[list[Lane], Draft | None, str]]:
            lane = agent._lane
            if self.both_ways:
                return [
                    ([one.sender], self.answer(agent, received(post, one), one.sender.agent), one.id)
                    for one in boxes.get(lane, [])
                ]
            others = post.out(lane)
            groups = [others] if alike and others else [[other] for other in others]
            return [(some, self.answer(agent, None, some[0].agent), "") for some in groups]

        found = self.each(post, drafts, "answer")
        return [
            mail
            for lane, mine in found.items()
            for others, draft, reply in mine
            if draft is not None
            for mail in posted(post, lane, kind, draft, others, reply)
        ]

    def absorbs_of(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        beside = companion_of(self, post)
        if beside and beside.absorb(self, post, questions, answers):
            return
        boxes, asked = by_receiver(answers), {question.receiver for question in questions}
        for lane in post.world.lanes:
            if lane in boxes or lane in asked or lane in post.notes:
                with post.running("absorb", [lane]):
                    agent = agent_of(post, lane)
                    agent.answered = lane in asked
                    self.absorb(agent, [received(post, mail) for mail in boxes.get(lane, [])])

    def each(self, post: Post, work: Callable[[Present], Any], verb: str) -> dict[Lane, Any]:
        """What a verb gives for every lane."""

        def one(lane: Lane) -> Any:
            with post.running(verb, [lane]):
                return work(agent_of(post, lane))

        return per_lane(post.world, one) if self.parallel else {lane: one(lane) for lane in post.world.lanes}


def is_last(settings: Settings, mode: Sharing, task: int, epoch: int) -> bool:
    """Does a mode not act again in a task, when so many epochs of it are done?"""
    return not any(mode in due(settings, task, later) for later in range(epoch + 1, settings.learner.epochs + 1))


def companion_of(mode: Mode, post: Post) -> ModuleType | None:
    """What does a mode's verbs for all agents at once, if there is such a thing and it is wanted. It belongs to the
    very class that names it: a subclass, which may have changed a verb, is as it says itself."""
    named = mode.companion and "companion" in vars(type(mode))
    return import_module(mode.companion) if named and post.world.fleet.machine.companions else None


def letters_of(mode: Sharing) -> Mapping[str, Letter]:
    """The letters of a mode that declares them."""
    assert isinstance(mode, Mode)
    return mode.letters


def most_of(letters: Mapping[str, Letter], kind: str, world: World, room: Room, most: int | None = None) -> int:
    """How many items a letter has at most where a link still carries so much."""
    letter = letters[kind]
    if letter.leaves:
        room = room.less(letters[letter.leaves].look(world), letters[letter.leaves].number(world))
    return fitting(letter.number(world) if most is None else most, letter.look(world), room.part(letter.share))


def agent_of(post: Post, lane: Lane) -> Present:
    """An agent that is here, the same one for the whole exchange."""
    return post.once(("agent", lane), post, lambda: Present(post, post.world.row[lane]))


def received(post: Post, mail: Mail) -> Received:
    """A mail as its receiver sees it."""
    return Received(mail.sender.agent, mail.kind, mail.payload, post, mail)


def posted(post: Post, lane: Lane, kind: str, draft: Draft, others: Sequence[Lane], reply: str = "") -> list[Mail]:
    """What an agent has written, as mail to each of some others: without what the policy of its site keeps back, and
    cut to the most that such a letter has and to what the link still carries."""
    letters, world = letters_of(post.mode), post.world
    letter = letters[kind]
    look, most, whole = letter.look(world), letter.number(world), letter.whole(world)
    if letter.alike:
        draft = kept_back(post, lane, kind, letter, draft, post.out(lane))
        post.notes[lane] = draft
    made, mails, first = dict[tuple[int, int], tuple[dict[str, Tensor], Draft]](), [], next(iter(look))
    for other in others:
        mine = draft if letter.alike else kept_back(post, lane, kind, letter, draft, [other])
        items = min(len(mine[first]), most)
        if not post.free:
            items = min(items, most_of(letters, kind, world, post.left(lane, other), items))
        if items < letter.least:
            continue
        name = id(mine), items
        if name not in made:
            part = {one: mine[one] if one in whole else mine[one][:items] for one in look}
            tensors = {one: tensor_of(world, letter, one, look[one], value) for one, value in part.items()}
            made[name] = tensors, mine  # which stays alive, so that no other can have its id
        mails.append(post.mail(lane, other, kind, made[name][0], items, reply))
    return mails


def kept_back(post: Post, lane: Lane, kind: str, letter: Letter, draft: Draft, others: Sequence[Lane]) -> Draft:
    """What an agent has written, without items that may not go to all of some others, and no more than such a letter
    has."""
    most, whole, may = letter.number(post.world), letter.whole(post.world), None
    if post.world.fleet.policy and letter.classes in draft and letter.classes not in whole:
        may = np.flatnonzero(post.permitted(lane, others, kind, np.asarray(draft[letter.classes])))[:most]
    elif len(next(iter(draft.values()))) <= most:
        return draft
    at = slice(most) if may is None else may
    return {name: one if name in whole else one[at] for name, one in draft.items()}


def tensor_of(world: World, letter: Letter, name: str, want: Expected, value: Any) -> Tensor:
    """What a draft holds under a name, as it is sent."""
    if letter.fields[name] == "rows":
        return world.images(value)
    return torch.as_tensor(value).to(want.dtype)
