"""Blocks: the kinds of module that monolithic and modular nets are made of."""

from collections.abc import Callable

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.cnn import Conv
from shoal.models.mlp import Linear
from shoal.models.own import Own
from shoal.models.parts import Parts
from shoal.settings.groups import Net

Block = Linear | Conv | Own | Parts


def linear(net: Net, bank: Bank) -> Linear:
    """Affine modules for rows of whatever shape."""
    pixels = 1
    for side in bank.images.shape[1:]:
        pixels *= side
    return Linear(pixels, net.width)


def conv(net: Net, bank: Bank) -> Conv:
    """Convolutional modules for square images."""
    shape = bank.images.shape[1:]
    if len(shape) not in (2, 3) or shape[-1] != shape[-2]:
        raise SettingsError(
            f"a cnn reads square images, [side, side] or [channels, side, side], and the rows of `{bank.name}` have "
            f"shape {list(shape)}; use an mlp, which reads any shape, or a net of your own"
        )
    channels = shape[0] if len(shape) == 3 else 1
    return Conv(channels, shape[-1], bank.peak, net.width, net.depth)


BLOCKS: dict[str, Callable[[Net, Bank], Linear | Conv]] = {"mlp": linear, "cnn": conv}
