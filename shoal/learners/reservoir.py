"""A memory over the stream: of all images that an agent has learned from, each is kept with equal chance (Vitter 1985,
doi:10.1145/3147.3165). It is as large as the replay memories of all tasks together."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from shoal.agents.engine import each
from shoal.agents.stack import Stack
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.learners.batches import Batch
from shoal.learners.usual import masks, usage_of
from shoal.models.contract import Model, Usage
from shoal.models.heads import parted
from shoal.models.params import Params

Rngs = Sequence[np.random.Generator]


def init(world: World, logits: bool = False) -> dict[str, Tensor]:
    """Inputs x[L, room, ...], their labels y and tasks, how many there have been (`seen` [L]) and, if `logits`, what
    the net said of each when it came (`said` [L, room, K])."""
    settings, inputs, labels = world.settings, world.inputs, world.train.labels
    room = (len(world.lanes), settings.learner.memory * settings.tasks.count)
    found = {
        "x": torch.zeros(*room, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        "y": torch.zeros(*room, *labels.shape[3:], dtype=labels.dtype, device=world.device),
        "task": torch.zeros(room, dtype=torch.int64, device=world.device),
        "seen": torch.zeros(room[0], dtype=torch.int64),
    }
    outputs = world.open.shape[2]
    return found | ({"said": torch.zeros(*room, outputs, device=world.device)} if logits else {})


def draw(state: State, count: int, rngs: Rngs) -> tuple[Batch, Tensor]:
    """A random batch of what every lane keeps, of `count` distinct images if there are so many, and their places
    [L, count]."""
    room = state["y"].shape[1]
    at, there = np.zeros((len(rngs), min(count, room)), np.int64), np.zeros((len(rngs), min(count, room)), np.float32)
    for row, (rng, seen) in enumerate(zip(rngs, state["seen"].tolist(), strict=True)):
        pick = rng.choice(min(seen, room), min(count, seen, room), replace=False)
        at[row, : len(pick)], there[row, : len(pick)] = pick, 1
    place = torch.from_numpy(at).to(state["y"].device)
    lane = torch.arange(len(at), device=place.device)[:, None]
    weight = torch.from_numpy(there).to(place.device)
    return Batch(state["x"][lane, place], state["y"][lane, place], weight, state["task"][lane, place]), place


def add(state: State, batch: Batch, rngs: Rngs, said: Tensor | None = None) -> None:
    """Let a batch come, with what the net says of it."""
    room = state["y"].shape[1]
    for row, rng in enumerate(rngs):
        new = batch.weight[row].nonzero().squeeze(1).cpu().numpy()
        count = int(state["seen"][row]) + np.arange(1, len(new) + 1)
        place = np.where(count <= room, count - 1, (rng.random(len(new)) * count).astype(np.int64))
        state["seen"][row] += len(new)
        last = {int(spot): int(one) for spot, one in zip(place, new, strict=True) if spot < room}
        if not last:
            continue
        spots, ones = (torch.tensor(list(part), device=batch.y.device) for part in (last, last.values()))
        for name, tensor in (("x", batch.x), ("y", batch.y), ("task", batch.task), ("said", said)):
            if tensor is not None:
                state[name][row, spots] = tensor[row, ones]


def usage(world: World, stack: Stack, batch: Batch, rngs: Rngs) -> Usage:
    """How nets are used for a batch of memories in training: with dropout of its own."""
    return usage_of(world, stack) | masks(world, stack, rngs, world.model.mask_shapes(batch.y.shape[1]))


@torch.no_grad()
def logits(world: World, stack: Stack, batch: Batch) -> Tensor:
    """What every lane's net says of a batch now, [L, B, K], without dropout."""
    return each(partial(answers, world.model), world.engine)(
        dict(stack.params), batch.x, batch.task, usage_of(world, stack)
    )


def answers(model: Model, params: Params, x: Tensor, task: Tensor, usage: Usage) -> Tensor:
    """One agent's logits [B, K], with all outputs."""
    found: Tensor = model.logits(params, x, task, **parted(usage)[1])
    return found
