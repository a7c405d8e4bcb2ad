"""Penalties that modes add to the loss of agents to which something has come: what they are made of, and how much they
count."""

import torch
from torch import Tensor

from shoal.learners.batches import Batch
from shoal.learners.step import Tensors
from shoal.sharing.agent import ON
from shoal.sharing.mode import Present


def remember(agent: Present, **what: Tensors) -> None:
    """Keep tensors of what agents have in common, by a word for each, and that something has come."""
    tensors = {f"{word}.{name}": tensor for word, some in what.items() for name, tensor in some.items()}
    if tensors:
        agent.keep(**{ON: torch.ones((), device=agent.device)}, **tensors)


def scale(rule: str, batch: Batch) -> Tensor | float:
    """How a penalty is added to the mean loss of a batch: once; or, as the paper's code does, once for each of its
    tasks and divided by the number of its images."""
    if rule == "once":
        return 1.0
    real = batch.weight > 0
    same = (batch.task[:, None] == batch.task[None]) & real
    tasks = (real / same.sum(1).clamp(min=1)).sum()  # every image counts for its part of a task
    return tasks / batch.weight.sum().clamp(min=1)
