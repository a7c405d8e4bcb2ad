"""The UCI digits that scikit-learn users know: small enough to be part of the package."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import numpy as np

from shoal.data.bank import Bank
from shoal.data.dataset import Content, DataError, Dataset

PLACE = Path(__file__).with_name("digits.npz")
ALONE = Lock()  # numpy reads headers by `ast`, which Python 3.11 now and then fails at in two threads at once


def read(name: str, contents: Mapping[str, Content]) -> Bank:
    """The bank of 1,797 digits: images[N, 8, 8] with pixels 0..16.

    These images have no official split. Every third one (index % 3 == 2) is a test image: 1,198 to learn from, 599 to
    test on. A writer's images lie next to each other, so both halves know every writer: easier than a test on new ones.
    """
    try:
        with ALONE, np.load(PLACE) as arrays:
            images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{PLACE} is missing or damaged ({error}); it is part of shoal: install shoal again") from error
    test = np.arange(len(images)) % 3 == 2
    return Bank(
        name=name,
        images=images,
        labels=labels,
        source=np.zeros(len(images), np.int64),
        test=test,
        peak=int(images[~test].max()),
        classes=tuple(f"{name}/{digit}" for digit in range(10)),
        sources=(name,),
    )


DIGITS = Dataset(
    name="digits",
    about="handwritten digits, 1,797 grey images of 8x8, 10 classes; part of shoal",
    licence="CC BY 4.0 (Alpaydin, Kaynak), doi:10.24432/C50P49",
    citation="Alpaydin, Kaynak: Optical recognition of handwritten digits. UCI Machine Learning Repository, 1998",
    read=read,
    shipped=PLACE,
    says={"tasks": {"validation": 10}},  # there are not 50 of a class beside those to train on
)
