"""A bank as one safetensors file, with all that is known of its rows."""

import json
from dataclasses import fields
from typing import Any

import numpy as np

from shoal.data.bank import Bank, Column
from shoal.data.dataset import DataError

KEY = "shoal.rows"  # where the metadata of a file says what is no array


def packed(bank: Bank) -> bytes:
    """The content of a file that holds a bank."""
    from safetensors.numpy import save

    said = {one.name: getattr(bank, one.name) for one in fields(bank) if one.name != "view"}
    arrays = {name: np.ascontiguousarray(one) for name, one in said.items() if isinstance(one, np.ndarray)}
    rest = {name: one for name, one in said.items() if name not in arrays}
    return save(arrays, {KEY: json.dumps(rest)})


def unpacked(content: bytes) -> Bank:
    """The bank that a file holds."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        size = int.from_bytes(content[:8], "little")
        said: dict[str, Any] = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
        said["columns"] = [Column(name, None if words is None else tuple(words)) for name, words in said["columns"]]
        lists = {name: tuple(one) for name, one in said.items() if isinstance(one, list)}
        return Bank(**{**said, **lists, **load(content)})
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"the rows that a run keeps cannot be read ({error}); restore the file from a copy") from None
