"""What trained nets answer, by the kernel: the way forth without dropout, of one agent or of many."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

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

Numbers = int | np.ndarray  # of one question, or int64 [n] of many


class Asks(NamedTuple):
    """Images that the nets of agents are asked about, and for each question:"""

    lane: Numbers  # whose net
    task: Numbers  # for which it answers
    source: Numbers  # which of `x` has the images
    counts: Numbers  # how many images
    rows: Tensor | None  # int64 [N]: of their source, those of all questions one after the other; None: all, in order
    x: Sequence[Tensor]  # [..., H] each: what the nets read


def of_one(model: Model, params: Params, usage: Usage, what: str, x: Tensor, rows: Tensor | None, task: int) -> Tensor:
    """The `logits` [n, K] of one agent by the head of `task`, or the `features` [n, H] that it would read, for the
    `rows` [n] of inputs x[N, H], or for all of them."""
    assert isinstance(model, Monolithic | Modular)
    asks = Asks(0, task, 0, len(x if rows is None else rows), rows, [x])
    if isinstance(model, Monolithic):
        share = ones(model.depth)
    elif task < model.initial:
        share = (torch.arange(model.slots)[:, None] == usage["slots"].choice[task]).float()[None, None]
    else:
        share = model.shares(params, usage["slots"], task).contiguous()[None, None]
    return answered(model, {name: whole(one)[None] for name, one in params.items()}, share, what, asks)


def shares_of(model: Model, params: Params, usage: Usage) -> Tensor:
    """How much of each module all lanes take, whose `params` and `usage` these are, for all their tasks."""
    assert isinstance(model, Monolithic | Modular)
    return model.shares(params, usage["slots"]).contiguous() if isinstance(model, Modular) else ones(model.depth)


@cache
def ones(depth: int) -> Tensor:
    """How much of each module there is in the sum at each depth of a net in one piece."""
    return torch.eye(depth)[None, None]


def answered(model: Model, params: Params, share: Tensor, what: str, asks: Asks) -> Tensor:
    """The `logits` [N, K] or `features` [N, H] for all images that lanes are asked about, which take so much of each
    module, share[L, T, C, D]; an axis of one entry is for all lanes or tasks."""
    assert isinstance(model, Monolithic | Modular)
    library = kernel().library
    assert library is not None
    weight, bias, head, head_bias = (whole(params[name]).contiguous() for name in (*MODULE, *heads.NAMES))
    x, rows = [one.contiguous() for one in asks.x], None if asks.rows is None else asks.rows.contiguous()
    if any(one.dtype not in (torch.float32, torch.uint8) for one in (weight, bias, head, head_bias, share, *x)):
        raise TypeError("what the kernel reads must be float32, or pixels bytes")
    classes = head.shape[2] if what == "logits" else 0
    out = torch.empty(int(np.sum(asks.counts)), classes or model.read)
    first, lane, task = np.cumsum(asks.counts) - asks.counts, asks.lane, asks.task
    told: dict[str, Numbers] = {
        **pictured(model, x[0].dtype), "depth": model.depth, "modules": share.shape[2], "classes": classes,
        "count": asks.counts, "x": np.array([one.data_ptr() for one in x])[asks.source],
        "rows": 0 if rows is None else at(rows, first), "out": at(out, first),
        "weight": at(weight, lane), "bias": at(bias, lane), "share": at(share, lane, task),
    }  # fmt: skip
    if classes:
        told |= {"head": at(head, lane, task), "head_bias": at(head_bias, lane, task)}
    asked = np.zeros((np.size(lane), len(FIELDS)), np.int64)
    for name, column in told.items():
        asked[:, FIELDS.index(name)] = column
    if library.shoal_answers(asked.ctypes.data, len(asked)):
        raise MemoryError("there is no memory for the activations of one agent")
    return out


def at(tensor: Tensor, *index: Numbers) -> Numbers:
    """Where some places of a tensor lie, by the first axes; where an axis has one entry, it is that of all."""
    steps = zip(index, tensor.shape, tensor.stride(), strict=False)
    return tensor.data_ptr() + tensor.itemsize * sum(one * stride for one, size, stride in steps if size > 1)
