"""Worlds as they are made: streams drawn, rows read as models read them, for each kind of agents."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from shoal.agents.lanes import NAMES, Held, Place, Split
from shoal.agents.world import World
from shoal.compiled.recurrent import InKernel
from shoal.data import Bank
from shoal.data.scaling import Scaling, scaling
from shoal.data.scenarios import seen, streams
from shoal.data.tasks import JOINT, NAMED, Lane, Stream, lanes_of
from shoal.errors import SettingsError
from shoal.models.contract import Model
from shoal.models.table import build
from shoal.settings.groups import Settings


def worlds(
    settings: Settings, bank: Bank, lanes: Sequence[Lane] | None = None, peers: Sequence[Lane] | None = None
) -> tuple[World, ...]:
    """A world for each kind of agents, with its part of `lanes` (all of the settings' lanes if not given), among
    `peers` (these lanes alone, if not given)."""
    everybody = lanes is None
    lanes = tuple(lanes_of(settings) if lanes is None else lanes)
    peers = lanes if peers is None else tuple(peers)
    found = []
    for name, agents in settings.members().items():
        part = [lane for lane in lanes if lane.agent in agents]
        if part:
            found.append(replace(world(settings.of(name), bank, part), fleet=settings, peers=peers))
    most = max(int(one.ends.max()) for one in found)
    if everybody and most < settings.tasks.count:
        raise SettingsError(
            f"no agent has more than {most} tasks in `{bank.name}`, but tasks.count is {settings.tasks.count}; say "
            f"tasks.count={most}"
        )
    return tuple(found)


def world(settings: Settings, bank: Bank, lanes: Sequence[Lane] | None = None) -> World:
    """The world of `lanes` (all of the settings' lanes if not given), all of one kind."""
    if settings.kinds:
        raise ValueError("agents of several kinds have a world for each kind; use `worlds`")
    lanes = tuple(lanes_of(settings) if lanes is None else lanes)
    device, bank = device_of(settings), seen(bank, settings)
    model = build(settings, bank)
    drawn = streams(bank, settings, lanes)
    aims = [judged(settings, stream) for stream in drawn]
    scales = scaled(bank, aims)
    places, read = placed(bank, model, lanes, drawn, scales)
    mine = [places[reader(lane, scale)] for lane, scale in zip(lanes, scales, strict=True)]
    train, validation, test = (split(bank, name, lanes, drawn, mine, device, aims) for name in NAMES)
    place = bank, model, lanes, drawn, scales, device, Held(lambda most: read(most).to(device))
    made = World(settings, settings, lanes, *place, train, validation, test)
    if settings.machine.kernel == "compiled" and made.uncompiled:
        raise SettingsError(
            f'machine.kernel = "compiled" cannot be, because {made.uncompiled}; say machine.kernel=auto'
        )
    if made.recurrent:
        for part in getattr(model, "recurrent", ()):
            part.steps = InKernel
    return made


def scaled(bank: Bank, streams: Sequence[Stream]) -> tuple[Scaling | None, ...]:
    """How each lane scales what it reads, by its own training rows; None: as the bank says for all."""
    if bank.scale != "standard":
        return (None,) * len(streams)
    return tuple(scaling(bank, np.unique(np.concatenate([task.train for task in stream]))) for stream in streams)


def reader(lane: Lane, scale: Scaling | None) -> Lane:
    """Whose eyes a lane reads with: those of its seed, or its own."""
    return Lane(lane.seed, JOINT) if scale is None else lane


def placed(
    bank: Bank, model: Model, lanes: Sequence[Lane], drawn: Sequence[Stream], scales: Sequence[Scaling | None]
) -> tuple[dict[Lane, Place], Callable[[int | None], Tensor]]:
    """Where the images of a lane are among what the model reads, each image once, and what reads them all, or so many
    of each reader. Lanes of a seed share what they read alike, and seeds what does not depend on the seed."""
    met: dict[Lane, list[np.ndarray]] = {}
    for lane, stream, scale in zip(lanes, drawn, scales, strict=True):
        met.setdefault(reader(lane, scale), []).extend(getattr(task, name) for task in stream for name in NAMES)
    used = {who: np.unique(np.concatenate(rows)) for who, rows in met.items()}
    if not model.seeded and bank.scale != "standard":
        together = np.unique(np.concatenate(list(used.values())))
        return dict.fromkeys(used, Place(0, together)), lambda most: model.encode(
            bank.take(together[:most]), bank.peak, 0
        )
    how = {reader(lane, scale): scale for lane, scale in zip(lanes, scales, strict=True)}
    firsts = accumulate(map(len, used.values()), initial=0)
    places = {who: Place(first, rows) for first, (who, rows) in zip(firsts, used.items(), strict=False)}

    def read(who: Lane, rows: np.ndarray) -> Tensor:
        scale = how[who]
        seen = bank.take(rows) if scale is None else scale.apply(bank.take(rows))
        return model.encode(seen, bank.peak, who.seed)

    return places, lambda most: torch.cat([read(who, rows[:most]) for who, rows in used.items()])


def split(
    bank: Bank,
    name: str,
    lanes: Sequence[Lane],
    drawn: Sequence[Stream],
    places: Sequence[Place],
    device: torch.device,
    aims: Sequence[Stream],
) -> Split:
    """The images `name` of all tasks, padded to the longest; numbers to predict are scaled by the tasks in `aims`."""
    held = [[getattr(task, name) for task in stream] for stream in drawn]
    counts = torch.tensor([[len(rows) for rows in stream] for stream in held])
    shape = (*counts.shape, int(counts.max()))
    rows = np.zeros(shape, np.int64)
    labels = (
        np.zeros(shape, np.int64) if bank.targets is None else np.zeros((*shape, bank.targets.shape[1]), np.float32)
    )
    for i, (stream, (first, known)) in enumerate(zip(drawn, places, strict=True)):
        for t, task in enumerate(stream):
            n = len(held[i][t])
            rows[i, t, :n] = first + np.searchsorted(known, held[i][t])
            labels[i, t, :n] = (
                task.labels(bank, held[i][t]) if bank.targets is None else targets(bank, aims[i], held[i][t])
            )
    return Split(torch.from_numpy(rows).to(device), torch.from_numpy(labels).to(device), counts)


def judged(settings: Settings, stream: Stream) -> Stream:
    """The tasks whose rows say how a lane scales: all, or the initial ones where the data names its tasks, for then
    more may come later."""
    return stream[: settings.tasks.initial] if settings.tasks.scenario == NAMED else stream


def targets(bank: Bank, stream: Stream, rows: np.ndarray) -> np.ndarray:
    """What a lane predicts for some rows, in its own unit."""
    assert bank.targets is not None
    shift, spread = units(bank, stream)
    found: np.ndarray = ((bank.targets[bank.base(rows)] - shift) / spread).astype(np.float32)
    return found


def units(bank: Bank, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """By how much a lane moves and stretches the numbers that it predicts, [D] each: the mean and spread of its own
    training rows; what is the same in all of them is moved only."""
    assert bank.targets is not None
    own = bank.targets[bank.base(np.unique(np.concatenate([task.train for task in stream])))].astype(np.float64)
    constant = (own == own[0]).all(0)
    return np.where(constant, own[0], own.mean(0)), np.where(constant, 1, own.std(0))


def device_of(settings: Settings) -> torch.device:
    """The device the settings name, if this machine has it."""
    name = settings.machine.device
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        have = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise SettingsError(f"machine.device = {name!r} is not on this machine; it has: {', '.join(have)}") from None
    return device
