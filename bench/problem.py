"""The step that contenders are timed on, as plain tensors: the paper's MNIST row in the middle of its stream.

Monolithic: an epoch of replay at task 7, 128 + 7 x 32 images in batches of 64, each through its own task's head; all
layers train, and the heads that have an image in the batch. Modular: an epoch of assimilation at task 7, 128 images,
each batch once with the candidate and once without; the task's structure and head train, and the candidate where it is
seen. Dropout and Adam in both. Images have gone through the frozen projection, once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bench.cases import TASK
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.batches import pool
from shoal.models.families import family
from shoal.models.modular import Modular
from shoal.models.table import GROWTH

BETAS, EPSILON = (0.9, 0.999), 1e-8

Weights = dict[str, Tensor]
Masks = Sequence[
    Sequence[Tensor]
]  # of every step, of every depth: [L, modules that drop, H, B], 0 or 1 / (1 - dropout)


class Modules(NamedTuple):
    """What a modular net has at the task: the last of its modules is the candidate."""

    basis: int  # modules without dropout
    renormalise: bool  # is the softmax over the visible modules alone?


@dataclass(frozen=True)
class Problem:
    """First weights, data and settings of all lanes. Only what the step reads is here."""

    weights: (
        Weights  # module.weight [L, C, H, H], module.bias [L, C, H], head.weight [L, T, K, H], head.bias [L, T, K];
    )
    # modular: T is 1, and structure [L, C, D]
    x: Tensor  # [L, N, H]
    y: Tensor  # int64 [L, N]
    task: Tensor  # int64 [L, N]: whose head
    batch: int
    depth: int
    rate: float
    dropout: float
    modules: Modules | None  # None: monolithic

    @property
    def lanes(self) -> int:
        return len(self.x)

    @property
    def images(self) -> int:
        """Images of one epoch of a lane."""
        return self.x.shape[1]

    @property
    def batches(self) -> int:
        return -(-self.images // self.batch)

    @property
    def steps(self) -> int:
        """Adam steps of one epoch of a lane."""
        return self.batches * (2 if self.modules else 1)

    def piece(self, first: int, last: int) -> "Problem":
        """Some of the lanes."""
        weights = {name: tensor[first:last] for name, tensor in self.weights.items()}
        return replace(self, weights=weights, x=self.x[first:last], y=self.y[first:last], task=self.task[first:last])


class Learns(Protocol):
    """A contender: all lanes of a problem, one epoch after the other."""

    def epoch(self, order: Tensor | None = None, masks: Masks | None = None) -> None:
        """One epoch of all lanes; images in this order [L, N], with these masks, or as it draws them itself."""

    def weights(self) -> Weights:
        """The weights as they are now, in the layout of `Problem.weights`."""


def problem(world: World, stack: Stack) -> Problem:
    """The problem of a stack that `cases.midway` has made."""
    settings, model = world.settings, world.model
    held = pool(world, stack, TASK, past=family(settings) != GROWTH)
    weights = {name: tensor.clone() for name, tensor in stack.params.items()}
    modules, heads = None, slice(0, TASK + 1)
    if isinstance(model, Modular):
        slots = model.slot(TASK) + 1
        weights = {name: tensor[:, :slots] if name.startswith("module") else tensor for name, tensor in weights.items()}
        weights["structure"] = weights["structure"][:, TASK, :slots]
        renormalise = getattr(settings.learner, "hidden", "renormalise") == "renormalise"
        modules, heads = Modules(0 if model.dropout_basis else model.basis, renormalise), slice(TASK, TASK + 1)
    for name in ("head.weight", "head.bias"):
        weights[name] = weights[name][:, heads]
    task = held.task if modules is None else torch.zeros_like(held.task)
    return Problem(
        weights={name: tensor.contiguous().clone() for name, tensor in weights.items()},
        x=held.x.contiguous(),
        y=held.y,
        task=task,
        batch=min(settings.learner.batch, held.x.shape[1]),
        depth=settings.net.depth,
        rate=settings.learner.rate,
        dropout=settings.net.dropout,
        modules=modules,
    )
