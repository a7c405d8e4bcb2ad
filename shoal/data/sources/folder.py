"""Folders of pictures, and of `.npy` files: what the parts of a path say."""

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from shoal.data import sizes
from shoal.data.bank import Bank
from shoal.data.dataset import DataError
from shoal.data.sources import arrays

PLACES = ("class", "agent", "split", "task", "time")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
ARRAY = ".npy"
Size = tuple[int, int]  # height, width


def from_text(path: Path, pattern: str | None = None, size: str | None = None) -> Bank:
    """A bank of a folder, with what stands behind the question mark of a name."""
    return bank_of(path, pattern, None if size is None else size_of(size))


def size_of(said: Any) -> Size:
    """A size from what was said of it: a number for both, two of them, or their text, `32` or `32,32`."""
    several = said.replace("x", ",").split(",") if isinstance(said, str) else said
    numbers = list(several) if isinstance(several, (list, tuple)) else [several]
    whole = [int(one) for one in numbers if not isinstance(one, bool) and str(one).strip().isdigit()]
    if len(whole) != len(numbers) or len(whole) not in (1, 2) or not all(whole):
        raise DataError(f"size cannot be {said!r}; say one number for height and width, or both, as in size=32,32")
    return whole[0], whole[-1]


def bank_of(path: str | Path, pattern: str | None = None, size: Size | None = None) -> Bank:
    """A bank of the files of a folder; `Data.from_folder` says what a pattern is."""
    place = Path(path)
    if not place.is_dir():
        raise DataError(f"there is no folder {place}; name one that is there")
    known = sorted(
        one
        for one in place.rglob("*")
        if one.suffix.lower() in (*PICTURES, ARRAY)
        and not any(part.startswith(".") for part in one.relative_to(place).parts)
    )
    if not known:
        raise DataError(
            f"there are no pictures in {place}, and no {ARRAY} files; allowed: {', '.join(PICTURES)}, {ARRAY}"
        )
    below = [one.relative_to(place).as_posix() for one in known]
    pattern = usual(below, place) if pattern is None else pattern
    rule = compiled(pattern)
    met = [(file, found) for file, name in zip(known, below, strict=True) if (found := rule.fullmatch(name))]
    if not met:
        raise DataError(
            f"no file in {place} is like the pattern {pattern}; the first of {len(known)} is {below[0]}, so say a "
            "pattern such as {class}/*"
        )
    files = [file for file, _ in met]
    said = {name: np.array([found[name] for _, found in met]) for name in PLACES if name in rule.groupindex}
    return arrays.bank_of(
        place.name,
        opened(files, size),
        said["class"],
        agent=said.get("agent"),
        task=said.get("task"),
        time=numeric(said["time"]) if "time" in said else None,
        test=said.get("split"),
        predict=arrays.CLASSES,
    )


def numeric(times: np.ndarray) -> np.ndarray:
    """Times in names of files: numbers, or dates as they are."""
    try:
        return times.astype(np.float64)
    except ValueError:
        return times


def usual(names: Sequence[str], place: Path) -> str:
    """The pattern of a folder that nobody describes, if it is one of the usual two."""
    depths = {name.count("/") for name in names}
    if depths == {1}:
        return "{class}/*"
    if depths == {2} and arrays.is_split(sorted({name.partition("/")[0] for name in names})):
        return "{split}/{class}/*"
    raise DataError(
        f"it is not clear which part of {names[0]}, in {place}, is the class; say a pattern such as "
        "{agent}/{class}/* or {agent}/{split}/{class}/*.png"
    )


def compiled(pattern: str) -> "re.Pattern[str]":
    """What a path must look like."""
    rule, seen = "", set()
    for part in re.split(r"(\{[^}]*\}|\*\*/|\*)", pattern.removeprefix("./")):
        if part.startswith("{"):
            name = part[1:-1]
            if name not in PLACES:
                raise DataError(f"{part} in the pattern {pattern} is not known; allowed: {braced(PLACES)} and *")
            if name in seen:
                raise DataError(f"{part} is twice in the pattern {pattern}; say it once, and * elsewhere")
            seen.add(name)
            rule += f"(?P<{name}>[^/]+?)"
        else:
            rule += {"*": "[^/]*", "**/": "(?:.*/)?"}.get(part, re.escape(part))
    if "class" not in seen:
        raise DataError(f"the pattern {pattern} does not say which part is the class; put {{class}} into it")
    return re.compile(rule)


def braced(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def opened(files: Sequence[Path], size: Size | None) -> np.ndarray:
    """The pictures of all files [N, height, width], or [N, 3, height, width] if one of them has colours."""
    if any(file.suffix.lower() != ARRAY for file in files):
        pillow()  # says what is missing before anything is read
    if size is not None:
        sizes.of_pictures([size] * len(files), f"{len(files):,} pictures of {size[0]} by {size[1]}")
    found, total = [], 0
    for file in files:
        sizes.regular(file)
        found.append(array_of(file) if file.suffix.lower() == ARRAY else picture(pillow().open, file, size))
        total += 2 * found[-1].nbytes
        sizes.affordable(total, f"{file.parent.parent} (up to {file.name})")
    return together(found, [str(file) for file in files], "size=(height, width) resizes pictures")


def together(pictures: Sequence[np.ndarray], names: Sequence[str], remedy: str) -> np.ndarray:
    """Pictures [H, W] or [H, W, 3] of one size as one array, in colour if one of them is."""
    colour = any(one.ndim == 3 for one in pictures)
    whole = [np.repeat(one[..., None], 3, -1) if colour and one.ndim == 2 else one for one in pictures]
    for name, one in zip(names, whole, strict=True):
        if one.shape != whole[0].shape:
            raise DataError(
                f"{names[0]} has the shape {list(whole[0].shape)} and {name} {list(one.shape)}, and all must have one; "
                f"{remedy}"
            )
    stacked = np.stack(whole)
    return np.moveaxis(stacked, -1, 1) if stacked.ndim == 4 and stacked.shape[-1] == 3 else stacked


def array_of(file: Path) -> np.ndarray:
    """The array in a file."""
    sizes.affordable(2 * sizes.of_npy(file), str(file))
    try:
        found: np.ndarray = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {file}: {error}; mend it, or take it out of the folder") from None
    return found


def pillow() -> Any:
    """The module that opens pictures, if it is installed."""
    try:
        return import_module("PIL.Image")
    except ImportError:
        raise DataError(
            'pictures are opened by Pillow, which is not installed; pip install "shoal[images]", or give .npy files'
        ) from None


def picture(open_: Any, file: Any, size: Size | None, name: str = "") -> np.ndarray:
    """A picture of a file, or of bytes, grey [H, W] or in colour [H, W, 3]."""
    try:
        with catch_warnings():
            simplefilter("ignore")  # what Pillow thinks of large pictures is said here
            with open_(file) as image:
                sizes.of_pictures([image.size], f"{name or file}, {image.size[0]:,} by {image.size[1]:,} pixels,")
                return pixels(image, size)
    except DataError:
        raise
    except Exception as error:  # a damaged picture can fail in any way
        raise DataError(f"cannot read {name or file}: {error}; mend it, or take it out") from None


def pixels(image: Any, size: Size | None = None) -> np.ndarray:
    """The pixels of a picture of Pillow: bytes, or numbers where it has more than bytes."""
    if image.mode in ("1", "L", "LA"):
        image = image.convert("L")
    elif not image.mode.startswith(("I", "F")):
        image = image.convert("RGB")
    if size is not None:
        image = image.resize((size[1], size[0]), resample=2)  # bilinear
    return np.asarray(image)
