"""Codecs: how numbers are made small before they are sent, and what a receiver makes of them.

A codec is written for rows of numbers v[U, n], a row for each module. What it makes of them has the same layout always,
whatever the numbers are: that is what a receiver expects, and what is paid for. A new one is a value of type `Codec`
and a line in `BUILT_IN`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.doors import Table
from shoal.letters.mail import Expected
from shoal.rng import key

Draw = np.random.Generator
Coded = dict[str, Tensor]  # tensors [U, ...] by name
SHORT = 2**15  # a place below this is a short number
NONE, POWER = "none", "power"  # ways to send weights that are no codecs: as they are, and by shoal/sharing/power.py


class Codec(NamedTuple):
    """A way to send n numbers as fewer, or as smaller ones.

    `rounds` and `places` are generators: the first is the sender's own, the second gives the same numbers to both ends.
    """

    layout: Callable[[int, float], dict[str, Expected]]  # of n numbers and the share of them that is sent
    encode: Callable[[Tensor, float, Draw, Draw], Coded]  # v[U, n], share, rounds, places
    decode: Callable[[Mapping[str, Tensor], int, Draw], Tensor]  # coded, n, places -> [U, n]
    gamma: Callable[[float], float]  # the largest step towards neighbours that has been seen to converge, by the share
    apart: bool = False  # is each number coded for itself, so that two coded models can be compared number by number?
    about: str = ""
    floor: float = 0.0  # how far from their mean agents stay in the difference form, as a share of their weights' size


def kept(n: int, ratio: float) -> int:
    """How many of n numbers are sent."""
    return max(1, int(ratio * n))


# Some of the numbers


def topk_layout(n: int, ratio: float) -> dict[str, Expected]:
    whole = torch.int16 if n <= SHORT else torch.int32
    count = kept(n, ratio)
    return {"values": Expected(torch.float32, (None, count)), "places": Expected(whole, (None, count), n)}


def topk_encode(v: Tensor, ratio: float, rounds: Draw, places: Draw) -> Coded:
    at = v.abs().topk(kept(v.shape[1], ratio), dim=1).indices.sort(1).values
    return {"values": v.gather(1, at), "places": at.to(torch.int16 if v.shape[1] <= SHORT else torch.int32)}


def topk_decode(coded: Mapping[str, Tensor], n: int, places: Draw) -> Tensor:
    values = coded["values"]
    return values.new_zeros(len(values), n).scatter_(1, coded["places"].long(), values)


def randk_layout(n: int, ratio: float) -> dict[str, Expected]:
    return {"values": Expected(torch.float32, (None, kept(n, ratio)))}


def drawn(n: int, count: int, places: Draw) -> Tensor:
    """Which numbers go: the same of all modules, so that it does not matter which of them fit a link."""
    return torch.from_numpy(np.sort(places.choice(n, count, replace=False)))


def randk_encode(v: Tensor, ratio: float, rounds: Draw, places: Draw) -> Coded:
    return {"values": v[:, drawn(v.shape[1], kept(v.shape[1], ratio), places)]}


def randk_decode(coded: Mapping[str, Tensor], n: int, places: Draw) -> Tensor:
    values = coded["values"]
    found = values.new_zeros(len(values), n)
    found[:, drawn(n, values.shape[1], places)] = values
    return found


# All numbers, with fewer bits


def scaled(v: Tensor, levels: int, rounds: Draw) -> tuple[Tensor, Tensor]:
    """v as whole numbers in -levels..levels and what they are multiplied by; rounded up or down at random, so that it
    is right on average."""
    scale = v.abs().amax(1) / levels
    share = v / scale.clamp(min=torch.finfo(v.dtype).tiny)[:, None]
    chance = torch.from_numpy(rounds.random(tuple(v.shape), np.float32))
    return (share + chance).floor().clamp(-levels, levels), scale


def int8_layout(n: int, ratio: float) -> dict[str, Expected]:
    return {"values": Expected(torch.int8, (None, n)), "scale": Expected(torch.float32, (None,), least=0.0)}


def int8_encode(v: Tensor, ratio: float, rounds: Draw, places: Draw) -> Coded:
    whole, scale = scaled(v, 127, rounds)
    return {"values": whole.to(torch.int8), "scale": scale}


def int8_decode(coded: Mapping[str, Tensor], n: int, places: Draw) -> Tensor:
    return coded["values"].float() * coded["scale"][:, None]


def int4_layout(n: int, ratio: float) -> dict[str, Expected]:
    return {
        "values": Expected(torch.uint8, (None, -(-n // 2))),
        "scale": Expected(torch.float32, (None,), least=0.0),
    }


def int4_encode(v: Tensor, ratio: float, rounds: Draw, places: Draw) -> Coded:
    whole, scale = scaled(v, 7, rounds)
    both = torch.nn.functional.pad((whole + 8).to(torch.uint8), (0, v.shape[1] % 2)).unflatten(1, (-1, 2))
    return {"values": both[..., 0] * 16 + both[..., 1], "scale": scale}


def int4_decode(coded: Mapping[str, Tensor], n: int, places: Draw) -> Tensor:
    both = torch.stack([coded["values"] // 16, coded["values"] % 16], 2).flatten(1)[:, :n]
    return (both.float() - 8) * coded["scale"][:, None]


def sign_layout(n: int, ratio: float) -> dict[str, Expected]:
    return {
        "values": Expected(torch.uint8, (None, -(-n // 8))),
        "scale": Expected(torch.float32, (None,), least=0.0),
    }


def sign_encode(v: Tensor, ratio: float, rounds: Draw, places: Draw) -> Coded:
    bits = np.packbits((v >= 0).numpy(), axis=1)
    return {"values": torch.from_numpy(bits), "scale": v.abs().mean(1)}


def sign_decode(coded: Mapping[str, Tensor], n: int, places: Draw) -> Tensor:
    bits = torch.from_numpy(np.unpackbits(coded["values"].numpy(), axis=1, count=n))
    return (2.0 * bits - 1) * coded["scale"][:, None]


BUILT_IN: dict[str, Codec] = {
    "topk": Codec(
        topk_layout,
        topk_encode,
        topk_decode,
        lambda ratio: min(0.4, 2 * ratio),
        about="The largest `ratio` of the numbers, with their places",
    ),
    "randk": Codec(
        randk_layout,
        randk_encode,
        randk_decode,
        lambda ratio: ratio,
        apart=True,
        about="A random `ratio` of the numbers; both ends know which",
    ),
    "int8": Codec(
        int8_layout,
        int8_encode,
        int8_decode,
        lambda ratio: 1.0,
        apart=True,
        about="A byte for every number, rounded at random (Alistarh et al. 2017)",
        floor=0.004,
    ),
    "int4": Codec(
        int4_layout,
        int4_encode,
        int4_decode,
        lambda ratio: 1.0,
        apart=True,
        about="Half a byte for every number, rounded at random",
        floor=0.08,
    ),
    "sign": Codec(
        sign_layout,
        sign_encode,
        sign_decode,
        lambda ratio: 0.5,
        about="A bit for every number, and their mean size (Bernstein et al. 2018)",
    ),
}
CODECS: Table[Codec] = Table(
    "codec", BUILT_IN, "shoal.codecs", lambda entry: isinstance(entry, Codec), also=(NONE, POWER)
)


# Modules that are sent once


def in_bytes(modules: Mapping[str, Tensor], who: Sequence[tuple[int, int, str, int]]) -> Coded:
    """Modules, tensors [n, ...] by name, with a byte for each weight; vectors stay as they are. `who` names each by
    seed, agent, mode and task, whose random numbers round it: it is the same whoever it is sent to."""
    found: Coded = {}
    for name, tensor in modules.items():
        if tensor.ndim < 3:
            found[name] = tensor
            continue
        every = []
        for one, (seed, agent, mode, task) in zip(tensor, who, strict=True):
            draw = key(seed, agent, mode, "rounding", task, name)
            every.append(int8_encode(one.flatten()[None], 1.0, draw, draw))
        found |= {f"{name}.{part}": torch.cat([one[part] for one in every]) for part in every[0]}
    return found


def in_numbers(shapes: Mapping[str, tuple[int, ...]], content: Mapping[str, Tensor]) -> Coded:
    """What a receiver makes of modules that came in bytes, or as they are: tensors [n, *shape] by name, and all else
    that came with them."""
    found = dict(content)
    for name, shape in shapes.items():
        if name not in content:
            parts = {part: found.pop(f"{name}.{part}") for part in int8_layout(prod(shape), 1.0)}
            found[name] = int8_decode(parts, prod(shape), key(0)).unflatten(1, shape)
    return found
