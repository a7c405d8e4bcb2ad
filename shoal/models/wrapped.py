"""Any `nn.Module` as the net of every agent."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.models import heads
from shoal.models.cnn import with_channels
from shoal.models.contract import Usage
from shoal.models.params import Params, whole
from shoal.models.table import Entry

if TYPE_CHECKING:
    from shoal.settings.groups import Settings


class Wrapped:
    """One-agent functions around an `nn.Module` that turns images [B, channels, rows, columns], pixels in 0..1, into
    features of any shape. Each of its parameters is one unit; heads are added, one per task.

    `own` takes the module's last linear layer out and puts the heads in its place. Dropout, if the settings say so,
    acts on what the heads read.
    """

    heads = heads.NAMES
    pieced: tuple[str, ...] = ()
    seeded = False
    engine = "loop"
    chunk = 250
    least = 1

    def __init__(self, make: Callable[[], nn.Module], bank: Bank, tasks: int, classes: int, own: bool = False) -> None:
        self.make, self.own = make, own
        self.tasks, self.classes, self.peak = tasks, classes, bank.peak
        self.copies = local()  # to call a module with other weights changes it for a moment: a copy for each thread
        self.first = module = self.fresh(np.random.default_rng(0))
        self.names = {name: f"net.{name}" for name, _ in module.named_parameters()}
        self.kept = {name: tensor.clone() for name, tensor in module.named_buffers()}
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
                raise SettingsError(
                    f"the net's `{name}` draws its dropout from torch, and a run could not be repeated; leave it out: "
                    "net.dropout acts on what the heads read"
                )
        with torch.no_grad():
            module.eval()
            self.read = module(with_channels(bank.images[:2]).float() / self.peak).flatten(1).shape[1]

    def fresh(self, rng: np.random.Generator) -> nn.Module:
        """The module with weights of its own, drawn from a named path although it draws them from torch."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            module = self.make()
        return without_last(module) if self.own else module

    @property
    def body(self) -> Mapping[str, int]:
        return dict.fromkeys(self.names.values(), 1)

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        drawn = {self.names[name]: one.detach()[None] for name, one in self.fresh(rng).named_parameters()}
        return {**drawn, **heads.start(rng, self.tasks, self.classes, self.read)}

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        return with_channels(images)

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return [(batch, self.read)]

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        return {"buffers": dict(kept)} if kept else {}

    def trimmed(self, params: Params, usage: Usage, task: int | None) -> tuple[Params, Usage]:
        return params, usage

    def composed(self, params: Params, usage: Usage, task: int) -> tuple[Params, Usage]:
        return params, usage

    def features(
        self,
        params: Params,
        x: Tensor,
        task: int | Tensor,
        training: bool = False,
        masks: Sequence[Tensor] | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """What the heads read, [B, F]. In training, buffers such as running statistics are written in place: they are
        rows of the stack."""
        given: dict[str, Any] = {name: whole(params[full])[0] for name, full in self.names.items()}
        if not hasattr(self.copies, "module"):
            self.copies.module = deepcopy(self.first)
        module: nn.Module = self.copies.module.train(training)
        h: Tensor = torch.func.functional_call(module, given | dict(buffers or {}), (x.float() / self.peak,))
        h = h.flatten(1)
        return h if masks is None else h * masks[0]

    def logits(
        self,
        params: Params,
        x: Tensor,
        task: int | Tensor,
        training: bool = False,
        masks: Sequence[Tensor] | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        return heads.read(params, self.features(params, x, task, training, masks, buffers), task)


def without_last(module: nn.Module) -> nn.Module:
    """The module with its last linear layer replaced by nothing."""
    names = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not names:
        raise SettingsError("the net has no linear layer that heads could take the place of; say own=False")
    parent, _, last = names[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return module


def wrapped(make: Callable[[], nn.Module], own: bool = False) -> Entry:
    """A line of the table of models for any net: `MODELS.add("mine", wrapped(MyNet))`."""

    def build(settings: "Settings", bank: Bank) -> Wrapped:
        model = Wrapped(make, bank, *heads.sizes(settings, bank), own)
        if settings.machine.engine == "vmap" and model.kept:
            raise SettingsError(
                f"`{settings.model}` keeps `{next(iter(model.kept))}` beside its weights, which vmap cannot write; "
                'use machine.engine = "loop"'
            )
        return model

    return Entry(build)
