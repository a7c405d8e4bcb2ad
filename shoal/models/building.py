"""Nets as settings describe them, for a bank: what lines of the table of models name."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

from torch import nn

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models import heads
from shoal.models.adapted import Adapted
from shoal.models.blocks import BLOCKS, Block, linear
from shoal.models.contract import Model
from shoal.models.decomposed import PEERS, Decomposed
from shoal.models.factor import Factor
from shoal.models.frozen import Frozen
from shoal.models.makers import bound
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.own import Own
from shoal.models.parts import Parts
from shoal.models.ridge import Ridge
from shoal.models.wrapped import Wrapped
from shoal.settings.groups import Settings

Make = Callable[..., nn.Module]


def monolithic(settings: Settings, bank: Bank, block: str) -> Model:
    """A net that is one module after the other."""
    return Monolithic(BLOCKS[block](settings.net, bank), settings.net.depth, *heads.sizes(settings, bank))


def modular(settings: Settings, bank: Bank, block: str) -> Model:
    """A net whose tasks compose modules."""
    return composing(BLOCKS[block](settings.net, bank), settings, bank)


def composing(block: Block, settings: Settings, bank: Bank, depth: int | None = None) -> Model:
    """The modular net of some blocks."""
    net: Any = settings.net
    spare = max((mode.spare for mode in settings.sharing), default=0)
    return Modular(
        block, depth or net.depth, *heads.sizes(settings, bank), net.basis, settings.tasks.initial, net.dropout_basis,
        net.initial_structure, spare,
    )  # fmt: skip


def plain(settings: Settings, bank: Bank) -> Model:
    """A net of layers alone, all of which train, the first one too."""
    own: Any = settings.net
    xavier = own.weights == "xavier"

    def net(shape: tuple[int, ...]) -> nn.Module:
        sizes = [math.prod(shape), *[own.width] * own.depth]
        layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
        for layer in layers if xavier else ():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Flatten(), *layers)

    return Wrapped(net, bank, *heads.sizes(settings, bank), name=settings.model, xavier=xavier)


def frozen(settings: Settings, bank: Bank, masked: bool) -> Model:
    """A net on a backbone that nobody trains."""
    return Frozen(linear(settings.net, bank), settings.net.depth, *heads.sizes(settings, bank), masked)


def decomposed(settings: Settings, bank: Bank) -> Model:
    """A net whose weights are put together of a base and of parts."""
    attended = 1 + min(PEERS, settings.agents - 1)
    return Decomposed(linear(settings.net, bank), settings.net.depth, *heads.sizes(settings, bank), attended)


def factor(settings: Settings, bank: Bank) -> Model:
    """Predictors in a dictionary."""
    net: Any = settings.net
    tasks, outputs = heads.sizes(settings, bank)
    inputs = math.prod(bank.images.shape[1:]) + 1
    return Factor(inputs, net.basis, net.private, tasks, outputs, bank.targets is not None, bank.peak)


def ridge(settings: Settings, bank: Bank) -> Model:
    """Linear predictors that are solved for."""
    net: Any = settings.net
    if net.projections and bank.scale == "standard":
        raise SettingsError(
            f"net.projections = {net.projections} needs rows that all agents read alike, and agents scale the rows of "
            f'`{bank.name}` each for itself; give the data scale = "none", or say net.projections=0'
        )
    return Ridge(math.prod(bank.images.shape[1:]), net.projections, *heads.sizes(settings, bank))


def wrapped(settings: Settings, bank: Bank, make: Make, own: bool = False) -> Model:
    """Any net of one's own; with `own` heads take the place of its last linear layer, whatever settings say."""
    net: Any = settings.net
    sizes = heads.sizes(settings, bank)
    return as_said(Wrapped(bound(make, net), bank, *sizes, own or net.replace_last, settings.model), settings)


def modules_of(settings: Settings, bank: Bank, block: Make) -> Model:
    """The modular net of a block of one's own."""
    return composing(Own(block, settings.net, bank, settings.model), settings, bank)


def adapted(settings: Settings, bank: Bank, make: Make, per: Literal["agent", "task", "module"], name: str) -> Model:
    """A frozen net with low-rank parts that train."""
    own: Any = settings.net
    if per != "module":
        sizes = heads.sizes(settings, bank)
        return as_said(Adapted(make, own, bank, *sizes, settings.model, each=per == "task"), settings)
    model = composing(Parts(make, own, bank, settings.model), settings, bank, depth=1)
    mappable(model, settings, f"the net `{name}`")
    return model


def as_said(model: Wrapped, settings: Settings) -> Model:
    """A net, to run as settings say."""
    mappable(model, settings, model.what)
    model.last = model.last and settings.machine.engine != "vmap" and settings.machine.device == "cpu"
    return model


def mappable(model: Model, settings: Settings, what: str) -> None:
    """Raise if `vmap` is asked for and cannot map a net."""
    if settings.machine.engine == "vmap" and model.bound:
        raise SettingsError(f'{what} is not for machine.engine = "vmap", because {model.bound}; use "loop" or "auto"')
