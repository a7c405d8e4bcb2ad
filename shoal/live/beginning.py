"""Beginning from a trained agent: one that the simulator or an earlier life left."""

from pathlib import Path

from shoal.agents.stack import CLOCK, Stack, start
from shoal.agents.world import World
from shoal.errors import UserError
from shoal.keep.agent import Agent, agents_of
from shoal.keep.going import widened
from shoal.learners import memory
from shoal.models.table import MODELS
from shoal.runs.record import reopen
from shoal.settings.groups import Settings


def trained_in(place: Path, agents: int) -> list[Agent]:
    """The agents that a finished run holds, one for each of a fleet, or the one in a file, from which all begin."""
    if place.is_file():
        return [Agent.load(place)]
    record = reopen(place)
    found = [agent for agent in agents_of(place, record.settings) if agent.seed == record.settings.seed]
    if len(found) != agents:
        raise UserError(
            f"{place} has {len(found)} agents, and the fleet {agents}; name a run of as many, or the file of one agent"
        )
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
    at, (stream,) = len(agent.told.tasks), world.streams
    there = [(task.outputs, len(task.train)) for task in stream[: stream.end]]
    if (
        agent.source.classes != world.bank.classes
        or [(met.outputs, met.rows) for met in agent.told.tasks] != there[:at]
    ):
        raise UserError(
            f"{agent.name} has learned {at} tasks, and they are not the first {at} of the {len(there)} in "
            f"`{world.bank.name}`; give the data that it has learned from, and after it what has come since"
        )
    if at >= world.settings.tasks.count:
        raise UserError(f"{agent.name} has learned all {at} tasks that the fleet has; say a larger tasks.count")
    clock = start(world).of(CLOCK)
    (stack,) = widened([world], [Stack.made(world.lanes, {name: one[None] for name, one in agent.state.items()})])
    stack.states[CLOCK] = clock
    stack.task = at
    for task in range(at):
        remembered(agent, world, stack, task)
    return stack


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
