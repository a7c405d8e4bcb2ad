"""The module of the paper's MLPs: an affine map and a ReLU, behind a frozen random projection."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.models.params import MODULE, floats
from shoal.rng import key

PIECE = 1024  # images projected at once


@dataclass(frozen=True)
class Linear:
    """One-agent arithmetic of MLP modules. Activations are feature-major, h[H, B]: every product is a plain matrix
    product, and mixing C modules is one more, without a transpose in between."""

    pixels: int
    width: int
    axis: ClassVar[int] = 0  # of the modules in `run`'s result
    seeded: ClassVar[bool] = True
    engine: ClassVar[str] = "vmap"
    why: ClassVar[str] = "small matrices of all agents pay off in one kernel"
    bound: ClassVar[str] = ""
    folds: ClassVar[bool] = True  # can a share be put into the weights?
    names: ClassVar[tuple[str, ...]] = MODULE
    chunk: ClassVar[int] = 512
    least: ClassVar[int] = 16

    @property
    def features(self) -> int:
        """What a head reads."""
        return self.width

    @property
    def numbers(self) -> int:
        """How many numbers the parameters of a module are."""
        return self.width * (self.width + 1)

    def work(self, depth: int) -> int:
        """Multiplications for one image that passes a module at each depth."""
        return depth * self.width**2

    def start(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Fresh weights [count, H, H] and biases [count, H], uniform within 1/sqrt(fan in) as in `nn.Linear`."""
        bound = self.width**-0.5
        weight = rng.uniform(-bound, bound, (count, self.width, self.width))
        return floats(weight), floats(rng.uniform(-bound, bound, (count, self.width)))

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        """Images [N, ...] through the frozen projection, [N, H]. It never trains, so it is computed once per image; it
        is a seed's own, the same for all its agents (docs/protocol.md, section 2)."""
        return by_pieces(torch.from_numpy(images), lambda piece: self.encoded(piece, peak, seed))

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor [B, ...] as it is, in operations that can be exported."""
        weight, bias = self.projected(seed)
        return torch.addmm(bias, x.flatten(1).float() / peak, weight.T)

    def projected(self, seed: int) -> tuple[Tensor, Tensor]:
        """The frozen projection of a seed: weight [H, pixels] and bias [H]."""
        return projection(self.pixels, self.width, seed)

    def enter(self, x: Tensor) -> Tensor:
        """From projected images x[B, H] to h[H, B]."""
        return x.T

    def run(self, weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
        """All modules on the same input: weight[C, H, H], h[H, B] -> [C, H, B]."""
        count, width, inner = weight.shape
        z = torch.addmm(bias.reshape(count * width, 1), weight.reshape(count * width, inner), h)
        return torch.relu_(z).reshape(count, width, h.shape[1])

    def mix(self, outputs: Tensor, share: Tensor) -> Tensor:
        """The weighted sum of module outputs[C, H, B]; share[C] for one task, [B, C] for a batch of several."""
        if share.ndim == 1:
            return (share[None] @ outputs.reshape(len(share), -1)).reshape(outputs.shape[1:])
        return (outputs * share.T[:, None, :]).sum(0)

    def total(self, outputs: Tensor) -> Tensor:
        """The plain sum of module outputs."""
        return outputs.sum(0) if len(outputs) > 1 else outputs.squeeze(0)

    def leave(self, h: Tensor) -> Tensor:
        """From h[H, B] to features [B, H]."""
        return h.T

    def shapes(self, count: int, batch: int, depth: int) -> list[tuple[int, ...]]:
        """The shape of `run`'s result at each depth: what a dropout mask must cover."""
        return [(count, self.width, batch)] * depth


def by_pieces(rows: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
    """What is read of rows [N, ...], piece by piece. All have the same size: how a product is summed depends on it, and
    a row must not depend on its neighbours."""
    full = F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, -len(rows) % PIECE))
    return torch.cat([read(piece) for piece in full.split(PIECE)])[: len(rows)]


@lru_cache(maxsize=8)
def projection(pixels: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """The frozen projection of a seed: weight [H, pixels] and bias [H]. It is asked for whenever images have come."""
    rng, bound = key(seed, "projection"), pixels**-0.5
    return floats(rng.uniform(-bound, bound, (width, pixels))), floats(rng.uniform(-bound, bound, width))
