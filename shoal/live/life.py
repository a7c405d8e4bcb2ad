"""The life of one agent on a host of its own: it learns its stream, exchanges letters, and goes on where it was,
whatever ended it.

What it was is the last checkpoint and the journal after it: from there everything is done again as it was done, with
the same letters at the same turns, before anything new is.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.agents.engine import kept_memory
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import Stopped, UserError
from shoal.fleet.health import DivergedError
from shoal.fleet.run import Moment, learn_all, one_thread
from shoal.live.authority import guarded
from shoal.live.beginning import begun, loaded
from shoal.live.crew import LiveCrew, by_itself, crewed, terms_of
from shoal.live.fleets import Home, lines_of
from shoal.live.office import LOST, Office
from shoal.live.rows import Rows
from shoal.live.serving import Desk, opened
from shoal.live.store import Store
from shoal.live.transport import Transport
from shoal.own_code import told_apart
from shoal.runs import kept as portable
from shoal.runs import material
from shoal.runs.execute import interrupts
from shoal.runs.record import Record, create, reopen
from shoal.runs.recording import finish, tables


@dataclass
class Life:
    """An agent that learns, and all that others may look at meanwhile."""

    home: Home
    record: Record
    store: Store
    office: Office
    crew: LiveCrew
    stop: Callable[[], bool]
    watch: Callable[["Life"], None] = lambda life: None  # is called after every epoch
    begun: float = field(default_factory=time.time)
    saved: float = field(default_factory=time.monotonic)
    finished: bool = False

    @property
    def world(self) -> World:
        """Its world, with all tasks so far."""
        return self.crew.whole[0]

    @property
    def stack(self) -> Stack:
        """The state of the agent."""
        (one,) = self.crew.here.fleet
        return one[1]

    def learn(self) -> dict[str, Any]:
        """Learn all of the stream that is still to be learned, and return the summary."""
        try:
            with told_apart():
                ends = learn_all(self.crew, self.after, None)
        except DivergedError as end:
            self.crew.farewell()
            self.save(end.stacks)
            tables(self.record, end.stacks)
            while not self.stop() and self.office.owed():
                self.office.idle(0.2)  # until its neighbours know
            raise
        self.mark(ends)
        summary = finish(self.record, [by_itself(self.world)], ends)
        self.finished = True
        self.watch(self)
        return summary

    def after(self, moment: Moment) -> None:
        """After an epoch: answer who has asked, tell who watches, save now and then, and stop if that is asked."""
        if self.crew.free and not self.crew.joint:
            self.crew.visit()
        self.note_refusals()
        self.watch(self)
        stacks = moment.stacks
        asked = self.stop()
        settings = self.world.settings
        waits = self.home.watch is not None and moment.epoch == settings.learner.epochs  # maybe for long
        if moment.epoch == 0:
            described(self.record, self.world, self.home)
        if moment.epoch == 0 or asked or waits or time.monotonic() - self.saved > settings.machine.checkpoint:
            self.save(stacks)
        if moment.epoch == 0:
            tables(self.record, stacks)
        if asked:
            raise Stopped(f"stopped and saved; `shoal live run {self.home.folder}` goes on")

    def mark(self, stacks: Sequence[Stack]) -> None:
        """Note what is counted beside the checkpoint that comes."""
        self.store.mark(stacks[0].task, stacks[0].epoch, {**self.office.state, **self.crew.state})

    def save(self, stacks: Sequence[Stack]) -> None:
        self.mark(stacks)
        self.record.save(stacks)
        self.saved = time.monotonic()

    def note_refusals(self) -> None:
        """Write down what was refused here."""
        for peer, why in self.crew.refused:
            if not self.office.replaying:
                self.store.refuse(peer, why, time.time())
        self.crew.refused.clear()

    def needless(self) -> bool:
        """Does nobody need this agent any more? All neighbours have said farewell and have its own, but for those who
        have given no sign for long. Nobody can know that its last letter has come, so the last to leave may have to
        wait for so long; no other does."""
        return not self.crew.needed() and not self.office.owed()

    def linger(self, until: Callable[[], bool]) -> None:
        """Stay there for others when all is learned: letters that wait are carried, questions answered."""
        before = self.office.n
        while not until():
            self.office.idle(0.2)
            if self.crew.free:
                self.crew.visit(afterwards=True)
            self.note_refusals()
        if self.office.n > before:  # whom nobody waited for any more has come back, and has asked
            (end,) = self.crew.stacks()
            self.save([end])
            tables(self.record, [end])


def awake(
    home: Home,
    transport: Callable[[Home, Any], Transport | None] = lines_of,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Life], None] = lambda life: None,
    safe: bool = True,
    tell: Callable[[str], None] = lambda sentence: None,
    lost: float = LOST,
) -> Life:
    """An agent as it was when it was last there, or at its beginning, that nobody has let learn yet."""
    settings = home.settings()
    fresh = not (home.record / "settings.toml").exists()
    store = Store(home.letters, safe=safe)
    rows = Rows(home, settings, store, tell)

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        if stop():
            raise Stopped(f"stopped before any rows had come; `shoal live run {home.folder}` waits on")

    trained = loaded(home.begin, settings) if home.begin.exists() else None
    learned = 0 if trained is None else len(trained.told.tasks)
    world = rows.first(learned, pause) if fresh else rows.world(len(store.tasks()))
    record = create(home.record, world.settings) if fresh else reopen(home.record, own=world.settings)
    described(record, world, home)
    stacks = record.load([world])
    terms = terms_of(world, home.run, home.identity)
    office = Office(store, terms, transport(home, terms), home.senders, home.receivers, stop, lost)
    begins = [begun(trained, world)] if stacks is None and trained is not None else stacks
    crew = crewed(world, office, begins)
    crew.rows = rows
    if stacks is not None:
        state = store.marked(stacks[0].task, stacks[0].epoch)
        if state is None:
            raise UserError(
                f"{home.letters} knows nothing of the checkpoint in {home.record}; restore it, or let the agent begin "
                f"anew: remove both"
            )
        office.restore(state)
        crew.restore(state)
    record.note(models=[world.about], kernel=world.kernel)
    return Life(home, record, store, office, crew, stop, watch)


def described(record: Record, world: World, home: Home) -> None:
    """Write what there is to say of an agent and its rows; anew, where more of them come."""
    for name in (portable.AGENTS, material.FILE) if home.watch is not None else ():
        (record.folder / name).unlink(missing_ok=True)
    portable.note(record, [world])
    material.note(record, [world])


def live(
    folder: Path,
    leave: bool = False,
    port: int | None = None,
    slow: float = 0,
    tell: Callable[[str], None] = lambda sentence: None,
    lost: float = LOST,
) -> dict[str, Any] | None:
    """Let the agent in a folder learn until its stream is learned, and then be there for others until it is stopped or,
    with `leave`, until all letters are carried and all neighbours are done, but for those who have given no sign for
    `lost` seconds. It rests `slow` seconds after each epoch, to leave the host to others."""
    home = Home.read(folder)
    until = guarded(folder)
    tell(f"{home.name}: certificate holds until {until:%Y-%m-%d}, listens at {home.address}")
    summary = None
    with kept_memory(), interrupts() as heard, one_thread(), ExitStack() as held:
        life = awake(home, stop=heard, tell=tell, lost=lost)
        held.enter_context(life.record.alone())
        life.record.tell = tell
        try:
            life.office.open()
            desk = Desk(life)
            closing = opened(desk, home.socket, port)

            def watch(life: Life) -> None:
                desk.update(life)
                if slow and not life.finished and not life.office.replaying:
                    life.office.idle_until(time.monotonic() + slow)

            life.watch = watch
            try:
                if life.record.finished:
                    life.finished = True
                else:
                    summary = life.learn()
                tell(f"{home.name}: all is learned" + ("" if leave else "; it stays for others, Ctrl-C ends it"))
                life.linger(lambda: heard() or (leave and life.needless()))
                if left := sorted(life.store.owed()):
                    tell(f"{home.name}: what waits for agents {left} waits on; start it again to bring it to them")
            finally:
                closing()
        finally:
            life.office.close()
            life.store.close()
    return summary
