"""One affine head per task (task-incremental learning: the task is known, also at test time)."""

import numpy as np
import torch
from torch import Tensor

from shoal.models.params import Params, floats, whole

NAMES = ("head.weight", "head.bias")


def start(rng: np.random.Generator, tasks: int, classes: int, features: int) -> dict[str, Tensor]:
    """Fresh heads for all tasks, uniform within 1/sqrt(fan in)."""
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
    if isinstance(task, int):
        return torch.addmm(bias[task], features, weight[task].T)
    # All heads at once is one small product; picking a head per image would copy a matrix per image.
    all_ = (features @ weight.flatten(0, 1).T).unflatten(1, bias.shape) + bias
    return torch.take_along_dim(all_, task[:, None, None], 1).squeeze(1)
