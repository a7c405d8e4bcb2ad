"""Beginning from a trained agent: one that the simulator or an earlier life left."""

from collections.abc import Iterable
from pathlib import Path

from shoal.agents import memory, received
from shoal.agents.stack import CLOCK, Stack, start
from shoal.agents.world import World
from shoal.data.scaling import Scaling
from shoal.errors import UserError
from shoal.keep.agent import Agent, agents_of
from shoal.keep.going import widened
from shoal.models.table import MODELS
from shoal.runs.record import reopen
from shoal.settings.groups import Settings


def trained_in(places: Iterable[Path], agents: int) -> dict[int, Agent]:
    """The trained agents that files hold, and the first seeds of finished runs, by their numbers."""
    found: dict[int, Agent] = {}
    for place in places:
        if place.is_file():
            some = [Agent.load(place)]
        else:
            settings = reopen(place).settings
            some = [agent for agent in agents_of(place, settings) if agent.seed == settings.seed]
        found |= {agent.told.lane.agent: agent for agent in some}
        if strange := [agent.name for agent in some if not 0 <= agent.told.lane.agent < agents]:
            raise UserError(f"{place} has {strange[0]}, and the fleet has {agents} agents; leave it out")
    return found


def loaded(file: Path, settings: Settings) -> Agent:
    """The trained agent in a file; a net of one's own is that of the settings, which were allowed to name it."""
    return Agent.load(file, trust=settings.model not in MODELS.built_in)


def begun(agent: Agent, world: World) -> Stack:
    """The stack of an agent of a fleet that goes on from a trained one, at the task after those that it has learned:
    they must be the first of its stream."""
    if agent.ended:
        raise UserError(agent.ended)
    if not agent.whole:
        raise UserError(f"{agent.name} was saved without its memory, and cannot go on; save it with memory=True")
    if agent.seed != world.settings.seed:
        raise UserError(
            f"{agent.name} learned with seed {agent.seed}, not {world.settings.seed}; say seed={agent.seed}"
        )
    at, (stream,) = len(agent.told.tasks), world.streams
    there = [(task.outputs, len(task.train)) for task in stream[: stream.end]]
    before = [(met.outputs, met.rows) for met in agent.told.tasks]
    known = before, agent.source.classes, scaled(agent.told.scaling)
    if known != (there[:at], world.bank.classes, scaled(world.scales[0])):
        raise UserError(
            f"{agent.name} has learned {at} tasks, and they are not the first {at} of the {len(there)} in "
            f"`{world.bank.name}`; give the data that it has learned from, and after it what has come since"
        )
    if at >= world.settings.tasks.count:
        raise UserError(f"{agent.name} has learned all {at} tasks that the fleet has; say a larger tasks.count")
    fresh = start(world)
    state = {name: one[None] for name, one in agent.state.items() if name.partition("/")[0] in fresh.states}
    room, had = (one.get(f"{received.OWNER}/y") for one in (fresh.tensors, state))
    if room is not None and had is not None and had.shape[2] > room.shape[2]:  # by other modes than now
        state = {name: one for name, one in state.items() if not name.startswith(f"{received.OWNER}/")}
    (stack,) = widened([world], [Stack.made(world.lanes, state)])
    stack.states[CLOCK] = fresh.of(CLOCK)
    stack.task = at
    for task in range(at):
        remembered(agent, world, stack, task)
    return stack


def scaled(scale: Scaling | None) -> object:
    """By how much rows are moved and stretched."""
    return None if scale is None else (scale.shift.ravel().tolist(), scale.spread.ravel().tolist())


def remembered(agent: Agent, world: World, stack: Stack, task: int) -> None:
    """Which rows of this world an agent remembers of a task: the same ones, whatever their numbers were before."""
    kept, split = stack.of(memory.OWNER), world.train
    here = world.inputs[split.rows[0, task, : split.sizes[0, task]]].flatten(1)
    for place in range(int(kept["fill"][0, task])):
        same = (here == kept["x"][0, task, place].flatten()).all(1).nonzero()
        if not len(same):
            raise UserError(
                f"{agent.name} remembers a row of task {task + 1} that is not in `{world.bank.name}`; give the data "
                "that it has learned from, and after it what has come since"
            )
        kept["rows"][0, task, place] = int(world.streams[0][task].train[int(same[0])])
