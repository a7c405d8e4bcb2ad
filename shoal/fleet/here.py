"""Stacks that are in this process, and all that a run may tell them: the verbs of a moment, and of an exchange."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

import numpy as np
import torch

from shoal.agents import events, memory
from shoal.agents.lanes import joint_lanes
from shoal.agents.stack import PARAMS, RECORD, Stack, grid, start
from shoal.agents.state import guarded
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.data.tasks import JOINT, Lane
from shoal.errors import SettingsError, UserError
from shoal.fleet.health import ENDED, examine
from shoal.fleet.lessons import begin, copies, end, learn_epoch, measure, stamp
from shoal.fleet.standing import Standing, standing
from shoal.letters.ledger import Settled
from shoal.letters.mail import NO_TASK, UNDER_WAY, Mail
from shoal.letters.posted import Posted
from shoal.letters.table import Table
from shoal.mail.filters import audit
from shoal.mail.post import Post

Pieces = list[tuple[World, Stack]]


class Here:
    """The stacks of this process, and the verbs of a run."""

    def __init__(self, whole: Sequence[World], stacks: Sequence[Stack] | None = None) -> None:
        self.whole = tuple(whole)
        self.lanes = frozenset(lane for one in whole for lane in one.lanes)
        self.fleet = [self.placed(at, None if stacks is None else stacks[at]) for at in range(len(whole))]
        self.ledger = self.fleet[0][1].ledger
        self.bind()
        self.mode = 0  # that acts, by its place in the settings,
        self.now = 0.0  # and the moment
        self.posts: list[Post] = []
        self.questions: list[Table] = []
        self.lasted: dict[Lane, float] = {}  # how many seconds the last epoch took each lane, where they are counted
        self.lease = ExitStack()  # pieces of stacks that posts have
        self.waits: dict[Lane, float] = {}  # until when lanes wait for answers, before they learn on
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
        if stack is None:
            return here, start(here)
        # What is recorded can begin later, and so can what others send; what is learned from cannot.
        if absent := [name for name in memory.NAMES if name not in stack.of(memory.OWNER)]:
            raise UserError(
                f"the checkpoint lacks `{memory.OWNER}.{absent[0]}`: another version of shoal has made it; continue it "
                "with that version, or start the run again in another folder"
            )
        return here, stack

    def bind(self) -> None:
        """All stacks write to one ledger."""
        for _, stack in self.fleet:
            stack.ledger = self.ledger

    # The verbs of a moment (shoal/agents/events.py), for those who act at it

    def stands(self) -> Standing:
        """Where the lanes that are here stand."""
        return Standing.of(standing(*one) for one in self.fleet)

    def spread(self) -> Standing:
        """Let every agent begin as a copy of its joint agent."""
        self.fleet = [(one, copies(one, stack)) for one, (_, stack) in zip(self.whole, self.fleet, strict=True)]
        self.bind()
        return self.stands()

    @contextmanager
    def pieces(self, now: float, phase: str, done: int | None = None) -> Iterator[Pieces]:
        """The lanes that act at a moment, or those of them that have done so many epochs of their task; those at the
        same point of their streams together."""
        with ExitStack() as lease:
            yield [
                lease.enter_context(stack.lent(here, rows))
                for here, stack in self.fleet
                for (_, epoch), rows in events.together(
                    events.acting(here.settings, stack.clock, now, phase), stack.clock
                ).items()
                if done in (None, epoch)
            ]

    def end(self, now: float) -> None:
        """The end of tasks whose last epoch is learned."""
        with self.pieces(now, events.AFTER, self.whole[0].settings.learner.epochs) as pieces:
            for here, stack in pieces:
                end(here, stack)

    def turn(self, now: float) -> Standing:
        """Who has learned a task goes on to the next if it is there, and else rests until it comes."""
        for here, stack in self.fleet:
            if rows := events.turning(here.settings, stack.clock, now):
                examine(stack, whole=True)
                events.turn(here, stack, rows, now, self.waits)
        return self.stands()

    def skip(self, now: float) -> Standing:
        """Initial tasks before the last of them are only met: they are learned together."""
        with self.pieces(now, events.SHORT) as pieces:
            for here, stack in pieces:
                begin(here, stack)
                end(here, stack)
                examine(stack, whole=True)
                stack.task = stack.task + 1
        return self.stands()

    def begin(self, now: float) -> None:
        """The beginning of tasks."""
        with self.pieces(now, events.BEFORE, 0) as pieces:
            for here, stack in pieces:
                begin(here, stack)

    def learn(self, now: float) -> Standing:
        """One epoch, and a measurement if the grid has one there; where nothing comes between epochs for who goes on by
        its own clock, several. Lanes that have diverged end."""
        apart = self.whole[0].fleet.clock.pace == "asynchronous"
        self.lasted = {}
        with self.pieces(now, events.BEFORE) as pieces:
            while pieces:
                before = steps(pieces)
                learn_epoch(pieces)
                self.lasted = lasting(pieces, before)
                for here, stack in pieces:
                    if events.own(stack.clock):
                        self.pass_time(stack, apart)
                    learned(here, stack)
                pieces = [
                    (here, stack)
                    for here, stack in pieces
                    if apart and events.own(stack.clock) and events.quiet(here.settings, stack.task, stack.epoch)
                ]
        for _, stack in self.fleet:
            if events.own(stack.clock) and stack.gone.any():
                stack.clock["moment"][stack.gone] = inf
        self.waits.clear()
        return self.stands()

    def pass_time(self, stack: Stack, apart: bool) -> None:
        """Lanes that have learned an epoch act again when they have taken their time."""
        clock, lasted = stack.clock, [self.lasted[lane] if apart else 1.0 for lane in stack.lanes]
        begun = [
            max(at, self.waits.get(lane, at)) for at, lane in zip(clock["moment"].tolist(), stack.lanes, strict=True)
        ]
        clock["moment"].copy_(torch.tensor([begun, lasted], dtype=torch.float64).sum(0))
        if apart:
            clock["seconds"].copy_(clock["moment"])

    def close(self) -> None:
        """All streams are learned."""
        for here, stack in self.fleet:
            examine(stack, whole=True)
            stack.task, stack.epoch = here.settings.tasks.count, 0

    def longest(self) -> dict[int, float]:
        """How many seconds the last epoch took the slowest lane of each seed that learned."""
        found: dict[int, float] = {}
        for lane, took in self.lasted.items():
            found[lane.seed] = max(took, found.get(lane.seed, 0.0))
        return found

    def spend(self, seconds: Mapping[int, float], measured: bool = False) -> None:
        """Time passes for all lanes of a seed; what was `measured` in the epoch that took it was so at its end."""
        for here, stack in self.fleet:
            passed = torch.tensor([seconds.get(lane.seed, 0.0) for lane in stack.lanes], dtype=torch.float64)
            stack.clock["seconds"] += passed
            labels = grid(here.settings.learner.epochs)[:-1]
            for (_, epoch), rows in events.together(range(len(stack.lanes)), stack.clock).items():
                if measured and epoch in labels[1:]:
                    with stack.lent(here, rows) as piece:
                        stamp(*piece, labels.index(epoch))

    def stacks(self) -> tuple[Stack, ...]:
        return tuple(stack for _, stack in self.fleet)

    # The verbs of an exchange

    def opened(self, mode: int, now: float, phase: str) -> list[Post]:
        """A post for the lanes that act now, those at the same point of their streams together."""
        posts = []
        for here, stack in self.fleet:
            settings = here.settings
            for point, rows in events.together(events.acting(settings, stack.clock, now, phase), stack.clock).items():
                if events.is_due(settings, settings.sharing[mode], *point, phase):
                    piece, mine = self.lease.enter_context(stack.lent(here, rows))
                    posts.append(Post(piece.at(*point), mine, settings.sharing[mode], time=now))
        if not any(events.own(stack.clock) for _, stack in self.fleet):
            return posts
        # Where all lanes act, their questions and answers can be bundles too.
        every = sum(len(post.world.lanes) for post in posts) == len(self.whole[0].peers)
        every &= not any(stack.inbox for _, stack in self.fleet)
        for post in posts:
            post.whole = every and post.world.instant and len(posts) == len(self.fleet)
        return posts

    def called(self, asked: Collection[Lane]) -> None:
        """A post for lanes that do not act now but are asked something, where that is answered at once."""
        known = {lane for post in self.posts for lane in post.world.lanes}
        for here, stack in self.fleet:
            rows = [row for row, lane in enumerate(stack.lanes) if lane in asked and lane not in known]
            for mine in events.together(rows, stack.clock).values():
                piece = self.lease.enter_context(stack.lent(here, mine))
                self.posts.append(Post(*piece, here.settings.sharing[self.mode], time=self.now, acts=False))

    def ask(self, mode: int, now: float, phase: str) -> Posted:
        """What leaves as questions, by the mode at a place in the settings, of those who act at a moment."""
        self.mode, self.now = mode, now
        self.posts = self.opened(mode, now, phase)
        found = []
        for post in self.posts:
            post.asking, post.verb = True, "ask"
            with speaking(post):
                mails = letters(post, post.mode.asks_of(post))
            post.asking = False
            known_kinds(post, mails)
            found.append(post.send(going(post, mails)))
        return Posted.joined(found, self.whole[0].peers)

    def receive(self, mails: Sequence[Mail]) -> list[str]:
        """What receivers say of the mail that has come for them; who does not act now will look later."""
        peers, mode = self.whole[0].peers, self.whole[0].settings.sharing[self.mode]
        table = (mails if isinstance(mails, Table) else Table.of(mails)).among(peers)
        verdicts = np.full(len(table), UNDER_WAY, object)
        asked, to = table.among_kinds(mode.asking), table.links.receivers
        ended, over = self.closed()
        for closed, which in ((ended, np.full(len(table), True)), (dict.fromkeys(over, NO_TASK), ~asked)):
            if closed:
                words = np.array([closed.get(lane, "") for lane in table.links.peers], object)[to]
                at = which & (words != "") & (verdicts == UNDER_WAY)
                verdicts[at] = words[at]
        rest = verdicts == UNDER_WAY
        if mode.both_ways and not (self.posts and self.posts[0].whole):
            self.called({peers[at] for at in np.unique(to[rest & asked]).tolist()})
        for post in self.posts:
            mine = np.flatnonzero(rest & (post.world.rows[to] >= 0))
            if len(mine):
                verdicts[mine] = post.receive(table if len(mine) == len(table) else table.take(mine))
                rest[mine] = False
        for here, stack in self.fleet:
            stack.inbox.hold(table.take(np.flatnonzero(rest & (here.rows[to] >= 0))))
        found: list[str] = verdicts.tolist()
        return found

    def closed(self) -> tuple[dict[Lane, str], set[Lane]]:
        """The lanes that take no mail now, and why; and those that have learned all their tasks by their own clocks,
        who go on answering."""
        ended = {lane: ENDED for _, stack in self.fleet for lane in stack.silent}
        over: set[Lane] = set()
        for here, stack in self.fleet:
            if events.own(stack.clock):
                if self.now < here.begun:
                    ended |= {
                        lane: NO_TASK for lane in stack.lanes if here.begins[lane] > self.now and lane not in ended
                    }
                over |= {stack.lanes[row] for row in stack.clock["moment"].isinf().nonzero().flatten().tolist()}
        return ended, over

    def answer(self) -> Posted:
        """What leaves as answers."""
        self.questions, found = [], []
        for post in self.posts:
            self.questions.append(post.collect(asked=True))
            post.verb = "answer"
            if post.acts or len(self.questions[-1]):
                with speaking(post):
                    mails = letters(post, post.mode.answers_of(post, self.questions[-1]))
                found.append(post.send(going(post, mails)))
        return Posted.joined(found, self.whole[0].peers)

    def absorb(self) -> list[Settled]:
        """Make use of what has come, and tell what receivers said of what had been under way."""
        for post, questions in zip(self.posts, self.questions, strict=True):
            if not post.acts and not len(questions):
                continue
            answers = post.collect(asked=False) if post.acts else Table.none(post.world.peers)
            with absorbing(post):
                post.mode.absorbs_of(post, questions, answers)
            audit(post)
            self.waits |= {lane: max(until, self.waits.get(lane, until)) for lane, until in post.waits.items()}
        self.lease.close()
        return [one for post in self.posts for one in post.settled]


def steps(fleet: Sequence[tuple[World, Stack]]) -> dict[Lane, int]:
    """How many steps each lane has taken, where seconds are counted."""
    if not fleet or not fleet[0][0].fleet.clock.counts:
        return {}
    every = (zip(stack.lanes, stack.of(RECORD)["steps"].tolist(), strict=True) for _, stack in fleet)
    return {lane: taken for stack in every for lane, taken in stack if lane.agent != JOINT}


def lasting(fleet: Sequence[tuple[World, Stack]], before: Mapping[Lane, int]) -> dict[Lane, float]:
    """How many seconds the steps since then have taken each lane; those of one step at least, so that time goes on."""
    clock = fleet[0][0].fleet.clock if fleet else None
    now = steps(fleet)
    return {lane: max(1, now[lane] - was) / clock.of("speed", lane.agent) for lane, was in before.items() if clock}


def learned(world: World, stack: Stack) -> None:
    """What comes after an epoch: the clock goes on, lanes that have diverged end, and the grid may have a measurement
    there."""
    labels = grid(world.settings.learner.epochs)[:-1]
    stack.epoch = stack.epoch + 1
    examine(stack)
    if stack.epoch in labels:
        measure(world, stack, labels.index(stack.epoch), during=True)


@contextmanager
def speaking(post: Post) -> Iterator[None]:
    """What a mode says by the verb whose time it is, it says without writing."""
    with guarded(post.stack, f"the mode `{post.mode.mode}`, before it absorbs,", ()), post.running(post.verb):
        yield


@contextmanager
def absorbing(post: Post) -> Iterator[None]:
    """What a mode makes of what has come, it writes into what is its own."""
    mode = post.mode
    owners = RECORD, mode.owner, *mode.writes, *([PARAMS] if mode.writes_weights else [])
    with guarded(post.stack, f"the mode `{mode.mode}`", owners), post.running("absorb"):
        yield


def letters(post: Post, mails: Sequence[Mail]) -> Sequence[Mail]:
    """What a mode has said, if it is mail."""
    if not isinstance(mails, Table) and not all(isinstance(mail, Mail) for mail in mails):
        raise TypeError(f"`{post.verb}` returns something that is no mail")
    return mails


def going(post: Post, mails: Sequence[Mail]) -> Sequence[Mail]:
    """The mail of lanes that go on and are there; one that has ended, or is absent, is silent."""
    quiet = post.silent | post.away
    if not quiet:
        return mails
    if not isinstance(mails, Table):
        return [mail for mail in mails if mail.sender not in quiet]
    out = np.array([lane in quiet for lane in mails.links.peers])[mails.links.senders]
    return mails.take(np.flatnonzero(~out)) if out.any() else mails


def known_kinds(post: Post, mails: Sequence[Mail]) -> None:
    """Raise if a mode asks by a kind of mail that it does not name: one that has been long under way must not be taken
    for an answer."""
    for kind in mails.kinds if isinstance(mails, Table) else [mail.kind for mail in mails]:
        if kind not in post.mode.asking:
            raise SettingsError(
                f"mode `{post.mode.mode}` asks by mail of kind `{kind}`; name that kind in its `asking`"
            )
