"""The floor: only the matrix products (or convolutions) that a step cannot do without, on tensors that are ready.

No activation, dropout, loss, optimiser or gathering; results go to memory that is there already.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bench.cases import TASK, Work
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.settings.groups import Settings

KERNEL = 3


class Product(NamedTuple):
    """out[L, n, m] = left[L, n, k] @ right[L, k, m]."""

    left: Tensor
    right: Tensor
    out: Tensor

    @property
    def work(self) -> int:
        """Floating-point operations, a multiplication and an addition being two."""
        lanes, rows, inner = self.left.shape
        return 2 * lanes * rows * inner * self.right.shape[2]


def numbers(*shape: int) -> Tensor:
    """Random numbers of a size that keeps products of many of them in range."""
    drawn: Tensor = torch.randn(shape) / math.sqrt(shape[-1])
    return drawn


def modular(settings: Settings, lanes: int) -> list[list[Product]]:
    """The products of an assimilation step with the candidate, and of one without it."""
    net: Any = settings.net
    slots = net.basis + TASK - settings.tasks.initial + 1
    return [assimilation(settings, lanes, slots, True), assimilation(settings, lanes, slots - 1, False)]


def assimilation(settings: Settings, lanes: int, slots: int, candidate: bool) -> list[Product]:
    """Forward, all modules and the mixing at every depth, and the head. Back, the gradients of the head, of the shares
    and of what enters depths 2, 3, ...; and, of the last module only if it is the candidate, that of its weights."""
    L, C, H, B = lanes, slots, settings.net.width, settings.learner.batch
    depth, classes = settings.net.depth, settings.tasks.classes
    weight, share, head = numbers(L, C * H, H), numbers(L, 1, C), numbers(L, classes, H)
    enter = [numbers(L, H, B) for _ in range(depth + 1)]
    leave, slopes = ([numbers(L, C * H, B) for _ in range(depth)] for _ in range(2))
    slope, error = numbers(L, H, B), numbers(L, B, classes)
    spare = torch.empty(L, H, H), torch.empty(L, 1, C), torch.empty(L, classes, H)
    products = []
    for k in range(depth):
        products.append(Product(weight, enter[k], leave[k]))
        products.append(Product(share, leave[k].view(L, C, H * B), enter[k + 1].view(L, 1, H * B)))
    products.append(Product(enter[depth].mT, head.mT, torch.empty(L, B, classes)))
    products.append(Product(error.mT, enter[depth].mT, spare[2]))
    products.append(Product(head.mT, error.mT, slope))
    for k in reversed(range(depth)):
        products.append(Product(slope.view(L, 1, H * B), leave[k].view(L, C, H * B).mT, spare[1]))
        products.append(Product(share.mT, slope.view(L, 1, H * B), slopes[k].view(L, C, H * B)))
        if candidate:
            products.append(Product(slopes[k][:, -H:], enter[k].mT, spare[0]))
        if k:
            products.append(Product(weight.mT, slopes[k], slope))
    return products


def monolithic(settings: Settings, lanes: int) -> list[list[Product]]:
    """The products of a replay step. A batch mixes tasks, so the heads of all tasks so far are one product."""
    L, H, B, depth = lanes, settings.net.width, settings.learner.batch, settings.net.depth
    classes = (TASK + 1) * settings.tasks.classes
    weights, head = [numbers(L, H, H) for _ in range(depth)], numbers(L, classes, H)
    enter, slopes = ([numbers(L, H, B) for _ in range(depth + 1)] for _ in range(2))
    error, spare = numbers(L, B, classes), torch.empty(L, H, H)
    products = [Product(weights[k], enter[k], enter[k + 1]) for k in range(depth)]
    products.append(Product(enter[depth].mT, head.mT, torch.empty(L, B, classes)))
    products.append(Product(error.mT, enter[depth].mT, torch.empty(L, classes, H)))
    products.append(Product(head.mT, error.mT, slopes[depth]))
    for k in reversed(range(depth)):
        products.append(Product(slopes[k + 1], enter[k].mT, spare))
        if k:
            products.append(Product(weights[k].mT, slopes[k + 1], slopes[k]))
    return [products]


def evaluation(settings: Settings, images: int, piece: int = 512) -> list[list[Product]]:
    """The products of one lane's test of a modular net, in pieces of images that fit a cache: modules and head."""
    net: Any = settings.net
    slots = net.basis + TASK - settings.tasks.initial + 1
    H, depth, classes = settings.net.width, settings.net.depth, settings.tasks.classes
    weight, head = numbers(1, slots * H, H), numbers(1, classes, H)
    found = []
    for size in [piece] * (images // piece) + [images % piece] * bool(images % piece):
        enter, leave = numbers(1, H, size), torch.empty(1, slots * H, size)
        found.append(
            [Product(weight, enter, leave)] * depth + [Product(enter.mT, head.mT, torch.empty(1, size, classes))]
        )
    return found


def run(groups: list[list[Product]], units: int) -> Work:
    """All products once; together they are the floor of `units`."""
    products = [product for group in groups for product in group]

    def work() -> int:
        for left, right, out in products:
            torch.bmm(left, right, out=out)
        return units

    return work


def operations(groups: list[list[Product]]) -> int:
    """Floating-point operations of all products."""
    return sum(product.work for group in groups for product in group)


def convolutions(settings: Settings, channels: int, side: int) -> Work:
    """The convolutions of one agent: a replay step, or an assimilation step with and one without the candidate.

    The first layer reads the image's own channels: those the paper pads with zeros need no work.
    """
    net: Any = settings.net
    slots = net.basis + TASK - settings.tasks.initial + 1
    # (modules that run side by side, modules whose kernels get a gradient)
    kinds = [(slots, 1), (slots - 1, 0)] if family(settings) == GROWTH else [(1, 1)]
    calls = [call for kind in kinds for call in passes(settings, channels, side, *kind)]

    def work() -> int:
        for call in calls:
            call()
        return len(kinds)

    return work


def passes(settings: Settings, channels: int, side: int, modules: int, trained: int) -> list[Callable[[], object]]:
    """The convolutions of one step, forward and back."""
    width, batch = settings.net.width, settings.learner.batch
    calls: list[Callable[[], object]] = []
    for k in range(settings.net.depth):
        inner, size = width if k else channels, side >> k
        x, slope = (still(batch, count, size, size) for count in (inner, modules * width))
        weight = still(modules * width, inner, KERNEL, KERNEL)
        calls.append(partial(F.conv2d, x, weight, torch.randn(modules * width), padding=KERNEL // 2))
        if k:
            calls.append(partial(back, slope, x, weight, 0))
        if trained:
            few, mine = still(trained * width, inner, KERNEL, KERNEL), still(batch, trained * width, size, size)
            calls.append(partial(back, mine, x, few, 1))
    return calls


def still(*shape: int) -> Tensor:
    """Random images or kernels in the memory layout that is fastest."""
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def back(slope: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
    """The gradient of a convolution's input (0) or of its kernels (1)."""
    one, mask = [1, 1], [which == at for at in range(3)]
    found = torch.ops.aten.convolution_backward(slope, x, weight, None, one, one, one, False, [0, 0], 1, mask)
    gradient: Tensor = found[which]
    return gradient
