"""Texts as rows: a bank holds numbers, and the bytes of a text are numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.data.bank import Numbers
from shoal.data.dataset import DataError
from shoal.errors import UserError

LONGEST = 2000  # bytes of a text that are kept; the text backbone reads about so many


def texts(given: Sequence[str], longest: int = LONGEST) -> NDArray[np.uint8]:
    """Texts as rows [N, bytes]: UTF-8, with zeros behind, cut after `longest` bytes. A backbone for text reads them.

    >>> import shoal
    >>> shoal.texts(["a fish", "a shoal of fish"]).shape
    (2, 15)
    """
    if isinstance(given, str) or not len(given):
        raise DataError("texts are given as a list with a text for each row; give at least one")
    if wrong := [at for at, one in enumerate(given) if not isinstance(one, str)]:
        raise DataError(f"row {wrong[0]} of the texts is {given[wrong[0]]!r:.60}, and a text is wanted; give words")
    # A zero would end the text; what is cut in the middle of a letter loses that letter.
    coded = [
        one.replace("\0", " ").encode("utf-8")[:longest].decode("utf-8", "ignore").encode("utf-8") for one in given
    ]
    found = np.zeros((len(coded), max(1, max(map(len, coded)))), np.uint8)
    for row, one in zip(found, coded, strict=True):
        row[: len(one)] = np.frombuffer(one, np.uint8)
    return found


def spelt(rows: Numbers, name: str) -> list[str]:
    """The texts that rows of `texts` hold."""
    if rows.ndim != 2 or bool(((rows < 0) | (rows > 255) | (rows % 1 != 0)).any()):
        raise UserError(
            f"the backbone `{name}` reads texts as bytes, got rows of shape {list(rows.shape[1:])} that are none; make "
            "them with shoal.texts"
        )
    return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode("utf-8", "replace") for row in rows]
