"""What agents file of tasks that others have met: head, biases and anchors of each, and how they answer by them."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.models.contract import Model
from shoal.models.frozen import BIAS
from shoal.models.heads import NAMES
from shoal.settings.groups import Net
from shoal.sharing.agent import Agent
from shoal.sharing.contract import Sharing

LEAST = 1e-3  # the least variance of a feature
ANCHORS = ("mean", "var")


class Entry(NamedTuple):
    """What somebody has sent of a task."""

    classes: list[int]
    params: dict[str, Tensor]
    mean: Tensor  # [K, F]
    var: Tensor


def entries(kept: Mapping[str, Tensor]) -> list[Entry]:
    """All that an agent has filed, in the order of neighbours and tasks."""
    found = []
    for at in kept["there"].nonzero().tolist():
        one = {name: kept[name][at[0], at[1]] for name in (*NAMES, BIAS, "classes", *ANCHORS)}
        params = {name: one[name] for name in (*NAMES, BIAS)}
        found.append(Entry(one["classes"].tolist(), params, one["mean"], one["var"]))
    return found


@torch.no_grad()
def said(model: Model, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The logits of a head and biases on the backbone."""
    here = {name: one[None].to(x.device) for name, one in params.items()}
    found: Tensor = model.logits(here, x, 0)
    return found


@torch.no_grad()
def plain(model: Model, net: Net, x: Tensor) -> Tensor:
    """The features of the backbone without biases: they are the same in all agents."""
    nothing = torch.zeros(1, net.depth, net.width, device=x.device)
    found: Tensor = model.features({BIAS: nothing}, x, 0)
    return found.cpu()


def anchored(agent: Agent, task: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of the plain features of each class of a task that an agent has met, [K, F]."""
    x, labels = agent.rows_of(task)
    features, labels = plain(agent.model, agent.settings.net, x), labels.cpu()
    groups = [features[labels == at] for at in range(len(agent.tasks[task].classes))]
    groups = [one if len(one) else features for one in groups]
    return torch.stack([one.mean(0) for one in groups]), torch.stack([one.var(0, correction=0) for one in groups])


class Free(NamedTuple):
    """How a lane does when nobody says of which task an image is, as shares of all test images."""

    mapped: float  # images of which the right task, or one of the same classes, was found
    right: float  # images of which the right class was


@torch.no_grad()
def task_free(world: World, stack: Stack, row: int, mode: Sharing) -> Free:
    """The task of the likeliest anchor, of one's own and filed tasks, answers for each test image of one's own."""
    state, tasks = stack.of(mode.owner), range(int(world.ends[row]))
    mine = [
        Entry(
            list(world.streams[row][task].outputs),
            {name: stack.params[name][row, task] for name in (*NAMES, BIAS)},
            *(state[f"own.{name}"][row, task, : len(world.streams[row][task].classes)] for name in ANCHORS),
        )
        for task in tasks
    ]
    every = [*mine, *entries({name: one[row] for name, one in state.items()})]
    mean, var = torch.cat([one.mean for one in every]), torch.cat([one.var for one in every]).clamp(min=LEAST)
    owner = torch.tensor([at for at, one in enumerate(every) for _ in one.classes])
    mapped, right = [], []
    for task in tasks:
        size = int(world.test.sizes[row, task])
        x = world.inputs[world.test.rows[row, task, :size]]
        truth = np.array(world.streams[row][task].outputs)[world.test.labels[row, task, :size].cpu().numpy()]
        far = [
            ((part[:, None] - mean).square() / var + var.log()).sum(2).argmin(1)
            for part in plain(world.model, world.settings.net, x).split(64)
        ]
        chosen = owner[torch.cat(far)].numpy()
        guess = np.zeros(size, np.int64)
        for at in np.unique(chosen).tolist():
            here = np.flatnonzero(chosen == at)
            best = said(world.model, every[at].params, x[torch.from_numpy(here)]).argmax(1).cpu().numpy()
            guess[here] = np.array(every[at].classes)[best]
        same = [set(one.classes) == set(mine[task].classes) for one in every]
        mapped.append(np.array(same)[chosen].mean())
        right.append((guess == truth).mean())
    return Free(float(np.mean(mapped)), float(np.mean(right)))
