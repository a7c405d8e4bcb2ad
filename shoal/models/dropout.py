"""Dropout masks from random bits: one drawn byte masks eight units, and every lane draws from its own generator."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

OWNER = "dropout"


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


def draw(
    rngs: Sequence[np.random.Generator], shapes: Sequence[tuple[int, ...]], dropout: float, device: torch.device
) -> list[Tensor]:
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
