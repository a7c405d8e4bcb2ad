"""Acceptance: a receiver takes images only if they help on its own validation data; test data never has a say.

The images of a mail help if a small step down their loss does not lead up the loss on validation images of the tasks
that they are for: with g the gradient of the mean loss on them, as they would be kept, and v that on the validation
images of these tasks, both of the receiver's net as it is now and without dropout, if g v >= 0. What does not help is
refused, and the ledger says so.

`accept = "helps"` is for `recv`, `simp`, `uniform` and `push`; it costs a gradient for every mail, and one for every
receiver and set of tasks. Of `modmod` offers are tried in their order on a copy of the agent for `tryout` epochs, and
the first is taken whose validation accuracy is not below that of a fresh module, tried as long; `candidates.parquet`
has who was tried, and chosen. What it brings among liars: (docs/guides/liars.md).
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.evaluate import Trained, nets
from shoal.agents.received import Arrived
from shoal.data.tasks import Lane
from shoal.mail.post import Post

Accept = Literal["all", "helps"]
NO_HELP = "no help"  # a verdict
Parts = Mapping[int, tuple[Tensor, Tensor]]  # inputs [n, ...] and local labels [n] of some tasks


def accepting(what: str) -> Any:
    """The setting, with what is accepted in words."""
    return Field("all", description=f"use all that comes, or only {what} on one's own validation rows")


def helps(post: Post, lane: Lane, arrived: Arrived) -> bool:
    """Do images that have arrived help a lane?"""
    world, row = post.world, post.world.row[lane]
    if not len(arrived):
        return True
    net = post.once(("nets",), post.stack, lambda: nets(world, post.stack))[row]
    tasks = np.unique(arrived.tasks).tolist()
    parts, own = {}, {}
    for task in tasks:
        (images, labels), size = arrived.of(task), int(world.validation.sizes[row, task])
        parts[task] = world.encode(images, lane), torch.from_numpy(labels).to(world.device)
        at = world.validation.rows[row, task, :size]
        own[task] = world.inputs[at], world.validation.labels[row, task, :size]
    theirs, known = slope(net, parts), post.once(("slope", lane, *tasks), post.stack, lambda: slope(net, own))
    return (
        sum(float((one.double() * theirs[name].double()).sum()) for name, one in known.items() if name in theirs) >= 0
    )


@torch.enable_grad()
def slope(net: Trained, parts: Parts) -> dict[str, Tensor]:
    """The gradient of a net's mean loss on images of some tasks, by the names of what it depends on."""
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in net.params.items()}
    there = copy(net)
    there.params = leaves
    count = max(1, sum(len(labels) for _, labels in parts.values()))
    losses = [F.cross_entropy(there.read(x, task), y, reduction="sum") for task, (x, y) in parts.items() if len(y)]
    if not losses:  # there is nothing to compare with
        return {}
    found = torch.autograd.grad(torch.stack(losses).sum() / count, list(leaves.values()), allow_unused=True)
    return {name: one for name, one in zip(leaves, found, strict=True) if one is not None}
