"""`shoal export` and `shoal predict`."""

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest

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
    assert "keeps its settings" in call("run", "data=csv:next.csv", "agents=3", "--from", "mine").err


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
