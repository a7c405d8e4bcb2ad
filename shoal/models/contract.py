"""What a model is: functions of one agent over plain dictionaries of tensors. The engine maps them over lanes."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from shoal.models.chains import Layer
from shoal.models.params import Params
from shoal.weakly import weakly

# How a net is used, as keyword arguments of `logits`: tensors, or dicts, lists and tuples of them, with the lane axis
# first where they are stacked. `masks` is what dropout leaves; the rest is the model's own.
Usage = dict[str, Any]
Encode = Callable[[np.ndarray, int, int], Tensor]
Masks = Sequence[Tensor] | None  # what dropout leaves, [B, ...] of each place
Which = int | Tensor  # one task, or each input's own, [B]
# Where in a stacked tensor a part lies: the slices after the lane axis. The first one counts units.
Part = tuple[slice, ...]


class Model(Protocol):
    """A net with a head for each task. Nothing outside `models` and `learners` knows more of it than stands here."""

    @property
    def body(self) -> Mapping[str, int]:
        """What agents of the same model have in common, by name: the first so many units of each tensor. It is what
        averaging averages."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The tensors whose units are tasks."""

    @property
    def pieced(self) -> tuple[str, ...]:
        """The tensors that `logits` also takes in pieces, some trained and some frozen."""

    @property
    def read(self) -> int:
        """How many numbers a head reads."""

    @property
    def agnostic(self) -> bool:
        """Do all heads read the same features, whatever the task?"""

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of dropout layers of its own, whose masks come behind that of the heads."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The linear layers that it is nothing but a chain of; none: it is more."""

    @property
    def axis(self) -> int:
        """Of the modules in a mask, without the lane axis."""

    @property
    def xavier(self) -> bool:
        """Do heads begin by Glorot & Bengio (2010)?"""

    @property
    def seeded(self) -> bool:
        """Does what the net reads of an image depend on the seed?"""

    @property
    def engine(self) -> str:
        """The engine that suits it on a CPU."""

    @property
    def why(self) -> str:
        """Why that engine suits it, in words that can follow "because"."""

    @property
    def bound(self) -> str:
        """What keeps `vmap` from mapping it at all; empty: nothing."""

    @property
    def chunk(self) -> int:
        """Images at once in evaluation: the activations of a chunk should stay in a core's cache."""

    @property
    def least(self) -> int:
        """The fewest lanes that are worth a thread of their own."""

    @property
    def numbers(self) -> int:
        """How many numbers one agent's parameters are, told without making them."""

    @property
    def work(self) -> int:
        """Multiplications for one image on its way to the head, about."""

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """One agent's initial parameters; the first axis of each counts units, which train or are frozen as a whole."""

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """What one agent's net keeps beside its parameters."""

    @property
    def encode(self) -> Encode:
        """(images, peak, seed) -> what the net reads of raw images [N, ...], computed once per image."""

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """The shapes of one agent's dropout masks for a batch."""

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        """How the nets of all lanes are used by the time of a task; `kept` is what they keep, stacked."""

    def trimmed(self, params: Params, usage: Usage, task: int | None) -> tuple[Params, Usage]:
        """One agent's net without what it does not compute, for one task or for all. Not under `vmap`."""

    def composed(self, params: Params, usage: Usage, task: int) -> tuple[Params, Usage]:
        """One agent's net as it is cheapest for many images of one task."""

    @property
    def features(self) -> Callable[..., Tensor]:
        """(params, x, task, training=False, **usage) -> what the head reads, [B, F]."""

    @property
    def logits(self) -> Callable[..., Tensor]:
        """(params, x, task, training=False, **usage) -> logits [B, K] for inputs x of one task, or of each one's own,
        task[B]."""

    def __hash__(self) -> int: ...


@weakly
def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The shapes of one agent's parameters, units first."""
    return {name: tuple(tensor.shape) for name, tensor in model.start(np.random.default_rng(0)).items()}


def body_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """The shape of one unit of each tensor that agents have in common."""
    return {name: shapes(model)[name][1:] for name in model.body}


def described(model: Model, name: str, engine: str) -> str:
    """What a model is, in a sentence: its size, and the engine that runs it."""
    own = [shape for tensor, shape in shapes(model).items() if tensor not in model.heads]
    weights = sum(prod(shape) for shape in own)
    why = f", because {model.why}" if engine == model.engine else ""
    return (
        f"{name}: {len(own)} tensor{'s' * (len(own) != 1)} of {weights:,} weights and heads that read {model.read:,} "
        f"numbers; it runs under {engine}{why}"
    )


def body_units(model: Model) -> int:
    """How many units agents have in common: layers, or modules of the basis, or the net as a whole."""
    return max(model.body.values())
