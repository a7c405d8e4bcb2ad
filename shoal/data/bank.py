"""A bank: all images and labels of a dataset, held once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


# Banks compare by identity: comparing two large arrays element by element is never what a caller wants.
@dataclass(frozen=True, eq=False)
class Bank:
    """All images and labels of a dataset, once.

    `images[N, ...]` are raw pixels: `[N, 28, 28]` for the MNIST family, `[N, 3, 32, 32]` (channel first) for CIFAR-100,
    `[N, 8, 8]` for digits. `labels[N]` are global class ids: one id never means two things, also when several
    sources are joined. `source[N]` is an index into `sources`. `test[N]` marks the test images. Pixels become numbers
    in 0..1 when divided by `peak`, the largest pixel of the training images.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    source: NDArray[np.int64]
    test: NDArray[np.bool_]
    peak: int
    classes: tuple[str, ...]
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        for field, array, dtype in (
            ("images", self.images, np.uint8),
            ("labels", self.labels, np.int64),
            ("source", self.source, np.int64),
            ("test", self.test, np.bool_),
        ):
            if array.dtype != dtype:
                raise ValueError(
                    f"bank `{self.name}`: {field} must be {np.dtype(dtype)}, got {array.dtype}; "
                    f"convert with .astype(np.{np.dtype(dtype)})"
                )
            if field == "images" and array.ndim < 3:
                raise ValueError(
                    f"bank `{self.name}`: images must have shape [N, height, width] or [N, channels, height, width], "
                    f"got {list(array.shape)}"
                )
            if field != "images" and array.shape != self.images.shape[:1]:
                raise ValueError(
                    f"bank `{self.name}`: {field} must have one entry for each of the {len(self.images)} images, "
                    f"got shape {list(array.shape)}"
                )
        if not len(self.images):
            raise ValueError(f"bank `{self.name}`: there are no images; give at least one")
        if self.peak < 1:
            raise ValueError(
                f"bank `{self.name}`: peak must be 1 or more because pixels are divided by it, got {self.peak}"
            )
        for field, ids, names in (("labels", self.labels, self.classes), ("source", self.source, self.sources)):
            if len(set(names)) < len(names):
                raise ValueError(
                    f"bank `{self.name}`: every name in {names} must be different, or ids become ambiguous"
                )
            if ids.min() < 0 or ids.max() >= len(names):
                raise ValueError(
                    f"bank `{self.name}`: {field} must lie in 0..{len(names) - 1} (there are {len(names)} names), "
                    f"got {ids.min()}..{ids.max()}"
                )

    def __len__(self) -> int:
        return len(self.images)


def join(banks: Sequence[Bank], name: str) -> Bank:
    """One bank of several: the class ids and sources of each are moved behind those of the banks before it."""
    if not banks:
        raise ValueError(f"bank `{name}`: there is nothing to join; give at least one bank")
    first = banks[0]
    for bank in banks[1:]:
        if bank.images.shape[1:] != first.images.shape[1:]:
            raise ValueError(
                f"bank `{name}`: images of `{bank.name}` have shape {list(bank.images.shape[1:])}, those of "
                f"`{first.name}` {list(first.images.shape[1:])}; join banks of one image shape"
            )
        # One divisor serves the whole bank, so a bank with another peak would silently be scaled wrongly.
        if bank.peak != first.peak:
            raise ValueError(
                f"bank `{name}`: `{bank.name}` has peak {bank.peak}, `{first.name}` {first.peak}; "
                "join banks of one peak, or rescale the pixels first"
            )
    labels, source, at, place = [], [], 0, 0
    for bank in banks:
        labels.append(bank.labels + at)
        source.append(bank.source + place)
        at += len(bank.classes)
        place += len(bank.sources)
    return Bank(
        name=name,
        images=np.concatenate([bank.images for bank in banks]),
        labels=np.concatenate(labels),
        source=np.concatenate(source),
        test=np.concatenate([bank.test for bank in banks]),
        peak=first.peak,
        classes=tuple(c for bank in banks for c in bank.classes),
        sources=tuple(s for bank in banks for s in bank.sources),
    )


def split(
    name: str,
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    classes: Sequence[str],
) -> Bank:
    """A bank of one source from its official training and test images and labels; class names get the source's name."""
    images = np.concatenate([train[0], test[0]])
    return Bank(
        name=name,
        images=images,
        labels=np.concatenate([train[1], test[1]]),
        source=np.zeros(len(images), np.int64),
        test=np.arange(len(images)) >= len(train[0]),
        peak=int(train[0].max()),
        classes=tuple(f"{name}/{c}" for c in classes),
        sources=(name,),
    )
