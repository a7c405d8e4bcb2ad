"""Bits as whole numbers, and the largest entries of a part of a net with a bit for each that says where they are."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor


def words(bits: int) -> int:
    """How many whole numbers of 32 bits hold so many bits."""
    return -(-bits // 32)


def packed(bits: Tensor) -> Tensor:
    """Bits [..., n] as whole numbers, int32 [..., n / 32]."""
    wide = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 32))
    return torch.from_numpy(np.packbits(wide.numpy(), axis=-1).view(np.int32))


def unpacked(held: Tensor, count: int) -> Tensor:
    """The first `count` bits that whole numbers [..., n] hold, bool [..., count]."""
    return torch.from_numpy(np.unpackbits(held.numpy().view(np.uint8), axis=-1)[..., :count].astype(bool))


def sparse(part: Tensor, many: int, large: float) -> dict[str, Tensor]:
    """The `many` largest entries of a part, none larger than `large`, and where they are."""
    flat = part.flatten()
    held = torch.zeros(len(flat), dtype=torch.bool)
    held[flat.abs().argsort(descending=True, stable=True)[:many]] = True
    return {"values": flat[held].clamp(-large, large), "bits": packed(held)}


def opened(sent: Mapping[str, Tensor], shape: Sequence[int]) -> Tensor:
    """The part that was sent."""
    flat = torch.zeros(prod(shape))
    flat[unpacked(sent["bits"], len(flat))] = sent["values"]
    return flat.view(*shape)
