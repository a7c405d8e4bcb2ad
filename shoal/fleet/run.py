"""The one loop: every lane learns its stream, task after task, all stacks of a fleet in lock-step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from shoal.errors import SettingsError
from shoal.fleet.engine import THREADS, crew
from shoal.fleet.evaluate import accuracy
from shoal.fleet.stack import Stack, grid, remember, start
from shoal.fleet.world import World, joint_lanes, world
from shoal.learners import grow
from shoal.learners.learn import adaptation_epoch, assimilation_epoch, initial_epoch, replay_epoch
from shoal.learners.modular import growth
from shoal.mail.post import Observe
from shoal.models import Modular
from shoal.settings.groups import Settings
from shoal.sharing.exchange import meet

# Called after every epoch and at the end of every task with the stacks as they then are; it may save, not change them.
Watch = Callable[[tuple[Stack, ...]], None]
Fleet = Sequence[tuple[World, Stack]]


def simulate(
    world: World,
    stack: Stack | None = None,
    watch: Callable[[Stack], None] = lambda stack: None,
    observe: Observe | None = None,
) -> Stack:
    """`train` a fleet of one kind, which is one stack."""
    (done,) = train([world], None if stack is None else [stack], lambda stacks: watch(stacks[0]), observe)
    return done


def train(
    worlds: Sequence[World],
    stacks: Sequence[Stack] | None = None,
    watch: Watch = lambda stacks: None,
    observe: Observe | None = None,
) -> tuple[Stack, ...]:
    """Train a fleet from the start, or on from `stacks`, one for each kind of agents, and return them at the end of
    their streams. They go in lock-step.

    With a common start, one joint agent per seed and kind learns the initial tasks and every agent begins as its copy.
    `observe` is told of every mail and what became of it.
    """
    tasks = worlds[0].settings.tasks
    with one_thread():
        fleet = together(worlds, stacks)
        while fleet[0][1].task < tasks.count:
            if fleet[0][1].task == tasks.initial:
                fleet = spread(worlds, fleet)
            learn_task(fleet, watch, observe)
            for _, stack in fleet:
                check(stack)
            watch(tuple(stack for _, stack in fleet))
        return tuple(stack for _, stack in spread(worlds, fleet))


def together(worlds: Sequence[World], stacks: Sequence[Stack] | None) -> Fleet:
    """Every stack with the world that it is in at first: that of the joint agents, or of all. They get one ledger."""
    common = worlds[0].settings.tasks.common
    fleet = []
    for at, whole in enumerate(worlds):
        first = joint_lanes(whole.lanes) if common else whole.lanes
        lanes = first if stacks is None else stacks[at].lanes
        if lanes not in (first, whole.lanes):
            raise ValueError(f"the stack is of other lanes ({lanes[0]}, ...) than the fleet ({whole.lanes[0]}, ...)")
        here = whole if lanes == whole.lanes else world(whole.settings, whole.bank, lanes)
        fleet.append((here, start(here) if stacks is None else stacks[at]))
    for _, stack in fleet[1:]:
        stack.ledger = fleet[0][1].ledger
    return fleet


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


def spread(worlds: Sequence[World], fleet: Fleet) -> Fleet:
    """Every agent of a seed as a copy of its kind's joint agent, with its own replay and a new Adam (protocol 1).

    What has no joint agents is as it was.
    """
    ends = [(whole, copies(whole, stack)) for whole, (_, stack) in zip(worlds, fleet, strict=True)]
    for _, stack in ends:
        stack.ledger = fleet[0][1].ledger
    return ends


def copies(whole: World, stack: Stack) -> Stack:
    """The stack of a world's lanes, from that of their joint agents."""
    if stack.lanes == whole.lanes:
        return stack
    row = {lane.seed: at for at, lane in enumerate(stack.lanes)}
    made = stack.take([row[lane.seed] for lane in whole.lanes], whole.lanes)
    made.forget_moments()
    for task in range(stack.task):
        remember(whole, made, task)
    return made


def learn_task(fleet: Fleet, watch: Watch, observe: Observe | None = None) -> None:
    """All epochs of the stacks' current task that are still to do, and its end."""
    settings, clock = fleet[0][0].settings, fleet[0][1]
    labels = grid(settings.learner.epochs)
    if clock.epoch == 0:
        meet(fleet, observe=observe)
        for world, stack in fleet:
            begin(world, stack)
    if clock.task >= settings.tasks.initial - 1:  # the initial tasks before it are only met: they are learned together
        for epoch in range(clock.epoch, settings.learner.epochs):
            if epoch:
                meet(fleet, observe=observe)
            learn_epoch(fleet, clock.task, epoch)
            for world, stack in fleet:
                stack.epoch = epoch + 1
                if stack.epoch in labels[:-1]:
                    measure(world, stack, labels.index(stack.epoch), grows(world, stack))
            watch(tuple(stack for _, stack in fleet))
    for world, stack in fleet:
        end(world, stack)
    meet(fleet, True, observe)
    for _, stack in fleet:
        stack.task, stack.epoch = stack.task + 1, 0


def grows(world: World, stack: Stack) -> bool:
    """Is there a candidate module in the current task?"""
    return isinstance(world.model, Modular) and stack.task >= world.settings.tasks.initial


def begin(world: World, stack: Stack) -> None:
    """What comes before the first epoch of a task."""
    settings, task = world.settings, stack.task
    measure(world, stack, 0, growing=False)
    if settings.learner.fresh_adam and task >= settings.tasks.initial:
        stack.forget_moments()
    if grows(world, stack):
        grow.begin(world, stack, task)


def end(world: World, stack: Stack) -> None:
    """What comes after the last epoch of a task."""
    if grows(world, stack):
        grow.end(world, stack, stack.task)
    measure(world, stack, len(grid(world.settings.learner.epochs)) - 1, growing=False)
    remember(world, stack, stack.task)


def learn_epoch(fleet: Fleet, task: int, epoch: int) -> None:
    """One epoch of every lane, pieces of the stacks side by side."""
    pieces = [piece for world, stack in fleet for piece in stack.pieces(world)]
    crew(pieces, lambda piece: lesson(*piece, task, epoch), fleet[0][0].settings.machine.threads or THREADS)


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
    rule, done = growth(settings).adaptation, epoch + 1
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
