"""Common starts: what joint agents have learned of the initial tasks, kept so that runs that differ in what they share
afterwards need not learn it again. A run from a kept start is bit for bit the run without."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch

import shoal
from shoal.agents.lanes import joint_lanes
from shoal.agents.stack import Stack, sharing_state, start
from shoal.agents.world import World
from shoal.data.draws import chosen
from shoal.data.sources import is_source
from shoal.runs.about import FORMAT, commit
from shoal.runs.files import RecordError
from shoal.runs.record import Record
from shoal.settings.groups import FAIR, Network, Recording, Settings


def alone(settings: Settings) -> Settings:
    """The settings as far as a common start depends on them; the rest is as if nobody had said anything."""
    own = type(settings.learner).model_fields
    learner = {name: own[name].default for name in settings.learner.later}
    return settings.model_copy(
        update={
            "agents": settings.agents if chosen(settings.tasks.draw).together else 1,
            "protocol": FAIR,
            "network": Network(),
            "sharing": (),
            "kinds": (),
            "record": Recording(),
            "learner": settings.learner.model_copy(update=learner),
        }
    )


def identity(settings: Settings, kernel: str = "torch") -> str:
    """Eight letters that name all that a common start depends on, to the last bit: the code, too, as far as a commit
    names it."""
    machine = settings.machine
    code = shoal.__version__, commit(), torch.__version__, FORMAT
    said = (*code, machine.device, machine.engine, kernel, alone(settings).identity())
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:8]


def common(settings: Settings) -> bool:
    """Does the run begin with joint agents whom sharing cannot touch?"""
    initial = settings.tasks.initial
    return settings.tasks.common and all(mode.first(initial) >= initial and not mode.spare for mode in settings.sharing)


def record(world: World, folder: Path) -> Record:
    """Where the start of a world is kept; files of one's own can change, so their content is in its name."""
    settings = world.settings
    content = f"-{world.bank.digest}" if is_source(settings.dataset) else ""
    return Record(folder / f"{identity(settings, world.kernel)}{content}", alone(settings))


def keep(fleet: Sequence[World], stacks: Sequence[Stack], folder: Path) -> None:
    """Keep the stack of a fleet of one kind if it is a common start just learned. If it cannot be written, the run does
    without."""
    world, stack, settings = fleet[0], stacks[0], fleet[0].settings
    learned = (stack.task, stack.epoch) == (settings.tasks.initial, 0) and stack.lanes != world.lanes
    if len(fleet) > 1 or not common(settings) or not learned or stack.silent:
        return
    kept = record(world, folder)
    try:
        kept.folder.mkdir(parents=True, exist_ok=True)
        kept.save([stack])
        kept.forget()
    except (OSError, RecordError):
        pass


def find(fleet: Sequence[World], folder: Path) -> tuple[Stack, ...] | None:
    """The kept start of a fleet of one kind, ready to go on from, or None if there is none that is whole."""
    world, settings = fleet[0], fleet[0].settings
    if len(fleet) > 1 or not common(settings):
        return None
    lanes, shared = joint_lanes(world.lanes), {owner for owner, _ in sharing_state(world)}

    def wanted(found: tuple[Stack, ...]) -> tuple[Stack, ...]:
        """What belongs to sharing begins anew in every run that goes on from here."""
        names = {name: one for name, one in start(world).tensors.items() if name.partition("/")[0] not in shared}
        kept = found[0].tensors
        if found[0].lanes != lanes or any(kept[name].shape[1:] != one.shape[1:] for name, one in names.items()):
            raise ValueError("it is of another start")
        return (Stack.made(lanes, {name: kept[name] for name in names}),)

    try:
        return record(world, folder).load(fleet, wanted)
    except RecordError:
        return None
