"""The module of the paper's CNNs: a 3x3 convolution, max-pooling by two, a ReLU."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.errors import SettingsError
from shoal.models.params import MODULE, floats

# CIFAR-100's channel statistics, as in the paper's code (docs/protocol.md, section 2); grey images stay as they are.
MEAN = (0.5079, 0.4872, 0.4415)
STD = (0.2676, 0.2567, 0.2765)
KERNEL = 3


@dataclass(frozen=True)
class Conv:
    """One-agent arithmetic of CNN modules. Activations are h[B, channels, rows, columns] in channels-last memory."""

    channels: int  # of an image
    side: int
    peak: int
    width: int
    depth: int
    axis: ClassVar[int] = 1  # of the modules in `run`'s result
    seeded: ClassVar[bool] = False
    engine: ClassVar[str] = "loop"
    why: ClassVar[str] = "convolutions are faster one agent after the other on a CPU"
    bound: ClassVar[str] = ""
    folds: ClassVar[bool] = True  # can a share be put into the weights?
    names: ClassVar[tuple[str, ...]] = MODULE
    chunk: ClassVar[int] = 32  # of many modules on a large image: 250 would leave the cache, and take twice as long
    least: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.channels > self.width:
            raise SettingsError(f"net.width = {self.width} cannot hold images of {self.channels} channels; raise it")
        if self.side >> self.depth == 0:
            raise SettingsError(
                f"net.depth = {self.depth} halves images of {self.side} x {self.side} pixels to nothing; "
                f"use at most {self.side.bit_length() - 1} layers or an mlp"
            )

    @property
    def features(self) -> int:
        """What a head reads."""
        side = self.side >> self.depth
        return self.width * side * side

    @cached_property
    def scaling(self) -> Tensor:
        """What pixels are divided by, then the mean and the spread of each channel, as `enter` uses them."""
        known = self.channels == len(MEAN)
        mean, spread = (MEAN, STD) if known else ((0.0,) * self.channels, (1.0,) * self.channels)
        return torch.tensor([float(self.peak), *mean, *spread])

    @property
    def numbers(self) -> int:
        """How many numbers the parameters of a module are."""
        return self.width * (self.width * KERNEL**2 + 1)

    def work(self, depth: int) -> int:
        """Multiplications for one image that passes a module at each depth."""
        inner = [self.channels, *[self.width] * (depth - 1)]
        return sum(KERNEL**2 * self.width * ways * (self.side >> k) ** 2 for k, ways in enumerate(inner))

    def start(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Fresh kernels [count, out, in, 3, 3] and biases [count, out], uniform within 1/sqrt(fan in)."""
        bound = (self.width * KERNEL**2) ** -0.5
        weight = rng.uniform(-bound, bound, (count, self.width, self.width, KERNEL, KERNEL))
        return floats(weight), floats(rng.uniform(-bound, bound, (count, self.width)))

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        """Images as they are, bytes [N, channels, side, side]."""
        return self.encoded(torch.from_numpy(images), peak, seed)

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor, with a channel axis if it has none."""
        return x if x.ndim == 4 else x[:, None]

    def enter(self, x: Tensor) -> Tensor:
        """From bytes x[B, channels, side, side] to standardised images.

        The paper pads them with zeros to `width` channels; `run` leaves out the kernel planes that would meet zeros.
        """
        h = x.float() / self.peak
        if self.channels == len(MEAN):
            h = (h - h.new_tensor(MEAN)[:, None, None]) / h.new_tensor(STD)[:, None, None]
        return channels_last(h)

    def run(self, weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
        """All modules on the same input: weight[C, out, in, 3, 3], h[B, in, ...] -> [B, C, out, ...]."""
        kernel = weight[:, :, : h.shape[-3]].flatten(0, 1)
        z = F.conv2d(h, channels_last(kernel), bias.flatten(), padding=KERNEL // 2)
        outputs: Tensor = torch.relu_(halved(z)).unflatten(1, weight.shape[:2])
        return outputs

    def mix(self, outputs: Tensor, share: Tensor) -> Tensor:
        """The weighted sum of module outputs[B, C, ...]; share[C] for one task, [B, C] for a batch of several."""
        return (outputs * share[..., None, None, None]).sum(1)

    def total(self, outputs: Tensor) -> Tensor:
        """The plain sum of module outputs."""
        return outputs.sum(1) if outputs.shape[1] > 1 else outputs.squeeze(1)

    def leave(self, h: Tensor) -> Tensor:
        """From h[B, channels, rows, columns] to features [B, F], channel first."""
        return h.flatten(1)

    def shapes(self, count: int, batch: int, depth: int) -> list[tuple[int, ...]]:
        """The shape of `run`'s result at each depth: what a dropout mask must cover."""
        sides = [self.side >> (k + 1) for k in range(depth)]
        return [(batch, count, self.width, side, side) for side in sides]


def halved(z: Tensor) -> Tensor:
    """The largest of every two by two numbers. Where no gradient comes back nobody needs to know which it was, and
    looking at rows, then at columns, takes half the time. Inside `vmap` no tensor says whether one does: there equal
    numbers share it."""
    if z.requires_grad:
        return F.max_pool2d(z, 2)
    rows, columns = (side - side % 2 for side in z.shape[-2:])
    z = torch.maximum(z[..., 0:rows:2, :columns], z[..., 1:rows:2, :columns])
    return torch.maximum(z[..., ::2], z[..., 1::2])


def channels_last(tensor: Tensor) -> Tensor:
    """The same [n, channels, rows, columns] with channels next to each other in memory: much faster on a CPU.

    Spelt as a permutation because `vmap` knows no memory formats.
    """
    return tensor.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
