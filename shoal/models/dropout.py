"""Dropout masks from random bits: one drawn byte masks eight units, and every lane draws from its own generator."""

from collections.abc import Sequence
from functools import cache, cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.models.contract import Usage

OWNER = "dropout"
WORDS = 8  # of 32 bits, that Philox draws at once

Shapes = Sequence[tuple[int, ...]]


def init(lanes: int, device: torch.device) -> dict[str, Tensor]:
    """Which lanes train without dropout from now on, bool [L]."""
    return {"off": torch.zeros(lanes, dtype=torch.bool, device=device)}


def switch_off(off: Tensor, rows: Sequence[int]) -> None:
    """Let some lanes train without dropout for good."""
    off[list(rows)] = True


@cache
def table(device: torch.device) -> Tensor:
    """For each byte, its eight bits as factors 0 or 2 (a kept unit is doubled, so that the mean stays)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return torch.from_numpy(bits.astype(np.float32) * 2).to(device)


def draw(rngs: Sequence[np.random.Generator], shapes: Shapes, dropout: float, device: torch.device) -> list[Tensor]:
    """A mask [L, *shape] for each shape, lane l's drawn from generator l."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    total = sum(sizes)
    if dropout == 0.5:
        drawn = np.stack([np.frombuffer(rng.bytes(-(-total // 8)), np.uint8) for rng in rngs])
        rows = torch.from_numpy(drawn).to(device).int().flatten()
        flat = table(device).index_select(0, rows).view(len(rngs), -1)[:, :total]
    else:
        uniform = np.stack([rng.random(total, np.float32) for rng in rngs])
        flat = (torch.from_numpy(uniform).to(device) >= dropout) / (1 - dropout)
    return [part.unflatten(1, shape) for part, shape in zip(flat.split(sizes, 1), shapes, strict=True)]


def words(shapes: Shapes, dropout: float) -> int:
    """How many words of 32 bits of a generator `draw` uses up."""
    total = sum(map(prod, shapes))
    return -(-total // 32) if dropout == 0.5 else total


class Source:
    """The random numbers of one purpose, a generator for every lane, read word by word."""

    def __init__(self, digests: Sequence[bytes]) -> None:
        self.keys = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)  # [L, 2]
        self.address = self.keys.ctypes.data
        self.word = 0  # how many words are taken

    @cached_property
    def live(self) -> list[np.random.Generator]:
        """Generators that one may draw from one after the other."""
        return self.rngs(0)

    def rngs(self, word: int) -> list[np.random.Generator]:
        """The generators as they are after so many words."""
        found = []
        for low, high in self.keys.tolist():
            bits = np.random.Philox(key=low + (high << 64))
            bits.advance(word // WORDS)
            rng = np.random.Generator(bits)
            rng.integers(0, 2**32, word % WORDS, np.uint32)
            found.append(rng)
        return found


class Undrawn(NamedTuple):
    """Masks that are not drawn yet: a kernel draws them where it uses them, bit for bit the same."""

    source: Source
    word: int
    shapes: Shapes
    dropout: float
    off: Tensor  # bool [L]
    further: "Undrawn | None" = None  # masks of more modules behind these, of generators of their own
    axis: int = 0  # of the modules in one agent's masks

    def drawn(self) -> list[Tensor]:
        """The masks of each depth."""
        found = silenced(draw(self.source.rngs(self.word), self.shapes, self.dropout, self.off.device), self.off)
        if self.further is None:
            return found
        return [torch.cat(pair, 1 + self.axis) for pair in zip(found, self.further.drawn(), strict=True)]


def silenced(masks: Sequence[Tensor], off: Tensor) -> list[Tensor]:
    """Masks of which those of lanes without dropout are ones."""
    if not off.any():
        return list(masks)
    return [mask.masked_fill(off.view(-1, *[1] * (mask.ndim - 1)), 1) for mask in masks]


def drawn(usage: Usage) -> Usage:
    """How nets are used, with masks that are drawn."""
    masks = usage.get("masks")
    return {**usage, "masks": masks.drawn()} if isinstance(masks, Undrawn) else usage
