"""Mapping one-agent functions over lanes, and pieces of a stack over threads.

`vmap` makes one batched kernel of all lanes, `loop` takes one lane after the other and is the definition of what is
right; both give the same numbers, up to rounding.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as tree

ENGINES = ("loop", "vmap")
THREADS = torch.get_num_threads()  # what the machine, or OMP_NUM_THREADS, allows
TRIM, LARGE, MAPS = -1, -3, -4  # what mallopt calls its settings
KEEPING: list[object] = []  # whoever wants freed blocks to be kept just now
GATE = threading.Lock()
CREW = threading.local()  # is this thread one of a crew?

T = TypeVar("T")


def each(function: Callable[..., Tensor], engine: str) -> Callable[..., Tensor]:
    """`function` over the first axis of every tensor in its arguments (dicts, tuples and lists of tensors too)."""
    if engine == "vmap":
        mapped: Callable[..., Tensor] = torch.func.vmap(function, randomness="error")
        return mapped
    if engine != "loop":
        raise ValueError(f"no engine `{engine}`; allowed: {', '.join(ENGINES)}")

    def loop(*arguments: Any) -> Tensor:
        leaves, layout = tree.tree_flatten(arguments)
        rows = [leaf.unbind() for leaf in leaves]
        return torch.stack([function(*tree.tree_unflatten(list(row), layout)) for row in zip(*rows, strict=True)])

    return loop


def parted(stacked: T, sizes: Sequence[int], single: bool = False) -> list[T]:
    """Tensors (dicts, tuples and lists of them too) cut along their first axis; `single` drops that axis."""
    leaves, layout = tree.tree_flatten(stacked)
    rows = [leaf.unbind() if single else leaf.split(list(sizes)) for leaf in leaves]
    return [tree.tree_unflatten([row[at] for row in rows], layout) for at in range(len(sizes))]


def crew(pieces: Sequence[T], work: Callable[[T], Any], most: int | None = None) -> list[Any]:
    """`work` on every piece, each in a thread of its own, or in one of at most so many.

    Torch's own threads wait for each other in every operation, which on a busy machine can take many times longer
    than one thread alone; lanes never wait for each other, so pieces of a stack do not either.
    """
    count = min(len(pieces), most or len(pieces))
    if count <= 1:
        return [work(piece) for piece in pieces]
    return list(threads(count, os.getpid()).map(work, pieces))


def hands(wanted: int) -> int:
    """How many threads may work for the one that asks, of those that are `wanted` (0: of all that there are). A thread
    of a crew has itself alone: the others have work of their own."""
    return 1 if getattr(CREW, "member", False) else wanted or THREADS


def joins() -> None:
    """What a thread of a crew does first."""
    CREW.member = True
    torch.set_num_threads(1)


@cache
def threads(count: int, process: int) -> ThreadPoolExecutor:
    """A pool for this process: after a fork the parent's has no threads."""
    return ThreadPoolExecutor(count, f"shoal-{process}", joins)


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library, if it is one whose memory can be told what to do."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


def keep_memory() -> None:
    """Tell glibc to keep freed blocks: a step frees and takes the same ones, and giving them back costs page faults."""
    if library := glibc():
        library.mallopt(MAPS, 0)
        library.mallopt(TRIM, 2**31 - 1)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed blocks inside; who leaves last gives them back, for the sake of a process that goes on."""
    me = object()
    with GATE:
        KEEPING.append(me)
        keep_memory()
    try:
        yield
    finally:
        with GATE:
            KEEPING.remove(me)
            if not KEEPING and (library := glibc()):
                library.mallopt(MAPS, 2**16)  # glibc's own
                library.mallopt(LARGE, 2**25)  # the most that it comes to by itself where large blocks come and go
                library.mallopt(TRIM, 2**26)
                library.malloc_trim(0)
