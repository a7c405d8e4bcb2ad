"""The one loop: every lane learns its stream, task after task, all members of a fleet in lock-step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch

from shoal.fleet.health import gone_all
from shoal.fleet.members import Crew, Health, mustered
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.post import Observe
from shoal.sharing.exchange import meet
from shoal.study.health import End


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
        return self.crew.ended

    @property
    def lanes(self) -> int:
        """How many lanes learn now."""
        return sum(len(self.crew.lanes(whole)) for whole in self.crew.whole)


# Called after every epoch and at the end of every task; it may save, not change anything.
Watch = Callable[[Moment], None]


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
) -> tuple[Stack, ...]:
    """Train a fleet from the start, or on from `stacks`, one for each kind of agents, and return them at the end of
    their streams. They go in lock-step. `observe` is told of every mail and its verdict.

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
    tasks = worlds[0].settings.tasks
    first, done = (stacks[0].task, stacks[0].epoch) if stacks else (0, 0)
    with one_thread(), mustered(worlds, stacks) as crew:
        heed(crew, crew.every("health"))
        for task in range(first, tasks.count):
            if task == tasks.initial:
                crew.spread()
            learn_task(crew, task, done if task == first else 0, watch, observe)
            watch(Moment(task + 1, 0, crew))
        crew.spread()
        return crew.stacks()


def learn_task(crew: Crew, task: int, done: int, watch: Watch, observe: Observe | None) -> None:
    """All epochs of a task that are still to do, and its end."""
    settings = crew.whole[0].settings
    epochs = settings.learner.epochs
    if done == 0:
        meet(crew, settings, task, 0, observe=observe)
        crew.every("begin")
    if task >= settings.tasks.initial - 1:  # the initial tasks before it are only met: they are learned together
        for epoch in range(done, epochs):
            if epoch:
                meet(crew, settings, task, epoch, observe=observe)
            heed(crew, crew.every("learn", epoch))
            watch(Moment(task, epoch + 1, crew))
    crew.every("end")
    meet(crew, settings, task, epochs if task >= settings.tasks.initial - 1 else 0, ended=True, observe=observe)
    heed(crew, crew.every("advance"))


def heed(crew: Crew, told: Sequence[Health]) -> None:
    """Note which lanes have ended; raise if none goes on."""
    if not crew.heed(told):
        error = gone_all(crew.ended, crew.whole[0].fleet)
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
