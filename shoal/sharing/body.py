"""The body of nets, what agents of the same model have in common: whose are alike, and how it is written."""

import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.learners.step import Tensors
from shoal.settings.groups import Settings


def net_of(settings: Settings) -> tuple[object, ...]:
    """What two agents whose nets are alike have in common."""
    return settings.model, settings.net.shape


def write_all(stack: Stack, rows: Tensor, values: Tensors) -> None:
    """Replace the shared modules of some lanes, and remember whose that changed. Adam's moments stay."""
    every = len(rows) == len(stack.lanes) and torch.equal(rows, torch.arange(len(rows)))
    for name, value in values.items():
        whole = stack.params[name][:, : value.shape[1]]
        other = ((whole if every else whole[rows]) != value).flatten(1).any(1)
        if every and other.all():
            stack.moved[:] = True
            whole.copy_(value)
        elif other.any():
            stack.moved[rows[other]] = True
            whole[rows[other]] = value[other]
