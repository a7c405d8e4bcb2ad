"""Shuffling the images of many agents by the kernel: numpy's own orders, without a generator for each agent."""

from functools import cache

import numpy as np

from shoal.compiled.library import kernel
from shoal.models.dropout import Source

TRIED = 1000  # numbers that are shuffled to see whether the kernel and numpy agree


def shuffled(source: Source, sizes: np.ndarray, room: int, again: bool) -> tuple[np.ndarray, np.ndarray]:
    """Numbers 0 to sizes[l] - 1 of every lane in the order of its generator's `permutation`, int64 [L, room], and which
    places have one, float32 [L, room]; `again`: one such pass behind the other until all are full."""
    library = kernel().library
    assert library is not None
    sizes, order = np.ascontiguousarray(sizes, np.int64), np.zeros((len(sizes), room), np.int64)
    real = np.zeros(order.shape, np.float32)
    lengths = (sizes.ctypes.data, len(sizes), room, again)
    if library.shoal_orders(source.address, *lengths, order.ctypes.data, real.ctypes.data):
        raise MemoryError("there is no memory for the order of one agent's rows")
    return order, real


@cache
def as_numpy() -> bool:
    """Does the kernel shuffle as this numpy does, which may change that with any version? It is tried once."""
    source = Source([bytes(range(16))])
    mine, _ = shuffled(source, np.array([TRIED]), 2 * TRIED, again=True)
    rng = source.rngs(0)[0]
    return bool(np.array_equal(mine[0], np.concatenate([rng.permutation(TRIED) for _ in range(2)])))
