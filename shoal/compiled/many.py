"""What trained nets of many agents answer, and what is nearest to what, by the kernel: descriptions as arrays."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.compiled.answers import Question, single
from shoal.compiled.build import kernel
from shoal.models import heads
from shoal.models.contract import Model, Usage
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.params import MODULE

FLOAT, INT = 4, 8  # bytes
FIELDS = [name for name, _ in Question._fields_]  # type: ignore[misc]


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
    library = kernel().library
    assert library is not None
    assert isinstance(model, Monolithic | Modular)
    held = {name: tensor.contiguous() for name, tensor in params.items() if name in (*MODULE, *heads.NAMES)}
    share = (
        single(model.depth)[None, None] if isinstance(model, Monolithic) else model.shares(dict(params), usage["slots"])
    )
    share, x, rows = share.contiguous(), [one.contiguous() for one in asks.x], asks.rows.contiguous()
    if any(one.dtype != torch.float32 for one in (*held.values(), share, *x)):
        raise TypeError("what the kernel reads must be float32")
    weight, bias = (held[name] for name in MODULE)
    head, head_bias = (held[name] for name in heads.NAMES)
    classes = head.shape[2] if what == "logits" else 0
    out = torch.empty(len(rows), classes or model.read)
    first = asks.counts.cumsum() - asks.counts
    asked = np.zeros((len(asks.lane), len(FIELDS)), np.int64)
    own = asks.task if head.shape[1] > 1 else 0
    columns = {
        "x": np.array([one.data_ptr() for one in x])[asks.source],
        "rows": rows.data_ptr() + INT * first,
        "count": asks.counts,
        "width": model.read,
        "depth": model.depth,
        "modules": share.shape[2],
        "classes": classes,
        "weight": weight.data_ptr() + FLOAT * weight.stride(0) * asks.lane,
        "bias": bias.data_ptr() + FLOAT * bias.stride(0) * asks.lane,
        "share": share.data_ptr(),
        "out": out.data_ptr() + FLOAT * out.shape[1] * first,
    }
    if isinstance(model, Modular):
        columns["share"] = share.data_ptr() + FLOAT * (share.stride(0) * asks.lane + share.stride(1) * asks.task)
    if classes:
        columns["head"] = head.data_ptr() + FLOAT * (head.stride(0) * asks.lane + head.stride(1) * own)
        columns["head_bias"] = head_bias.data_ptr() + FLOAT * (head_bias.stride(0) * asks.lane + classes * own)
    for name, column in columns.items():
        asked[:, FIELDS.index(name)] = column
    if library.shoal_answers(asked.ctypes.data, len(asked)):
        raise MemoryError("there is no memory for the activations of one agent")
    return out


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
        raise MemoryError("there is no memory for the features of some images")
    return found
