"""What trained nets answer, by the kernel: the way forth of one agent, without dropout, for many images of one task."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from shoal.compiled.build import kernel
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.params import MODULE, Params, whole

Int, Pointer = ctypes.c_int64, ctypes.c_void_p


class Question(ctypes.Structure):
    """Images that one agent's net is asked about, as `Question` in steps.c."""

    _fields_ = (
        *((name, Pointer) for name in ("x", "rows")),
        *((name, Int) for name in ("count", "width", "depth", "modules", "classes")),
        *((name, Pointer) for name in ("weight", "bias", "share", "head", "head_bias", "out")),
    )


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
    library = kernel().library
    assert library is not None
    assert isinstance(model, Monolithic | Modular)
    share = shares(model, params, usage, task)
    weight, bias = (whole(params[name]) for name in MODULE)
    held = [x.contiguous(), weight.contiguous(), bias.contiguous(), share, *head]
    if any(one.dtype != torch.float32 for one in held):
        raise TypeError("what the kernel reads must be float32")
    rows = None if rows is None else rows.contiguous()
    count = len(x) if rows is None else len(rows)
    out = torch.empty(count, head[1].shape[0] if head else model.read)
    at = [one.data_ptr() for one in held]
    asked = Question(
        at[0], None if rows is None else rows.data_ptr(), count, model.read, model.depth, len(share),
        head[1].shape[0] if head else 0, at[1], at[2], at[3], *(at[4:] or (None, None)), out.data_ptr(),
    )  # fmt: skip
    if library.shoal_answers(ctypes.byref(asked), 1):
        raise MemoryError("there is no memory for the activations of one agent")
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
