"""What trained nets answer, by the kernel: the way forth of one agent, without dropout, for many images of one task."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from shoal.compiled.layout import FIELDS
from shoal.compiled.library import kernel, pictured
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.params import MODULE, Params, whole


def ask(
    model: Monolithic | Modular, reads: torch.dtype, many: int, held: Sequence[Tensor], **told: int | np.ndarray
) -> None:
    """Put so many questions about inputs of a type to the kernel. Of each field it is `told` what it is for all of them
    or, as an array, for each; what is not told is zero. The tensors that questions are about are `held`."""
    library = kernel().library
    assert library is not None
    if any(one.dtype not in (torch.float32, torch.uint8) for one in held):
        raise TypeError("what the kernel reads must be float32, or pixels bytes")
    asked = np.zeros((many, len(FIELDS)), np.int64)
    for name, column in {"depth": model.depth, **pictured(model, reads), **told}.items():
        asked[:, FIELDS.index(name)] = column
    if library.shoal_answers(asked.ctypes.data, many):
        raise MemoryError("there is no memory for the activations of one agent")


def logits(model: Model, params: Params, usage: Usage, x: Tensor, rows: Tensor | None, task: int) -> Tensor:
    """Logits [n, K] of one agent by the head of `task`, for the `rows` [n] of inputs x[N, H], or for all of them."""
    weight, bias = (whole(params[name]) for name in heads.NAMES)
    own = task if len(weight) > 1 else 0
    return answered(model, params, usage, x, rows, task, weight[own].contiguous(), bias[own].contiguous())


def features(model: Model, params: Params, usage: Usage, x: Tensor, rows: Tensor | None, task: int) -> Tensor:
    """What the head of `task` would read, [n, H]."""
    return answered(model, params, usage, x, rows, task)


def answered(
    model: Model, params: Params, usage: Usage, x: Tensor, rows: Tensor | None, task: int, *head: Tensor
) -> Tensor:
    """Logits by `head`, a weight and a bias, or without one what it would read."""
    assert isinstance(model, Monolithic | Modular)
    share = shares(model, params, usage, task)
    weight, bias = (whole(params[name]).contiguous() for name in MODULE)
    x, rows = x.contiguous(), None if rows is None else rows.contiguous()
    count, classes = len(x if rows is None else rows), len(head[1]) if head else 0
    out = torch.empty(count, classes or model.read)
    ask(
        model, x.dtype, 1, (x, weight, bias, share, *head), count=count, modules=len(share), classes=classes,
        x=x.data_ptr(), rows=0 if rows is None else rows.data_ptr(), out=out.data_ptr(),
        weight=weight.data_ptr(), bias=bias.data_ptr(), share=share.data_ptr(),
        **{name: one.data_ptr() for name, one in zip(("head", "head_bias"), head, strict=False)},
    )  # fmt: skip
    return out


def shares(model: Monolithic | Modular, params: Params, usage: Usage, task: int) -> Tensor:
    """How much of each module [C, D] there is in the sum at each depth."""
    if isinstance(model, Monolithic):
        return single(model.depth)
    slots = usage["slots"]
    if task >= model.initial:
        return model.shares(params, slots, task).contiguous()
    chosen: Tensor = torch.arange(model.slots)[:, None] == slots.choice[task]
    return chosen.float()


@cache
def single(depth: int) -> Tensor:
    """One module at each depth."""
    return torch.eye(depth)
