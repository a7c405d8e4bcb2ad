"""Bounds that a receiver sets from its own state: what is far beyond it is not taken for a net."""

from collections.abc import Iterable, Mapping
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from shoal.letters.mail import noted
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.models.contract import Model
from shoal.sharing.present import Present
from shoal.weakly import weakly

LARGEST = 8.0  # weights may be so many times as large as the receiver's own, by their root mean square
GROWN = 8.0  # and a receiver's own count as at most so many times as large as fresh ones
WEIGHTIEST = 1e15  # what a weight matters is at most this: the square of its pull is still a number


def size(tensors: Mapping[str, Tensor]) -> Tensor:
    """The root mean square of the numbers in each row of some tensors [n, ...] together: [n], in double precision."""
    lengths = [torch.linalg.vector_norm(tensor.flatten(1), dim=1, dtype=torch.float64) for tensor in tensors.values()]
    count = sum(tensor[0].numel() for tensor in tensors.values())
    found: Tensor = torch.linalg.vector_norm(torch.stack(lengths, 1), dim=1) / sqrt(max(1, count))
    return found


@weakly
def fresh(model: Model) -> float:
    """The size of what agents have in common before anything is learned; what begins at zero may become one."""
    drawn = model.start(np.random.default_rng(0))
    return float(size({name: drawn[name][None, :units] for name, units in model.body.items()})) or 1.0


def largest(post: Post) -> Tensor:
    """How large weights can be that lanes accept: [L]. A lane whose own have shrunk still takes fresh ones; own ones
    that have grown by what others sent are no reason to take still larger ones, or all would grow without end."""

    def find() -> Tensor:
        body = post.world.model.body
        own = size({name: post.stack.params[name][:, :units] for name, units in body.items()}).cpu()
        usual = fresh(post.world.model)
        return LARGEST * own.clamp(usual, GROWN * usual)

    return post.once(("largest",), post, find)


def far_larger(agent: Present, tensors: Mapping[str, Tensor], names: Iterable[str]) -> bool:
    """Are weights, tensors [n, ...] by name, far larger than an agent's own?"""
    found = agent._post.once(("size",), tensors, lambda: float(size({name: tensors[name] for name in names}).max()))
    return found > float(largest(agent._post)[agent._row])


def sizes_of(table: Table, names: tuple[str, ...], count: int) -> Tensor:
    """The size of the largest module of every model in a table, each of so many modules: [N]."""

    def find(content: Mapping[str, Tensor]) -> Tensor:
        found: Tensor = size({name: content[name] for name in names}).unflatten(0, (-1, count)).amax(1)
        return found

    found = [noted(one, ("size", names, count), lambda one=one: find(one)) for one in table.contents]  # type: ignore[misc]
    return torch.cat(found)
