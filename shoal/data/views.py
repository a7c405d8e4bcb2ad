"""Views: how a task sees the raw rows of a bank, by a number; view 0 sees them as they are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.data.bank import Bank, Numbers, View
from shoal.errors import SettingsError
from shoal.rng import key

if TYPE_CHECKING:
    from shoal.settings.groups import Tasks


@dataclass(frozen=True)
class Permuted:
    """The numbers of a row in another order, the same for all rows and seeds; of pictures in colour, the pixels."""

    def __call__(self, raw: Numbers, number: int) -> Numbers:
        kept = raw.shape[:2] if raw.ndim == 4 else raw.shape[:1]
        flat = raw.reshape(*kept, -1)
        order = key(0, "view", "permuted", number).permutation(flat.shape[-1])
        found: Numbers = flat[..., order].reshape(raw.shape) if number else raw
        return found


@dataclass(frozen=True)
class Rotated:
    """Pictures turned by so many degrees for every number, against the clock."""

    angle: float

    def __call__(self, raw: Numbers, number: int) -> Numbers:
        return turned(raw, number * self.angle)


def permuted(bank: Bank, tasks: "Tasks") -> View:
    """The view of a bank in which numbers change places."""
    return Permuted()


def rotated(bank: Bank, angle: float) -> View:
    """The view of a bank in which pictures are turned."""
    if bank.images.ndim not in (3, 4):
        raise SettingsError(
            f"rows of `{bank.name}` have shape {list(bank.images.shape[1:])}, and only pictures can be turned; use "
            'tasks.scenario = "permuted"'
        )
    return Rotated(angle)


def turned(images: Numbers, degrees: float) -> Numbers:
    """Pictures [N, ..., height, width] turned around their centre, with 0 where nothing was; between pixels, a mean
    weighted by the distance."""
    if degrees % 360 == 0:
        return images
    height, width = images.shape[-2:]
    angle = np.deg2rad(degrees)
    down, right = np.mgrid[:height, :width].astype(np.float64)
    down, right = down - (height - 1) / 2, right - (width - 1) / 2
    # Where each pixel of the turned picture comes from.
    y = np.cos(angle) * down + np.sin(angle) * right + (height - 1) / 2
    x = np.cos(angle) * right - np.sin(angle) * down + (width - 1) / 2
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    found = np.zeros(images.shape, np.float64)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at, to = top + row, left + column
        weight = (1 - np.abs(y - at)) * (1 - np.abs(x - to))
        inside = (at >= 0) & (at < height) & (to >= 0) & (to < width)
        found += np.where(inside, weight, 0) * images[..., at.clip(0, height - 1), to.clip(0, width - 1)]
    result: Numbers = found.round().astype(np.uint8) if images.dtype == np.uint8 else found.astype(images.dtype)
    return result
