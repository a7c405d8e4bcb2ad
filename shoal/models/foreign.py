"""What is asked of an `nn.Module` of somebody else: how it is made, what it may do, and which engine suits it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import Tensor, nn

from shoal.errors import CodeError, SettingsError, UserError
from shoal.machine import free
from shoal.models.cnn import channels_last
from shoal.models.makers import needed
from shoal.own_code import failed
from shoal.units import shown

ROWS = 23  # that a net is tried on: a number that is nobody's number of channels
CONVOLUTIONS = nn.modules.conv._ConvNd
ALPHA = (nn.AlphaDropout, nn.FeatureAlphaDropout)  # which do more than multiply by a mask


class Suited(NamedTuple):
    """The engine that suits a net on a CPU, why, and what keeps `vmap` from it, if anything does."""

    engine: str
    why: str
    bound: str


def made(make: Callable[..., nn.Module], rng: np.random.Generator, what: str, **given: Any) -> nn.Module:
    """A module with weights of its own, drawn from a named path although it draws them from torch. It gets what it asks
    for of what is `given`."""
    try:
        wanted = needed(make)
    except ValueError:
        wanted = []
    if missing := [name for name in wanted if name not in given]:
        raise SettingsError(
            f"{what} cannot be made without `{missing[0]}`; give it a default, or name a function that makes the net "
            f"(it may ask for {' or '.join(given)})"
        )
    said = {name: given[name] for name in wanted}
    light(make, what, said)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        module = make(**said)
    if not isinstance(module, nn.Module):
        raise SettingsError(f"{what} must be an nn.Module, or a function that makes one, got {module!r}")
    return module


def light(make: Callable[..., nn.Module], what: str, said: Mapping[str, Any]) -> None:
    """Raise for a net that this machine has no memory for: one is made without memory first, if it can be."""
    there = free()
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]), catch_warnings():
            simplefilter("ignore")  # weights that it reads do not fit into no memory
            module = make(**said)
        needed = sum(one.numel() * one.element_size() for one in module.parameters())
    except (Exception, SystemExit):  # what is wrong with it is said when it is made
        return
    if there is not None and needed > there:
        raise SettingsError(
            f"{what} has weights of {shown(needed)}, and {shown(there)} of memory are free here; make it smaller"
        )


class Dropped(nn.Module):
    """In the place of a dropout layer: the mask comes from outside, from a named random path; without one nothing is
    dropped. `shape` is that of one row's mask."""

    def __init__(self, layer: nn.modules.dropout._DropoutNd) -> None:
        super().__init__()
        self.rate, self.wide = layer.p, not isinstance(layer, nn.Dropout)  # wide: channels as a whole
        self.shape: tuple[int, ...] | None = None
        self.calls = 0
        self.mask: Tensor | None = None

    def forward(self, h: Tensor) -> Tensor:
        if self.shape is None:
            self.calls += 1
            self.seen = tuple(h.shape[:2]) + (1,) * (h.ndim - 2) if self.wide else tuple(h.shape)
        return h if self.mask is None else h * self.mask


def masked(module: nn.Module) -> list[Dropped]:
    """Put a layer that waits for masks in the place of every dropout layer of a module, and list them."""
    found = []
    for name, part in list(module.named_modules()):
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 and not isinstance(part, ALPHA):
            parent, _, last = name.rpartition(".")
            setattr(module.get_submodule(parent), last, layer := Dropped(part))
            found.append(layer)
    return found


def without_chance(module: nn.Module, what: str) -> None:
    """Raise for a net that drops out by itself."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise SettingsError(
                f"the layer `{name}` of {what} draws its dropout from torch, and a run could not be repeated; leave it "
                "out: net.dropout acts on what the heads read, and on the modules of modular nets"
            )


def repeatable(module: nn.Module, x: Tensor, what: str) -> None:
    """Raise for a net that comes to other numbers when it learns from the same rows again: it draws from torch where
    nobody can give it a mask, as in F.dropout or the attention of nn.MultiheadAttention."""
    found = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]), untouched(module):
        for seed in (0, 1):
            torch.manual_seed(seed)
            found.append(module.train()(x))
    module.eval()
    if not torch.equal(*(one.nan_to_num() for one in found)):  # what is no number is no chance
        raise SettingsError(
            f"{what} draws random numbers from torch while it learns, and a run could not be repeated; use nn.Dropout "
            "layers, and set the dropout of attention and recurrent layers to 0"
        )


@contextmanager
def complains(what: str, advice: str) -> Iterator[None]:
    """What a stranger's net raises, as one sentence."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # it can fail in any way
        raise CodeError(f"{what}: {words(error)}", failed(error, what).trace, advice) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters say about themselves."""
    talkers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [one.level for one in talkers]
    with catch_warnings():
        simplefilter("ignore")
        for one in talkers:
            one.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for one, level in zip(talkers, before, strict=True):
                one.setLevel(level)


def words(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".; ")


def written(module: nn.Module, x: Tensor) -> list[str]:
    """The buffers that a module writes while it learns."""
    with torch.no_grad(), untouched(module) as before:
        module.train()(x)
        return [name for name, tensor in module.named_buffers() if not torch.equal(tensor, before[name])]


@contextmanager
def untouched(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """What a module writes into its buffers inside is taken back; given is what they were."""
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}
    try:
        yield before
    finally:
        with torch.no_grad():
            for name, tensor in module.named_buffers():
                tensor.copy_(before[name])


def suited(module: nn.Module, x: Tensor) -> Suited:
    """Which engine suits a module that reads x[B, ...]: `vmap` is tried once, on two agents that learn."""
    changed = written(module, x)
    if changed:
        bound = f"it writes `{changed[0]}` while it learns"
        return Suited("loop", bound, bound)
    try:
        several, alone = mapped(module, x, 3), mapped(module, x, 1)
    except (Exception, SystemExit) as error:  # operations without a batching rule raise whatever they like
        bound = f"vmap cannot map it ({words(error)})"
        return Suited("loop", bound, bound)
    if any(isinstance(part, CONVOLUTIONS) for part in module.modules()):
        return Suited("loop", "convolutions are faster one agent after the other on a CPU", "")
    if not all(torch.equal(one[:1], other) for one, other in zip(several, alone, strict=True)):
        return Suited("loop", "under vmap its numbers would depend on how many agents there are", "")
    return Suited("vmap", "its layers are small enough that all agents pay off in one kernel", "")


def by_channels(x: Tensor) -> Tensor:
    """Images whose channels lie next to each other. Of one channel, which lies as it did, the strides say so: torch
    goes on as they say."""
    if x.shape[1] > 1:
        return channels_last(x)
    _, _, rows, columns = x.shape
    return x.contiguous().as_strided(x.shape, (rows * columns, 1, columns, 1))


def channels_pay(module: nn.Module, x: Tensor) -> bool:
    """Is a module of convolutions better given images whose channels lie next to each other, which is much faster on a
    CPU? Not if it looks at how its activations lie, as `view` does: it is tried once, forth and back."""
    if x.ndim != 4 or not any(isinstance(part, nn.Conv2d) for part in module.modules()):
        return False
    found = []
    for rows in (x, by_channels(x)):
        try:
            with untouched(module):
                given = module.train()(rows)
                given.square().sum().backward()
        except (RuntimeError, ValueError):  # of views of what lies otherwise
            break
        finally:
            module.zero_grad()
        found.append(given.detach())
    module.eval()
    return len(found) == 2 and torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-4, equal_nan=True)


def mapped(module: nn.Module, x: Tensor, lanes: int) -> list[Tensor]:
    """What so many agents that learn alike get out of a module under `vmap`, and their gradients."""
    module.train()
    weights = {
        name: (torch.stack([one.detach()] * lanes), one.requires_grad) for name, one in module.named_parameters()
    }
    free = {name: one.requires_grad_() for name, (one, learns) in weights.items() if learns}
    fixed = {name: torch.stack([one] * lanes) for name, one in module.named_buffers()}
    fixed |= {name: one for name, (one, learns) in weights.items() if not learns}

    def one(given: Mapping[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(module, dict(given), (x,))
        return found.float()

    with catch_warnings():
        simplefilter("error")  # torch warns of an operation that it maps one by one
        outputs = torch.func.vmap(one, randomness="error")(free | fixed, torch.stack([x] * lanes))
        slopes = torch.autograd.grad(outputs.square().sum(), list(free.values()), allow_unused=True) if free else ()
    return [outputs.detach(), *(slope for slope in slopes if slope is not None)]
