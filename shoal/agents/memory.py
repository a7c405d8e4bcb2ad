"""The replay memory: some training images of every finished task."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shoal.rng import key

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World

OWNER = "memory"
NAMES = ("x", "y", "rows", "fill")  # what `init` makes


def init(world: "World") -> dict[str, Tensor]:
    """Replayed inputs of each finished task x[L, T, memory, ...], their labels y, how many there are (`fill` [L, T]),
    and which `rows` of the bank they are; the last two on the host."""
    settings, inputs, labels = world.settings, world.inputs, world.train.labels
    room = (len(world.lanes), settings.tasks.count, settings.learner.memory)
    return {
        "x": torch.zeros(*room, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        "y": torch.zeros(*room, *labels.shape[3:], dtype=labels.dtype, device=world.device),
        "rows": torch.zeros(room, dtype=torch.int64),
        "fill": torch.zeros(room[:2], dtype=torch.int64),
    }


def remember(world: "World", stack: "Stack", task: int) -> None:
    """Keep some of a finished task: distinct training images, uniformly at random (docs/protocol.md, section 3)."""
    memory = stack.of(OWNER)
    size = memory["y"].shape[2]
    if size == 0:
        return
    for row, (lane, stream) in enumerate(zip(stack.lanes, world.streams, strict=True)):
        pick = key(*lane, "memory", task).permutation(int(world.train.sizes[row, task]))[:size]
        here = torch.from_numpy(pick).to(world.device)
        memory["x"][row, task, : len(pick)] = world.inputs[world.train.rows[row, task, here]]
        memory["y"][row, task, : len(pick)] = world.train.labels[row, task, here]
        memory["rows"][row, task, : len(pick)] = torch.from_numpy(stream[task].train[pick])
        memory["fill"][row, task] = len(pick)
