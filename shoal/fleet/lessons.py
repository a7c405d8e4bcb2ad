"""What a stack does in a task: what comes before, an epoch, a measurement, what comes after."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor

from shoal.agents import events, released
from shoal.agents.engine import THREADS, crew
from shoal.agents.evaluate import accuracy
from shoal.agents.lanes import missed
from shoal.agents.memory import remember
from shoal.agents.stack import (
    CLOCK,
    MEAN,
    MODEL,
    PARAMS,
    RECORD,
    STEPS,
    VAR,
    Stack,
    class_counts,
    counters,
    grid,
    sharing_state,
)
from shoal.agents.state import guarded
from shoal.agents.world import World
from shoal.data.tasks import JOINT
from shoal.fleet.health import judge
from shoal.learners.contract import Learner
from shoal.learners.in_kernel import undivided
from shoal.own_code import at_moment, failed, for_whom, in_gradient, is_ours, running

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
        with (
            spared(stack, missed(world, stack.task)),
            guarded(stack, f"the learner `{learner.method}`", allowed(learner)),
            learning(learner, "begin", stack),
        ):
            learner.begin(world, stack)


def end(world: World, stack: Stack) -> None:
    """What comes after the last epoch of a task."""
    learner, task = world.settings.learner, stack.task
    away = missed(world, task)
    if task >= world.settings.tasks.initial - 1:
        with (
            spared(stack, away),
            guarded(stack, f"the learner `{learner.method}`", allowed(learner)),
            learning(learner, "end", stack),
        ):
            learner.end(world, stack)
        judge(world, stack)
        if away:
            stack.of(RECORD)["training"][away, task] = torch.nan
    measure(world, stack, len(grid(learner.epochs)) - 1, during=False)
    with spared(stack, away):
        remember(world, stack, task)


def learn_epoch(fleet: Fleet, epoch: int | None = None) -> None:
    """An epoch, or the next by the clock of each stack, of every lane that is there, pieces of stacks side by side."""
    if len(fleet) == 1 and undivided(fleet[0][0]):
        pieces = list(fleet)
    else:
        pieces = [piece for world, stack in fleet for piece in stack.pieces(world)]
    threads = fleet[0][0].settings.machine.threads or THREADS if fleet else 1
    with ExitStack() as all_:
        for world, stack in fleet:
            all_.enter_context(spared(stack, away(world, stack, stack.epoch if epoch is None else epoch)))
        crew(pieces, lambda piece: learn_piece(*piece, piece[1].epoch if epoch is None else epoch), threads)


def away(world: World, stack: Stack, epoch: int) -> list[int]:
    """The rows of lanes that are absent in an epoch of the task."""
    absent = world.absent(stack.task * world.settings.learner.epochs + epoch)
    return [row for row, lane in enumerate(stack.lanes) if lane in absent]


@contextmanager
def spared(stack: Stack, rows: Sequence[int]) -> Iterator[None]:
    """Lanes in some rows keep all that is theirs, whatever is done inside; only records go on. They go through the same
    kernels as all others, because a stack of another shape could give other lanes other bits."""
    if not rows:
        yield
        return
    at = torch.tensor(rows)

    def theirs() -> Iterator[tuple[tuple[str, str], Tensor]]:
        for owner, state in stack.states.items():
            if owner not in (CLOCK, RECORD):
                yield from (((owner, name), tensor) for name, tensor in state.items())

    before = {name: tensor[at.to(tensor.device)] for name, tensor in theirs()}
    yield
    for name, tensor in theirs():
        old = before.get(name)
        tensor[at.to(tensor.device)] = 0 if old is None else old  # what is new is as if they had not written it


def learn_piece(world: World, stack: Stack, epoch: int) -> None:
    """One epoch of a piece."""
    learner = world.settings.learner
    with (
        guarded(stack, f"the learner `{learner.method}`", allowed(learner)),
        learning(learner, "epoch", stack),
        at_moment(lambda: for_whom(stack.lanes, stack.task, stack.epoch)),
        backwards(world, stack),
        intact(world, learner),
    ):
        learner.epoch(world, stack, epoch)


def learning(learner: Learner, verb: str, stack: Stack) -> AbstractContextManager[None]:
    """What goes wrong inside goes wrong in a verb of the learner."""
    what = f"`{verb}` of the learner `{learner.method}`"
    return running(learner, what, lambda: for_whom(stack.lanes, stack.task, stack.epoch))


@contextmanager
def backwards(world: World, stack: Stack) -> Iterator[None]:
    """Where torch cannot follow a loss back to the weights, what of it is not shoal's own is at fault."""
    try:
        yield
    except RuntimeError as error:
        settings = world.settings
        nets = [(f"the net `{settings.model}`", getattr(world.model, "make", world.model))]
        terms: list[tuple[str, object]] = [(f"the penalty of `{one.owner}`", one) for one in settings.sharing]
        terms.append((f"the penalty of `{settings.learner.owner}`", settings.learner))
        theirs = [name for name, thing in (*nets, *terms) if not is_ours(thing)]
        if not theirs or not in_gradient(error):
            raise
        where = for_whom(stack.lanes, stack.task, stack.epoch)
        raise failed(error, f"the gradient of {' or '.join(theirs)}", where) from error


@contextmanager
def intact(world: World, learner: Learner) -> Iterator[None]:
    """Raise if a learner writes into the data, which all agents share."""
    shared = [("inputs", world.inputs), ("train.rows", world.train.rows), ("train.labels", world.train.labels)]
    before = [tensor._version for _, tensor in shared]
    yield
    for (name, tensor), version in zip(shared, before, strict=True):
        if tensor._version != version:
            raise TypeError(
                f"the learner `{learner.method}` wrote `world.{name}`, which all agents learn from; copy it first"
            )


def allowed(learner: Learner) -> tuple[str, ...]:
    """Whose state a learner may write: the net's, Adam's and its own, and what it says; `moved` is a record."""
    return PARAMS, MODEL, MEAN, VAR, STEPS, RECORD, learner.owner, *learner.writes


def measure(world: World, stack: Stack, point: int, during: bool) -> None:
    """Test every task so far and write the accuracies at a grid point (docs/protocol.md, section 4); `during` the
    current task, the learner says how well it does there."""
    with at_moment(lambda: for_whom(stack.lanes, stack.task, stack.epoch)):
        tested(world, stack, point, during)
    stamp(world, stack, point)


def tested(world: World, stack: Stack, point: int, during: bool) -> None:
    """What `measure` writes of accuracies."""
    task = stack.task
    now = stack.accuracy[:, task, point]
    if stack.moved.any() or task < world.settings.tasks.initial:
        now[:, :task] = accuracy(world, stack, "test", range(task))
        stack.moved[:] = False
    else:  # a modular net that assimilates trains nothing that another task uses
        before = stack.accuracy[:, task - 1, -1] if point == 0 else stack.accuracy[:, task, point - 1]
        now[:, :task] = before[:, :task]
    learner = world.settings.learner
    with learning(learner, "now", stack):
        now[:, task] = learner.now(world, stack) if during else accuracy(world, stack, "test", [task])[:, 0]
    now[(world.ends <= task) | stack.gone] = torch.nan  # nothing is measured of a stream or a lane that has ended


def stamp(world: World, stack: Stack, point: int) -> None:
    """Note what lanes have spent by the time of a measurement, where seconds are counted."""
    record, clock = stack.of(RECORD), world.fleet.clock
    if "spent" not in record or stack.lanes[0].agent == JOINT:
        return
    sent, steps = stack.clock["sent"].double(), record["steps"].double()
    step, byte = (
        torch.tensor([clock.of(name, lane.agent) for lane in stack.lanes], dtype=torch.float64)
        for name in ("step_joules", "byte_joules")
    )
    told = torch.stack([stack.clock["seconds"], steps * step + sent * byte, sent], 1)
    record["spent"][:, stack.task, point] = told.masked_fill(stack.gone[:, None], torch.nan)


def copies(whole: World, stack: Stack) -> Stack:
    """The stack of a world's lanes from that of their joint agents: every agent of a seed as a copy of its kind's, with
    its own replay and a new Adam (docs/protocol.md, section 1). What has no joint agents is as it was."""
    if stack.lanes == whole.lanes:
        return stack
    row = {lane.seed: at for at, lane in enumerate(stack.lanes)}
    made = stack.take([row[lane.seed] for lane in whole.lanes], whole.lanes)
    made.renew(sharing_state(whole))
    for mode in whole.settings.sharing:
        made.of(mode.owner).update(mode.begins(whole, made))
    if whole.fleet.privacy:
        made.of(released.OWNER).update(released.begun(whole, made.params))
    made.of(RECORD)["classes"] = class_counts(whole)
    made.of(RECORD).update(counters(whole))
    made.clock.update(events.init(whole))
    made.forget_moments()
    for task in range(stack.task):
        remember(whole, made, task)
    return made
