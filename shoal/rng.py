"""The only source of randomness: a generator for every purpose, named by a path."""

from collections.abc import Sequence
from hashlib import blake2b
from operator import index

import numpy as np


def key(seed: int, *path: int | str) -> np.random.Generator:
    """The generator of one purpose, e.g. `key(seed, agent, "batches", task, epoch)`.

    Nothing is drawn from a shared stream, so a lane's numbers do not depend on its neighbours, on the order of the
    work, or on where a run was stopped: a checkpoint needs no random state at all.
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest(seed, *path), "little")))


def digest(seed: int, *path: int | str) -> bytes:
    """The 16 bytes that name the generator of one purpose."""
    words = tuple(word if isinstance(word, str) else index(word) for word in (seed, *path))
    return blake2b(repr(words).encode(), digest_size=16).digest()


def numbers(seed: int, *path: int | str, at: Sequence[np.ndarray]) -> np.ndarray:
    """A number in [0, 1) for each of many places at once, float64 [N]; a place is what it has in all columns of `at`,
    int64 [N] each. It depends on the path and the place alone, whatever else is asked for.

    Making a generator for each of a million links would take a minute. Here the path names two words, with which a
    place is mixed column by column (the finaliser of Steele, Lea & Flood 2014, variant 13 of Stafford).
    """
    drawn = key(seed, *path).integers(0, 2**64, 2, np.uint64)
    state = np.full(len(at[0]), drawn[0])
    for column in at:
        state = mixed(state ^ mixed(column.astype(np.uint64) + drawn[1]))
    found: np.ndarray = (mixed(state + drawn[1]) >> np.uint64(11)) * 2.0**-53
    return found


def mixed(words: np.ndarray) -> np.ndarray:
    """64-bit words, each changed in about half of its bits by every bit that changes in it."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray = words ^ (words >> np.uint64(31))
    return found
