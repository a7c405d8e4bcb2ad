"""What data means is said before a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.data.dataset import DataError
from shoal.data.sources.meaning import column
from tests.command import call

pytestmark = pytest.mark.usefixtures("nowhere")
LEARNER = {"epochs": 1, "batch": 8, "memory": 2}


def notes(x: Any, y: Any, **said: Any) -> str:
    agents = said.pop("agents", None)
    fleet = shoal.Fleet(shoal.Data.from_arrays(x, y, **said), agents=agents, model="mlp", learner=LEARNER)
    return "\n".join(fleet.check().notes)


def rows(count: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, columns))


def test_what_the_target_is_is_said() -> None:
    assert "to predict: one of 2 classes (cat, dog)" in notes(rows(400), ["cat", "dog"] * 200)
    assert "to predict: 1 number for each row, between 0.5 and 399.5" in notes(rows(400), np.arange(400) + 0.5)
    said = notes(rows(400), np.arange(400) % 4)
    assert 'one of 4 classes (0, 1, 2, 3); if these are numbers to predict, say predict="numbers"' in said


def test_whole_numbers_that_could_be_either_are_asked_for() -> None:
    counts = np.random.default_rng(0).integers(0, 900, 3000)
    with pytest.raises(DataError, match=r"different whole numbers in 3000 rows; say predict=\"numbers\" if they are"):
        shoal.Data.from_arrays(rows(3000), counts)
    ids = np.arange(3000) % 60
    assert len(shoal.Data.from_arrays(rows(3000), ids).bank.classes) == 60
    with pytest.raises(DataError, match="say predict"):
        shoal.Data.from_arrays(rows(3000), 10 * ids)  # minutes, say


def test_what_is_too_small_is_said_and_where() -> None:
    agent = np.repeat(["north", "south"], [400, 40])
    said = notes(rows(440), np.arange(440) % 2, agent=agent)
    assert "have fewer than 30 test rows, the fewest task 1 of south with 8: one row moves its accuracy by 12" in said
    assert "fewer than 30" not in notes(rows(400), np.arange(400) % 2, agents=1)


def test_sites_with_one_class_are_named() -> None:
    agent, label = np.repeat(["a", "b"], 200), np.concatenate([np.arange(200) % 2, np.zeros(200)])
    said = notes(rows(400), label, agent=agent, task=np.zeros(400))
    assert "1 task with one class, the first task 1 of b: there is nothing to tell apart" in said


def test_rows_that_are_in_training_and_test_are_counted() -> None:
    x = rows(200)
    test = np.arange(200) >= 160
    x[160:170] = x[:10]
    assert "10 of 40 test rows are training rows too" in notes(x, np.arange(200) % 2, test=test)
    assert "training rows too" not in notes(rows(200), np.arange(200) % 2)


def test_a_column_that_counts_rows_is_named() -> None:
    x = rows(200)
    x[:, 1] = np.arange(200)
    assert "column 2 of what agents read goes up by the same" in notes(x, np.arange(200) % 2)
    assert "goes up" not in notes(rows(200), np.arange(200) % 2)
    kinds = [("u", "v")[at % 2] for at in range(200)]
    frame = pl.DataFrame({"what": kinds, "a": x[:, 0], "place": x[:, 1], "kind": kinds})
    table = shoal.Data.from_table(frame, label="kind", onehot=["what"])
    said = "\n".join(shoal.Fleet(table, model="mlp", learner=LEARNER).check().notes)
    assert "column `place` of what agents read goes up by the same" in said
    assert [column(table.bank, at) for at in range(4)] == ["`what` = u", "`what` = v", "`a`", "`place`"]


def test_agents_that_are_fewer_or_more_than_sites_are_said() -> None:
    label, agent = np.arange(600) // 3 % 2, np.arange(600) % 3
    fewer, more = (notes(rows(600), label, agent=agent, agents=count) for count in (2, 6))
    assert "2 agents and 3 sites: nobody has the rows of 2; say agents=3" in fewer
    assert "6 agents and 3 sites: some sites are shared by several" in more
    assert " sites" not in notes(rows(600), label, agent=agent)


def test_sites_tasks_classes_and_rows_are_a_table() -> None:
    data = shoal.Data.from_arrays(rows(400), np.arange(400) // 2 % 2, agent=np.arange(400) % 2)
    table = shoal.Fleet(data, model="mlp").check().data
    assert table.columns == ["agent", "site", "task", "classes", "training", "validation", "test"]
    # Of two classes all tasks have both, and other rows.
    assert table.rows() == [(at, str(at), task, 2, 32, 8, 40) for at in range(2) for task in range(1, 5)]


def written(name: str = "data.csv") -> str:
    x = rows(400)
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": ["u", "v"] * 200, "site": ["p", "p", "q", "q"] * 100})
    (frame.write_parquet if name.endswith("parquet") else frame.write_csv)(name)
    return name


def test_data_can_stand_in_the_place_of_a_settings_file() -> None:
    short = ("model=mlp", "learner.epochs=1", "net.width=8")
    for name in ("data.csv", "data.parquet"):
        scheme = name.split(".")[1]
        done = call("check", f"{scheme}:{written(name)}?label=kind&agent=site", *short)
        assert done.code == 0, done.err
        assert "to predict: one of 2 classes (u, v)" in done.out
    done = call("run", f"csv:{written()}?label=kind&agent=site", *short)
    assert done.code == 0, done.err
    assert "to predict: one of 2 classes (u, v)" in done.err
    assert [one.name.split("-")[0] for one in Path("runs").iterdir()] == ["data"]
    bare = call("check", written("data.parquet"))
    assert bare.code != 0
    assert "label" in bare.err


def test_data_in_the_place_of_an_experiments_says_itself_who_has_it() -> None:
    done = call("check", "digits", f"dataset=csv:{written()}?label=kind&agent=site", "model=mlp")
    assert done.code == 0, done.err
    assert "2 agents" in done.out
    kept = call("check", "digits", f"dataset=csv:{written()}?label=kind&agent=site", "model=mlp", "agents=4")
    assert "4 agents and 2 sites" in kept.out
    before = call("check", "digits", "agents=4", f"dataset=csv:{written()}?label=kind&agent=site", "model=mlp")
    assert "4 agents and 2 sites" in before.out  # a word of the user's is no setting of the file


def test_what_data_does_not_take_over_from_an_experiment_is_said() -> None:
    words = ("digits", f"dataset=csv:{written()}?label=kind&agent=site", "model=mlp", "learner.epochs=1", "net.width=8")
    for command in ("check", "run"):
        done = call(command, *words, "seeds=1")
        assert done.code == 0, done.err
        assert "of digits this is not taken over, because it is about its data, digits: agents=8, tasks." in done.err
    plain = call("check", words[1].removeprefix("dataset="), "model=mlp")
    assert "not taken over" not in plain.err


def test_advise_says_what_data_means_before_it_runs() -> None:
    words = ("digits", f"dataset=csv:{written()}?label=kind&agent=site", "model=mlp", "learner.epochs=2", "net.width=8")
    begin = ("sharing=simp", "sharing.simp.start=0", "sharing.simp.every=1")
    done = call("advise", *words, *begin, "--candidates", "simp", "--seeds", "2", "--no-fit", "--out", "out", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    for part in ("to predict: one of 2 classes (u, v)", "of digits this is not taken over"):
        assert part in done.err
        assert any(part in note for note in told["notes"])
    assert done.err.index("to predict") < done.err.index("simp-seeds")
    assert Path("out/advise.txt").read_text().splitlines() == [told["sentence"], *told["notes"]]


def test_repeating_a_finished_command_prints_its_result() -> None:
    words = ("run", "digits", "agents=2", "tasks.count=4", "learner.epochs=1", "seeds=1", "--json")
    first, again = call(*words), call(*words)
    assert (first.code, again.code) == (0, 0), again.err
    assert first.out == again.out
    assert "was finished already" in again.err


def test_one_number_is_a_size() -> None:
    for at in range(8):
        Path(f"pictures/class{at % 2}").mkdir(exist_ok=True, parents=True)
        pytest.importorskip("PIL.Image").new("L", (5, 7), at).save(f"pictures/class{at % 2}/{at}.png")
    assert shoal.Data.from_folder("pictures", size=4).bank.images.shape == (8, 4, 4)
