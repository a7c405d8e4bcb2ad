"""Arrays in a `.npz` file, and datasets of Hugging Face that were saved to disk."""

import io
import json
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from shoal.data import sizes
from shoal.data.bank import Bank
from shoal.data.dataset import DataError
from shoal.data.sources import arrays, folder, table

SPLIT = "the split"  # the column that says of which part of the data a row is
NAMES = ("x", "y", "agent", "task", "time", "test")


def from_npz(path: Path, predict: str | None = None) -> Bank:
    """A bank of a file with arrays named x and y and, if they are there, agent, task, time and test."""
    sizes.affordable(2 * sizes.of_npz(path), str(path))
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, BadZipFile, zlib.error, NotImplementedError) as error:
        raise DataError(f"cannot read {path}: {error}; save it with numpy.savez, without objects in it") from None
    missing, strange = [name for name in NAMES[:2] if name not in held], [name for name in held if name not in NAMES]
    if missing or strange:
        what = f"no array `{missing[0]}`" if missing else f"an array `{strange[0]}`, which means nothing here"
        raise DataError(
            f"{path} has {what}; it has {', '.join(held) or 'none'}, and needs x and y, and may have "
            f"{', '.join(NAMES[2:])}"
        )
    return arrays.bank_of(path.stem, **held, predict=predict)


def from_hub(path: Path, label: str | None = None, size: str | None = None, **options: str) -> Bank:
    """A bank of what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` has written: the one column of pictures, or
    the columns that are numbers. The files are in Arrow's format, which polars reads."""
    import polars as pl

    places = {path.name: path}
    if (path / "dataset_dict.json").is_file():
        splits = loaded(path / "dataset_dict.json").get("splits", ())
        if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
            raise DataError(f"{path / 'dataset_dict.json'} names no splits; save the dataset again with save_to_disk")
        places = {split: sizes.inside(path / split, path) for split in splits}
    frames, told = [], dict[str, Any]()
    for split, place in places.items():
        told = loaded(place / "dataset_info.json").get("features") or {}
        frames += [
            stream(sizes.inside(place / one, path)).with_columns(pl.lit(split).alias(SPLIT)) for one in listed(place)
        ]
    if not frames or not isinstance(told, dict):
        raise DataError(f"{path} holds no rows; save the dataset again with save_to_disk")
    whole = pl.concat(frames)
    label = label or usual_label(told, path)
    if len(places) > 1 and "test" not in options:
        options["test"] = SPLIT
    pictures = [name for name, kind in told.items() if isinstance(kind, dict) and kind.get("_type") == "Image"]
    names = told.get(label, {}).get("names") if isinstance(told.get(label), dict) else None
    chosen = {key: table.words(value) if key in table.LISTS else value for key, value in options.items()}
    if not pictures or "columns" in options:
        kept = whole if options.get("test") == SPLIT else whole.drop(SPLIT)
        return table.bank_of(kept, label, name=path.name, names=names, **chosen)  # type: ignore[arg-type]
    if len(pictures) > 1:
        raise DataError(f"{path} has several columns of pictures, {', '.join(pictures)}; keep one of them")
    marks = {key: value for key, value in options.items() if key in table.MARKS}
    for key, one in [("label", label), *marks.items()]:
        table.there(whole, one, key)
    y = whole[label].to_numpy()
    return arrays.bank_of(
        path.name,
        decoded(whole[pictures[0]].to_list(), None if size is None else folder.size_of(size), path),
        np.array([names[at] for at in y]) if names else y,
        **{key: whole[one].to_numpy() for key, one in marks.items()},
        predict=options.get("predict"),
    )


def loaded(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a saved dataset."""
    try:
        if file.exists():
            sizes.affordable(sizes.regular(file).stat().st_size, str(file))
        found = json.loads(file.read_text())
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{file.parent} is no dataset that was saved to disk, because {file.name} cannot be read: {error}; save "
            "one with its method save_to_disk"
        ) from None
    return dict(found)


def listed(place: Path) -> list[str]:
    """The names of the files of a saved dataset."""
    state = loaded(place / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{place} holds a selection of other rows; call flatten_indices() before save_to_disk()")
    files = state.get("_data_files", ())
    names = [one.get("filename") if isinstance(one, dict) else None for one in files] if isinstance(files, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{place / 'state.json'} names no files; save the dataset again with save_to_disk")
    return [str(name) for name in names]


def stream(file: Path) -> Any:
    """The table in a file of Arrow's stream format."""
    import polars as pl

    sizes.affordable(4 * sizes.regular(file).stat().st_size, str(file))
    try:
        return pl.read_ipc_stream(file)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = str(error).partition("\n")[0]
        raise DataError(f"cannot read {file}: {why}; save the dataset again with plain columns or pictures") from None


def usual_label(told: dict[str, Any], path: Path) -> str:
    """The column to learn where nobody says which: the one that has names of classes."""
    found = [name for name, kind in told.items() if isinstance(kind, dict) and kind.get("_type") == "ClassLabel"]
    if len(found) != 1:
        raise DataError(
            f"nothing says which column of {path} is to be learned; say ?label=NAME, one of {', '.join(told)}"
        )
    return found[0]


def decoded(cells: list[Any], size: folder.Size | None, path: Path) -> np.ndarray:
    """The pictures of a column of Hugging Face: each the bytes of a file, or where it is."""
    image = folder.pillow()
    found = []
    if size is not None:
        sizes.of_pictures([size] * len(cells), f"{len(cells):,} pictures of {size[0]} by {size[1]} in {path}")
    for at, cell in enumerate(cells):
        content = cell and cell.get("bytes")
        place = cell and cell.get("path")
        if not content and not place:
            raise DataError(f"row {at} of {path} has no picture; leave out such rows before save_to_disk")
        file = io.BytesIO(content) if content else sizes.regular(sizes.inside(path / str(place), path))
        found.append(folder.picture(image.open, file, size, f"the picture in row {at} of {path}"))
    return folder.together(found, [f"row {at}" for at in range(len(found))], "size=HEIGHT,WIDTH resizes pictures")
