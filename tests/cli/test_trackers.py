"""Trackers: what they are told, and that a run is the same with them, without them, and when they break."""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from safetensors.torch import load_file

from shoal.cli import trackers
from tests.command import DIGITS, TINY, call

WORDS = (*TINY, "sharing=fedavg", "sharing.every=2")
RECORDS = ("accuracy.parquet", "growth.parquet", "ledger.parquet", "others.parquet")
SUMMARY = ("final_accuracy", "auc", "modules", "messages", "bytes_total")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed: an extra of its own")


class Notes:
    """A tracker that remembers what it is told, or fails when it is."""

    told: list[tuple[str, Any]]
    fails = ""

    def __init__(self, record: Any) -> None:
        self.told.clear()
        self.hear("open", record.settings.agents)

    def hear(self, what: str, content: Any) -> None:
        self.told.append((what, content))
        if what == self.fails:
            raise RuntimeError(f"cannot\n{what}")

    def log(self, step: int, values: Any) -> None:
        self.hear("log", (step, values))

    def conclude(self, summary: Any) -> None:
        self.hear("conclude", summary)

    def close(self) -> None:
        self.hear("close", None)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> type[Notes]:
    """A tracker `notes`, whose package is there."""
    monkeypatch.setitem(trackers.TRACKERS, "notes", ("json", "json", Notes))
    Notes.told, Notes.fails = [], ""
    return Notes


def test_a_tracker_hears_of_every_evaluation_and_changes_nothing(notes: type[Notes]) -> None:
    assert call("run", DIGITS, *WORDS, "--out", "plain").code == 0
    done = call("run", DIGITS, *WORDS, "--out", "run", "--track", "notes")
    assert done.code == 0, done.err
    for name in RECORDS:
        assert pl.read_parquet(f"run/{name}").equals(pl.read_parquet(f"plain/{name}"))
    plain, followed = (load_file(f"{run}/checkpoint.safetensors") for run in ("plain", "run"))
    assert all(bytes(followed[name].numpy().data) == bytes(plain[name].numpy().data) for name in plain | followed)
    summary = json.loads(Path("run/summary.json").read_text())
    assert [notes.told[0], *notes.told[-2:]] == [("open", 2), ("conclude", summary), ("close", None)]
    table = pl.read_parquet("run/accuracy.parquet")
    ledger = pl.read_parquet("run/ledger.parquet")
    heard = {step: values for what, (step, values) in notes.told[1:-2] if what == "log"}
    assert list(heard) == sorted(heard)
    for task in (3, 4, 5):
        for label in (0, 1, 7):
            here = table.filter(task=task, epoch=label)
            values = heard[8 * task + label]
            assert values["accuracy/so_far"] == pytest.approx(here["accuracy"].mean(), abs=1e-6)
            assert values["accuracy/current"] == pytest.approx(here.filter(tested=task)["accuracy"].mean(), abs=1e-6)
    assert values["modules"] == summary["modules"]
    assert values["mail/bytes"] == ledger["bytes"].sum()
    assert values["mail/messages"] == len(ledger)


@pytest.mark.parametrize("what", ["open", "log", "conclude", "close"])
def test_a_tracker_that_breaks_costs_a_line(what: str, notes: type[Notes]) -> None:
    notes.fails = what
    done = call("run", DIGITS, *TINY, "--out", "run", "--track", "notes")
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if "notes" in line]
    assert said == [f"notes failed (cannot {what}); the run continues without it"]
    assert Path("run/summary.json").exists()


def test_a_resumed_run_is_followed_too(notes: type[Notes], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(notes, "log", interrupt)
        assert call("run", DIGITS, *TINY, "--out", "run", "--track", "notes").code == 130
    assert notes.told[-1] == ("close", None)
    assert call("resume", "run", "--track", "notes").code == 0
    assert [what for what, _ in notes.told[-2:]] == ["conclude", "close"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_said_before_anything_is_trained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.trackers.find_spec", lambda package: None)
    done = call("run", DIGITS, *TINY, "--out", "run", "--track", name)
    assert done.code == 2
    assert done.err.startswith(f"error: `--track {name}` needs {name}, which is not installed; say `pip install {name}")
    assert not Path("run").exists()


def test_an_unknown_tracker_is_refused() -> None:
    done = call("run", DIGITS, *TINY, "--track", "diary")
    assert (done.code, done.err) == (2, "error: there is no tracker `diary`; allowed: tensorboard, wandb, mlflow\n")


@needs("tensorboard")
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_run() -> None:
    done = call("run", DIGITS, *WORDS, "--out", "run", "--track", "tensorboard")
    assert done.code == 0
    assert "failed" not in done.err
    reading = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reading.EventAccumulator("run/tensorboard").Reload()
    summary = json.loads(Path("run/summary.json").read_text())
    for name in SUMMARY:
        (one,) = events.Scalars(f"summary/{name}")
        assert one.value == pytest.approx(summary[name], rel=1e-5)
    last = events.Scalars("accuracy/so_far")[-1]
    assert (last.step, 100 * last.value) == (5 * 8 + 7, pytest.approx(summary["final_accuracy"], rel=1e-4))
    assert events.Scalars("mail/bytes")[-1].value == summary["bytes_total"]
    (settings,) = events.Tensors("settings/text_summary")
    assert b"epochs = 6" in settings.tensor_proto.string_val[0]


@needs("wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_stays_offline() -> None:
    done = call("run", DIGITS, *TINY, "--out", "run", "--track", "wandb")
    assert done.code == 0
    assert "failed" not in done.err
    assert list(Path("run/wandb").glob("offline-run-*/run-*.wandb"))


@needs("mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_run() -> None:
    done = call("run", DIGITS, *WORDS, "--out", "run", "--track", "mlflow")
    assert done.code == 0
    assert "failed" not in done.err
    mlflow = import_module("mlflow")
    client = mlflow.MlflowClient(tracking_uri=Path("run/mlflow").resolve().as_uri())
    experiment = client.get_experiment_by_name("shoal")
    (run,) = client.search_runs([experiment.experiment_id])
    summary = json.loads(Path("run/summary.json").read_text())
    for name in SUMMARY:
        assert run.data.metrics[f"summary/{name}"] == pytest.approx(summary[name])
    assert run.data.params["learner.epochs"] == "6"
