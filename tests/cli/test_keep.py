"""`shoal export` and `shoal predict`."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import shoal
from tests.agents.test_agents import LEARNER, table
from tests.command import call


@pytest.mark.parametrize("numeric", [False, True])
def test_an_agent_goes_from_a_run_to_predictions(
    numeric: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(numeric).write_csv("rows.csv")
    data = shoal.Data.from_table("rows.csv", "state", agent="site", task="week", onehot=["roof"])
    result = shoal.Fleet(data, model="mlp", net={"width": 6, "depth": 2}, learner=LEARNER).run(out="runs/mine")
    assert "Agent south" in call("export", "runs/mine", "--agent", "south").out
    said = pl.read_csv(io.BytesIO(call("predict", "south.safetensors", "rows.csv").out.encode()))
    wanted = result.agent("south").predict(table(numeric))
    if numeric:
        assert said["state"].to_numpy() == pytest.approx(wanted, rel=1e-5)
    else:
        assert said["state"].to_list() == wanted.tolist()
        assert sum(said.row(0)[1:]) == pytest.approx(1, abs=1e-5)


def test_a_run_goes_on_with_a_file_that_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().write_csv("rows.csv")
    table().drop("week").write_csv("next.csv")
    data = shoal.Data.from_table("rows.csv", "state", agent="site", task="week", onehot=["roof"])
    shoal.Fleet(data, model="mlp", net={"width": 6, "depth": 2}, tasks={"classes": 4}, learner=LEARNER).run(out="mine")
    done = call("run", "data=csv:next.csv?label=state&agent=site&onehot=roof", "--from", "mine")
    assert done.code == 0, done.err
    assert [len(task.classes) for task in shoal.Result.read("mine-on").agent("north").tasks] == [2, 2, 4]
    for more in (("agents=3",), ("--seeds", "3"), ("--workers", "2")):
        refused = call("run", "data=csv:next.csv", *more, "--from", "mine")
        assert refused.code == 2
        assert f"keeps its settings, so `{more[0]}` means nothing" in refused.err
    refused = call("run", "digits", "--from", "mine", "--out", "other")
    assert "a fleet cannot go on with 'digits'; give shoal.Data" in refused.err
    assert "run directory" not in refused.err


def test_a_run_goes_on_by_command_as_often_as_rows_come_and_needs_no_file_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = table(rows=200).with_columns(week=pl.Series(np.arange(200) // 40))
    rows = rows.with_columns(state=pl.Series(np.where(rows["load"] > 0, "busy", "idle")))
    rows.filter(pl.col("week") < 2).write_csv("week1.csv")
    for week in (2, 3, 4):
        rows.filter(pl.col("week") == week).drop("week").write_csv(f"week{week}.csv")
    said: dict[str, Any] = {"model": "mlp", "net": {"width": 6, "depth": 2}, "learner": LEARNER, "network": "ring"}
    said |= {"sharing": [{"mode": "simp", "every": 1}], "tasks": {"initial": 1}}
    shoal.Fleet("csv:week1.csv?label=state&agent=site&task=week&onehot=roof", **said).run(out="mine")
    for week, last in enumerate(("mine", "mine-on", "mine-on-2"), 2):
        monkeypatch.setattr("shoal.data.sources.names.BROUGHT", {})  # as in another program,
        monkeypatch.setattr("shoal.data.sources.names.LATER", {})
        if week > 2:
            Path(f"week{week - 2}.csv").unlink()  # where what was learned before is gone
        words = ("run", f"data=csv:week{week}.csv?label=state&agent=site&onehot=roof", "--from", last)
        done = call(*words)
        assert done.code == 0, done.err
        assert "finished already" in call(*words).err
    parts = shoal.Result.read("mine-on-3")
    whole = shoal.Fleet(shoal.Data.from_table(rows, "state", agent="site", task="week", onehot=["roof"]), **said).run()
    assert len(parts.agent("north").tasks) == 5
    assert parts.accuracy.equals(whole.accuracy)
    assert parts.ledger.equals(whole.ledger)
    for ours, theirs in zip(parts.agents, whole.agents, strict=True):
        pairs = [(ours.state[name], one) for name, one in theirs.state.items() if name != "record/training"]
        assert all(torch.equal(*(one.nan_to_num(-7) for one in pair)) for pair in pairs)
    content = bytearray(Path("mine-on-3/rows.safetensors").read_bytes())
    content[-1] ^= 1
    Path("mine-on-3/rows.safetensors").write_bytes(content)
    monkeypatch.setattr("shoal.data.sources.names.BROUGHT", {})
    done = call("run", "data=csv:week4.csv?label=state&agent=site&onehot=roof", "--from", "mine-on-3")
    assert done.code == 2
    assert "rows.safetensors: its SHA-256 is not the one in manifest.json; restore it" in done.err


def test_an_agent_leaves_a_run_whose_data_was_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(80, 3))
    data = shoal.Data.from_arrays(x, np.where(x[:, 0] > 0, "up", "down"), agent=["north", "south"] * 40)
    result = shoal.Fleet(data, model="mlp", net={"width": 6, "depth": 2}, learner=LEARNER).run(out="mine")
    wanted = result.agent("north").predict(x).tolist()
    monkeypatch.setattr("shoal.data.sources.names.BROUGHT", {})  # as in another program, which does not have the data
    done = call("export", "mine", "--agent", "north")
    assert done.code == 0, done.err
    assert shoal.Agent.load("north.safetensors").predict(x).tolist() == wanted
    assert "run that program again" in call("run", "mine/settings.toml", "--out", "again").err
