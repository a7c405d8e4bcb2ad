"""Blocks: the kinds of module that monolithic and modular nets are made of."""

from collections.abc import Callable

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.cnn import Conv
from shoal.models.mlp import Linear
from shoal.settings.groups import Net

Block = Linear | Conv


def linear(net: Net, bank: Bank) -> Linear:
    """Affine modules for images of whatever shape."""
    pixels = 1
    for side in bank.images.shape[1:]:
        pixels *= side
    return Linear(pixels, net.width)


def conv(net: Net, bank: Bank) -> Conv:
    """Convolutional modules for square images."""
    shape = bank.images.shape[1:]
    channels = shape[0] if len(shape) == 3 else 1
    if shape[-1] != shape[-2]:
        raise SettingsError(f"a cnn reads square images, `{bank.name}` has {shape[-2]} x {shape[-1]}; use an mlp")
    return Conv(channels, shape[-1], bank.peak, net.width, net.depth)


BLOCKS: dict[str, Callable[[Net, Bank], Block]] = {"mlp": linear, "cnn": conv}
