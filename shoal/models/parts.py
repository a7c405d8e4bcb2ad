"""Modules that are low-rank parts of a frozen net."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.nets import AdaptedNet
from shoal.models.own import Copies
from shoal.models.params import floats

SECOND = ".second"  # how the name of B ends (shoal/models/adapted.py)


class Parts(Copies):
    """Low-rank parts of a frozen net as the modules of a modular net, which has them at one depth: a module is a part
    for every layer, and a task mixes what the net says with each of its modules."""

    seeded: ClassVar[bool] = False
    engine: ClassVar[str] = "loop"
    why: ClassVar[str] = "a frozen net is read once for every module"

    def __init__(self, make: Callable[..., nn.Module], net: AdaptedNet, bank: Bank, name: str) -> None:
        from shoal.models.adapted import adapted  # which knows nets of one's own, and these the blocks of others
        from shoal.models.wrapped import Wrapped

        self.net = Wrapped(adapted(make, net, f"the net `{name}`"), bank, 1, 2, net.replace_last, name)
        super().__init__(self.net.first)
        self.tensors, self.kept = tuple(self.net.names), self.net.kept
        self.names = tuple(f"module.{tensor}" for tensor in self.tensors)
        self.bound: str = str(self.net.bound)
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
        return super().run(*given).flatten(2)

    def shapes(self, count: int, batch: int, depth: int) -> list[tuple[int, ...]]:
        """The shape of `run`'s result: what a dropout mask must cover."""
        return [(count, batch, self.net.read)] * depth
