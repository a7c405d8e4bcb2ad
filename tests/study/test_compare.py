"""Runs side by side."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal.data.by_rows import Dirichlet
from shoal.errors import SettingsError
from shoal.runs.paired import Gain, critical, interaction, paired, student
from shoal.settings.groups import Tasks
from shoal.settings.problem import problem
from shoal.study import compare
from shoal.study.cells import read_csv, scores
from tests.command import DIGITS, TINY, call, refused

pytestmark = pytest.mark.usefixtures("nowhere")

SETTINGS = """
dataset = "digits"
agents = 2
tasks = { count = 5, train = 16, validation = 8 }
net = { width = 8, depth = 2 }
learner = { epochs = 4, batch = 16, memory = 8, rate = 0.03 }
machine = { threads = 1 }
"""


def write(name: str, more: str = "") -> Path:
    file = Path(f"{name}.toml")
    file.write_text(more + SETTINGS)
    return file


def test_an_interaction_is_found_where_one_thing_depends_on_the_other_and_only_there() -> None:
    rng = np.random.default_rng(0)
    rows, columns, seeds = rng.normal(size=(1, 4, 1)), rng.normal(size=(1, 1, 3)), rng.normal(size=(8, 1, 1))
    sums = 5 * (rows + columns + seeds)
    cross = np.zeros((1, 4, 3))
    cross[0, 0, 0] = 5.0
    assert interaction(sums + cross + rng.normal(size=(8, 4, 3))) == 1 / 128, "the least that 8 seeds can give"
    assert interaction(sums) == 1.0, "an exact tie shows nothing"
    chances = [interaction(sums + rng.normal(size=(8, 4, 3))) for _ in range(400)]
    # Without one, p is spread evenly: a share of 0.05 is below 0.05, give or take.
    assert 0.02 < np.mean(np.array(chances) < 0.05) < 0.08
    assert 0.42 < np.mean(chances) < 0.58


def test_a_difference_is_paired_over_the_seeds_of_both() -> None:
    here = {seed: {"auc": value} for seed, value in {0: 5.0, 1: 7.0, 2: 9.0, 9: 100.0}.items()}
    there = {seed: {"auc": value} for seed, value in {0: 4.0, 1: 5.0, 2: 6.0, 7: -100.0}.items()}
    gap = paired(here, there, "auc")
    assert gap is not None
    # Differences 1, 2, 3: mean 2, deviation 1, error 1 / sqrt(3); t = 2 sqrt(3) with 2 degrees of freedom.
    assert (gap.mean, gap.seeds) == (2.0, 3)
    assert gap.error == pytest.approx(1 / math.sqrt(3))
    assert gap.p == pytest.approx(0.0742, abs=1e-4)
    assert paired(here, {5: {"auc": 1.0}}, "auc") is None
    single = paired({0: {"auc": 2.0}}, {0: {"auc": 1.0}}, "auc")
    assert single is not None
    assert (single.mean, single.error, single.p) == (1.0, None, None)


def test_equal_differences_say_as_much_as_coins_and_none_are_nothing() -> None:
    here = {seed: {"auc": seed + 0.5} for seed in range(3)}
    there = {seed: {"auc": float(seed)} for seed in range(3)}
    gap, none = paired(here, there, "auc"), paired(here, here, "auc")
    assert gap is not None
    assert none is not None
    assert (gap.p, none.p) == (0.25, 1.0)  # three coins on the same side


@pytest.mark.parametrize(
    ("t", "freedom", "p"),  # 5 % and 1 % points of a printed table
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (3.182, 3, 0.05), (2.776, 4, 0.05), (3.499, 7, 0.01), (2.228, 10, 0.05)],
)
def test_p_values_are_those_of_the_table(t: float, freedom: int, p: float) -> None:
    assert student(t, freedom) == pytest.approx(p, rel=2e-3)
    assert student(-t, freedom) == student(t, freedom)
    assert student(0.0, freedom) == 1.0


def test_an_interval_holds_zero_where_the_test_shows_nothing() -> None:
    for freedom, t in ((1, 12.706), (2, 4.303), (3, 3.182), (7, 2.365), (30, 2.042), (1000, 1.962)):
        assert critical(freedom) == pytest.approx(t, abs=1e-3)
        for factor, sign in ((0.99, 0), (1.01, 1)):
            for way in (1, -1):
                gain = Gain(way * factor * critical(freedom), 1.0, freedom + 1)
                assert gain.interval is not None
                low, high = gain.interval
                assert gain.sign == way * sign == (low > 0) - (high < 0)
    assert Gain(3.0, None, 1).interval is None
    assert Gain(3.0, None, 1).sign == 0
    tie = paired({0: {"auc": 0.3}, 1: {"auc": 0.1 + 0.2}}, {0: {"auc": 0.1 + 0.2}, 1: {"auc": 0.3}}, "auc")
    assert tie is not None
    assert tie.p == 1.0  # what rounding leaves of a tie shows nothing
    assert Gain(5.6e-17, 0.0, 4).p == 1.0


def test_settings_and_finished_runs_stand_side_by_side() -> None:
    alone, shares = write("alone"), write("shares", 'sharing = [{ mode = "fedavg", every = 2 }]\n')
    assert call("run", alone, "--seeds", 3, "--out", "done").code == 0
    done = call("compare", "done", shares, "--seeds", 2, "--json")
    assert done.code == 0, done.err
    first, second = map(json.loads, done.out.splitlines())
    assert (first["run"], second["run"]) == ("done", "shares")
    assert (first["seeds"], second["seeds"], second["paired_seeds"]) == (3, 2, 2)
    assert first["auc_difference"] is None
    here, there = scores(Path(second["out"])), scores(Path("done"))
    gaps = [here[seed]["auc"] - there[seed]["auc"] for seed in (0, 1)]
    assert second["auc_difference"] == pytest.approx(sum(gaps) / 2)
    assert (first["bytes_total"], second["sharing"]) == (0, "fedavg")
    assert second["bytes_total"] > 0
    assert [row["run"] for row in read_csv(Path("runs/compare/compare.csv"))] == ["done", "shares"]
    # The other way round, without training again.
    before = Path(second["out"], "summary.json").stat().st_mtime_ns
    page = Path("runs/compare/report.html")
    assert "<html" in page.read_text()
    page.unlink()
    again = call("compare", "done", shares, "--seeds", 2, "--baseline", shares, "--json", "--no-page")
    assert "not corrected for how many are compared" in " ".join(again.err.split())
    assert not page.exists()
    rows = [json.loads(line) for line in again.out.splitlines()]
    assert rows[0]["auc_difference"] == pytest.approx(-second["auc_difference"])
    assert rows[1]["auc_difference"] is None
    assert Path(second["out"], "summary.json").stat().st_mtime_ns == before


def test_what_cannot_be_compared_gets_one_sentence() -> None:
    alone = write("alone")
    refused(call("compare", alone, "gone.toml"), "no settings file gone.toml")
    refused(call("compare", alone, alone), "alone.toml is named 2 times")
    refused(call("compare", alone, "--baseline", "other"), "no run other to compare with; --baseline is one of alone")
    for folder in ("a", "b"):
        Path(folder).mkdir()
        shutil.copy(alone, f"{folder}/x.toml")
    found = compare.entries([Path("a/x.toml"), Path("b/x.toml")])
    assert [compare.base_of(found, Path(f"{name}/x.toml")).label for name in "ab"] == ["a/x.toml", "b/x.toml"]
    refused(
        call("compare", "a/x.toml", "b/x.toml", "--baseline", "x"), "several runs are called x; --baseline is one of"
    )
    other = write("other", "").rename("other.toml")
    other.write_text(other.read_text().replace("digits", "mnist"))
    refused(call("compare", alone, other), "alone has dataset = digits, other mnist: their seeds")
    Path("empty").mkdir()
    refused(call("compare", alone, "empty"), "empty is not a run directory")
    assert not Path("runs").exists()


def test_damaged_runs_and_other_clocks_get_one_sentence() -> None:
    assert call("run", write("alone"), "--seeds", 1, "--out", "done").code == 0
    longer = Path("longer.toml")
    longer.write_text(SETTINGS.replace("epochs = 4", "epochs = 5"))
    refused(call("compare", "done", longer), "done has learner.epochs = 4, longer 5: their seeds do not meet")
    shutil.copytree("done", "broken", ignore=shutil.ignore_patterns("manifest.json"))
    table = pl.read_parquet("done/accuracy.parquet")
    task = pl.col("task")
    for damaged in (
        table.drop("tested"), table.clear(), table.with_columns(task.cast(pl.String)), table.with_columns(task - 9),
        table.with_columns(tested=task + 9), table.filter(pl.col("epoch") > 1), table[:-1],
        table.with_columns(task=None), table.with_columns(accuracy=pl.lit(float("nan"))),
    ):  # fmt: skip
        damaged.write_parquet("broken/accuracy.parquet")
        refused(call("compare", "done", "broken"), "cannot use broken", "accuracy.parquet", "run it again")
    Path("broken/accuracy.parquet").write_bytes(b"")
    refused(call("compare", "done", "broken"), "cannot use broken", "accuracy.parquet", "run it again")
    shutil.copy("done/accuracy.parquet", "broken")
    summary = json.loads(Path("done/summary.json").read_text())
    for name in ("model", "final_accuracy", "seconds"):
        Path("broken/summary.json").write_text(json.dumps({**summary, name: None}))
        refused(call("compare", "done", "broken"), f"broken/summary.json has no `{name}`", "run it again")


def test_an_unfinished_run_is_not_compared() -> None:
    assert call("run", DIGITS, *TINY, "--out", "run").code == 0
    shutil.copytree("run", "half")
    Path("half/summary.json").unlink()
    refused(call("compare", "run", "half"), "half is not finished; `shoal resume half`")


def test_kinds_of_agents_are_compared_kind_by_kind() -> None:
    kinds = '\n[[kinds]]\nname = "plain"\nagents = [1]\nmodel = "mlp"\n'
    for name, shared in (("alone", ""), ("shares", 'sharing = [{ mode = "recv", every = 2 }]\n')):
        Path(f"{name}.toml").write_text(shared + SETTINGS + kinds)
    done = call("compare", "alone.toml", "shares.toml", "--seeds", 2, "--json", "--no-page")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2  # an object per run
    assert "plain" in done.err
    rows = read_csv(Path("runs/compare/compare.csv"))
    assert [(row["run"], row["kind"], row["agents"]) for row in rows] == [
        (run, kind, agents) for run in ("alone", "shares") for kind, agents in ((None, 2), ("rest", 1), ("plain", 1))
    ]
    assert [row["model"] for row in rows[:3]] == ["modular-mlp + mlp", "modular-mlp", "mlp"]
    whole, rest, plain = (row["auc_difference"] for row in rows[3:])
    assert whole == pytest.approx((rest + plain) / 2, abs=2e-3)
    assert rows[3]["bytes_total"] > 0
    assert rows[4]["bytes_total"] is None


@pytest.mark.parametrize(
    ("said", "name"),
    [("common = false", "tasks.common = True, own False"), ('scenario = "split"', "tasks.scenario = drawn, own split")],
)
def test_runs_that_do_not_meet_the_same_tasks_are_not_paired(said: str, name: str) -> None:
    own = Path("own.toml")
    own.write_text(SETTINGS.replace("count = 5,", f"count = 5, {said},"))
    refused(call("compare", write("alone"), own), f"alone has {name}: their seeds do not meet the same tasks")


def test_settings_that_a_scenario_brings_are_of_the_tasks_too() -> None:
    plain = {"dataset": "digits", "agents": 2, "learner": {"epochs": 4}}
    tasks = [Dirichlet(alpha=one).model_dump() for one in (0.1, 0.5)]
    named = [(name, {**plain, "tasks": one}) for name, one in zip("ab", tasks, strict=True)]
    with pytest.raises(SettingsError, match=r"a has tasks\.alpha = 0\.1, b 0\.5: their seeds do not meet"):
        compare.alike(named)
    compare.alike(named[:1] * 2)


def test_a_run_of_an_earlier_version_met_the_tasks_that_are_the_default_now() -> None:
    new = {"dataset": "digits", "agents": 2, "tasks": Tasks(draw="agent").model_dump(), "learner": {"epochs": 4}}
    later = ("scenario", "heads", "draw", "overlap", "alpha", "shards", "cut", "period", "angle", "blur")
    old = {**new, "tasks": {name: value for name, value in new["tasks"].items() if name not in later}}  # type: ignore[attr-defined]
    assert problem(old) == problem(new)
    assert problem({**old, "tasks": {**old["tasks"], "draw": "fleet"}}) != problem(new)  # type: ignore[dict-item]


def test_runs_of_initial_tasks_alone_have_no_area_to_compare() -> None:
    first = (*(word for word in TINY if not word.startswith("tasks.count")), "tasks.count=4")
    for name, more in (("one", ()), ("two", ("net.width=12",))):
        assert call("run", DIGITS, *first, *more, "--out", name).code == 0
    done = call("compare", "one", "two", "--json")
    assert done.code == 0, done.err
    _, row = (json.loads(line) for line in done.out.splitlines())
    assert (row["auc"], row["auc_difference"], row["auc_difference_p"]) == (None, None, None)
    assert row["final_accuracy_difference"] is not None
