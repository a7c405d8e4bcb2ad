"""Affine heads: one per task (task-incremental learning: the task is known, also at test time), or one for all."""

import numpy as np
import torch
from torch import Tensor

from shoal.data import Bank
from shoal.models.contract import Usage
from shoal.models.params import Params, floats, whole
from shoal.settings.groups import Settings

NAMES = ("head.weight", "head.bias")
OPEN = "open"  # in a usage: which outputs of a task's head count, bool [T, K] of each lane
CLOSED = -1e9  # the logit of one that does not


def sizes(settings: Settings, bank: Bank) -> tuple[int, int]:
    """How many heads there are, and how many outputs each has."""
    from shoal.data.scenarios import by_name  # which knows settings, as models do

    tasks = settings.tasks
    if bank.targets is not None:
        return (tasks.count if tasks.heads == "task" else 1), bank.targets.shape[1]
    if by_name(tasks):
        return 1, len(bank.classes)
    return (tasks.count if tasks.heads == "task" else 1), tasks.classes


def numbers(tasks: int, classes: int, features: int) -> int:
    """How many numbers the heads of one agent are."""
    return tasks * classes * (features + 1)


def parted(usage: Usage) -> tuple[Tensor | None, Usage]:
    """Which outputs count, if not all do, and how the net is used: no model has to know of the first."""
    return usage.get(OPEN), {name: one for name, one in usage.items() if name != OPEN}


def closed(logits: Tensor, known: Tensor | None, task: int | Tensor) -> Tensor:
    """Logits [B, K] of one agent for one task or each image's own, without the outputs that do not count."""
    return logits if known is None else logits.masked_fill(~known[task], CLOSED)


def all_closed(logits: Tensor, known: Tensor | None, task: int | Tensor) -> Tensor:
    """`closed` of all lanes: logits [L, B, K], known[L, T, K], one task or each image's own [L, B]."""
    if known is None:
        return logits
    if isinstance(task, int):
        return logits.masked_fill(~known[:, task, None], CLOSED)
    return logits.masked_fill(~torch.take_along_dim(known, task[..., None], 1), CLOSED)


def start(rng: np.random.Generator, tasks: int, classes: int, features: int, xavier: bool = False) -> dict[str, Tensor]:
    """Fresh heads for all tasks, uniform within 1/sqrt(fan in), or by Glorot & Bengio (2010) for ReLU."""
    if xavier:
        bound = (12 / (features + classes)) ** 0.5
        weight = floats(rng.uniform(-bound, bound, (tasks, classes, features)))
        return {"head.weight": weight, "head.bias": torch.zeros(tasks, classes)}
    bound = features**-0.5
    return {
        "head.weight": floats(rng.uniform(-bound, bound, (tasks, classes, features))),
        "head.bias": floats(rng.uniform(-bound, bound, (tasks, classes))),
    }


def every(params: Params, features: Tensor) -> Tensor:
    """Logits [B, T, K] of features [B, F] by the heads of all tasks."""
    weight, bias = (whole(params[name]) for name in NAMES)
    found: Tensor = (features @ weight.flatten(0, 1).T).unflatten(1, bias.shape) + bias
    return found


def read(params: Params, features: Tensor, task: int | Tensor) -> Tensor:
    """Logits [B, K] of features [B, F] by the head of one task, or by each image's own (task[B])."""
    weight, bias = whole(params["head.weight"]), whole(params["head.bias"])
    if len(weight) == 1:  # for all tasks
        task = 0
    if isinstance(task, int):
        return torch.addmm(bias[task], features, weight[task].T)
    # All heads at once is one small product; picking a head per image would copy a matrix per image.
    all_ = (features @ weight.flatten(0, 1).T).unflatten(1, bias.shape) + bias
    return torch.take_along_dim(all_, task[:, None, None], 1).squeeze(1)
