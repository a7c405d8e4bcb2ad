"""Backbones of torch: an `nn.Module`, or a function or class that makes one."""

import hashlib
import inspect
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.backbones.table import Extractor
from shoal.data.bank import Numbers
from shoal.errors import SettingsError
from shoal.models.foreign import complains

PICTURE = 3  # axes of a batch of pictures in grey


def extractor(thing: Any, name: str = "") -> Extractor:
    """What makes features by a net. One that draws its weights draws the same in every program."""
    name = name or getattr(thing, "__name__", type(thing).__name__)
    what = f"the backbone `{name}`"
    net = thing
    if not isinstance(net, nn.Module) and callable(net):
        with complains(what, "mend it, or give another backbone"), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = thing()
    if not isinstance(net, nn.Module):
        raise SettingsError(
            f"{what} is {type(net).__name__}, and an nn.Module, a function that makes one, a file that ends in .onnx "
            "or a name in `shoal list backbones` is wanted"
        )

    @torch.inference_mode()
    def run(rows: Numbers) -> Numbers:
        x = torch.from_numpy(np.ascontiguousarray(rows))
        if x.ndim == PICTURE and any(isinstance(one, nn.Conv2d) for one in net.modules()):
            x = x[:, None]
        trains = net.training
        with complains(f"{what} does not fit rows of shape {list(rows.shape[1:])}", "give one that reads such rows"):
            said = net.eval()(x)
        net.train(trains)
        if not isinstance(said, Tensor):
            raise SettingsError(f"{what} returns {type(said).__name__}, and a tensor [n, F] is wanted; wrap it in one")
        return said.float().cpu().numpy()

    return Extractor(name, lettered(net), run)


def lettered(net: nn.Module) -> str:
    """Letters that name a net: its parts, its numbers and, where it can be read, its code."""
    found = hashlib.blake2b(digest_size=16)
    for kind in sorted({type(one) for one in net.modules()}, key=lambda one: (one.__module__, one.__qualname__)):
        found.update(f"{kind.__module__}.{kind.__qualname__}".encode())
        if not kind.__module__.startswith("torch."):
            with suppress(OSError, TypeError):  # it was typed into an interpreter
                found.update(inspect.getsource(kind).encode())
    found.update(repr(net).encode())
    for name, tensor in net.state_dict().items():
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
