"""`Data`: what agents learn from, in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.data.bank import Bank
from shoal.data.sources import arrays

MEMORY = "memory"  # the scheme of data that a Python program holds


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """What agents learn from: rows with their targets and, if the data says so, whose they are and when they came.

    >>> import numpy as np, shoal
    >>> x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    >>> data = shoal.Data.from_arrays(x, y, agent=np.arange(60) % 2)
    >>> len(data.bank), data.bank.sources
    (60, ('0', '1'))
    """

    bank: Bank
    origin: str = ""  # the name of what was read, if a settings file can name it

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        agent: Any = None,
        task: Any = None,
        time: Any = None,
        test: Any = None,
        predict: str | None = None,
    ) -> "Data":
        """Data of arrays, tensors or lists with one row, and one value, for each example.

        `x` has any shape after its rows: [N, columns], [N, channels, steps], [N, height, width] or [N, channels,
        height, width]; pictures with the channels last are moved. Bytes of pictures are divided by the largest, all
        other numbers are scaled for each agent by what its training rows say.

        `y` are labels of any kind, whose names are kept, or numbers to predict: those with a fraction, or several
        floats in a row. Whole numbers are labels, also if they are floats; `predict="numbers"` or `predict="classes"`
        says what they are.

        `agent` says whose row it is, `task` to which task of that agent it belongs (in the order of `time`, if there
        is one, or else of their names), `time` when it was taken: numbers, or dates. `test` marks the rows to test on;
        without it, a fifth of every class in every task of every agent is held out.

        >>> import shoal
        >>> data = shoal.Data.from_arrays([[0.5], [1.5], [2.5], [3.5]] * 5, ["low", "low", "high", "high"] * 5)
        >>> data.bank.classes, int(data.bank.test.sum())
        (('high', 'low'), 4)
        """
        return cls(arrays.bank_of("arrays", x, y, agent, task, time, test, predict))

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        agent: Any = None,
        task: Any = None,
        time: Any = None,
        test: Any = None,
        predict: str | None = None,
    ) -> "Data":
        """Data of a `torch.utils.data.Dataset`, or of anything with a length that gives `(x, y)` for a number.

        If it has `data`, and `targets`, `labels` or `y`, these are taken as they are, unless it has a `transform`;
        otherwise every item is asked for once. The rest is one value for each row as in `from_arrays`; `test` may also
        be another dataset.

        >>> import shoal
        >>> data = shoal.Data.from_dataset([([0.1 * at, 1.0], at % 2) for at in range(20)])
        >>> data.bank.images.shape
        (20, 2)
        """
        from shoal.data.sources.datasets import bank_of

        return cls(bank_of(dataset, agent, task, time, test, predict))

    @classmethod
    def from_folder(
        cls, path: str | Path, pattern: str | None = None, size: tuple[int, int] | int | None = None
    ) -> "Data":
        """Data of a folder of pictures, or of `.npy` files with an array each.

        `pattern` says what the parts of a path are, below the folder: `{agent}/{split}/{class}/*.png`, where a place
        may be `{class}`, `{agent}`, `{task}`, `{time}` or `{split}` (train or test), and `*` is anything. Without it,
        `{class}/*` and `{split}/{class}/*` are found. All pictures have one size, or are resized to `size`, (height,
        width) or one number for both. Needs `pip install "shoal[images]"` for all but `.npy`.

        >>> import pathlib, tempfile, numpy as np, shoal
        >>> place = pathlib.Path(tempfile.mkdtemp())
        >>> for at in range(8):
        ...     (place / f"class{at % 2}").mkdir(exist_ok=True)
        ...     np.save(place / f"class{at % 2}" / f"{at}.npy", np.full((4, 4), at, np.uint8))
        >>> shoal.Data.from_folder(place).bank.classes
        ('class0', 'class1')
        """
        from shoal.data.sources.folder import bank_of, size_of
        from shoal.data.sources.names import name_of

        size = None if size is None else size_of(size)
        return cls(bank_of(path, pattern, size), name_of("folder", path, {"pattern": pattern, "size": size}))

    @classmethod
    def from_table(
        cls,
        table: Any,
        label: str | Sequence[str],
        agent: str | None = None,
        task: str | None = None,
        time: str | None = None,
        test: str | None = None,
        columns: Sequence[str] | None = None,
        onehot: Sequence[str] = (),
        predict: str | None = None,
    ) -> "Data":
        """Data of a table: a CSV or Parquet file, or a polars or pandas frame.

        `label` names the column of classes, or of numbers to predict (or several such), and `agent`, `task`, `time` and
        `test` those that say whose a row is, and so on, as in `from_arrays`. Agents read the other columns, all of
        which must be numbers, or only `columns`. A column of words that is in `onehot` becomes a column of 0 and 1 for
        each word.

        >>> import polars as pl, shoal
        >>> frame = pl.DataFrame({"heat": [0.5, 1.5] * 10, "site": ["a", "a", "b", "b"] * 5, "ok": ["yes", "no"] * 10})
        >>> shoal.Data.from_table(frame, label="ok", agent="site").bank.sources
        ('a', 'b')
        """
        from shoal.data.sources.names import name_of
        from shoal.data.sources.table import bank_of, scheme_of

        said: dict[str, Any] = {
            "label": label,
            "agent": agent,
            "task": task,
            "time": time,
            "test": test,
            "columns": columns,
        }
        options = said | {"onehot": onehot, "predict": predict}
        origin = name_of(scheme_of(table), table, options) if isinstance(table, (str, Path)) else ""
        return cls(bank_of(table, **options), origin)

    def __repr__(self) -> str:
        bank = self.bank
        shape, whose = list(bank.images.shape[1:]), len(bank.sources)
        wide = 0 if bank.targets is None else bank.targets.shape[1]
        found = f"{wide} number{'s' * (wide > 1)} to predict" if wide else f"{len(bank.classes)} classes"
        also = [name for name in ("task", "time") if getattr(bank, name) is not None]
        agents = f", of {whose} agents" * (whose > 1)
        says = f", with {' and '.join(also)}" if also else ""
        return (
            f"Data of {len(bank):,} rows of shape {shape} ({int(bank.test.sum()):,} to test on), {found}{agents}{says}"
        )

    @property
    def name(self) -> str:
        """What settings call it: where it was read, or else a name that the same data has in every program."""
        return self.origin or f"{MEMORY}:{self.bank.digest}"

    def says(self, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the data says of a fleet where the user, who has `said` some of it, is silent: agents and tasks, as in a
        settings file.

        >>> import shoal
        >>> data = shoal.Data.from_arrays([[0.0], [1.0]] * 40, [0, 1] * 40, agent=[0, 0, 1, 1] * 20)
        >>> data.says()["agents"], data.says()["tasks"]["scenario"]
        (2, 'own')
        """
        from shoal.data.sources.advice import says

        return says(self.bank, said or {})
