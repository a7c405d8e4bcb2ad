"""What a checkpoint may hold: every tensor has the type, the shape and the range that its owner gives it in such a run.

A digest says that a file is as somebody wrote it, not who. What comes from a file goes to code that takes indices as
they are, so all of it is compared with the run that it is to go on with, once, when it is loaded.
"""

from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import Tensor

from shoal.agents import memory, received
from shoal.agents.stack import CLOCK, CORE, MEAN, MODEL, PARAMS, RECORD, STEPS, VAR, Stack, start
from shoal.agents.world import World
from shoal.data.tasks import JOINT, Lane
from shoal.fleet.health import WORDS
from shoal.letters.ledger import COLUMNS
from shoal.letters.ledger import WORDS as NAMED
from shoal.runs.checkpoints import STRANGE, DamagedError
from shoal.runs.files import reason

Range = tuple[float, float]
MANY = 2.0**53  # beyond what anything is counted to
NEEDED = (*CORE, MODEL, memory.OWNER)  # owners without whose tensors no stack can go on
FREE = ("busy",)  # tensors whose shape the whole fleet decides
OWN = ("moment", "rests")  # of clocks: joint agents, who learn in lock-step, have none
HEALED = (PARAMS, MEAN)  # what is no finite number there ends its lane, and is said (shoal/fleet/health.py)


def examined(fleet: Sequence[World], stacks: Sequence[Stack]) -> None:
    """Raise if stacks do not hold what those of a run of these worlds can hold."""
    try:
        if len(fleet) != len(stacks):
            raise DamagedError(f"it has {len(stacks)} kinds of agents, and the run has {len(fleet)}")
        for world, stack in zip(fleet, stacks, strict=True):
            of_one(world, stack)
        written(fleet, stacks[0])
        if not fleet[0].fleet.clock.own and len({(stack.task, stack.epoch) for stack in stacks}) > 1:
            raise DamagedError("its kinds of agents are not at the same time")
    except STRANGE as error:
        raise DamagedError(f"it does not hold what a checkpoint does: {reason(error)}") from None


def of_one(world: World, stack: Stack) -> None:
    """Examine the stack of one kind of agents."""
    joint = tuple(dict.fromkeys(Lane(lane.seed, JOINT) for lane in world.lanes))
    if tuple(stack.lanes) not in (tuple(world.lanes), joint):
        raise DamagedError("it is of other agents or seeds than the run")
    like, lanes = start(world.some([0])), len(stack.lanes)
    there, wanted = stack.tensors, like.tensors
    exact = (*NEEDED, received.OWNER, world.settings.learner.owner)  # modes may have room for each of their peers
    for name, tensor in wanted.items():
        owner, _, inner = name.partition("/")
        if name not in there:
            if owner in NEEDED and not (inner in OWN and stack.lanes == joint):
                raise DamagedError(f"`{name}` is missing")
            continue
        known = tensor.shape[1:] if owner in exact and inner not in FREE else [None] * (tensor.ndim - 1)
        sizes = there[name].shape[1:]
        fits = len(sizes) == len(known) and all(n in (None, m) for n, m in zip(known, sizes, strict=True))
        if there[name].dtype != tensor.dtype or not fits:
            raise DamagedError(
                f"`{name}` is {there[name].dtype} {list(there[name].shape)}, and must be {tensor.dtype} "
                f"{[lanes, *tensor.shape[1:]]}"
            )
    for name, tensor in there.items():
        if tensor.shape[:1] != (lanes,):
            raise DamagedError(f"`{name}` has {list(tensor.shape[:1])} rows, and there are {lanes} agents of all seeds")
        within(name, tensor, wanted.get(name), world)
    clock = stack.states[CLOCK]
    if not world.fleet.clock.own and any(len(clock[name].unique()) > 1 for name in ("task", "epoch")):
        raise DamagedError("its agents are not at the same time")
    ended = stack.ended
    if bool((ended[:, 2] >= len(WORDS)).any()):
        raise DamagedError("`record/ended` names a cause that there is not")


def range_of(name: str, world: World) -> Range:
    """The least and the largest number that a tensor may have; of whole numbers nobody declares, any that is no more
    than what can be counted."""
    settings, model = world.settings, world.model
    owner, _, inner = name.partition("/")
    classes = int(getattr(model, "classes", len(world.bank.classes)))
    tasks, epochs, rows = settings.tasks.count, settings.learner.epochs, len(world.bank)
    room = max([settings.learner.memory, *(mode.room for mode in settings.sharing)])
    ranges: dict[str, Range] = {
        f"{CLOCK}/task": (0, tasks),
        f"{CLOCK}/epoch": (0, epochs),
        f"{RECORD}/accuracy": (-inf, 1),
        f"{RECORD}/ended": (0, max(tasks, epochs, len(WORDS))),
        f"{RECORD}/classes": (0, max(rows, classes)),
        f"{memory.OWNER}/rows": (0, rows - 1),
        f"{memory.OWNER}/fill": (0, settings.learner.memory),
        f"{received.OWNER}/fill": (0, room),
        f"{received.OWNER}/marks": (-inf, inf),
        f"{MODEL}/choice": (0, 0),
    }  # fmt: skip; marks are digests, which may be any number
    if world.bank.targets is None and settings.tasks.classes > 1:
        ranges[f"{RECORD}/accuracy"] = (0, 1)
    if hasattr(model, "basis"):
        ranges[f"{MODEL}/choice"] = (0, model.basis - 1)
    if name in ranges:
        return ranges[name]
    if owner in (STEPS, VAR) or inner in ("seen", "sent", "seconds", "fill", "count", "begun", "steps", "packed"):
        return 0, inf if owner == VAR else MANY
    if inner == "y" and world.bank.targets is None:
        return 0, classes - 1
    if inner == "task":
        return 0, tasks - 1
    if inner == "rows":
        return 0, rows - 1
    if inner == "origin":
        return -1, max(tasks, settings.agents, world.fleet.agents)
    return -MANY, MANY


def within(name: str, tensor: Tensor, like: Tensor | None, world: World) -> None:
    """Raise for a number outside of its range, or one that is none where its owner has none. `like` is what a stack
    begins with: where that has gaps, there may be gaps."""
    owner, _, _ = name.partition("/")
    if tensor.dtype == torch.bool or not tensor.numel() or owner in HEALED:
        return
    least, most = range_of(name, world)
    if tensor.is_floating_point():
        if owner == VAR or (like is not None and bool(like.isnan().any())):  # health ends a lane with such moments
            tensor = tensor[~tensor.isnan()]
        if owner in (VAR, CLOCK):  # a moment that never comes
            tensor = tensor[tensor != inf]
        if not bool(tensor.isfinite().all()):
            raise DamagedError(f"`{name}` holds values that are not finite numbers")
        if not tensor.numel():
            return
        if abs(least) == MANY:
            least, most = -inf, inf
    low, high = (one.item() for one in tensor.aminmax())
    if low < least or high > most:
        off = low if low < least else high
        raise DamagedError(f"`{name}` has {off:g}, and may have {least:g} to {most:g}")


def written(fleet: Sequence[World], stack: Stack) -> None:
    """Examine the ledger and the mail that waits."""
    settings = fleet[0].fleet
    ledger, agents = stack.ledger, settings.agents
    limits: dict[str, Range] = {
        "seed": (settings.seed, settings.seed + settings.seeds - 1), "task": (0, settings.tasks.count),
        "epoch": (0, settings.learner.epochs), "sender": (JOINT, agents - 1), "receiver": (JOINT, agents - 1),
        **dict.fromkeys(NAMED, (0, len(ledger.words) - 1)), "late": (-1, MANY),
    }  # fmt: skip
    tables = [ledger.rows, *([] if ledger.totals is None else [ledger.totals[:, : len(COLUMNS)]])]
    for table in tables:
        if table.ndim != 2 or table.dtype != "int64" or (len(table) and table.shape[1] != len(COLUMNS)):
            raise DamagedError(f"its ledger has the shape {list(table.shape)}, and {len(COLUMNS)} columns are needed")
        for at, column in enumerate(COLUMNS if len(table) else ()):
            least, most = limits.get(column, (0, MANY))
            low, high = int(table[:, at].min()), int(table[:, at].max())
            if low < least or high > most:
                raise DamagedError(f"its ledger has {low if low < least else high} as `{column}`")
    if not all(isinstance(word, str) for word in ledger.words):
        raise DamagedError("its ledger has words that are none")
    modes = {mode.mode for mode in settings.sharing}
    lanes = {lane for world in fleet for lane in (*world.lanes, *world.peers)}  # a live agent has mail of its peers
    for mail in stack.inbox:
        if mail.mode not in modes or not {mail.sender, mail.receiver} <= lanes:
            raise DamagedError("it has mail of agents or modes that the run does not have")
        for tensor in mail.payload.values():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise DamagedError("it has mail with values that are not finite numbers")


def difference(one: Stack, other: Stack, skip: Callable[[str], bool] = lambda name: False) -> str:
    """The first tensor, as `owner/name`, in which two stacks differ in any bit; empty: there is none. What one of them
    has no name for counts as zero there."""
    for name in sorted(one.tensors.keys() | other.tensors.keys()):
        if skip(name):
            continue
        first, second = one.tensors.get(name), other.tensors.get(name)
        if first is None or second is None:
            there = second if first is None else first
            if there is not None and there.any():
                return name
        elif first.shape != second.shape or not torch.equal(bits(first), bits(second)):
            return name
    return ""


def bits(tensor: Tensor) -> Tensor:
    """Numbers that can be compared bit by bit; what is no number equals itself."""
    found = tensor.detach().cpu().contiguous()
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}.get(found.dtype)
    return found if whole is None else found.view(whole)
