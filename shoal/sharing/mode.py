"""The contract of modes: three verbs of one agent, and what its letters look like, declared as data.

The post does the rest: it leaves out what a site does not permit, cuts letters to what a link still carries, prices,
carries and judges them. A mode never counts bytes, never sees a fleet, and never sees another agent.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle
from shoal.letters.letter import Letter, most_of
from shoal.letters.mail import Expected, Mail, by_receiver
from shoal.letters.quote import Quote, Room, numbers
from shoal.mail.post import Post
from shoal.settings.policies import Carries
from shoal.sharing.contract import Sharing
from shoal.sharing.drafts import Draft as Draft
from shoal.sharing.drafts import posted as posted
from shoal.sharing.images import per_lane
from shoal.sharing.present import Present as Present
from shoal.sharing.present import Received as Received
from shoal.sharing.present import agent_of as agent_of
from shoal.sharing.present import is_last as is_last
from shoal.sharing.present import received as received


class Mode(Sharing):
    """A sharing mode as it is for one agent: `letters` says what its mail looks like, and `absorb` alone writes."""

    parallel: ClassVar[bool] = False  # do `ask` and `answer` need no gradients? Then agents share threads
    companion: ClassVar[str] = ""  # a module with `ask`, `answer`, `absorb` and `welcomes` for all agents at once

    @property
    @abstractmethod
    def letters(self) -> Mapping[str, Letter]:
        """What its letters look like, by kind; those that ask are named in `asking`."""

    def ask(self, agent: Present) -> Draft | Mapping[int, Draft] | None:  # type: ignore[override]
        """What an agent asks all its neighbours, or each by its number; nothing, if everybody just sends."""
        return None

    @abstractmethod
    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:  # type: ignore[override]
        """What an agent sends to another: its answer to a question or, without one, what it sends unasked. Where there
        are letters of several kinds, it is a draft of each by its kind."""

    @abstractmethod
    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:  # type: ignore[override]
        """Make use of what has come at an exchange, also if that is nothing."""

    def judge(self, agent: Present, letter: Received) -> str:
        """Why a receiver does not accept a letter that looks as expected, in a word or two; empty: it does."""
        return ""

    # What follows from that, for the post

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        return self.letters[kind].look(world, world.of(sender))

    def carries(self, kind: str) -> Carries | None:
        letter = self.letters.get(kind)
        if letter is None or not letter.holds:
            return None
        return Carries(
            letter.holds, letter.classes if callable(letter.fields) or letter.classes in letter.fields else ""
        )

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        """A question that is answered must leave its share to the answer that goes the same way; and the answer may
        have all that the smallest question leaves, or all there is if the question leaves room for the largest."""
        letters, to, found = self.letters, None if other is None else other.settings, list[Quote]()
        before = next((one for kind, one in letters.items() if kind in self.asking), None)
        for kind, letter in letters.items():
            asks, rest = kind in self.asking, room
            if not asks and before and self.both_ways and (before.spare or not before.leaves):
                rest = room.less(before.look(world, to), 1 if before.cut else before.number(world))
            items = letter.number(world) if asks and not letter.cut else most_of(letters, kind, world, rest, to)
            found.append(Quote(kind, items, numbers(letter.look(world, to), items)))
        return found

    def objects(self, post: Post, mail: Mail) -> str:
        return self.judge(agent_of(post, mail.receiver), received(post, mail))

    def welcomes(self, post: Post, bundle: Bundle) -> bool:
        if type(self).objects is not Mode.objects:
            return False
        beside = companion_of(self, post)
        return beside.welcomes(self, post, bundle) if beside else type(self).judge is Mode.judge

    def asks_of(self, post: Post) -> Sequence[Mail]:
        beside = companion_of(self, post)
        asked: Sequence[Mail] | None = beside.ask(self, post) if beside else None
        if asked is not None:
            return asked
        kind = next((one for one in self.letters if one in self.asking), None)
        if kind is None:
            return []
        found = self.each(post, lambda agent: self.ask(agent) if agent.neighbours else None, "ask")
        mails = []
        for lane, drafts in found.items():
            others = post.out(lane) if drafts else []
            if drafts and isinstance(next(iter(drafts)), str):
                mails += posted(post, lane, kind, drafts, others)
            else:
                mine = [(other, drafts[other.agent]) for other in others if other.agent in drafts]
                mails += [mail for other, draft in mine for mail in posted(post, lane, kind, draft, [other])]
        return mails

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        beside = companion_of(self, post)
        answers: Sequence[Mail] | None = beside.answer(self, post, questions) if beside else None
        if answers is not None:
            return answers
        letters = self.letters
        kinds = [one for one in letters if one not in self.asking]
        boxes = by_receiver(questions)
        alike = all(letters[kind].alike for kind in kinds) and not self.both_ways

        def drafts(agent: Present) -> list[tuple[list[Lane], Any, str]]:
            lane = agent._lane
            asked = [received(post, one) for one in boxes.get(lane, [])]
            if self.both_ways:
                return [([one.mail.sender], self.answer(agent, one, one.sender), one.mail.id) for one in asked]
            agent.told = {one.sender: one for one in asked}
            others = post.out(lane)
            groups = [others] if alike and others else [[other] for other in others]
            return [(some, self.answer(agent, None, some[0].agent), "") for some in groups]

        found = self.each(post, drafts, "answer")
        mails = []
        for lane, mine in found.items():
            for first in (one for one in kinds if not letters[one].behind):
                for others, draft, reply in mine:
                    before: list[Mail] = []
                    for kind in (first, *(one for one in kinds if letters[one].behind == first)):
                        one = draft if len(kinds) == 1 or draft is None else draft.get(kind)
                        before += [] if one is None else posted(post, lane, kind, one, others, reply, before)
                    mails += before
        return mails

    def absorbs_of(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        beside = companion_of(self, post)
        if not beside or not beside.absorb(self, post, questions, answers):
            for agent, letters in self.at_end(post, questions, answers):
                with post.running("absorb", [agent._lane]):
                    self.absorb(agent, letters)

    def at_end(
        self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]
    ) -> Iterator[tuple[Present, list[Received]]]:
        """Every agent at the end of an exchange, with what has come to it."""
        boxes, asked = by_receiver(answers), by_receiver(questions)
        for lane in post.world.lanes:
            agent = agent_of(post, lane)
            agent.answered = lane in asked
            agent.told = {mail.sender.agent: received(post, mail) for mail in asked.get(lane, [])}
            yield agent, [received(post, mail) for mail in boxes.get(lane, [])]

    def each(self, post: Post, work: Callable[[Present], Any], verb: str) -> dict[Lane, Any]:
        """What a verb gives for every lane."""

        def one(lane: Lane) -> Any:
            with post.running(verb, [lane]):
                return work(agent_of(post, lane))

        return per_lane(post.world, one) if self.parallel else {lane: one(lane) for lane in post.world.lanes}


def companion_of(mode: Mode, post: Post) -> ModuleType | None:
    """What does a mode's verbs for all agents at once, if there is such a thing and it is wanted. It belongs to the
    very class that names it: a subclass, which may have changed a verb, is as it says itself."""
    named = mode.companion and "companion" in vars(type(mode))
    return import_module(mode.companion) if named and post.world.fleet.machine.companions else None
