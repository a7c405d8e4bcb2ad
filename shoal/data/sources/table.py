"""Tables: CSV and Parquet files, and frames of polars or pandas."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.data import sizes
from shoal.data.bank import Bank, Column
from shoal.data.dataset import DataError
from shoal.data.sources import arrays
from shoal.errors import nearly

if TYPE_CHECKING:
    import polars as pl

MARKS = ("agent", "task", "time", "test")  # columns that say something of a row
LISTS = ("columns", "onehot")  # what a name says joined by commas
KEYS = ("label", *MARKS, *LISTS, "predict")
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet"}


def from_text(path: Path, label: str | None = None, **options: str) -> Bank:
    """A bank of a file, with what stands behind the question mark of a name."""
    if label is None:
        names = frame_of(path).columns
        raise DataError(
            f"nothing says which column of {path} is to be learned; say ?label=NAME, one of {', '.join(names)}"
        )
    split = {key: words(value) if key in LISTS else value for key, value in options.items()}
    return bank_of(path, label, **split)  # type: ignore[arg-type]


def words(value: str) -> list[str]:
    """The values that are joined by commas."""
    return [one.strip() for one in value.split(",")]


def scheme_of(path: str | Path) -> str:
    """What a file is called in settings, by the end of its name."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"cannot tell what {path} is; a table's name ends in {', '.join(SUFFIXES)}, and frames of polars or pandas "
            "are given as they are"
        )
    return SUFFIXES[suffix]


def frame_of(given: Any) -> "pl.DataFrame":
    """A table as a polars frame."""
    import polars as pl

    if isinstance(given, (str, Path)):
        path = Path(given)
        scheme = scheme_of(path)
        sizes.regular(path)
        try:
            if scheme == "parquet":
                sizes.affordable(sizes.of_parquet(path), str(path))
                return usable(pl.read_parquet(path), path)
            sizes.affordable(4 * path.stat().st_size, str(path))
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            return pl.read_csv(path, separator=separator, try_parse_dates=True, infer_schema_length=None)
        except FileNotFoundError:
            raise DataError(f"there is no file {path}; name one that is there") from None
        except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            if isinstance(error, DataError):
                raise
            why = str(error).partition("\n")[0]
            raise DataError(f"cannot read {path} as a table: {why}; mend it, or name another file") from None
    if isinstance(given, pl.LazyFrame):
        return given.collect()
    if isinstance(given, pl.DataFrame):
        return given
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):  # pandas; its own conversion would need pyarrow
        return pl.DataFrame({str(name): series(given[name].to_numpy()) for name in given.columns})
    raise DataError(
        f"a table is a CSV or Parquet file, or a frame of polars or pandas, got {type(given).__name__}; for arrays use "
        "Data.from_arrays"
    )


def usable(frame: "pl.DataFrame", path: Path) -> "pl.DataFrame":
    """A table whose columns have types that can be computed with."""
    import polars as pl

    for name, kind in frame.schema.items():
        if kind in (pl.Int128, pl.Object, pl.Binary, pl.Null):
            raise DataError(f"the column `{name}` of {path} is {kind}, which nothing here reads; save it as numbers")
    return frame


def series(values: np.ndarray) -> Any:
    """A column of pandas; objects are words or dates, or nothing."""
    if values.dtype == object:
        return [None if one is None or one != one else one for one in values]
    return values


def bank_of(
    table: Any,
    label: str | Sequence[str],
    agent: str | None = None,
    task: str | None = None,
    time: str | None = None,
    test: str | None = None,
    columns: Sequence[str] | None = None,
    onehot: Sequence[str] = (),
    predict: str | None = None,
    name: str | None = None,
    names: Sequence[str] | None = None,
) -> Bank:
    """A bank of a table; `Data.from_table` says what the columns are. `names` are those of classes that the label
    column has numbers of."""
    frame = frame_of(table)
    name = name or (Path(table).stem if isinstance(table, (str, Path)) else "table")
    if not len(frame):
        raise DataError(f"there are no rows in `{name}`, only names of columns; give at least one")
    labels = words(label) if isinstance(label, str) and label not in frame.columns else label
    labels = [labels] if isinstance(labels, str) else list(labels)
    marks = {key: one for key, one in zip(MARKS, (agent, task, time, test), strict=True) if one is not None}
    for key, one in [*(("label", one) for one in labels), *marks.items()]:
        there(frame, one, key)
    if columns is not None and isinstance(columns, str):
        columns = words(columns)
    onehot = words(onehot) if isinstance(onehot, str) else list(onehot)
    for one in [*(columns or ()), *onehot]:
        there(frame, one, "columns" if columns and one in columns else "onehot")
    used = list(columns) if columns else [one for one in frame.columns if one not in {*labels, *marks.values()}]
    used += [one for one in onehot if one not in used]
    if not used:
        raise DataError(f"`{name}` has no column to learn from, only {', '.join(frame.columns)}; add some")
    lost(frame, [*used, *labels, *marks.values()], name)
    for one in dict.fromkeys([*labels, *marks.values(), *onehot]):
        spelled(frame, one, name)
    y = np.stack([frame[one].to_numpy() for one in labels], 1) if len(labels) > 1 else frame[labels[0]].to_numpy()
    if names:
        y = np.array([names[int(at)] for at in y])
    read = tuple(Column(one, words_of(frame, one) if one in onehot else None) for one in used)
    x = features(frame, read, name)
    said = {key: frame[one].to_numpy() for key, one in marks.items()}
    return arrays.bank_of(name, x, y, **said, predict=predict, columns=read, wanted=tuple(labels))


def there(frame: "pl.DataFrame", column: str, key: str) -> None:
    """Raise if a table lacks a column."""
    if column not in frame.columns:
        there = f"{nearly(column, frame.columns)}there are {', '.join(frame.columns)}"
        raise DataError(f"{key}: there is no column `{column}`; {there}")


def lost(frame: "pl.DataFrame", columns: Iterable[str], name: str, who: str = "") -> None:
    """Raise if values are missing in a table, or in rows that somebody reads who has learned."""
    counts = {}
    for one in dict.fromkeys(columns):
        column = frame[one]
        missing = column.null_count() + (int(column.is_nan().sum()) if column.dtype.is_float() else 0)
        if missing:
            counts[one] = missing
    if counts:
        said = ", ".join(f"`{one}` in {count}" for one, count in counts.items())
        there = "these rows" if who else "these rows, or leave out such columns by columns=..."
        raise DataError(
            f"values are missing in `{name}`, which has {len(frame)} rows: {said}; fill them in, "
            f"{'or ' * bool(who)}leave out {there}"
        )


def spelled(frame: "pl.DataFrame", column: str, name: str) -> None:
    """Raise for words that would take too much memory as an array: many rows may hold one long word, which a file and
    a frame have once."""
    import polars as pl

    kind = frame[column].dtype
    if kind in (pl.String, pl.Categorical, pl.Enum):
        longest = max(frame[column].unique().cast(pl.String).str.len_bytes().to_list(), default=0) or 0
        needed = sizes.of_words(len(frame), longest)
        sizes.affordable(needed, f"the column `{column}` of `{name}`, {len(frame):,} rows of up to {longest:,} bytes,")


def words_of(frame: "pl.DataFrame", column: str) -> tuple[str, ...]:
    """The different words in a column."""
    return tuple(np.unique(frame[column].cast(str).to_numpy()).tolist())


def features(frame: "pl.DataFrame", columns: Sequence[Column], name: str, who: str = "") -> np.ndarray:
    """What agents read, or `who` has learned to read: numbers as they are, and of a column of words a column of 0 and 1
    for each."""
    import polars as pl

    plain = [one.name for one in columns if one.words is None]
    strange = [one for one in plain if not (frame[one].dtype.is_numeric() or frame.schema[one] == pl.Boolean)]
    if strange:
        told = f"no numbers are in {', '.join(f'`{one}` ({frame.schema[one]})' for one in strange)} of `{name}`"
        if who:
            raise DataError(f"{told}, and {who} learned from numbers there; give numbers")
        fine = ",".join(one for one in plain if one not in strange) or "..."
        raise DataError(
            f"{told}; leave them out by columns={fine}, or say onehot={','.join(strange)} for a column of 0 and 1 for "
            "each word"
        )
    found = []
    for one in columns:
        if one.words is None:
            found.append(frame[one.name].to_numpy().astype(np.float64)[:, None])
        else:
            values = frame[one.name].cast(str).to_numpy()
            found.append((values[:, None] == np.array(one.words)[None]).astype(np.float64))
    return np.concatenate(found, 1)
