"""What is kept of predictions, what metrics make of it, and what is said where it is not there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.errors import UserError
from shoal.runs.metrics import METRICS, Run
from shoal.runs.predicted import Predictions, calibration, confusion, f1, of_predictions, recall

SMALL: dict[str, Any] = {
    "tasks": {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1, "common": False},
    "learner": {"epochs": 3, "batch": 8, "memory": 4},
    "model": "mlp",
    "net": {"width": 8, "depth": 2},
    "machine": {"threads": 1},
}
KEEP = {"predictions": True}
SHARE = [{"mode": "fedavg", "every": 1}]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> shoal.Result:
    fleet = shoal.Fleet("digits", agents=2, record=KEEP, sharing=SHARE, **SMALL)
    return fleet.run(seeds=2, out=tmp_path_factory.mktemp("kept") / "run")


def test_the_kept_rows_come_to_the_accuracy_of_the_last_measurement() -> None:
    kept = shoal.Fleet("digits", agents=2, record=KEEP, **SMALL).run(seeds=2)
    for task in (1, 2, 3):
        said = kept.predictions(task).with_columns(pl.col("label", "prediction").cast(pl.String))
        found = said.group_by("seed", "agent", "tested").agg(mine=(pl.col("label") == pl.col("prediction")).mean())
        ends = kept.accuracy.filter(pl.col("task") == task, pl.col("epoch") == pl.col("epoch").max())
        both = found.join(ends, on=["seed", "agent", "tested"])
        assert len(both) == 2 * 2 * task
        assert both["mine"].to_numpy() == pytest.approx(both["accuracy"].to_numpy())


def test_to_keep_predictions_changes_no_number(result: shoal.Result) -> None:
    plain = shoal.Fleet("digits", agents=2, sharing=SHARE, **SMALL).run(seeds=2)
    assert plain.accuracy.equals(result.accuracy)
    assert plain.summary["f1"].item() is None
    assert result.summary["f1"].item() is not None


def test_an_agent_that_is_taken_out_says_what_was_kept(result: shoal.Result) -> None:
    from shoal.data import load

    digits, agent = load("digits"), result.agent(1)
    said = result.predictions().filter(seed=0, agent=1, tested=2)
    assert agent.predict(digits.images[said["row"].to_numpy()], task=2).astype(str).tolist() == [
        str(one) for one in said["prediction"]
    ]


def test_numbers_are_kept_in_their_units() -> None:
    x = np.random.default_rng(0).normal(size=(90, 3))
    data = shoal.Data.from_arrays(x, 1000 + 50 * x[:, 0], agent=["north", "south"] * 45)
    kept = shoal.Fleet(data, model="mlp", learner={"epochs": 20}, record=KEEP).run()
    said = kept.predictions()
    assert 800 < said["label"].min() < said["label"].max() < 1200  # type: ignore[operator]
    error = (
        said.with_columns(gap=(pl.col("label") - pl.col("prediction")).abs())
        .group_by("agent")
        .agg(pl.col("gap").mean())
    )
    assert kept.summary["mean_absolute_error"].item() == pytest.approx(error["gap"].mean())
    assert kept.summary["f1"].item() is None


def test_a_metric_of_ones_own_gets_labels_and_predictions() -> None:
    METRICS.add("agreement", of_predictions(lambda labels, said: float((labels == said).mean())))
    try:
        row = shoal.Fleet("digits", agents=2, record=KEEP, **SMALL).run().summary.row(0, named=True)
    finally:
        METRICS.remove("agreement")
    assert 100 * row["agreement"] == pytest.approx(row["final_accuracy"])


def made(label: list[int], said: list[int], sure: list[float]) -> Run:
    none = np.zeros(len(label), np.int64)
    kept = Predictions(none, none, none, np.array(label), np.array(said), np.array(sure), ("a", "b", "c"))
    return Run(np.zeros((1, 1, 2, 1)), np.array([0.0, 1]), 1, None, None, kept)


def test_the_metrics_are_those_of_the_field_worked_by_hand() -> None:
    label, said = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    assert recall(label, said) == pytest.approx((2 / 3 + 1) / 2)
    assert f1(label, said) == pytest.approx((2 * 2 / (3 + 2) + 2 * 1 / (1 + 2)) / 2)
    run = made([0, 0, 0, 1], [0, 0, 1, 1], [0.9, 0.9, 0.6, 0.6])
    assert calibration(run) == pytest.approx((2 * 0.1 + 2 * 0.1) / 4)  # 0.9 is right twice, 0.6 once of two
    table = confusion(run)
    assert table is not None
    assert table[0, :2, :2] == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]))
    assert np.isnan(table[0, 2]).all()  # a class that nobody met


def test_the_summary_has_the_confusion_of_classes_by_name(result: shoal.Result) -> None:
    found = json.loads((result.folder / "summary.json").read_text())
    assert len(found["confusion_matrix"]) == len(found["classes"]) == 10
    for row in found["confusion_matrix"]:
        assert row[0] is None or sum(row) == pytest.approx(100)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"predictions": "maybe"}, "`record.predictions` cannot be 'maybe'"),
        ({"prediction": True}, "unknown setting `record.prediction`; did you mean `record.predictions`?"),
        (True, "`record`"),
    ],
)
def test_what_cannot_be_kept_is_a_sentence(said: Any, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        shoal.Fleet("digits", record=said)
    assert sentence in str(error.value)


@pytest.mark.parametrize("task", [0, 4, True, "first"])
def test_a_task_that_is_not_there_is_a_sentence(result: shoal.Result, task: Any) -> None:
    with pytest.raises(UserError, match="keeps predictions of the ends of tasks 1 to 3, got"):
        result.predictions(task)


def test_predictions_that_were_not_kept_or_are_damaged_are_a_sentence(tmp_path: Path) -> None:
    plain = shoal.Fleet("digits", agents=2, **SMALL).run()
    with pytest.raises(UserError, match=r"keeps no predictions; run it again with record\.predictions = true"):
        plain.predictions()
    kept = shoal.Fleet("digits", agents=2, record=KEEP, **SMALL).run(out=tmp_path / "run")
    (tmp_path / "run" / "predictions-2.parquet").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"cannot read .*predictions-2.parquet: its SHA-256 is not"):
        kept.predictions(2)


def test_the_page_has_the_metrics_and_the_matrix(result: shoal.Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "report.html").read_text()
    row = result.summary.row(0, named=True)
    assert "What agents say of test rows" in page
    assert f"{row['f1']:.2f} <small>±" in page
    assert "which classes are taken for which" in page
    plain = shoal.Fleet("digits", agents=2, **SMALL).run()
    assert "What agents say of test rows" not in plain.report(tmp_path / "plain.html").read_text()


def test_of_many_classes_the_page_shows_what_is_confused_most() -> None:
    from shoal.report.confusion import matrix_of, most_confused

    names = [f"c{at}" for at in range(40)]
    rows: list[Any] = [[100.0 * (at == to) for to in range(40)] for at in range(40)]
    rows[7] = [60.0 * (to == 7) + 40.0 * (to == 9) for to in range(40)]
    rows[8] = [None] * 40  # nobody met it
    found = matrix_of({"classes": names, "confusion_matrix": rows})
    assert found is not None
    assert found[1][8] is None
    shown = most_confused("which", *found)
    assert "The 1 pairs" not in shown
    assert all(one in shown for one in ("c7", "c9", "40.00", "60.00"))


@pytest.mark.parametrize("rows", [None, [[1.0]], [[1.0], 2], "words"])
def test_a_matrix_that_is_damaged_is_left_out(rows: Any) -> None:
    from shoal.report.confusion import matrix_of

    assert matrix_of({"classes": ["a", "b"], "confusion_matrix": rows}) is None
