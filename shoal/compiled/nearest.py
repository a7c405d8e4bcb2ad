"""What is nearest to what, by the kernel: searches of many agents at once."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.compiled.library import kernel

FLOAT, INT = 4, 8  # bytes


class Searches(NamedTuple):
    """Queries, and images that they are compared with, as rows of features: int64 [n] each."""

    theirs: np.ndarray  # the first query of each search,
    asked: np.ndarray  # and how many there are
    mine: np.ndarray  # the first image of each,
    held: np.ndarray  # and how many there are


def nearest(
    searches: Searches,
    features: Tensor,
    number: np.ndarray,
    task: np.ndarray,
    wanted: np.ndarray,
    most: int,
    places: int = 0,
) -> np.ndarray:
    """The numbers of the `most` images that are nearest to each query by the cosine of features[N, H], the nearest
    first; -1: there are no more. Of images that are as near, the one comes first that is searched first. Where there
    are `places`, cosines are rounded to whole numbers of so many parts of one.

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
    said = (len(made), features.shape[1], wanted.shape[1], wanted.ctypes.data, most, places, best.ctypes.data)
    if library.shoal_nearest(made.ctypes.data, *said, found.ctypes.data):
        raise MemoryError("there is no memory for the features of some rows")
    return found
