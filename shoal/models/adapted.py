"""Frozen nets of one's own with low-rank parts that train (LoRA; Hu et al. 2021): a layer of weights W [out, ...]
computes with W + alpha / rank * B A, where A is [rank, inputs] and B [out, rank].

A begins with the same numbers in all agents and B at zero, so that the net begins as it was learned elsewhere.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models import heads
from shoal.models.base import each_own
from shoal.models.contract import Masks, Which
from shoal.models.makers import bound
from shoal.models.nets import AdaptedNet
from shoal.models.params import Params, floats, unit
from shoal.models.wrapped import Wrapped
from shoal.rng import key

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)  # whose weight is adapted; of attention, that of its inputs too
NORMS = nn.modules.batchnorm._NormBase


class LowRank(nn.Module):
    """What is added to a weight: the product of two small matrices."""

    def __init__(self, weight: Tensor, name: str, net: AdaptedNet) -> None:
        super().__init__()
        outputs, inputs = len(weight), weight[0].numel()
        rank = min(net.rank, outputs, inputs)
        bound = inputs**-0.5
        drawn = floats(key(0, "adapter", name).uniform(-bound, bound, (rank, inputs)))
        self.first = nn.Parameter(drawn, requires_grad=net.factors == "both")
        self.second = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = net.alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.second @ self.first).view_as(weight)


class Still(nn.Module):
    """A norm that keeps the statistics of where it was learned, whether the net around it learns or not."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer.eval()

    def train(self, mode: bool = True) -> "Still":
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found


def adapted(make: Callable[..., nn.Module], net: AdaptedNet, what: str) -> Callable[..., nn.Module]:
    """What makes a net with nothing free but low-rank parts of its linear and convolution layers."""
    make_net = bound(make, net)

    @wraps(make_net)
    def made(**given: Any) -> nn.Module:
        module = make_net(**given)
        if not isinstance(module, nn.Module):
            return module  # type: ignore[no-any-return]  # which is said where it is asked for
        module.requires_grad_(False)
        for name, part in list(module.named_modules()):
            if isinstance(part, NORMS):
                parent, _, last = name.rpartition(".")
                setattr(module.get_submodule(parent), last, Still(part))
        found = False
        for name, part in list(module.named_modules()):
            weight = "weight" if isinstance(part, LAYERS) else "in_proj_weight"
            if not isinstance(part, (*LAYERS, nn.MultiheadAttention)) or getattr(part, weight) is None:
                continue
            parametrize.register_parametrization(part, weight, LowRank(getattr(part, weight), f"{name}.{weight}", net))
            found = True
        if not found:
            raise SettingsError(
                f"{what} has no linear or convolution layer, and nothing that low-rank parts could be added to; give "
                "another net, or use it as a backbone"
            )
        return module

    return made


class Adapted(Wrapped):
    """A frozen net with low-rank parts of one's own, whatever the task (`per = "agent"`), or a set for every task."""

    def __init__(
        self,
        make: Callable[..., nn.Module],
        net: AdaptedNet,
        bank: Bank,
        tasks: int,
        classes: int,
        name: str,
        each: bool,
    ) -> None:
        self.each = each  # a set for every task?
        super().__init__(adapted(make, net, f"the net `{name}`"), bank, tasks, classes, net.replace_last, name)

    @property
    def body(self) -> Mapping[str, int]:
        """What a task has for itself is the same task's in no two agents."""
        return {} if self.each else super().body

    @property
    def numbers(self) -> int:
        own = sum(one.numel() for one in self.first.parameters() if one.requires_grad)
        return own * (self.tasks if self.each else 1) + heads.numbers(self.tasks, self.classes, self.read)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        drawn = super().start(rng)
        count = self.tasks if self.each else 1
        return {name: one.repeat_interleave(count, 0) if name in self.units else one for name, one in drawn.items()}

    @property
    def units(self) -> frozenset[str]:
        """The names of the low-rank parts."""
        return frozenset(self.names.values())

    def features(
        self,
        params: Params,
        x: Tensor,
        task: Which,
        training: bool = False,
        masks: Masks = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """What the heads read, [B, F]."""
        if self.each and isinstance(task, Tensor):
            return each_own(lambda one: self.features(params, x, one, training, masks, buffers), self.tasks, task)
        if self.each:
            assert isinstance(task, int)
            params = {**params, **{name: unit(params[name], task)[None] for name in self.units}}
        return super().features(params, x, task, training, masks, buffers)
