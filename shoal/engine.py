"""Mapping one-agent functions over lanes: `vmap` in one batched kernel, `loop` one lane after the other.

`loop` is the definition of what is right; both give the same numbers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

ENGINES = ("loop", "vmap")


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
