"""The one loop: every lane learns its stream, task after task, all in lock-step or each by a clock of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch

from shoal.agents.ends import End
from shoal.agents.events import AFTER, BEFORE, SHORT, phased
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.sites import names
from shoal.fleet.exchange import meet
from shoal.fleet.health import gone_all
from shoal.fleet.members import Crew, LostError, mustered
from shoal.fleet.standing import Standing
from shoal.mail.post import Observe


@dataclass
class Moment:
    """A run after an epoch, so many of which are done, or after a task: then so many are, and no epoch of the next."""

    task: int
    epoch: int
    crew: Crew

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks as they are now; where they are in other processes, they have to be fetched."""
        return self.crew.stacks()

    @property
    def ended(self) -> tuple[End, ...]:
        """The agents that have diverged so far."""
        return self.crew.standing.ended

    @property
    def lanes(self) -> int:
        """How many lanes learn now."""
        return sum(len(self.crew.lanes(whole)) for whole in self.crew.whole)


# Called after every epoch and at the end of every task; it may save, not change anything.
Watch = Callable[[Moment], None]
# Called if a worker has ended; it gives the stacks to go on from, None: those with which it began.
Lost = Callable[[LostError], Sequence[Stack] | None]


def simulate(
    world: World,
    stack: Stack | None = None,
    watch: Callable[[Stack], None] = lambda stack: None,
    observe: Observe | None = None,
) -> Stack:
    """`train` a fleet of one kind, which is one stack.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> learner = {"epochs": 2, "batch": 8, "memory": 4}
    >>> settings = shoal.Settings(dataset="digits", agents=2, tasks=tasks, learner=learner)
    >>> (world,) = shoal.prepare(settings)
    >>> stack = shoal.simulate(world)
    >>> stack.task, len(stack.lanes)
    (2, 2)
    """
    (done,) = train([world], None if stack is None else [stack], lambda moment: watch(moment.stacks[0]), observe)
    return done


def train(
    worlds: Sequence[World],
    stacks: Sequence[Stack] | None = None,
    watch: Watch = lambda moment: None,
    observe: Observe | None = None,
    lost: Lost | None = None,
) -> tuple[Stack, ...]:
    """Train a fleet from the start, or on from `stacks`, one for each kind of agents, and return them at the end of
    their streams, in lock-step or each by its own clock. `observe` is told of every mail and its verdict.

    If a worker ends in the middle of its work (`machine.members`), all go on from the stacks that `lost` gives, or else
    from where they began, with a new one; then `watch` and `observe` are told again what was done before.

    An agent that diverges ends alone (shoal/fleet/health.py); if none is left, that is an error.

    With a common start, one joint agent per seed and kind learns the initial tasks and every agent begins as its copy.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> learner = {"epochs": 2, "batch": 8, "memory": 4}
    >>> settings = shoal.Settings(dataset="digits", agents=2, tasks=tasks, learner=learner)
    >>> ends = shoal.train(shoal.prepare(settings), watch=lambda moment: print(moment.task, moment.epoch))
    0 1
    0 2
    1 0
    1 1
    1 2
    2 0
    """
    with one_thread(), mustered(worlds, stacks) as crew:
        while True:
            try:
                return learn_all(crew, watch, observe)
            except LostError as loss:
                stacks = (lost(loss) if lost else None) or stacks
                crew.recover(loss, stacks)


def learn_all(crew: Crew, watch: Watch, observe: Observe | None) -> tuple[Stack, ...]:
    """All that is still to do, from one moment at which any lane acts to the next (shoal/agents/events.py). In
    lock-step all act at all of them."""
    heed(crew, crew.every("stands"))
    over = crew.standing.moment == inf and not crew.joint
    while met_all(crew) or crew.standing.moment < inf:
        if met_all(crew):
            crew.spread()
        else:
            act(crew, crew.standing.moment, watch, observe)
    if not over:
        crew.every("close")
        watch(Moment(crew.whole[0].settings.tasks.count, 0, crew))
    return crew.stacks()


def act(crew: Crew, now: float, watch: Watch, observe: Observe | None) -> None:
    """A moment: who has learned a task's last epoch ends it; modes act that come after epochs; who has the next task
    goes on to it; modes act that come before epochs; tasks begin; and all learn an epoch, which takes them its time."""
    epochs = crew.whole[0].settings.learner.epochs
    if any(epoch == epochs for _, epoch in crew.standing.points):
        crew.every("end", now)
    meet(crew, AFTER, observe)
    if crew.standing.turns:
        turn(crew, "turn", now, watch)
    if met_all(crew):
        return
    while any_at(crew, now, SHORT):
        meet(crew, SHORT, observe)
        turn(crew, "skip", now, watch)
    if any_at(crew, now, BEFORE):
        meet(crew, BEFORE, observe)
        if any(epoch == 0 for _, epoch in crew.standing.points):
            crew.every("begin", now)
        heed(crew, crew.every("learn", now))
        wait(crew)
    task, epoch = crew.standing.behind
    if epoch:
        watch(Moment(task, epoch, crew))


def met_all(crew: Crew) -> bool:
    """Have joint agents learned all that they learn for others?"""
    return crew.joint and crew.standing.behind[0] >= crew.whole[0].settings.tasks.initial


def any_at(crew: Crew, now: float, phase: str) -> bool:
    """Does anybody act at a moment, at some point of its stream that belongs to a phase?"""
    settings, standing = crew.whole[0].settings, crew.standing
    return standing.moment == now and any(phased(settings, point, phase) for point in standing.points)


def turn(crew: Crew, verb: str, now: float, watch: Watch) -> None:
    """Let who has learned a task go on; where all do, a task is done."""
    heed(crew, crew.every(verb, now))
    task, epoch = crew.standing.behind
    if (task, epoch) == crew.standing.ahead and not epoch and task < crew.whole[0].settings.tasks.count:
        watch(Moment(task, 0, crew))


def wait(crew: Crew) -> None:
    """Let the seconds pass that the slowest lane needed for an epoch, where all wait for it."""
    clock = crew.whole[0].fleet.clock
    if not clock.counts or clock.pace == "asynchronous" or crew.joint:
        return
    longest: dict[int, float] = {}
    for member in crew.every("longest"):
        for seed, took in member.items():
            longest[seed] = max(took, longest.get(seed, 0.0))
    crew.every("spend", longest, True)


def heed(crew: Crew, told: Sequence[Standing]) -> None:
    """Note where all lanes stand; raise if none goes on."""
    if not crew.heed(told):
        fleet = crew.whole[0].fleet
        error = gone_all(crew.standing.ended, fleet, names(crew.whole[0].bank.sources, fleet.agents))
        error.stacks = crew.stacks()
        raise error


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch without threads of its own: pieces of the stack have them, and with torch's own a result would depend on
    their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
