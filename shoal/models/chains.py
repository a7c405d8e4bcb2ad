"""Chains: nets that are nothing but linear layers of any sizes, one behind the other, with a ReLU behind some of them.

What is one goes to the compiled kernel."""

import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from shoal.models.foreign import Dropped

FLAT = (nn.Flatten, nn.Identity)
FLATTENING = {torch.flatten, "flatten", "view", "reshape"}
ASKING = {getattr, operator.getitem, "size"}  # how large something is
RELU = {torch.relu, F.relu, "relu"}
NEAR = 1e-4  # how far a chain may be from what it was read of


class Layer(NamedTuple):
    """A linear layer, by the name that it has in its module."""

    name: str
    bends: bool  # is there a ReLU behind it?
    drops: tuple[int, ...]  # which of the module's dropout layers are behind it

    @property
    def tensors(self) -> tuple[str, str]:
        """The names of its weight and its bias among the parameters of an agent."""
        return f"net.{self.name}.weight", f"net.{self.name}.bias"


class Tracer(fx.Tracer):
    """Layers that wait for masks are looked at as a whole."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, Dropped) or super().is_leaf_module(module, name)


def chain_of(module: nn.Module, x: Tensor) -> tuple[Layer, ...]:
    """The layers of a module that is a chain, all of which trains; none, if it is anything else. It is tried on rows
    x[B, ...] whether it is what it looks like."""
    known, before = (nn.Linear, nn.ReLU, Dropped, *FLAT), noted(module)
    leaves = [one for one in module.modules() if not [*one.children()]]
    named = dict(module.named_parameters(remove_duplicate=False))
    if not all(type(one) in known for one in leaves) or [*module.buffers()] or not named:
        return ()
    try:
        layers = followed(module, Tracer().trace(module))
    except Exception:  # what cannot be followed is no chain, whatever it raises
        return ()
    own = {name.removeprefix("net.") for layer in layers for name in layer.tensors}
    if own != named.keys() or len(own) != 2 * len(layers) or not all(one.requires_grad for one in named.values()):
        return ()
    with torch.no_grad():
        rows = x + torch.linspace(-1, 1, x.numel()).view(x.shape)
        found, wanted = forth(layers, named, rows), module.eval()(rows).flatten(1)
    if noted(module) != before:  # it counts, or remembers: what it does next may be something else
        return ()
    if found is None or found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=NEAR, atol=NEAR):
        return ()
    return layers


def noted(module: nn.Module) -> list[str]:
    """What a module and its parts note for themselves, in words, but for layers that wait for masks."""
    every = (vars(one).items() for one in module.modules() if not isinstance(one, Dropped))
    return [f"{name}={value!r}" for some in every for name, value in some if name[0] != "_" and name != "training"]


def followed(module: nn.Module, graph: fx.Graph) -> tuple[Layer, ...]:
    """The layers of a graph, one behind the other; none, if there is anything else in it."""
    layers, parts = list[Layer](), dict(module.named_modules())
    drops = [one for one in parts.values() if isinstance(one, Dropped)]
    at: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder" and at is None:
            at = node
            continue
        if node.op == "output":
            return tuple(layers) if node.args == (at,) else ()
        if node.op.startswith("call_") and node.target in ASKING:
            continue
        part = parts[node.target] if node.op == "call_module" else None
        if at is None or node.args[:1] != (at,):
            return ()
        if isinstance(part, nn.Linear):
            layers.append(Layer(node.target, False, ()))
        elif not (isinstance(part, FLAT) or (part is None and node.target in FLATTENING)):
            if not layers or not (isinstance(part, nn.ReLU | Dropped) or (part is None and node.target in RELU)):
                return ()
            last = layers[-1]
            dropped = last._replace(drops=(*last.drops, drops.index(part))) if isinstance(part, Dropped) else None
            layers[-1] = dropped or last._replace(bends=True)
        at = node
    return ()


def forth(layers: Sequence[Layer], weights: Mapping[str, Tensor], x: Tensor) -> Tensor | None:
    """What comes out of one agent's layers for rows x[B, ...]; None, if they do not fit."""
    h = x.flatten(1)
    for layer in layers:
        weight, bias = (weights[name.removeprefix("net.")] for name in layer.tensors)
        if weight.shape[1] != h.shape[1]:
            return None
        h = F.linear(h, weight, bias)
        h = h.relu() if layer.bends else h
    return h


def masks_of(layers: Sequence[Layer], masks: Sequence[Tensor]) -> list[Tensor | None]:
    """What each layer's outputs are multiplied by, feature-major [L, F, B], of the masks [L, B, F] of what the heads
    read and of each dropout layer; None: nothing."""
    found: list[Tensor | None] = []
    for at, layer in enumerate(layers):
        own = [masks[1 + drop] for drop in layer.drops] + ([masks[0]] if at == len(layers) - 1 else [])
        flat = [one.flatten(2).mT for one in own]
        for one in flat[1:]:
            flat[0] = flat[0] * one
        found.append(flat[0] if flat else None)
    return found
