"""The replay memory: some training images of every finished task."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.rng import key

if TYPE_CHECKING:
    from shoal.fleet.stack import Stack
    from shoal.fleet.world import World

OWNER = "memory"


def init(world: "World") -> dict[str, Tensor]:
    """Replayed inputs of each finished task x[L, T, memory, ...], their labels y, and which `rows` of the bank they
    are, on the host."""
    settings, inputs = world.settings, world.inputs
    room = (len(world.lanes), settings.tasks.count, settings.learner.memory)
    return {
        "x": torch.zeros(*room, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        "y": torch.zeros(room, dtype=torch.int64, device=world.device),
        "rows": torch.zeros(room, dtype=torch.int64),
    }


def remember(world: "World", stack: "Stack", task: int) -> None:
    """Keep some of a finished task: distinct training images, uniformly at random (docs/protocol.md, section 3)."""
    memory = stack.of(OWNER)
    size = memory["y"].shape[2]
    if size == 0:
        return
    rows, labels = world.train.rows[:, task], world.train.labels[:, task]
    picks = np.stack([key(*lane, "memory", task).permutation(rows.shape[1])[:size] for lane in stack.lanes])
    pick = torch.from_numpy(picks).to(rows.device)
    memory["x"][:, task] = world.inputs[rows.gather(1, pick)]
    memory["y"][:, task] = labels.gather(1, pick)
    for row, stream in enumerate(world.streams):
        memory["rows"][row, task] = torch.from_numpy(stream[task].train[picks[row]])
