"""Penalties that modes add to the loss of agents to which something has come: what they are made of, and how much they
count."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.agents.state import State
from shoal.learners.batches import Batch
from shoal.mail.post import Post


def remembered(post: Post, words: Sequence[str]) -> State:
    """A mode's own state, for each word tensors shaped as what agents have in common; zero until something has
    arrived."""
    world, stack = post.world, post.stack
    state = stack.of(post.mode.mode)
    if "on" not in state:
        state["on"] = torch.zeros(len(stack.lanes), device=world.device)
        for word in words:
            for name, units in world.model.body.items():
                state[f"{word}.{name}"] = torch.zeros_like(stack.params[name][:, :units])
    return state


def scale(rule: str, batch: Batch) -> Tensor | float:
    """How a penalty is added to the mean loss of a batch: once; or, as the paper's code does, once for each of its
    tasks and divided by the number of its images."""
    if rule == "once":
        return 1.0
    real = batch.weight > 0
    same = (batch.task[:, None] == batch.task[None]) & real
    tasks = (real / same.sum(1).clamp(min=1)).sum()  # every image counts for its part of a task
    return tasks / batch.weight.sum().clamp(min=1)
