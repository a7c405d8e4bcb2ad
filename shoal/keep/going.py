"""Going on: a finished run learns tasks that have come since, from its weights, memories, modules, ledger and clocks.

To learn two weeks at once as two tasks, and to learn one, save it, and go on with the next, come to the same bits.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from shoal import data
from shoal.agents.stack import PARAMS, Stack, start
from shoal.agents.world import World
from shoal.data.bank import Bank
from shoal.data.scenarios import by_name
from shoal.data.sources import Data, bring, is_source, read
from shoal.data.sources.arrays import named
from shoal.data.tasks import NAMED
from shoal.errors import UserError
from shoal.models.table import MODELS
from shoal.runs import rows
from shoal.runs.execute import carry_out, prepare
from shoal.runs.held import held
from shoal.runs.record import Record, create
from shoal.settings.groups import Settings, Tasks
from shoal.units import listed

if TYPE_CHECKING:
    from shoal.fleet.run import Watch


def brought(given: Any) -> Data:
    """Rows that have come, as data: a `Data`, a pair (x, y), or a name such as csv:FILE?label=NAME."""
    if isinstance(given, str) and is_source(given):
        return read(given)
    if isinstance(given, tuple) and len(given) == 2:
        return Data.from_arrays(*given)
    if not isinstance(given, Data):
        what = repr(given) if isinstance(given, str) else type(given).__name__
        raise UserError(
            f"a fleet cannot go on with {what}; give shoal.Data.from_table(...) or from_arrays(...), a "
            "pair (x, y), or a name such as csv:FILE?label=NAME"
        )
    return given


def settings_for(settings: Settings, new: Bank) -> Settings:
    """The settings of a run that goes on with the rows of a new bank, whose data has all rows."""
    tasks = settings.tasks
    if tasks.scenario != NAMED:
        raise UserError(
            f'tasks.scenario = "{tasks.scenario}" deals out all tasks at the start, so no more can come; name the task '
            "of each row (task=...), and run it again"
        )
    refused(settings)
    old = data.load(settings.dataset, Path(settings.machine.data) if settings.machine.data else None)
    both = Data(joined(old, new, tasks.count))
    in_step(old, new, tasks)
    assert both.bank.task is not None
    most = int(both.bank.task.max()) + 1
    return settings.model_copy(update={"dataset": bring(both), "tasks": tasks.model_copy(update={"count": most})})


def refused(settings: Settings) -> None:
    """Raise for what divides its room by the number of tasks, or fixes them in advance."""
    for name in settings.names:
        own = settings.of(name)
        parts: list[tuple[str, str, Any]] = [("model", own.model, None), ("learner", own.learner.method, own.learner)]
        parts += [("sharing mode", mode.mode, mode) for mode in own.sharing]
        for noun, word, part in parts:
            why = MODELS.find(own.model).fixed if part is None else getattr(part, "fixed", "")
            if why:
                raise UserError(
                    f"the {noun} `{word}` cannot go on with more tasks, because {why}; run all tasks at once"
                )
    if settings.clock.own:
        raise UserError("agents with clocks of their own know when their tasks come; run all tasks at once")


def in_step(old: Bank, new: Bank, tasks: Tasks) -> None:
    """Raise if what has come would not be the next task of an agent, or would move the outputs of its head."""
    assert old.task is not None
    for site in np.unique(new.source):
        name = new.sources[site]
        at = old.sources.index(name) if name in old.sources else 0
        if (met := len(np.unique(old.task[old.source == at]))) < tasks.count:
            raise UserError(
                f"{name} has learned {met} tasks and others {tasks.count}, and a fleet goes on with one task after the "
                "other; leave out its rows and give them to its agent (agent.learn), or run all tasks at once"
            )
    strange = [one for one in new.classes if one not in old.classes]
    if old.targets is None and by_name(tasks) and strange:
        raise UserError(
            f'with tasks.heads = "{tasks.heads}" a head has an output for every class of the data, and {strange[0]!r} '
            "is new; give such rows to agents alone (agent.learn), or run all tasks at once"
        )


def joined(old: Bank, new: Bank, count: int) -> Bank:
    """One bank of what agents have learned from and of what has come, whose tasks follow the first `count`."""
    if new.images.shape[1:] != old.images.shape[1:] or [c.name for c in new.columns] != [c.name for c in old.columns]:
        has, had = (listed([c.name for c in one.columns]) or str(list(one.images.shape[1:])) for one in (new, old))
        raise UserError(f"the new rows have {has}, and the agents learned from {had}; give rows of the same columns")
    if [c.words for c in new.columns] != [c.words for c in old.columns]:
        raise UserError("the columns of words have other words in the new rows; run all tasks at once")
    if (new.targets is None) != (old.targets is None) or new.scale != old.scale or new.peak > old.peak:
        raise UserError("the new rows are of another kind than those that the agents learned from; give such as these")
    if strange := [site for site in new.sources if site not in old.sources and len(old.sources) > 1]:
        raise UserError(f"no agent is at {strange[0]!r}; there are {listed(old.sources)}; leave out such rows")
    where = np.array([old.sources.index(site) if site in old.sources else 0 for site in new.sources])
    words = np.array([*old.classes, *new.classes])
    ids, classes = named(words, "y") if old.targets is None else (np.zeros(2, np.int64), old.classes)
    first, second = np.split(ids, [len(old.classes)]) if old.targets is None else (ids[:1], ids[1:])
    later = np.zeros(len(new), np.int64) if new.task is None else new.task
    assert old.task is not None

    def both(name: str) -> Any:
        parts = [getattr(one, name) for one in (old, new)]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    return replace(
        old,
        images=both("images"),
        labels=np.concatenate([first[old.labels], second[new.labels]]),
        source=np.concatenate([old.source, where[new.source]]),
        test=both("test"),
        classes=classes,
        task=np.concatenate([old.task, count + later]),
        time=both("time"),
        targets=both("targets"),
    )


def widened(worlds: Sequence[World], before: Sequence[Stack]) -> tuple[Stack, ...]:
    """Stacks in which there is room for further tasks, with all that was learned in its place."""
    found = []
    for world, old in zip(worlds, before, strict=True):
        flat = start(world).tensors
        for name, tensor in old.tensors.items():
            like = f"{PARAMS}/{name.partition('/')[2]}"  # what came up on the way may be a copy of the net
            room = flat.get(name, flat.get(like, tensor))
            flat[name] = placed(name, tensor, room)
        made = Stack.made(world.lanes, flat, before[0].ledger)
        made.inbox = old.inbox
        found.append(made)
    return tuple(found)


def placed(name: str, old: Tensor, room: Tensor) -> Tensor:
    """What was learned in the first corner of a larger room."""
    if old.shape == room.shape:
        return old
    if old.ndim != room.ndim or any(a > b for a, b in zip(old.shape, room.shape, strict=True)):
        raise UserError(
            f"`{name}` has no room for more tasks ({list(old.shape)} to {list(room.shape)}); run all at once"
        )
    found = room.clone()
    found[tuple(slice(side) for side in old.shape)] = old
    return found


def go_on(folder: Path, settings: Settings, grown: Settings, out: Path, show: "Watch", kept: bool) -> None:
    """Let the run in a folder go on with the rows of grown settings, as a run of its own in `out`, where all rows are
    `kept`, so that it can go on once more. If that was begun before, it is ended; if it is finished, it stays."""
    record = held(out, grown)
    if record is not None and record.finished:
        return
    stacks = Record(folder, settings).load(prepare(settings))
    if stacks is None:
        raise UserError(f"{folder} has no checkpoint to go on from; make the run again")
    worlds = prepare(grown)
    begun = widened(worlds, stacks)
    if record is None:
        record = create(out, grown)
    if kept and not (out / rows.NAME).exists():
        rows.keep(record, data.load(grown.dataset))
    carry_out(worlds, record, show, begun=begun)
