"""Loading the kernel that was built for this machine's instructions."""

import ctypes
import os
from functools import cache
from typing import Any, NamedTuple

import torch

from shoal.compiled import layout
from shoal.compiled.build import digest, file_of, instruction_sets
from shoal.models.cnn import Conv
from shoal.models.contract import Model
from shoal.models.mlp import Linear
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.wrapped import Wrapped

MOST = "SHOAL_INSTRUCTIONS"  # the most that is used of what the machine has, as a cluster of several kinds needs it
AGAIN = "with a C compiler, `python -m shoal.compiled.build` builds it"


class Kernel(NamedTuple):
    """The kernel, or why there is none."""

    library: ctypes.CDLL | None
    about: str  # who compiled it for which instructions, or what is missing


@cache
def kernel() -> Kernel:
    """The kernel for the best instructions that this machine has; it is loaded once, and never compiled here."""
    names = list(instruction_sets())
    most = os.environ.get(MOST, names[-1])
    if most not in names:
        return Kernel(None, f"{MOST} is `{most}`, which is none of {', '.join(names)}")
    try:
        level = min(opened(names[0]).shoal_level(), names.index(most))
        library = opened(names[level])
    except (OSError, ValueError) as error:
        return Kernel(None, str(error))
    return Kernel(library, f"{library.shoal_compiler().decode()} for {names[level]}")


def opened(name: str) -> ctypes.CDLL:
    """The kernel for a set of instructions, if it is that of this source and its structures are as large as ours."""
    file = file_of(name)
    if not file.is_file():
        raise OSError(f"the kernel is not built here; {AGAIN}")
    try:
        library = ctypes.CDLL(str(file))
        declare(library)
    except (OSError, AttributeError) as error:
        raise OSError(f"the kernel in {file} cannot be loaded ({error}); {AGAIN} anew") from None
    if (said := library.shoal_source().decode()) != digest():
        raise ValueError(f"the kernel in {file} is of another source ({said[:8]}, not {digest()[:8]}); {AGAIN} anew")
    sizes = [library.shoal_size(at) for at in range(len(layout.STRUCTURES))]
    if sizes != list(layout.STRUCTURES.values()):
        own = list(layout.STRUCTURES.items())
        raise ValueError(f"the structures of the kernel in {file} have {sizes} bytes, and not those of {own}; {AGAIN}")
    return library


def declare(library: ctypes.CDLL) -> None:
    """Say what the functions of the kernel take and give."""
    number, place, word = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
    functions = {
        "shoal_source": (word, []),
        "shoal_compiler": (word, []),
        "shoal_level": (ctypes.c_int, []),
        "shoal_size": (number, [number]),
        "shoal_means": (None, [place, place, number, number, number, place]),
        "shoal_steps": (ctypes.c_int, [place, place, number, ctypes.c_int, number]),
        "shoal_answers": (ctypes.c_int, [place, number]),
        "shoal_orders": (ctypes.c_int, [place, place, number, number, ctypes.c_int, place, place]),
        "shoal_gru_forth": (ctypes.c_int, [place]),
        "shoal_gru_back": (ctypes.c_int, [place]),
        "shoal_nearest": (ctypes.c_int, [place, number, number, number, place, number, number, place, place]),
    }
    for name, (gives, takes) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = gives, takes


def pictured(model: Monolithic | Modular | Wrapped, reads: torch.dtype) -> dict[str, Any]:
    """What the kernel is told of the images that a net reads, in numbers or bytes; of rows of numbers their width."""
    if isinstance(model, Wrapped):
        wide = (layout.Int * (layout.DEEPEST + 1))(*model.wide)
        bends = (layout.Int * layout.DEEPEST)(*(layer.bends for layer in model.layers))
        bytes_ = {"bytes": reads == torch.uint8, "scaling": model.scaling.data_ptr()}
        return {"chain": 1, "wide": wide, "bends": bends, **bytes_}
    if isinstance(model.block, Linear):
        return {"width": model.block.width}
    assert isinstance(model.block, Conv)
    shape = {"side": model.block.side, "channels": model.block.channels, "bytes": reads == torch.uint8}
    return {"width": model.block.width, **shape, "scaling": model.block.scaling.data_ptr()}


def chained(model: Model) -> bool:
    """Is a net of one's own a chain that the kernel knows?"""
    return isinstance(model, Wrapped) and 0 < len(model.layers) <= layout.DEEPEST


def unsuited(model: Model, device: str, reads: torch.dtype) -> str:
    """Why the kernel does not know such nets; empty: it does."""
    if device != "cpu":
        return f"the device is {device}, and it runs on cpu alone"
    stacked = isinstance(model, Monolithic | Modular) and isinstance(model.block, Linear | Conv)
    if not chained(model) and not stacked:
        return "it knows MLPs and CNNs of shoal's own blocks, and chains of linear layers and ReLUs alone"
    projected = isinstance(model, Monolithic | Modular) and isinstance(model.block, Linear)
    if reads not in (torch.uint8, torch.float32) or (projected and reads != torch.float32):
        return f"it reads bytes and floats alone, and no {reads}"
    return ""
