"""The one loop: every lane learns its stream, task after task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from shoal import grow
from shoal.config import Settings, SettingsError
from shoal.engine import crew
from shoal.evaluate import accuracy
from shoal.learn import adaptation_epoch, assimilation_epoch, initial_epoch, replay_epoch
from shoal.models import Modular
from shoal.sharing import exchange
from shoal.stack import Stack, grid, remember, start
from shoal.world import World, joint_lanes, world

# Called after every epoch and at the end of every task with the stack as it then is; it may save it, not change it.
Watch = Callable[[Stack], None]


def simulate(fleet: World, stack: Stack | None = None, watch: Watch = lambda stack: None) -> Stack:
    """Train a fleet from the start, or on from `stack`, and return it at the end of its stream.

    With a common start, one joint agent per seed learns the initial tasks and every agent begins as its copy.
    """
    settings = fleet.settings
    first = joint_lanes(fleet.lanes) if settings.tasks.common else fleet.lanes
    if stack is not None and stack.lanes not in (first, fleet.lanes):
        raise ValueError(f"the stack is of other lanes ({stack.lanes[0]}, ...) than the fleet ({fleet.lanes[0]}, ...)")
    lanes = first if stack is None else stack.lanes
    here = fleet if lanes == fleet.lanes else world(settings, fleet.bank, lanes)
    with one_thread():
        if stack is None:
            stack = start(here)
        while stack.task < settings.tasks.count:
            if stack.task == settings.tasks.initial and stack.lanes != fleet.lanes:
                stack, here = spread(fleet, stack), fleet
            learn_task(here, stack, watch)
            check(stack)
            watch(stack)
        return stack if stack.lanes == fleet.lanes else spread(fleet, stack)


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


def check(stack: Stack) -> None:
    """Raise if a lane has diverged: its accuracies would be chance, and look like a result."""
    bad = torch.stack([~tensor.flatten(1).isfinite().all(1) for tensor in stack.params.values()]).any(0)
    if bad.any():
        lane = stack.lanes[int(bad.nonzero()[0])]
        raise SettingsError(
            f"agent {lane.agent} of seed {lane.seed} diverged at task {stack.task}: "
            "its weights are no numbers any more; lower learner.rate"
        )


def spread(fleet: World, stack: Stack) -> Stack:
    """Every agent of a seed as a copy of the seed's joint agent, with its own replay and a new Adam (protocol 1)."""
    row = {lane.seed: at for at, lane in enumerate(stack.lanes)}
    copies = stack.take([row[lane.seed] for lane in fleet.lanes], fleet.lanes)
    copies.forget_moments()
    for task in range(stack.task):
        remember(fleet, copies, task)
    return copies


def learn_task(world: World, stack: Stack, watch: Watch) -> None:
    """All epochs of the stack's current task that are still to do, and its end."""
    settings, task = world.settings, stack.task
    labels = grid(settings.learner.epochs)
    growing = isinstance(world.model, Modular) and task >= settings.tasks.initial
    if stack.epoch == 0:
        exchange(world, stack)
        measure(world, stack, 0, growing=False)
        if settings.learner.fresh_adam and task >= settings.tasks.initial:
            stack.forget_moments()
        if growing:
            grow.begin(world, stack, task)
    if task >= settings.tasks.initial - 1:  # the initial tasks before it are only met: they are learned together
        for epoch in range(stack.epoch, settings.learner.epochs):
            if epoch:
                exchange(world, stack)
            learn_epoch(world, stack, task, epoch)
            stack.epoch = epoch + 1
            if stack.epoch in labels[:-1]:
                measure(world, stack, labels.index(stack.epoch), growing)
            watch(stack)
    if growing:
        grow.end(world, stack, task)
    measure(world, stack, len(labels) - 1, growing=False)
    remember(world, stack, task)
    exchange(world, stack, ended=True)
    stack.task, stack.epoch = task + 1, 0


def learn_epoch(world: World, stack: Stack, task: int, epoch: int) -> None:
    """One epoch of every lane, pieces of the stack side by side."""
    crew(stack.pieces(world), lambda piece: lesson(*piece, task, epoch))


def lesson(world: World, stack: Stack, task: int, epoch: int) -> None:
    """One epoch of whichever learner the model and the clock ask for."""
    if task < world.settings.tasks.initial:
        initial_epoch(world, stack, epoch)
    elif not isinstance(world.model, Modular):
        replay_epoch(world, stack, task, epoch)
    elif adapts(world.settings, epoch):
        adaptation_epoch(world, stack, task, epoch)
    else:
        assimilation_epoch(world, stack, task, epoch)


def adapts(settings: Settings, epoch: int) -> bool:
    """Does this epoch of a modular net adapt all modules?"""
    rule, done = settings.learner.adaptation, epoch + 1
    if isinstance(rule, int):
        return done % rule == 0
    return rule == "last" and done == settings.learner.epochs


def measure(world: World, stack: Stack, point: int, growing: bool) -> None:
    """Test every task so far and write the accuracies at a grid point (protocol 4)."""
    task = stack.task
    now = stack.accuracy[:, task, point]
    if stack.moved.any() or task < world.settings.tasks.initial:
        now[:, :task] = accuracy(world, stack, "test", range(task))
        stack.moved[:] = False
    else:  # a modular net that assimilates trains nothing that another task uses
        before = stack.accuracy[:, task - 1, -1] if point == 0 else stack.accuracy[:, task, point - 1]
        now[:, :task] = before[:, :task]
    now[:, task] = grow.current(world, stack, task) if growing else accuracy(world, stack, "test", [task])[:, 0]
