"""One agent's parameters: tensors by name, the first axis of each counting units (modules, tasks)."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

MODULE = ("module.weight", "module.bias")  # the parameters of modules; units are modules
STRUCTURE = "structure"  # how much of each module a task takes at each depth, as logits; units are tasks
# A tensor may come in consecutive pieces along its first axis, some trained and some frozen.
Params = Mapping[str, Tensor | list[Tensor]]


def pieces(value: Tensor | list[Tensor]) -> list[Tensor]:
    """The pieces of a parameter, in order."""
    return [value] if isinstance(value, Tensor) else value


def whole(value: Tensor | list[Tensor]) -> Tensor:
    """A parameter in one piece."""
    return value if isinstance(value, Tensor) else torch.cat(value)


def unit(value: Tensor | list[Tensor], task: int) -> Tensor:
    """What of a parameter is a task's own, wherever it is cut."""
    for piece in pieces(value):
        if task < len(piece):
            return piece[task]
        task -= len(piece)
    raise IndexError(task)


def floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
