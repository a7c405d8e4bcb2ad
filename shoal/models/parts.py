"""Modules that are low-rank parts of a frozen net."""

from collections.abc import Callable
from copy import deepcopy
from threading import local
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.params import floats

if TYPE_CHECKING:
    from shoal.models.nets import AdaptedNet

SECOND = ".second"  # how the name of B ends (shoal/models/adapted.py)


class Parts:
    """Low-rank parts of a frozen net as the modules of a modular net, which has them at one depth: a module is a part
    for every layer, and a task mixes what the net says with each of its modules."""

    axis: ClassVar[int] = 0  # of the modules in `run`'s result
    folds: ClassVar[bool] = False
    chunk: ClassVar[int] = 250
    least: ClassVar[int] = 1
    seeded: ClassVar[bool] = False
    engine: ClassVar[str] = "loop"
    why: ClassVar[str] = "a frozen net is read once for every module"

    def __init__(self, make: Callable[..., nn.Module], net: "AdaptedNet", bank: Bank, name: str) -> None:
        from shoal.models.adapted import adapted  # which knows nets of one's own, and these the blocks of others
        from shoal.models.wrapped import Wrapped

        self.net = Wrapped(adapted(make, net, f"the net `{name}`"), bank, 1, 2, net.replace_last, name)
        self.tensors = tuple(self.net.names)
        self.names = tuple(f"module.{tensor}" for tensor in self.tensors)
        self.bound: str = str(self.net.bound)
        self.copies = local()  # to call a module with other weights changes it for a moment: a copy for each thread
        if self.net.drops:
            raise SettingsError(
                f"the net `{name}` drops out by itself, which modules that several tasks use cannot; leave its dropout "
                "out: net.dropout acts on what it says"
            )

    @property
    def features(self) -> int:
        found: int = self.net.read
        return found

    @property
    def numbers(self) -> int:
        return sum(one.numel() for one in self.net.first.parameters() if one.requires_grad)

    def work(self, depth: int) -> int:
        return sum(one.numel() for one in self.net.first.parameters())

    def start(self, rng: np.random.Generator, count: int) -> tuple[Tensor, ...]:
        """Fresh parts [count, ...]: A varies from module to module, or all would learn the same."""
        first = dict(self.net.first.named_parameters())
        found = []
        for tensor in self.tensors:
            one = first[tensor].detach()
            if tensor.endswith(SECOND):
                found.append(one.new_zeros(count, *one.shape))
            else:
                bound = one.shape[1] ** -0.5
                found.append(floats(rng.uniform(-bound, bound, (count, *one.shape))))
        return tuple(found)

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        return self.net.encode(images, peak, seed)

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        return self.net.encoded(x, peak, seed)

    def enter(self, x: Tensor) -> Tensor:
        """From rows to what the net reads."""
        return x.float() / self.net.peak

    def run(self, *given: Tensor) -> Tensor:
        """What the net says with each of some modules: their tensors [C, ...] by name, h[B, ...] -> [C, B, F]."""
        *tensors, h = given
        if not hasattr(self.copies, "module"):
            self.copies.module = deepcopy(self.net.first).eval()
        module: nn.Module = self.copies.module

        def one(*parts: Tensor) -> Tensor:
            named = dict(zip(self.tensors, parts, strict=True))
            found: Tensor = torch.func.functional_call(module, {**named, **self.net.kept}, (h,))
            return found.flatten(1)

        return torch.stack([one(*parts) for parts in zip(*tensors, strict=True)])

    def mix(self, outputs: Tensor, share: Tensor) -> Tensor:
        """The weighted sum of module outputs[C, B, F]; share[C] for one task, [B, C] for a batch of several."""
        by = share.view(-1, 1, 1) if share.ndim == 1 else share.T[..., None]
        return (outputs * by).sum(0)

    def total(self, outputs: Tensor) -> Tensor:
        """The plain sum of module outputs."""
        return outputs.sum(0) if len(outputs) > 1 else outputs.squeeze(0)

    def leave(self, h: Tensor) -> Tensor:
        return h.flatten(1)

    def shapes(self, count: int, batch: int, depth: int) -> list[tuple[int, ...]]:
        """The shape of `run`'s result: what a dropout mask must cover."""
        return [(count, batch, self.net.read)] * depth
