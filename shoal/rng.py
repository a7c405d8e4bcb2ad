"""The only source of randomness: a generator for every purpose, named by a path."""

from hashlib import blake2b
from operator import index

import numpy as np


def key(seed: int, *path: int | str) -> np.random.Generator:
    """The generator of one purpose, e.g. `key(seed, agent, "batches", task, epoch)`.

    Nothing is drawn from a shared stream, so a lane's numbers do not depend on its neighbours, on the order of the
    work, or on where a run was stopped: a checkpoint needs no random state at all.
    """
    words = tuple(word if isinstance(word, str) else index(word) for word in (seed, *path))
    digest = blake2b(repr(words).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
