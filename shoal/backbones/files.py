"""Backbones in ONNX files. onnxruntime runs them: operators of the standard alone, and no code of Python."""

from pathlib import Path
from typing import Any

import numpy as np

from shoal.backbones.table import Extractor, lettered
from shoal.data.bank import Numbers
from shoal.errors import UserError

STRANGE = ("is not a registered function/op", "No Op registered", "custom op")
APART = ("external data", "External data")


def opened(file: Path, content: bytes | None = None, name: str = "") -> Extractor:
    """The backbone that a file holds."""
    name = name or str(file)
    try:
        content = file.read_bytes() if content is None else content
    except OSError as error:
        raise UserError(f"cannot read the backbone {file}: {error.strerror}; name a file that is there") from None
    session = started(content, name)
    (first, *more) = session.get_inputs()
    if more or first.type != "tensor(float)":
        said = ", ".join(f"{one.name} of {one.type}" for one in (first, *more))
        raise UserError(
            f"the backbone {name} reads {said}, and one tensor of floats is what rows are; export it with rows alone"
        )
    some, *wanted = [size if isinstance(size, int) else None for size in first.shape]

    def run(rows: Numbers) -> Numbers:
        x = fitted(rows, wanted, name)
        parts = [x] if some is None else [x[at : at + some] for at in range(0, len(x), some)]
        try:
            said = [session.run(None, {first.name: padded(part, some)})[0][: len(part)] for part in parts]
        except Exception as error:  # onnxruntime has kinds of its own
            raise UserError(misfit(name, x.shape[1:], str(error))) from None
        return np.concatenate(said)

    return Extractor(name, lettered(content), run)


def started(content: bytes, name: str) -> Any:
    """A session of onnxruntime. It is given bytes and no path: what it would load from other files is not there."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(f'backbones in ONNX files need {error.name}: pip install "shoal[backbones]"') from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # who waits leaves the core to others
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has kinds of its own
        why = str(error).partition("\n")[0]
        if any(words in why for words in STRANGE):
            raise UserError(
                f"the backbone {name} has operators that are not in ONNX's standard ({why}), and shoal loads none from "
                "libraries; export it with standard ones"
            ) from None
        if any(words in why for words in APART):
            raise UserError(
                f"the backbone {name} keeps weights in other files, which are not read; save it as one file"
            ) from None
        raise UserError(f"the backbone {name} cannot be read as ONNX ({why}); export it anew") from None


def fitted(rows: Numbers, wanted: list[int | None], name: str) -> Numbers:
    """Rows as a net reads them that wants some shape: pictures in grey as three equal colours, and in another size."""
    x = rows
    if len(wanted) == 3 and x.ndim == 3:
        x = x[:, None]
    if len(wanted) == 1:
        x = x.reshape(len(x), -1)
    if len(wanted) == 3 and x.ndim == 4:
        colours, high, wide = wanted
        if colours == 3 and x.shape[1] == 1:
            x = x.repeat(3, 1)
        if high and wide and x.shape[2:] != (high, wide):
            x = resized(x, (high, wide))
    if len(wanted) != x.ndim - 1 or any(w is not None and w != s for w, s in zip(wanted, x.shape[1:], strict=True)):
        raise UserError(misfit(name, rows.shape[1:], f"it reads {[w or '?' for w in wanted]}"))
    return np.ascontiguousarray(x, np.float32)


def padded(x: Numbers, count: int | None) -> Numbers:
    """A batch of so many rows, for a net that reads no other number; the last row stands for those that are missing."""
    return x if count is None or len(x) == count else np.concatenate([x, x[-1:].repeat(count - len(x), 0)])


def misfit(name: str, shape: tuple[int, ...], why: str) -> str:
    return (
        f"the backbone {name} does not fit rows of shape {list(shape)} ({why.partition(chr(10))[0]}); give rows that "
        "it can read, or another backbone"
    )


def resized(x: Numbers, size: tuple[int, int]) -> Numbers:
    """Pictures [n, colours, h, w] in another size."""
    import torch
    from torch.nn import functional as F

    found: Numbers = F.interpolate(torch.from_numpy(np.ascontiguousarray(x)), size, mode="bilinear").numpy()
    return found
