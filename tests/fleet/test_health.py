"""A lane that diverges ends alone: the others go on, bit for bit, and the record says when and why."""

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from shoal.agents.ends import End
from shoal.agents.stack import RECORD, Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.configure.reading import resolve
from shoal.data import load
from shoal.errors import UserError
from shoal.fleet import here
from shoal.fleet.health import WEIGHTS, conclude, examine, losses, norms, silence
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.run import Moment, simulate, train
from shoal.models.table import MODELS
from shoal.runs.read import gather
from shoal.runs.record import reopen
from shoal.runs.tables import training
from shoal.study.cells import scores
from tests.command import DIGITS, TINY, call, refused
from tests.fleets import fleet, same, tables_of

HOT = 'kinds=[{name = "hot", agents = [1], learner = {rate = 1e30}}]'  # a kind that diverges in its first epoch
CPU = torch.device("cpu")


def poison(monkeypatch: pytest.MonkeyPatch, row: int, task: int, epoch: int, value: float | None) -> None:
    """Let a lane diverge in an epoch: a weight takes a value. None: it falls silent, and is as healthy as before."""

    def learn(pairs: Sequence[tuple[World, Stack]]) -> None:
        learn_epoch(pairs)
        stack = pairs[0][1]
        now = stack.epoch
        if (stack.task, now) != (task, epoch):
            return
        if value is None:
            stack.epoch = now + 1  # it ends when the epoch is done, and the clock goes on by itself
            conclude(stack, torch.arange(len(stack.lanes)) == row, WEIGHTS)
            stack.epoch = now
        else:
            next(iter(stack.params.values()))[row].flatten()[3] = value

    monkeypatch.setattr(here, "learn_epoch", learn)


@pytest.mark.parametrize("modes", ["", "fedavg", "recv", "fedcurv", "modmod", "simp"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_lane_that_diverges_is_as_one_that_falls_silent(
    modes: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = "modular-mlp" if modes in ("modmod", "recv") else "mlp"
    tasks = {"count": 4, "classes": 4, "initial": 2, "train": 6, "validation": 4}
    world = fleet(model, tasks=tasks, sharing=tables_of(modes, 2) if modes else [])
    poison(monkeypatch, 1, 2, 1, value)
    one = simulate(world)
    poison(monkeypatch, 1, 2, 1, None)
    other = simulate(world)
    same(one, other)
    assert one.ended.tolist() == [[0, 0, 0], [3, 2, WEIGHTS], [0, 0, 0]]
    assert all(bool(tensor.isfinite().all()) for tensor in one.params.values())
    late = one.ledger.rows[(one.ledger.column("task") * 100 + one.ledger.column("epoch")) > 201]
    assert not (late[:, 3] == 1).any()  # it sends nothing more
    assert np.isnan(one.accuracy[1, 3].numpy()).all()
    assert not np.isnan(one.accuracy[0, 3, -1].numpy()).any()


def test_others_do_not_depend_on_a_lane_that_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without mail, all other lanes are as if nothing had happened."""
    world = fleet("mlp")
    healthy = simulate(world)
    poison(monkeypatch, 1, 4, 1, torch.nan)
    broken = simulate(world)
    rows = [0, 2]
    lanes = [world.lanes[row] for row in rows]
    same(healthy.take(rows, lanes), broken.take(rows, lanes))


def test_a_lane_whose_moments_are_infinite_ends_with_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(pairs: Sequence[tuple[World, Stack]]) -> None:
        learn_epoch(pairs)
        stack = pairs[0][1]
        now = stack.epoch
        if (stack.task, now) == (4, 0):
            next(iter(stack.of("var").values()))[2].flatten()[0] = torch.inf

    monkeypatch.setattr(here, "learn_epoch", learn)
    done = simulate(fleet("mlp"))
    assert [end for end in zip(done.lanes, done.ended.tolist(), strict=True) if end[1][0]] == [
        (done.lanes[2], [5, 4, 2])
    ]


def test_large_weights_are_no_divergence() -> None:
    world = fleet("mlp")
    stack = start(world)
    next(iter(stack.params.values())).fill_(3e38)  # their sum is infinite
    examine(stack)
    assert not stack.gone.any()


def test_a_joint_agent_that_diverges_ends_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = fleet("mlp", seeds=2, tasks={"common": True, "count": 6})
    poison(monkeypatch, 0, 3, 1, torch.nan)
    told: list[Any] = []

    def watch(moment: Moment) -> None:
        told.extend(moment.ended)

    (done,) = train([world], watch=watch)
    assert done.gone.tolist() == [True, True, True, False, False, False]
    assert told[0] == End(0, -1, 4, 2, "weights")
    assert told[-1] == End(0, 2, 4, 2, "weights")


@pytest.mark.parametrize("workers", [0, 2])
def test_if_all_diverge_the_run_ends_with_a_sentence(workers: int) -> None:
    raw: dict[str, Any] = {
        "dataset": "digits", "model": "mlp", "agents": 2, "net": {"width": 8},
        "tasks": {"count": 3, "classes": 2, "initial": 1, "train": 8, "validation": 4},
        "learner": {"epochs": 2, "batch": 8, "memory": 4, "rate": 1e30},
        "machine": {"members": "processes", "workers": workers} if workers else {},
    }  # fmt: skip
    with pytest.raises(UserError) as caught:
        train(worlds(resolve(raw), load("digits")))
    assert str(caught.value) == (
        "all agents have diverged, and the run ends; the last: the common start of seed 0 diverged in task 1, epoch 1: "
        "its weights are no longer finite numbers, and all agents that would begin from it end with it; learner.rate "
        "(1e+30) may be too high, or the data badly scaled"
    )


def test_members_in_processes_end_the_same_lanes() -> None:
    raw: dict[str, Any] = {
        "dataset": "digits", "model": "mlp", "agents": 3, "net": {"width": 8},
        "tasks": {"count": 3, "classes": 2, "initial": 1, "train": 8, "validation": 4, "common": False},
        "learner": {"epochs": 2, "batch": 8, "memory": 4}, "sharing": [{"mode": "fedavg", "every": 1}],
        "kinds": [{"name": "hot", "agents": [1], "learner": {"rate": 1e30}}],
    }  # fmt: skip
    here = train(worlds(resolve(raw), load("digits")))
    there = train(worlds(resolve(raw | {"machine": {"members": "processes", "workers": 2}}), load("digits")))
    for one, other in zip(here, there, strict=True):
        same(one, other)
    assert here[0].ledger.rows.tolist() == there[0].ledger.rows.tolist()
    assert "receiver has ended" in here[0].ledger.column("verdict").tolist()


def test_a_run_with_agents_that_diverge_is_finished_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("agents=3", "model=mlp", "tasks.common=false", HOT, "sharing=fedavg", "sharing.every=2")
    done = call("run", DIGITS, *TINY, *words, "--out", folder)
    assert done.code == 0, done.err
    said = "agent 1 of seed 10 diverged in task 4, epoch 1: its weights are no longer finite numbers"
    assert done.err.count(f"{said}; all others continue\n") == 1
    assert f"{said}\n" in done.out
    assert "2 of 6 agents diverged; means over agents leave them out\n" in done.out
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ended"][0] == {"seed": 10, "agent": 1, "task": 4, "epoch": 1, "why": "weights"}
    assert said in summary["warnings"]
    assert summary["kinds"]["hot"]["final_accuracy"] is None
    (run,), notes = gather([folder])
    assert run.agents.tolist() == [0, 2, 0, 2]
    assert run.complete
    assert said in [note.why for note in notes]
    assert not any("the records are shown" in note.why for note in notes)
    mean = np.mean([one["final_accuracy"] for one in scores(folder).values()])
    assert abs(mean - summary["final_accuracy"]) < 1e-9
    table = pl.read_parquet(folder / "training.parquet")
    ended = table.filter(pl.col("ended").is_not_null())
    assert ended.select("seed", "agent", "task", "ended", "why", "loss").rows() == [
        (10, 1, 3, 1, "weights", None),
        (11, 1, 3, 1, "weights", None),
    ]
    assert call("compare", folder, "--no-page", "--out", tmp_path / "compared").code == 0
    assert call("report", folder, "--out", tmp_path / "page.html").code == 0


def test_a_run_whose_agents_all_diverge_keeps_its_records(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = (*TINY, "model=mlp", "tasks.common=false", "learner.rate=1e30")
    first, second = call("run", DIGITS, *words, "--out", folder), call("resume", folder)
    said = "error: all agents have diverged, and the run ends; the last: agent 0 of seed 10 diverged in task 4, epoch 1"
    for done in (first, second):
        assert (done.code, done.out) == (2, "")
        last = done.err.splitlines()[-1]
        assert last.startswith(said)
        assert last.endswith(f"; what was recorded until then is in {folder}")
    assert {"checkpoint.safetensors", "training.parquet", "accuracy.parquet"} <= {one.name for one in folder.iterdir()}
    assert not (folder / "summary.json").exists()
    refused(call("report", folder, "--out", tmp_path / "page.html"), "all its agents diverged")


def test_a_lane_that_was_saved_with_no_number_ends_and_not_the_run(tmp_path: Path) -> None:
    """A NaN in a checkpoint made every later resume die."""
    world = fleet("mlp")
    kept: list[Stack] = []
    simulate(world, watch=lambda stack: kept.append(deepcopy(stack)))
    (late,) = (stack for stack in kept if (stack.task, stack.epoch) == (4, 2))
    next(iter(late.params.values()))[1].flatten()[0] = torch.nan
    done = simulate(world, late)
    assert done.gone.tolist() == [False, True, False]
    assert done.ended[1].tolist() == [5, 2, WEIGHTS]


def test_training_loss_and_norm_are_in_the_record() -> None:
    world = fleet("mlp")
    done = simulate(world)
    told = done.of(RECORD)["training"]
    assert not told.isnan().any()
    again = losses(world, done, [5])
    torch.testing.assert_close(told[:, 5:, :2], again)
    torch.testing.assert_close(told[:, 5, 2], norms(done))
    assert (told[:, :4, 2] == told[:, :1, 2]).all()  # the initial tasks are learned together
    torch.testing.assert_close(told[..., 1], torch.full(told.shape[:2], 2.0).log())
    table = training(world.settings, [done])
    assert table.columns == ["seed", "agent", "task", "loss", "guessing", "norm", "ended", "why"]
    assert len(table) == 3 * 6
    assert table["why"].null_count() == len(table)


def test_a_run_that_diverges_to_finite_nonsense_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = call("run", DIGITS, *TINY, "model=mlp", "learner.rate=1000.0", "--out", folder)
    assert done.code == 0
    assert "4 of 4 agents ended a task with a training loss above that of guessing" in done.out
    assert "where guessing has 0.693" in done.out
    _, notes = gather([folder])
    assert any("above that of guessing" in note.why for note in notes)
    summary = json.loads((folder / "summary.json").read_text())
    assert any("above that of guessing" in one for one in summary["warnings"])


def test_a_run_that_learns_says_nothing(tmp_path: Path) -> None:
    done = call("run", DIGITS, *TINY, "model=mlp", "learner.rate=0.01", "learner.epochs=30", "--out", tmp_path / "run")
    assert done.code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"] == []


def test_the_records_of_an_earlier_version_are_read_as_before(tmp_path: Path, shown: Path) -> None:
    for path in (shown / "vanilla").iterdir():
        if path.name not in ("training.parquet", "manifest.json"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (run,), _ = gather([tmp_path])
    assert run.complete
    assert reopen(tmp_path).finished


def test_silence_is_the_same_for_every_model() -> None:
    for model in ("mlp", "modular-mlp"):
        assert model in MODELS
        world = fleet(model)
        stack = start(world)
        conclude(stack, torch.tensor([True, False, False]), WEIGHTS)
        silence(stack)
        assert not any(bool(tensor[0].any()) for tensor in stack.params.values())
        assert all(bool(tensor[1].any()) for tensor in stack.params.values() if tensor.any())
