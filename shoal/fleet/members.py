"""Members: stacks behind a handle. The one loop speaks to handles; where the stacks are is their affair.

`Here` has its stacks in this process. `processes` has handles on others, each of which runs a `Here` of its own: the
same verbs, the same mail, the same ledger, the same bits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from shoal.data.tasks import Lane
from shoal.errors import SettingsError, Stopped, UserError
from shoal.fleet.health import SILENT, ends, examine
from shoal.fleet.lessons import begin, copies, end, learn_epoch, measure
from shoal.fleet.stack import PARAMS, RECORD, Stack, grid, joined, start
from shoal.fleet.state import guarded
from shoal.fleet.world import World, joint_lanes, world
from shoal.learners import memory
from shoal.mail.bundle import Bundle
from shoal.mail.ledger import Ledger
from shoal.mail.mail import Mail
from shoal.mail.post import Post
from shoal.study.health import End

Posted = tuple[Any, str]  # a mail, here or elsewhere, and its verdict so far
Health = tuple[list[End], int]  # the lanes of a member that have ended, and how many go on


class Member(Protocol):
    """A handle: it is told a verb of `Here`, and later asked what came of it, so that members work side by side."""

    lanes: frozenset[Lane]

    def tell(self, verb: str, *arguments: Any) -> None: ...

    def told(self) -> Any: ...


class Here:
    """The stacks of this process, and the verbs of a run."""

    def __init__(self, whole: Sequence[World], stacks: Sequence[Stack] | None = None) -> None:
        self.whole = tuple(whole)
        self.lanes = frozenset(lane for one in whole for lane in one.lanes)
        self.fleet = [self.placed(at, None if stacks is None else stacks[at]) for at in range(len(whole))]
        self.ledger = self.fleet[0][1].ledger
        self.bind()
        self.result: Any = None
        self.posts: list[Post] = []
        self.questions: list[Sequence[Mail]] = []
        for _, stack in self.fleet:  # what an earlier version saved may be no numbers
            examine(stack)

    def placed(self, at: int, stack: Stack | None) -> tuple[World, Stack]:
        """A stack with the world that it is in at first: that of the joint agents, or of all."""
        whole = self.whole[at]
        first = joint_lanes(whole.lanes) if whole.settings.tasks.common else whole.lanes
        lanes = first if stack is None else stack.lanes
        if lanes not in (first, whole.lanes):
            raise ValueError(f"the stack is of other lanes ({lanes[0]}, ...) than the fleet ({whole.lanes[0]}, ...)")
        here = whole if lanes == whole.lanes else world(whole.settings, whole.bank, lanes)
        fresh = start(here)
        if stack is None:
            return here, fresh
        # What is recorded can begin later, and so can what others send; what is learned from cannot.
        if absent := [name for name in fresh.of(memory.OWNER) if name not in stack.of(memory.OWNER)]:
            raise UserError(
                f"the checkpoint lacks `{memory.OWNER}.{absent[0]}`: another version of shoal has made it; continue it "
                "with that version, or start the run again in another folder"
            )
        return here, stack

    def bind(self) -> None:
        """All stacks write to one ledger."""
        for _, stack in self.fleet:
            stack.ledger = self.ledger

    def tell(self, verb: str, *arguments: Any) -> None:
        self.result = getattr(self, verb)(*arguments)

    def told(self) -> Any:
        return self.result

    # The verbs of a task

    def spread(self) -> None:
        """Let every agent begin as a copy of its joint agent."""
        self.fleet = [(one, copies(one, stack)) for one, (_, stack) in zip(self.whole, self.fleet, strict=True)]
        self.bind()

    def begin(self) -> None:
        for one in self.fleet:
            begin(*one)

    def learn(self, epoch: int) -> "Health":
        """One epoch, and a measurement if the grid has one there. Lanes that have diverged end."""
        learn_epoch(self.fleet, epoch)
        labels = grid(self.fleet[0][0].settings.learner.epochs)[:-1]
        for here, stack in self.fleet:
            stack.epoch = epoch + 1
            examine(stack)
            if stack.epoch in labels:
                measure(here, stack, labels.index(stack.epoch), during=True)
        return self.health()

    def end(self) -> None:
        for one in self.fleet:
            end(*one)

    def advance(self) -> "Health":
        """The clock goes on to the next task."""
        for _, stack in self.fleet:
            examine(stack, whole=True)
            stack.task, stack.epoch = stack.task + 1, 0
        return self.health()

    def health(self) -> "Health":
        """Which lanes have ended, and how many go on."""
        found = [end for _, stack in self.fleet for end in ends(stack)]
        return found, sum(len(stack.lanes) for _, stack in self.fleet) - len(found)

    def stacks(self) -> tuple[Stack, ...]:
        return tuple(stack for _, stack in self.fleet)

    # The verbs of an exchange

    def ask(self, mode: int) -> Sequence[Posted]:
        """What leaves as questions, by the mode at a place in the settings."""
        self.posts = [Post(here, stack, here.settings.sharing[mode]) for here, stack in self.fleet]
        found = []
        for post in self.posts:
            post.asking, post.verb = True, "ask"
            mails, silent = spoken(post)
            post.asking = False
            known_kinds(post, mails)
            found.append(silent or post.send(going(post, mails)))
        return together(found)

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """What receivers say of the mail that has come for them; of a bundle that all accept as it is, nothing."""
        if isinstance(mails, Bundle):
            return self.posts[0].receive(mails)
        verdicts: dict[int, str] = {}
        for post in self.posts:
            mine = [at for at, mail in enumerate(mails) if mail.receiver in post.world.row]
            verdicts |= {at: SILENT for at in mine if mails[at].receiver in post.silent}
            mine = [at for at in mine if at not in verdicts]
            verdicts |= zip(mine, post.receive([mails[at] for at in mine]), strict=True)
        return [verdicts[at] for at in range(len(mails))]

    def answer(self) -> Sequence[Posted]:
        """What leaves as answers."""
        self.questions = [post.collect(asked=True) for post in self.posts]
        found = []
        for post, questions in zip(self.posts, self.questions, strict=True):
            post.verb = "answer"
            mails, silent = spoken(post, questions)
            found.append(silent or post.send(going(post, mails)))
        return together(found)

    def absorb(self) -> None:
        """Make use of what has come."""
        for post, questions in zip(self.posts, self.questions, strict=True):
            mode, answers = post.mode, post.collect(asked=False)
            with guarded(post.stack, f"the mode `{mode.mode}`", (PARAMS, RECORD, mode.owner, *mode.writes)):
                mode.absorb(post, questions, answers)
            post.audit()


def together(found: Sequence[Sequence[Posted]]) -> Sequence[Posted]:
    """What all stacks have sent; of one stack, as it is."""
    return found[0] if len(found) == 1 else [one for mine in found for one in mine]


def spoken(post: Post, *questions: Sequence[Mail]) -> tuple[Sequence[Mail], list[Posted]]:
    """What a mode says by the verb whose time it is. Where its code fails, its agents here are silent, and the ledger
    says why; that it writes, or breaks another law, is still an error."""
    verb, silent = getattr(post.mode, post.verb), []
    mails: Sequence[Mail] = []
    with guarded(post.stack, f"the mode `{post.mode.mode}`, before it absorbs,", ()):
        try:
            mails = verb(post, *questions)
            if not isinstance(mails, Bundle) and not all(isinstance(mail, Mail) for mail in mails):
                raise TypeError(f"`{post.verb}` returns something that is no mail")
        except (UserError, Stopped, MemoryError):
            raise
        except Exception as error:
            mails, silent = [], post.silence(error)
    return mails, silent


def going(post: Post, mails: Sequence[Mail]) -> Sequence[Mail]:
    """The mail of lanes that go on; one that has ended is silent."""
    return [mail for mail in mails if mail.sender not in post.silent] if post.silent else mails


def known_kinds(post: Post, mails: Sequence[Mail]) -> None:
    """Raise if a mode asks by a kind of mail that it does not name: one that has been long under way must not be taken
    for an answer."""
    for kind in [mails.kind] if isinstance(mails, Bundle) else [mail.kind for mail in mails]:
        if kind not in post.mode.asking:
            raise SettingsError(
                f"mode `{post.mode.mode}` asks by mail of kind `{kind}`; name that kind in its `asking`"
            )


@dataclass
class Crew:
    """All members of a run, and what is not theirs: the ledger, and the order of senders in the fleet."""

    whole: tuple[World, ...]
    members: Sequence[Member]
    ledger: Ledger
    joint: bool  # do joint agents still learn for all?
    ended: tuple[End, ...] = ()  # the lanes that have diverged, as far as members have told

    @cached_property
    def place(self) -> dict[Lane, int]:
        """Where every lane is in the fleet."""
        return {lane: at for at, lane in enumerate(self.whole[0].peers)}

    def every(self, verb: str, *arguments: Any) -> list[Any]:
        """What all members make of a verb."""
        if isinstance(self.members[0], Here):
            return [getattr(member, verb)(*arguments) for member in self.members]
        for member in self.members:
            member.tell(verb, *arguments)
        return [member.told() for member in self.members]

    def heed(self, told: Sequence[Health]) -> bool:
        """Note which lanes have ended. Do any go on?"""
        self.ended = tuple(sorted({end for found, _ in told for end in found}))
        return any(left for _, left in told)

    def spread(self) -> None:
        """Let every agent go on as a copy of its joint agent, if there are any."""
        self.every("spread")
        self.joint = False

    def lanes(self, whole: World) -> tuple[Lane, ...]:
        """The lanes of a kind that learn now: all, or their joint agents."""
        return joint_lanes(whole.lanes) if self.joint else whole.lanes

    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of all members, one for each kind of agents, as if they were here."""
        found = self.every("stacks")
        if isinstance(self.members[0], Here):
            here: tuple[Stack, ...] = found[0]
            return here
        kinds: list[list[Stack]] = [[] for _ in self.whole]
        for member, stacks in zip(self.members, found, strict=True):
            there = [parts for one, parts in zip(self.whole, kinds, strict=True) if member.lanes & set(one.lanes)]
            for parts, stack in zip(there, stacks, strict=True):
                parts.append(stack)
        made = tuple(joined(parts, self.lanes(one)) for one, parts in zip(self.whole, kinds, strict=True))
        for stack in made:
            stack.ledger = self.ledger
        return made


def crew_of(whole: Sequence[World], stacks: Sequence[Stack]) -> Crew:
    """Stacks that are here, of all lanes."""
    here = Here(whole, stacks)
    return Crew(tuple(whole), [here], here.ledger, joint=False)


@contextmanager
def mustered(whole: Sequence[World], stacks: Sequence[Stack] | None) -> Iterator[Crew]:
    """The members of a fleet, as `machine.members` says; processes end with the run."""
    from shoal.fleet.processes import started

    settings = whole[0].fleet
    joint = settings.tasks.common and (stacks is None or stacks[0].lanes != whole[0].lanes)
    if settings.machine.members == "here":
        here = Here(whole, stacks)
        yield Crew(tuple(whole), [here], here.ledger, joint)
        return
    ledger = Ledger() if stacks is None else stacks[0].ledger
    with started(whole, stacks, ledger) as members:
        yield Crew(tuple(whole), members, ledger, joint)
