"""Grids of runs."""

import json
import signal
from pathlib import Path

import pytest

from shoal.runs.pareto import on_front
from shoal.study import sweep
from shoal.study.cells import read_csv
from tests.command import DIGITS, TINY, call, fork, refused

pytestmark = pytest.mark.usefixtures("nowhere")

SMALL = (*(word for word in TINY if not word.startswith("learner.epochs")), "learner.epochs=4", "network=ring")


def words_of(*words: str) -> list[dict[str, str]]:
    """What each cell of a grid was told, of what the test varies."""
    keys = [word.partition("=")[0] for word in words]
    return [{key: cell.words[key] for key in keys if key in cell.words} for cell in sweep.grid(DIGITS, words)]


def test_a_grid_has_a_cell_per_combination() -> None:
    assert words_of("learner.rate=0.1,0.2", "seed=1,2,3") == [
        {"learner.rate": rate, "seed": seed} for rate in ("0.1", "0.2") for seed in ("1", "2", "3")
    ]


def test_a_setting_of_a_mode_counts_where_the_mode_shares() -> None:
    found = words_of("sharing=none,recv,fedavg,recv+fedavg", "sharing.fedavg.every=5,10", "network=ring,complete")
    assert [one["sharing"] for one in found] == ["none"] + ["recv"] * 2 + ["fedavg"] * 4 + ["recv+fedavg"] * 4
    assert found[0] == {"sharing": "none"}
    assert found[1] == {"sharing": "recv", "network": "ring"}
    assert found[3] == {"sharing": "fedavg", "sharing.fedavg.every": "5", "network": "ring"}
    cells = sweep.grid(DIGITS, ["sharing.every=5,10", "sharing=fedavg,recv"])  # in any order
    assert [(cell.settings.sharing[0].mode, cell.settings.sharing[0].every) for cell in cells] == [
        ("fedavg", 5), ("recv", 5), ("fedavg", 10), ("recv", 10)
    ]  # fmt: skip
    (hybrid,) = sweep.grid(DIGITS, ["sharing=recv+modmod+fedavg"])
    assert [mode.mode for mode in hybrid.settings.sharing] == ["recv", "modmod", "fedavg"]


def test_values_are_toml_words() -> None:
    assert sweep.split("1,2.5,word") == ["1", "2.5", "word"]
    assert sweep.split('"a,b",[1, 2],{ x = [1, 2] }') == ['"a,b"', "[1, 2]", "{ x = [1, 2] }"]
    cells = sweep.grid(DIGITS, ['sharing=[{mode="recv",every=8},{mode="fedavg"}],none'])
    assert [[mode.mode for mode in cell.settings.sharing] for cell in cells] == [["recv", "fedavg"], []]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["learner.rate"], "cannot read `learner.rate`; an axis of the grid looks like"),
        (["learner.rate=1,,2"], "cannot read `learner.rate=1,,2`"),
        (["learner.rate=0.1,zero"], "`learner.rate` cannot be 'zero'"),
        (["learner.rte=1,2"], "did you mean `learner.rate`?"),
        (["seed=1,1"], "`seed=1,1` names a value twice"),
        (["seed=1", "seed=2"], "`seed` is said twice"),
        (["sharing=none,recvv"], "there is no sharing mode `recvv`"),
        (["sharing=none,recv", "sharing.fedavg.every=5"], "`sharing.fedavg.every` changes nothing"),
        (["sharing=none", "network=ring,tree"], "`network` changes nothing"),
        (["sharing=recv+fedavg", "sharing.every=5,10"], "is for one of 2 sharing modes"),
        (["sharing=[{mode=,none"], "cannot read"),
        (["dataset=digits,mnist"], "dataset `mnist` was not found"),
    ],
)
def test_a_wrong_grid_gets_one_sentence_and_nothing_is_written(words: list[str], part: str) -> None:
    refused(call("sweep", DIGITS, *words), part)
    assert not list(Path().iterdir())


def test_the_front_by_hand() -> None:
    # Costs 0, 10, 10, 20, 30, 30: 5 costs nothing; 8 and 7 cost 10; 8 for 20 is no better; 9 and 9 for 30 are equal.
    costs, values = [0, 10, 10, 20, 30, 30], [5, 8, 7, 8, 9, 9]
    assert on_front(costs, values) == [True, True, False, False, True, True]
    assert on_front([], []) == []


def test_a_sweep_ends_in_a_table_with_its_front() -> None:
    done = call("sweep", DIGITS, *SMALL, "sharing=none,fedavg", "sharing.every=2,4", "--out", "grid", "--json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["sharing"], row["sharing.every"]) for row in rows] == [
        ("none", None),
        ("fedavg", "2"),
        ("fedavg", "4"),
    ]
    assert rows[0]["front"]
    assert rows[1]["bytes_total"] == 2 * rows[2]["bytes_total"] > 0
    marks = on_front([row["bytes_total"] for row in rows], [row["final_accuracy"] for row in rows])
    assert [row["front"] for row in rows] == marks
    table = read_csv(Path("grid/sweep.csv"))
    assert [row["final_accuracy"] for row in table] == [round(row["final_accuracy"], 3) for row in rows]
    # A larger grid finds the cells of the smaller one.
    times = {path: path.stat().st_mtime_ns for path in Path("grid").glob("*/summary.json")}
    assert len(times) == 3
    done = call("sweep", DIGITS, *SMALL, "sharing=none,fedavg", "sharing.every=2,4,1", "--out", "grid", "--no-page")
    assert "3 of 4 runs need no training" in done.err
    assert "cell 1/1" in done.err
    assert {path: path.stat().st_mtime_ns for path in times} == times


KILLED = ("sweep", DIGITS, *SMALL, "sharing=none,fedavg", "sharing.every=2")


def results(folder: Path) -> list[dict[str, object]]:
    """What a sweep came to, but for the time it took and where."""
    left = ("seconds", "out")
    return [{name: row[name] for name in row if name not in left} for row in read_csv(folder / "sweep.csv")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What comes out if nothing interrupts."""
    folder = tmp_path_factory.mktemp("sweep")
    assert call(*KILLED, "--out", folder).code == 0
    return results(folder)


@pytest.mark.parametrize("fatal", [3, 11, 30])
def test_a_sweep_that_was_killed_goes_on(fatal: int, whole: list[dict[str, object]]) -> None:
    process = fork(*KILLED, "--out", Path("broken").resolve(), fatal=fatal)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert not Path("broken/sweep.csv").exists()
    assert call(*KILLED, "--out", "broken").code == 0
    assert results(Path("broken")) == whole
    assert not list(Path("broken").glob("*.part"))


def test_combinations_with_other_tasks_have_a_front_of_their_own() -> None:
    small = [word for word in SMALL if not word.startswith("tasks.classes")]
    words = ("sharing=none,fedavg", "sharing.every=2", "tasks.classes=2,3")
    done = call("sweep", DIGITS, *small, *words, "--json", "--no-page")
    assert done.code == 0, done.err
    assert Path("runs/sweep-digits-sharing-tasks.classes/sweep.csv").exists()
    rows = [json.loads(line) for line in done.out.splitlines()]
    for classes in ("2", "3"):
        alone, shares = (row for row in rows if row["tasks.classes"] == classes)
        assert alone["front"]
        assert shares["front"] == (shares["final_accuracy"] > alone["final_accuracy"])
