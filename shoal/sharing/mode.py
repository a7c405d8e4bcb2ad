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
from shoal.errors import SettingsError
from shoal.letters.letter import Letter, Quote, Room, most_of, numbers
from shoal.letters.mail import Expected, Mail
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.settings.policies import Carries
from shoal.sharing.contract import Sharing
from shoal.sharing.drafts import Draft as Draft
from shoal.sharing.drafts import Written as Written
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

    def ask(self, agent: Present) -> Draft | Mapping[int, Draft] | None:
        """What an agent asks all its neighbours, or each by its number; nothing, if everybody just sends."""
        return None

    @abstractmethod
    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """What an agent sends to another: its answer to a question or, without one, what it sends unasked. Where there
        are letters of several kinds, it is a draft of each by its kind."""

    @abstractmethod
    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
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
        """`judge` of a single letter."""
        return self.judge(agent_of(post, mail.receiver), received(post, mail))

    def objection(self, post: Post, table: Table, at: int) -> str:
        if type(self).objects is not Mode.objects:
            return self.objects(post, table[at])
        return self.judge(agent_of(post, table.ends(at)[1]), received(post, table, at))

    def welcomes(self, post: Post, table: Table) -> bool:
        if type(self).objects is not Mode.objects:
            return False
        beside = companion_of(self, post)
        return (beside is not None and beside.welcomes(self, post, table)) or type(self).judge is Mode.judge

    def asks_of(self, post: Post) -> Table:
        kinds = [one for one in self.letters if one in self.asking][:1]
        if self.both_ways and not kinds:
            raise SettingsError(
                f"mode `{self.mode}` answers questions, and none of its letters ({', '.join(self.letters)}) asks one "
                f"({', '.join(self.asking)}); name the kind of its question in its `asking`"
            )
        beside = companion_of(self, post) if kinds else None
        asked: Table | None = beside.ask(self, post) if beside else None
        if asked is not None or not kinds:
            return Table.none(post.world.peers) if asked is None else asked
        found = self.each(post, lambda agent: self.ask(agent) if agent.neighbours else None, "ask")
        said = []
        for lane, drafts in found.items():
            others = post.out(lane) if drafts else []
            if drafts and isinstance(next(iter(drafts)), str):
                said.append(Written(lane, others, drafts))
            else:
                said += [Written(lane, [other], drafts[other.agent]) for other in others if other.agent in drafts]
        return posted(post, kinds, said)

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        questions = questions if isinstance(questions, Table) else Table.of(questions, post.world.peers)
        beside = companion_of(self, post)
        answers: Table | None = beside.answer(self, post, questions) if beside else None
        if answers is not None:
            return answers
        letters = self.letters
        kinds = [one for one in letters if one not in self.asking]
        alike = all(letters[kind].alike for kind in kinds) and not self.both_ways

        def said(agent: Present) -> list[Written]:
            lane = agent._lane
            asked = [received(post, questions, at) for at in questions.boxes.get(lane, ())]
            if self.both_ways:
                drafts = (self.answer(agent, one, one.sender) for one in asked)
                ends = ((questions.ends(one.at)[0], questions.id(one.at)) for one in asked)
                return [Written(lane, [to], draft, name) for draft, (to, name) in zip(drafts, ends, strict=True)]
            agent.told = {one.sender: one for one in asked}
            others = post.out(lane)
            groups = [others] if alike and others else [[other] for other in others]
            return [Written(lane, some, self.answer(agent, None, some[0].agent)) for some in groups]

        found = self.each(post, said, "answer")
        return posted(post, kinds, [one for mine in found.values() for one in mine])

    def absorbs_of(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        peers, beside = post.world.peers, companion_of(self, post)
        asked, told = (one if isinstance(one, Table) else Table.of(one, peers) for one in (questions, answers))
        if not beside or not beside.absorb(self, post, asked, told):
            for agent, letters in self.at_end(post, asked, told):
                with post.running("absorb", [agent._lane]):
                    self.absorb(agent, letters)

    def at_end(self, post: Post, questions: Table, answers: Table) -> Iterator[tuple[Present, list[Received]]]:
        """Every agent at the end of an exchange, with what has come to it."""
        for lane in post.world.lanes:
            agent = agent_of(post, lane)
            asked = questions.boxes.get(lane, ())
            agent.answered = bool(asked)
            letters = [received(post, questions, at) for at in asked]
            agent.told = {one.sender: one for one in letters}
            yield agent, [received(post, answers, at) for at in answers.boxes.get(lane, ())]

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
