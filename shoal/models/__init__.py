"""Models: one-agent functions over plain dictionaries of tensors; the engine maps them over lanes."""

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models.cnn import Conv
from shoal.models.mlp import Linear
from shoal.models.modular import Modular, Slots
from shoal.models.monolithic import Monolithic
from shoal.models.params import Params
from shoal.settings.groups import Settings

__all__ = ["Conv", "Linear", "Modular", "Monolithic", "Params", "Slots", "block", "build"]


def block(settings: Settings, bank: Bank) -> Linear | Conv:
    """The module kind that `settings.model` names, fitted to the images of a bank."""
    shape = bank.images.shape[1:]
    if settings.block == "mlp":
        pixels = 1
        for side in shape:
            pixels *= side
        return Linear(pixels, settings.net.width)
    channels = shape[0] if len(shape) == 3 else 1
    if shape[-1] != shape[-2]:
        raise SettingsError(f"a cnn reads square images, `{bank.name}` has {shape[-2]} x {shape[-1]}; use an mlp")
    return Conv(channels, shape[-1], bank.peak, settings.net.width, settings.net.depth)


def build(settings: Settings, bank: Bank) -> Monolithic | Modular:
    """The model that `settings` names."""
    net, tasks = settings.net, settings.tasks
    kind = block(settings, bank)
    if not settings.modular:
        return Monolithic(kind, net.depth, tasks.count, tasks.classes)
    spare = max((mode.spare for mode in settings.sharing), default=0)
    return Modular(kind, net.depth, tasks.count, tasks.classes, net.basis, tasks.initial, net.dropout_basis, spare)
