"""The body of nets, what agents of the same model have in common: whose are alike, how it is written, what a receiver
takes for one, and what penalties of modes are made of."""

from collections.abc import Iterable, Mapping
from functools import partial
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.learners.batches import Batch
from shoal.learners.step import Tensors
from shoal.letters.mail import noted
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.models.contract import Model
from shoal.settings.groups import Settings
from shoal.sharing.agent import ON
from shoal.sharing.present import Present
from shoal.weakly import weakly


def net_of(settings: Settings) -> tuple[object, ...]:
    """What two agents whose nets are alike have in common."""
    return settings.model, settings.net.shape


def write_all(stack: Stack, rows: Tensor, values: Tensors) -> None:
    """Replace the shared modules of some lanes, and remember whose that changed. Adam's moments stay."""
    every = len(rows) == len(stack.lanes) and torch.equal(rows, torch.arange(len(rows)))
    for name, value in values.items():
        whole = stack.params[name][:, : value.shape[1]]
        other = ((whole if every else whole[rows]) != value).flatten(1).any(1)
        if every and other.all():
            stack.moved[:] = True
            whole.copy_(value)
        elif other.any():
            stack.moved[rows[other]] = True
            whole[rows[other]] = value[other]


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
    sizes = [noted(one, ("size", names), partial(size, {name: one[name] for name in names})) for one in table.contents]
    found: Tensor = torch.cat(sizes).unflatten(0, (-1, count)).amax(1)
    return found


def remember(agent: Present, **what: Tensors) -> None:
    """Keep tensors of what agents have in common, by a word for each, and that something has come."""
    tensors = {f"{word}.{name}": tensor for word, some in what.items() for name, tensor in some.items()}
    if tensors:
        agent.keep(**{ON: torch.ones((), device=agent.device)}, **tensors)


def scale(rule: str, batch: Batch) -> Tensor | float:
    """How a penalty is added to the mean loss of a batch: once; or, as the paper's code does, once for each of its
    tasks and divided by the number of its images."""
    if rule == "once":
        return 1.0
    real = batch.weight > 0
    same = (batch.task[:, None] == batch.task[None]) & real
    tasks = (real / same.sum(1).clamp(min=1)).sum()  # every image counts for its part of a task
    return tasks / batch.weight.sum().clamp(min=1)
