"""What a stack does in a task: what comes before, an epoch, a measurement, what comes after."""

from collections.abc import Sequence

import torch

from shoal.fleet.engine import THREADS, crew
from shoal.fleet.evaluate import accuracy
from shoal.fleet.health import judge
from shoal.fleet.stack import MEAN, MODEL, PARAMS, RECORD, STEPS, VAR, Stack, class_counts, grid, sharing_state
from shoal.fleet.state import guarded
from shoal.fleet.world import World
from shoal.learners.contract import Learner
from shoal.learners.memory import remember

Fleet = Sequence[tuple[World, Stack]]


def begin(world: World, stack: Stack) -> None:
    """What comes before the first epoch of a task."""
    learner = world.settings.learner
    if world.settings.tasks.heads == "grow":
        stack.moved[:] = True  # new classes can be taken for old ones
    measure(world, stack, 0, during=False)
    if stack.task >= world.settings.tasks.initial:
        if learner.fresh_adam:
            stack.forget_moments()
        with guarded(stack, f"the learner `{learner.method}`", allowed(learner)):
            learner.begin(world, stack)


def end(world: World, stack: Stack) -> None:
    """What comes after the last epoch of a task."""
    learner, task = world.settings.learner, stack.task
    if task >= world.settings.tasks.initial - 1:
        with guarded(stack, f"the learner `{learner.method}`", allowed(learner)):
            learner.end(world, stack)
        judge(world, stack)
    measure(world, stack, len(grid(learner.epochs)) - 1, during=False)
    remember(world, stack, task)


def learn_epoch(fleet: Fleet, epoch: int) -> None:
    """One epoch of every lane, pieces of the stacks side by side."""
    pieces = [piece for world, stack in fleet for piece in stack.pieces(world)]
    crew(pieces, lambda piece: learn_piece(*piece, epoch), fleet[0][0].settings.machine.threads or THREADS)


def learn_piece(world: World, stack: Stack, epoch: int) -> None:
    """One epoch of a piece."""
    learner = world.settings.learner
    with guarded(stack, f"the learner `{learner.method}`", allowed(learner)):
        learner.epoch(world, stack, epoch)


def allowed(learner: Learner) -> tuple[str, ...]:
    """Whose state a learner may write: the net's, Adam's and its own, and what it says; `moved` is a record."""
    return PARAMS, MODEL, MEAN, VAR, STEPS, RECORD, learner.owner, *learner.writes


def measure(world: World, stack: Stack, point: int, during: bool) -> None:
    """Test every task so far and write the accuracies at a grid point (docs/protocol.md, section 4); `during` the
    current task, the learner says how well it does there."""
    task = stack.task
    now = stack.accuracy[:, task, point]
    if stack.moved.any() or task < world.settings.tasks.initial:
        now[:, :task] = accuracy(world, stack, "test", range(task))
        stack.moved[:] = False
    else:  # a modular net that assimilates trains nothing that another task uses
        before = stack.accuracy[:, task - 1, -1] if point == 0 else stack.accuracy[:, task, point - 1]
        now[:, :task] = before[:, :task]
    learner = world.settings.learner
    now[:, task] = learner.now(world, stack) if during else accuracy(world, stack, "test", [task])[:, 0]
    now[(world.ends <= task) | stack.gone] = torch.nan  # nothing is measured of a stream or a lane that has ended


def copies(whole: World, stack: Stack) -> Stack:
    """The stack of a world's lanes from that of their joint agents: every agent of a seed as a copy of its kind's, with
    its own replay and a new Adam (docs/protocol.md, section 1). What has no joint agents is as it was."""
    if stack.lanes == whole.lanes:
        return stack
    row = {lane.seed: at for at, lane in enumerate(stack.lanes)}
    made = stack.take([row[lane.seed] for lane in whole.lanes], whole.lanes)
    made.renew(sharing_state(whole))
    made.of(RECORD)["classes"] = class_counts(whole)
    made.forget_moments()
    for task in range(stack.task):
        remember(whole, made, task)
    return made
