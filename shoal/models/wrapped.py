"""Any `nn.Module` as the net of every agent."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from threading import local
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.data import Bank
from shoal.errors import CodeError, SettingsError
from shoal.models import heads
from shoal.models.base import Headed
from shoal.models.chains import chain_of, forth
from shoal.models.contract import Masks, Usage, Which
from shoal.models.foreign import (
    ROWS,
    Dropped,
    by_channels,
    channels_pay,
    complains,
    made,
    masked,
    repeatable,
    suited,
    without_chance,
    words,
)
from shoal.models.params import Params, whole
from shoal.models.recurrent import gated
from shoal.own_code import failed, running


class Wrapped(Headed):
    """One-agent functions around an `nn.Module` that turns rows of data into features of any shape. Each of its
    parameters is one unit; heads are added, one per task. Parameters with `requires_grad = False` stay as they are, the
    same for all agents, and are never sent.

    It reads what the bank holds, as floats: rows of a table [B, D], series [B, channels, steps], images [B, channels,
    height, width]; images without channels get one. Pixels are divided by the bank's peak. A net that needs `shape` is
    given that of one row.

    `own` takes the module's last linear layer out and puts the heads in its place. Dropout, if the settings say so,
    acts on what the heads read; the module's own nn.Dropout layers get masks of named random paths, by their own rates.
    """

    pieced: tuple[str, ...] = ()
    depth = 1
    seeded = False
    chunk = 250
    least = 1

    def __init__(
        self,
        make: Callable[..., nn.Module],
        bank: Bank,
        tasks: int,
        classes: int,
        own: bool = False,
        name: str = "",
        xavier: bool = False,
    ) -> None:
        self.xavier = xavier
        self.make, self.own, self.what = make, own, f"the net `{name or getattr(make, '__name__', make)}`"
        self.tasks, self.classes, self.peak = tasks, classes, bank.peak
        self.copies = local()  # to call a module with other weights changes it for a moment: a copy for each thread
        self.channel, self.first = self.reads(bank)
        self.shape = self.row(bank, self.channel)
        x = self.rows(bank)
        with torch.no_grad():
            for layer in drops_of(self.first):
                layer.calls = 0
            self.read = self.first.eval()(x).flatten(1).shape[1]
        self.drops = [self.dropped(layer) for layer in drops_of(self.first)]
        self.rates = tuple(layer.rate for layer in drops_of(self.first))  # whose masks come behind that of the heads
        self.recurrent = gated(self.first)  # of which something faster may take the steps
        repeatable(self.first, x, self.what)
        weights = dict(self.first.named_parameters())
        self.names = {name: f"net.{name}" for name, one in weights.items() if one.requires_grad}
        self.kept = {name: tensor.clone() for name, tensor in self.first.named_buffers()}
        self.kept |= {name: one.detach().clone() for name, one in weights.items() if not one.requires_grad}
        self.engine, self.why, self.bound = suited(self.first, x)
        # `vmap` knows no such images, nor need what is exported.
        self.last = self.engine == "loop" and channels_pay(self.first, x)
        self.layers, self.scaling = chain_of(self.first, x), torch.tensor([float(self.peak)])

    def dropped(self, layer: Dropped) -> tuple[int, ...]:
        """The shape of one row's mask of a dropout layer."""
        if layer.calls != 1 or layer.seen[0] != ROWS:
            why = f"is used {layer.calls} times" if layer.calls != 1 else "does not drop row by row"
            raise SettingsError(
                f"a dropout layer of {self.what} {why}, and gets one mask for each row; use a layer for each place, "
                "with the rows first"
            )
        layer.shape = layer.seen[1:]
        return layer.shape

    def reads(self, bank: Bank) -> tuple[bool, nn.Module]:
        """Does the net want a channel axis where the bank has none? And the net, with some weights.

        Bytes [N, height, width] are grey images, floats are series [N, channels, steps], unless the net cannot read
        them as such.
        """
        ways = [False]
        if bank.images.ndim == 3:
            ways = [True, False] if bank.images.dtype == np.uint8 else [False, True]
        why = trace = ""
        for channel in ways:
            self.channel, self.shape = channel, self.row(bank, channel)
            module = self.fresh(np.random.default_rng(0))
            without_chance(module, self.what)
            for layer in drops_of(module):
                layer.calls = 0
            try:
                with torch.no_grad():
                    found = module.eval()(self.rows(bank))
            except (Exception, SystemExit) as error:  # a net can complain in any way
                why, trace = why or words(error), trace or failed(error, self.what).trace
                continue
            if (
                isinstance(found, Tensor)
                and found.shape[:1] == (ROWS,)
                and found.ndim > 1
                and found.is_floating_point()
            ):
                return channel, module
            shape = f"{list(found.shape)} of {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
            why = why or f"{ROWS} rows became {shape}, and a row of features for each is needed"
        raise CodeError(
            f"{self.what} cannot read the rows of `{bank.name}`, which have shape {list(self.row(bank, ways[0]))}: "
            f"{why}",
            trace,
            "change the net, or the shape of the data",
        )

    @staticmethod
    def row(bank: Bank, channel: bool) -> tuple[int, ...]:
        """The shape of one row as the net reads it."""
        shape: tuple[int, ...] = bank.images.shape[1:]
        return (1, *shape) if channel else shape

    def rows(self, bank: Bank) -> Tensor:
        """Some rows of a bank as the net reads them."""
        raw = bank.take(np.arange(ROWS) % len(bank))
        return self.encode(raw, bank.peak, 0).float() / self.peak

    def fresh(self, rng: np.random.Generator) -> nn.Module:
        """The module with weights of its own."""
        with complains(f"{self.what} cannot be made", "mend it"):
            module = made(self.make, rng, self.what, shape=self.shape)
        masked(module)
        gated(module)
        return without_last(module) if self.own else module

    @property
    def body(self) -> Mapping[str, int]:
        return dict.fromkeys(self.names.values(), 1)

    @property
    def numbers(self) -> int:
        own = sum(one.numel() for one in self.first.parameters() if one.requires_grad)
        return own + heads.numbers(self.tasks, self.classes, self.read)

    @property
    def work(self) -> int:
        return sum(one.numel() for one in self.first.parameters())

    @property
    def wide(self) -> list[int]:
        """How many numbers go into each layer of a chain, and come out of the last."""
        shapes = dict(self.first.named_parameters())
        return [shapes[f"{layer.name}.weight"].shape[1] for layer in self.layers] + [self.read]

    def start(self, rng: np.random.Generator) -> dict[str, Tensor]:
        weights = dict(self.fresh(rng).named_parameters())
        drawn = {full: weights[name].detach()[None] for name, full in self.names.items()}
        return {**drawn, **heads.start(rng, self.tasks, self.classes, self.read, self.xavier)}

    def keeps(self, rng: np.random.Generator) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.kept.items()}

    def encode(self, images: np.ndarray, peak: int, seed: int) -> Tensor:
        return self.encoded(torch.from_numpy(images), peak, seed)

    def encoded(self, x: Tensor, peak: int, seed: int) -> Tensor:
        """`encode` of a tensor, with a channel axis if the net wants one."""
        return x[:, None] if self.channel else x

    def mask_shapes(self, batch: int) -> list[tuple[int, ...]]:
        return [(batch, self.read), *((batch, *shape) for shape in self.drops)]

    def usage(self, kept: Mapping[str, Tensor], task: int) -> Usage:
        return {"buffers": dict(kept)} if kept else {}

    def features(
        self,
        params: Params,
        x: Tensor,
        task: Which,
        training: bool = False,
        masks: Masks = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """What the heads read, [B, F]. In training, buffers such as running statistics are written in place: they are
        rows of the stack."""
        given: dict[str, Any] = {name: whole(params[full])[0] for name, full in self.names.items()}
        rows = x.float() / self.peak
        if self.layers and not training and masks is None:
            h = forth(self.layers, given, rows)  # what the module does, without its calls
            assert h is not None
            return h
        if not hasattr(self.copies, "module"):
            self.copies.module = deepcopy(self.first)
        module: nn.Module = self.copies.module.train(training)
        layers = drops_of(module) if self.drops else []
        for layer, mask in zip(layers, masks[1:] if masks else [None] * len(layers), strict=True):
            layer.mask = mask
        with running(self.make, self.what):
            rows = by_channels(rows) if self.last and not torch.compiler.is_compiling() else rows
            h = torch.func.functional_call(module, given | dict(buffers or {}), (rows,))
            if not isinstance(h, Tensor) or not h.is_floating_point() or h.flatten(1).shape != (x.shape[0], self.read):
                got = f"shape {list(h.shape)} of {h.dtype}" if isinstance(h, Tensor) else repr(h)
                raise TypeError(f"it returns {got:.200}, and {self.read} floats for each of {len(x)} rows are needed")
        for layer in layers:
            layer.mask = None
        h = h.flatten(1)
        return h if masks is None else h * masks[0]


def drops_of(module: nn.Module) -> list[Dropped]:
    """The layers of a module that wait for masks."""
    return [part for part in module.modules() if isinstance(part, Dropped)]


def without_last(module: nn.Module) -> nn.Module:
    """The module with its last linear layer replaced by nothing."""
    names = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not names:
        raise SettingsError(
            "the net has no linear layer that heads could take the place of; say net.replace_last=false (own=False)"
        )
    parent, _, last = names[-1].rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return module
