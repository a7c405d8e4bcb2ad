"""What trained nets of many agents answer, and what is nearest to what, by the kernel: descriptions as arrays."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.compiled.answers import ask, single
from shoal.compiled.library import kernel
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.params import MODULE

FLOAT, INT = 4, 8  # bytes


class Asks(NamedTuple):
    """Images that the nets of many agents are asked about: int64 [n] each, and their images one after the other."""

    lane: np.ndarray  # whose net
    task: np.ndarray  # for which it answers
    source: np.ndarray  # which of `x` has the images
    counts: np.ndarray  # how many images
    rows: Tensor  # int64 [N]: of their source
    x: Sequence[Tensor]  # [..., H] each: what the nets read


def answered(model: Model, params: Mapping[str, Tensor], usage: Usage, what: str, asks: Asks) -> Tensor:
    """The `logits` [N, K] or `features` [N, H] for all images; `params` and `usage` are of all lanes."""
    assert isinstance(model, Monolithic | Modular)
    weight, bias, head, head_bias = (params[name].contiguous() for name in (*MODULE, *heads.NAMES))
    share = (
        single(model.depth)[None, None] if isinstance(model, Monolithic) else model.shares(dict(params), usage["slots"])
    )
    share, x, rows = share.contiguous(), [one.contiguous() for one in asks.x], asks.rows.contiguous()
    classes = head.shape[2] if what == "logits" else 0
    out = torch.empty(len(rows), classes or model.read)
    first, lane = asks.counts.cumsum() - asks.counts, asks.lane
    own = asks.task if head.shape[1] > 1 else np.zeros_like(asks.task)
    told = {"head": at(head, lane, own), "head_bias": at(head_bias, lane, own)} if classes else {}
    ask(
        model, x[0].dtype, len(lane), (weight, bias, head, head_bias, share, *x), count=asks.counts,
        modules=share.shape[2], classes=classes, x=np.array([one.data_ptr() for one in x])[asks.source],
        rows=at(rows, first), out=at(out, first), weight=at(weight, lane), bias=at(bias, lane),
        share=at(share, lane, asks.task) if isinstance(model, Modular) else share.data_ptr(), **told,
    )  # fmt: skip
    return out


def at(tensor: Tensor, *index: np.ndarray) -> np.ndarray:
    """Where some places of a tensor lie, by the first axes."""
    steps = np.sum([one * stride for one, stride in zip(index, tensor.stride(), strict=False)], 0)
    found: np.ndarray = tensor.data_ptr() + tensor.itemsize * steps
    return found


class Searches(NamedTuple):
    """Queries, and images that they are compared with, as rows of features: int64 [n] each."""

    theirs: np.ndarray  # the first query of each search,
    asked: np.ndarray  # and how many there are
    mine: np.ndarray  # the first image of each,
    held: np.ndarray  # and how many there are


def nearest(
    searches: Searches, features: Tensor, number: np.ndarray, task: np.ndarray, wanted: np.ndarray, most: int
) -> np.ndarray:
    """The numbers of the `most` images that are nearest to each query by the cosine of features[N, H], the nearest
    first; -1: there are no more. Of images that are as near, the one comes first that is searched first.

    Of all rows of features, `number` int64 [N] says which query or image each is, and `task` which task an image is of;
    wanted[queries, tasks] are those in which a query is searched."""
    library = kernel().library
    assert library is not None
    features, wanted = features.contiguous(), np.ascontiguousarray(wanted)
    number, task = (np.ascontiguousarray(one, np.int64) for one in (number, task))
    if features.dtype != torch.float32 or wanted.dtype != bool:
        raise TypeError("features must be float32, and what is wanted bool")
    wide = FLOAT * features.shape[1]
    made = np.stack(
        [
            features.data_ptr() + wide * searches.theirs, searches.asked, number.ctypes.data + INT * searches.theirs,
            features.data_ptr() + wide * searches.mine, searches.held,
            *(one.ctypes.data + INT * searches.mine for one in (number, task)),
        ],
        1,
    )  # fmt: skip
    best = np.full((len(wanted), most), -np.inf, np.float32)
    found = np.full(best.shape, -1, np.int64)
    said = (len(made), features.shape[1], wanted.shape[1], wanted.ctypes.data, most, best.ctypes.data)
    if library.shoal_nearest(made.ctypes.data, *said, found.ctypes.data):
        raise MemoryError("there is no memory for the features of some rows")
    return found
