"""Modules of one's own: copies of any `nn.Module` whose output has the shape of its input."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from math import prod
from threading import local
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.foreign import ROWS, complains, made, suited, without_chance, written
from shoal.models.makers import bound, needed
from shoal.models.mlp import Linear, by_pieces
from shoal.rng import key
from shoal.settings.groups import Net


class Copies:
    """What blocks that are copies of an `nn.Module` have in common: tensors [C, ...] and outputs [C, B, ...] of copies
    lie one behind the other."""

    axis: ClassVar[int] = 0  # of the modules in `run`'s result
    folds: ClassVar[bool] = False  # a share cannot be put into the weights of just any block
    chunk: ClassVar[int] = 250
    least: ClassVar[int] = 1
    tensors: tuple[str, ...]  # the names of those that a copy has for itself,
    kept: Mapping[str, Tensor] = {}  # and what they share
    bound: str

    def __init__(self, first: nn.Module) -> None:
        self.first = first
        self.copies = local()  # to call a module with other weights changes it for a moment: a copy for each thread

    def run(self, *given: Tensor) -> Tensor:
        """All modules on the same input: their tensors [C, ...] by name, h[B, ...] -> [C, B, ...]."""
        *tensors, h = given
        if not hasattr(self.copies, "module"):
            self.copies.module = deepcopy(self.first).eval()
        module: nn.Module = self.copies.module

        def one(*parts: Tensor) -> Tensor:
            named = dict(zip(self.tensors, parts, strict=True))
            found: Tensor = torch.func.functional_call(module, {**named, **self.kept}, (h,))
            return found

        if self.bound or self.kept:
            return torch.stack([one(*parts) for parts in zip(*tensors, strict=True)])
        outputs: Tensor = torch.func.vmap(one)(*tensors)
        return outputs

    def mix(self, outputs: Tensor, share: Tensor) -> Tensor:
        """The weighted sum of module outputs[C, B, ...]; share[C] for one task, [B, C] for a batch of several."""
        rest = [1] * (outputs.ndim - 2)
        by = share.view(-1, 1, *rest) if share.ndim == 1 else share.T.reshape(*share.T.shape, *rest)
        return (outputs * by).sum(0)

    def total(self, outputs: Tensor) -> Tensor:
        """The plain sum of module outputs."""
        return outputs.sum(0) if len(outputs) > 1 else outputs.squeeze(0)

    def leave(self, h: Tensor) -> Tensor:
        """From h[B, ...] to features [B, F]."""
        return h.flatten(1)


class Own(Copies):
    """One-agent arithmetic of modules that are copies of a block. Activations are h[B, ...] in the block's own shape.

    A block may need `width`, which is net.width. Rows come to it through the frozen random projection of the MLP, as
    [B, net.width], or through its `enter`: a function of rows x[B, ...], floats, that gives h[B, ...]; or a class of
    `nn.Module` that does, whose weights are a seed's own and never train. Both may need `width` too.
    """

    def __init__(self, block: Callable[..., nn.Module], net: Net, bank: Bank, name: str) -> None:
        self.block, self.width, self.what = bound(block, net), net.width, f"the block of `{name}`"
        self.enters: Any = getattr(block, "enter", None)
        self.row: tuple[int, ...] = bank.images.shape[1:]
        self.channel = bank.images.ndim == 3 and bank.images.dtype == np.uint8  # grey images get a channel
        self.entrances: dict[int, nn.Module] = {}
        self.seeded = self.enters is None or isinstance(self.enters, type)
        with complains(f"{self.what} cannot enter rows of shape {list(self.row)}", "mend its `enter`"):
            h = self.encode(bank.take(np.arange(ROWS) % len(bank)), bank.peak, 0)
        super().__init__(module := self.fresh(np.random.default_rng(0)))
        self.tensors = tuple(tensor for tensor, _ in module.named_parameters())
        self.names = tuple(f"module.{tensor}" for tensor in self.tensors)
        self.shape = tuple(h.shape[1:])
        without_chance(module, self.what)
        if still := [tensor for tensor, one in module.named_parameters() if not one.requires_grad]:
            raise SettingsError(
                f"{self.what} has the frozen weight `{still[0]}`, and modules train as a whole; make it a buffer, or "
                "let it train"
            )
        if not self.names:
            raise SettingsError(f"{self.what} has no weights, and so nothing to learn or share; give it some")
        with complains(f"{self.what} cannot read {['B', *self.shape]}", "change it, net.width, or its `enter`"):
            with torch.no_grad():
                found = module.eval()(h)
            if found.shape != h.shape:
                raise SettingsError(
                    f"{self.what} makes {['B', *found.shape[1:]]} of {['B', *self.shape]}, and its output must have "
                    "the shape of its input; change it, net.width, or its `enter`"
                )
            if changed := written(module, h):
                raise SettingsError(
                    f"{self.what} writes `{changed[0]}` while it learns, which modules that several tasks use cannot "
                    "have; use a norm without running statistics, as nn.LayerNorm"
                )
            self.engine, self.why, self.bound = suited(module, h)

    @property
    def features(self) -> int:
        """What a head reads."""
        return prod(self.shape)

    @property
    def numbers(self) -> int:
        """How many numbers the parameters of a module are."""
        return sum(one.numel() for one in self.first.parameters())

    def work(self, depth: int) -> int:
        """Multiplications for one row that passes a module at each depth, if it uses every number once."""
        return depth * self.numbers

    def fresh(self, rng: np.random.Generator) -> nn.Module:
        """A copy of the block with weights of its own."""
        with complains(f"{self.what} cannot be made", "mend it"):
            return made(self.block, rng, self.what, width=self.width)

    def start(self, rng: np.random.Generator, count: int) -> tuple[Tensor, ...]:
        """Fresh parameters [count, ...], in the order of their names."""
        drawn = [dict(self.fresh(rng).named_parameters()) for _ in range(count)]
        return tuple(torch.stack([one[name].detach() for one in drawn]) for name in self.tensors)

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        """Rows [N, ...] as the first modules read them, [N, *shape]: computed once per row."""
        if self.enters is None:
            return Linear(prod(self.row), self.width).encode(images, peak, seed)
        with torch.no_grad():
            return by_pieces(torch.from_numpy(images), lambda piece: self.encoded(piece, peak, seed))

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor [B, ...] as it is, in operations that can be exported."""
        if self.enters is None:
            return Linear(prod(self.row), self.width).encoded(x, peak, seed)
        return self.entrance(seed)((x[:, None] if self.channel else x).float() / peak)

    def entrance(self, seed: int) -> Callable[..., Tensor]:
        """What brings rows to the shape of the block, for a seed."""
        if not isinstance(self.enters, type):
            wants = "width" in needed(self.enters)[1:]
            return (lambda x: self.enters(x, width=self.width)) if wants else self.enters
        if seed not in self.entrances:
            self.entrances[seed] = made(self.enters, key(seed, "projection"), self.what, width=self.width).eval()
        return self.entrances[seed]

    def enter(self, x: Tensor) -> Tensor:
        """Rows are as the block reads them already."""
        return x

    def shapes(self, count: int, batch: int, depth: int) -> list[tuple[int, ...]]:
        """The shape of `run`'s result at each depth: what a dropout mask must cover."""
        return [(count, batch, *self.shape)] * depth
