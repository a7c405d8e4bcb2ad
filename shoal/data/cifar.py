"""CIFAR-100: Python 2 pickles of 32x32 colour images, one hundred fine classes."""

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Bank, split
from shoal.data.dataset import Content, DataError, Dataset, Download, File


def byte_type(code: str, align: int, copy: int) -> "np.dtype[Any]":
    """The dtype a published array asks for; only bytes occur."""
    if code != "u1":
        raise pickle.UnpicklingError(f"it holds an array of type {code!r}, only bytes ('u1') are allowed")
    # Passed by name and as booleans: the published pickle has integers here, which numpy is about to refuse.
    return np.dtype(code, align=bool(align), copy=bool(copy))


# A pickle can name any function and call it. These three names are all that the published files use. The first is
# taken from an array because numpy keeps it in a private module, whose name changed.
ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0, np.uint8).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): byte_type,
}


class Reader(pickle.Unpickler):
    """An unpickler that builds byte arrays, lists, strings and numbers, and refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for `{module}.{name}`, which is not allowed") from None


def parse(content: Content) -> dict[str, Any]:
    """The dictionary in one file of `cifar-100-python`."""
    try:
        # Python 2 wrote text as bytes; latin1 maps them one to one.
        value = Reader(io.BytesIO(content.data), encoding="latin1").load()
    # Damaged bytes can make an unpickler raise nearly anything; all of it means the same to the user.
    except Exception as error:
        raise DataError(
            f"{content.path} is not a file of CIFAR-100 for Python: {error}; replace it by the published file"
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"{content.path} is not a file of CIFAR-100 for Python: it must hold a dictionary, "
            f"but holds a {type(value).__name__}; replace it by the published file"
        )
    return value


def pick(content: Content, values: dict[str, Any], key: str) -> Any:
    """The entry of a parsed file, or an error that names the file."""
    if key not in values:
        raise DataError(
            f"{content.path} has no entry `{key}`, it has {sorted(map(str, values))}; "
            "replace it by the published file (CIFAR-100, not CIFAR-10)"
        )
    return values[key]


def read(name: str, contents: Mapping[str, Content]) -> Bank:
    """The bank of CIFAR-100 with its fine labels: images[N, 3, 32, 32], channel first as published."""

    def half(content: Content) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        values = parse(content)
        images, labels = pick(content, values, "data"), pick(content, values, "fine_labels")
        if not isinstance(images, np.ndarray) or images.shape != (len(labels), 3 * 32 * 32):
            raise DataError(
                f"{content.path} must hold one row of 3072 pixels for each of its {len(labels)} labels, "
                f"but holds {getattr(images, 'shape', type(images).__name__)}; replace it by the published file"
            )
        return images.reshape(-1, 3, 32, 32), np.array(labels, np.int64)

    meta = contents["meta"]
    return split(name, half(contents["train"]), half(contents["test"]), pick(meta, parse(meta), "fine_label_names"))


CIFAR100 = Dataset(
    name="cifar100",
    about="things and animals, 60,000 colour images of 32x32, 100 classes",
    licence="no licence stated; the authors ask to cite the report below",
    citation="Krizhevsky: Learning multiple layers of features from tiny images. Technical report, 2009",
    read=read,
    hosts=("https://www.cs.toronto.edu/~kriz/",),
    downloads=(
        Download(
            "cifar-100-python.tar.gz",
            169001437,
            "eb9058c3a382ffc7106e4002c42a8d85",
            (
                File(
                    "cifar-100-python/train",
                    155249918,
                    "16019d7e3df5f24257cddd939b257f8d",
                    "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
                ),
                File(
                    "cifar-100-python/test",
                    31049707,
                    "f0ef6b0ae62326f3e7ffdfab6717acfc",
                    "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
                ),
                File(
                    "cifar-100-python/meta",
                    1473,
                    "7973b15100ade9c7d40fb424638fde48",
                    "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9",
                ),
            ),
        ),
    ),
)
