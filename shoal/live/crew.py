"""The seam between live agents and the simulator: a crew of one agent whose mail goes over a network.

It is the only file here that knows stacks, posts and exchanges. The loop of the simulator (`shoal.fleet.run`) drives
it as any other crew, so what an agent does is written once: in lock-step all letters of a turn are waited for, and with
clocks of their own what has come is taken, and questions of others are answered whenever they come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any

from shoal.agents.events import BEFORE
from shoal.agents.stack import RECORD, Stack, class_counts
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.data.bank import Bank
from shoal.data.tasks import Lane, lanes_of
from shoal.fleet.delivery import checked
from shoal.fleet.here import Here
from shoal.fleet.members import Crew, joint
from shoal.letters.letter import Room
from shoal.letters.mail import ACCEPTED, Mail, pack, weight
from shoal.letters.posted import Posted
from shoal.live.office import Draft, Office
from shoal.live.screening import Arrived, screened
from shoal.live.store import EACH, NEWEST, QUESTION
from shoal.live.wire import Terms, Turn
from shoal.mail.post import Observe
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.live.rows import Rows

OPEN = 1000  # questions without an answer that are remembered


def world_of(settings: Settings, bank: Bank, agent: int) -> World:
    """The world of one agent among all of its fleet."""
    peers = lanes_of(settings)
    (found,) = worlds(settings, bank, [Lane(settings.seed, agent)], peers)
    return replace(found, late=settings.clock.pace == "asynchronous")


def by_itself(world: World) -> World:
    """The world of an agent as if nobody else were there: of others nothing is known here but their letters."""
    return replace(world, peers=world.lanes)


def terms_of(world: World, run: str, identity: str) -> Terms:
    """What an agent takes from the network."""
    settings, (lane,) = world.settings, world.lanes
    delayed = any(edge.delay for edge in world.edges.values())
    counts = settings.tasks.count, settings.learner.epochs
    return Terms(run, identity, lane.seed, lane.agent, *counts, caps_of(world), bool(delayed))


def caps_of(world: World) -> dict[tuple[str, str], int]:
    """The bytes of the largest letter of each mode and kind that any neighbour can send."""
    (lane,) = world.lanes
    senders = [sender for sender, receiver in world.edges if receiver == lane]
    found: dict[tuple[str, str], int] = {}
    for mode in world.settings.sharing:
        for quote in mode.quote(world, Room()):
            for sender in senders:
                most = weight(mode.expects(world, quote.kind, sender), quote.items)
                found[mode.mode, quote.kind] = max(most, found.get((mode.mode, quote.kind), 0))
    return found


@dataclass
class LiveCrew(Crew):
    """A crew of one agent, whose neighbours are elsewhere."""

    office: Office | None = None
    leg: int = 0  # of the exchange that is open: 0 while it asks, 1 while it answers
    mode: int = 0  # that acts, by its place in the settings
    asked: dict[str, int] = field(default_factory=dict)  # questions without an answer so far, and whom they went to
    pending: dict[str, int] = field(default_factory=dict)  # all questions without an answer, of earlier exchanges too
    visits: int = 0
    moment: float = 0.0  # the last at which the agent acted
    aside: Here | None = None  # who answers others while the agent is at an exchange of its own
    refused: list[tuple[int, str]] = field(default_factory=list)  # what was refused here: of whom, and why
    met: dict[tuple[int, str, str], int] = field(default_factory=dict)  # when the last of each kind was sent to here
    rows: "Rows | None" = None  # where rows come while the agent runs
    waits: int | None = None  # for which task's rows
    parting: list[int] = field(default_factory=list)  # who may still ask, when all is learned

    @property
    def here(self) -> Here:
        """The one member."""
        (member,) = self.members
        assert isinstance(member, Here)
        return member

    @property
    def desk(self) -> Office:
        assert self.office is not None
        return self.office

    @property
    def lane(self) -> Lane:
        return self.whole[0].lanes[0]

    @property
    def free(self) -> bool:
        """Has every agent a clock of its own?"""
        return self.whole[0].fleet.clock.own

    @property
    def state(self) -> dict[str, Any]:
        """What is counted, for the note beside a checkpoint."""
        met = [[*name, last] for name, last in self.met.items()]
        return {"visits": self.visits, "moment": self.moment, "pending": self.pending, "met": met}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        self.visits, self.moment = state["visits"], state["moment"]
        self.pending.update(state["pending"])
        self.met = {(peer, mode, kind): last for peer, mode, kind, last in state["met"]}

    def every(self, verb: str, *arguments: Any) -> list[Any]:
        """What the agent makes of a verb; of those of an exchange it is noted which is open."""
        if verb == "ask":
            self.leg, self.mode, self.asked = 0, arguments[0], {}
        elif verb == "answer":
            self.leg = 1
        elif verb == "close":
            self.part()
        elif verb in ("end", "turn", "learn"):
            self.moment = arguments[0]
            if verb == "turn" and self.rows is not None and self.rows.watched:
                self.more(self.rows)
        return super().every(verb, *arguments)

    def deliver(self, here: World, sent: Sequence[Posted], observe: Observe | None) -> dict[int, float]:
        """Send what the agent has to say in this leg, and take what its neighbours have sent."""
        posted = checked(here, self.homes == 0, sent[0])
        self.ledger.write(posted)
        if observe:
            for mail, verdict in posted:
                observe(mail, verdict)
        going = [mail for mail, verdict in posted if verdict == ACCEPTED]
        if self.leg == 0:
            self.pending |= {mail.id: mail.receiver.agent for mail in going}
            for name in list(self.pending)[:-OPEN]:
                del self.pending[name]
        if self.free:
            self.freely(self.mode, going, observe)
        else:
            self.in_step(here, self.mode, going, observe)
        return {}

    # Rows that come

    def more(self, rows: "Rows") -> None:
        """Who has learned a task waits for the rows of the next, and answers others meanwhile; in lock-step they wait
        with it."""
        ((world, stack),) = self.here.fleet
        task, settings = stack.task + 1, world.settings
        if self.joint or stack.epoch < settings.learner.epochs or task >= settings.tasks.count:
            return
        self.waits = task
        while self.free and (found := self.desk.come(f"rows {task}", lambda: not rows.come(task), inf)) is not None:
            self.others(screened(self, found), None)
        while not rows.come(task):
            self.desk.wait(1.0)
        self.waits, world = None, rows.world(task + 1)
        stack.of(RECORD)["classes"] = class_counts(world)
        self.whole, self.aside = (world,), None
        self.here.whole, self.here.fleet = self.whole, [(world, stack)]

    # In lock-step

    def in_step(self, here: World, mode: int, going: Sequence[Mail], observe: Observe | None) -> None:
        """Send what there is, or that there is nothing, to all neighbours, and wait until all have done so."""
        (_, stack) = self.here.fleet[0]
        turn = Turn(stack.task, stack.epoch, mode, self.leg)
        receivers = list(here.receivers.get(self.lane, ()))
        drafts = {
            lane.agent: [draft(mail) for mail in going if mail.receiver == lane] or [Draft(None)] for lane in receivers
        }
        self.desk.post(turn, drafts)
        senders = sorted(sender.agent for sender, receiver in here.edges if receiver == self.lane)
        self.take(self.here, screened(self, self.desk.whole_turn(turn, senders)), observe)

    # By clocks of their own

    def freely(self, mode: int, going: Sequence[Mail], observe: Observe | None) -> None:
        """Send what there is, answer whoever has asked, and wait for answers with patience."""
        (_, stack) = self.here.fleet[0]
        kind = self.whole[0].settings.sharing[mode]
        turn = Turn(stack.task, stack.epoch, mode, self.leg)
        self.send(turn, going)
        if self.leg == 0:
            self.asked = {mail.id: mail.receiver.agent for mail in going} if kind.both_ways else {}
            self.visit(observe)
            return
        patience = self.whole[0].fleet.clock.patience
        until, answers = 3600.0 if patience == "unlimited" else float(patience), list[Arrived]()
        place = f"wait {self.visits}"
        while self.asked:
            found = self.desk.come(place, self.still_waiting, until)
            if found is None:
                break
            seen = screened(self, found)
            mine = [one for one in seen if self.is_answer(one, kind.mode)]
            for one in mine:
                self.asked.pop(one.reply, None)
            answers += mine
            self.others([one for one in seen if one not in mine], observe)
        self.visits += 1
        self.take(self.here, answers, observe)
        self.asked = {}

    def still_waiting(self) -> bool:
        """Is there a question without an answer to a neighbour who can be reached?"""
        return any(not self.desk.unreached(peer) for peer in self.asked.values())

    def is_answer(self, letter: Arrived, mode: str) -> bool:
        """Does a letter reply to a question of the open exchange, by whom it was sent to?"""
        return self.asked.get(letter.reply) == letter.peer and (not letter.envelope or letter.envelope.mode == mode)

    def send(self, turn: Turn, mails: Sequence[Mail], blank: Mapping[str, int] | None = None) -> None:
        """Let letters go; `blank` are questions that have no answer, and who asked."""
        drafts: dict[int, list[Draft]] = {}
        for mail in mails:
            drafts.setdefault(mail.receiver.agent, []).append(draft(mail, self.keeps(mail)))
        for question, peer in (blank or {}).items():
            drafts.setdefault(peer, []).append(Draft(None, reply=question))
        self.desk.post(turn, drafts)

    def keeps(self, mail: Mail) -> str:
        """What is kept of such letters while they wait."""
        mode = next(one for one in self.whole[0].settings.sharing if one.mode == mail.mode)
        if mail.kind in mode.asking:
            return QUESTION
        return EACH if mail.reply or mode.late.get(mail.kind, "newest") == "all" else NEWEST

    def visit(self, observe: Observe | None = None, afterwards: bool = False) -> None:
        """Look what has come, and answer questions; `afterwards` all is learned, and only others are still at work."""
        if self.joint:  # joint agents learn without others; who asks waits
            return
        self.visits += not afterwards
        found = self.desk.come("afterwards" if afterwards else f"visit {self.visits}")
        if found:
            self.others(screened(self, found), observe)

    def farewell(self) -> None:
        """Say to those who hear of this agent that it learns no more: nobody need wait for it."""
        (_, stack) = self.here.fleet[0]
        turn = Turn(stack.task, stack.epoch, 0, 1)
        self.desk.post(turn, {peer: [Draft(None, done=True)] for peer in self.desk.receivers})

    def part(self) -> None:
        """The stream is learned: say so, and answer whoever still learns."""
        self.farewell()
        while (found := self.desk.come("end", self.needed, inf)) is not None:
            self.others(screened(self, found), None)

    def needed(self) -> bool:
        """May a neighbour still ask? In lock-step nobody is ahead."""
        self.parting = sorted(self.desk.unheard()) if self.free else []
        return bool(self.parting)

    def others(self, letters: Sequence[Arrived], observe: Observe | None) -> None:
        """Letters that are for no open exchange: questions are answered, all else lies in the inbox until its mode is
        due."""
        ((_, stack),) = self.here.fleet
        settings, point = self.whole[0].settings, (stack.task, stack.epoch)
        if stack.task == settings.tasks.count:  # who has learned its stream answers as at the end of its last task
            stack.task, stack.epoch = stack.task - 1, settings.learner.epochs
        if self.aside is None or self.aside.fleet[0][1] is not stack:
            self.aside = Here(self.whole, [stack])
        aside, modes = self.aside, settings.sharing
        for at, mode in enumerate(modes):
            mine = [one for one in letters if one.envelope and one.envelope.mode == mode.mode]
            if not mine:
                continue
            aside.ask(at, nextafter(self.moment, inf), BEFORE)
            asking = [one for one in mine if one.envelope and one.envelope.kind in mode.asking]
            self.take(aside, [one for one in mine if one not in asking], observe)  # before anybody is there to judge it
            self.take(aside, asking, observe)
            posted = checked(self.whole[0], self.homes == 0, aside.answer())
            self.ledger.write(posted)
            for mail, verdict in posted if observe else ():
                assert observe
                observe(mail, verdict)
            going = [mail for mail, verdict in posted if verdict == ACCEPTED]
            questions = {one.envelope.id: one.peer for one in asking if one.envelope}
            for mail in going:
                questions.pop(mail.reply, None)
            self.send(Turn(stack.task, stack.epoch, at, 1), going, questions)
            self.ledger.seen(aside.absorb())
        stack.task, stack.epoch = point

    # What comes

    def take(self, member: Here, letters: Sequence[Arrived], observe: Observe | None) -> None:
        """Let a member judge letters that have come, and write in the ledger what it says."""
        mails = [one.mail for one in letters if one.mail is not None]
        rows = list(zip(mails, member.receive(mails), strict=True))
        self.ledger.write(rows)
        for mail, verdict in rows if observe else ():
            assert observe
            observe(mail, verdict)


def draft(mail: Mail, keep: str = "") -> Draft:
    """A mail as it goes over a wire."""
    envelope, body = pack(mail)
    return Draft(envelope, body, keep)


def crewed(world: World, office: Office, stacks: Sequence[Stack] | None) -> LiveCrew:
    """The crew of one agent, from the start or on from some stacks."""
    here = Here([world], stacks)
    found = LiveCrew((world,), [here], here.ledger, joint((world,), stacks), office=office)
    office.asked = found.pending if found.free else None
    return found
