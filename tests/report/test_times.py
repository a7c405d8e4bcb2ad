"""Accuracy against seconds, joules and bytes, and who was at which task when, on the page and in files."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal.configure.reading import read as read_settings
from shoal.report import charts, compare, page, times
from shoal.report.style import Style
from shoal.runs import read
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create
from tests.command import DIGITS, TINY

RUNS = {
    "apart": (
        "sharing=fedavg", "sharing.every=2", "clock.pace=asynchronous", "clock.speed=[100.0, 40.0]",
        "clock.step_joules=0.5", "network.latency=10 ms",
    ),
    "away": ("sharing=fedavg", "sharing.every=2", "presence.absent=[{agents = [1], epochs = [[26, 28]]}]"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("times")
    for name, words in RUNS.items():
        settings = read_settings(DIGITS, [*TINY, "model=mlp", *words])
        carry_out(prepare(settings), create(place / name, settings))
    return place


def grouped(folder: Path) -> compare.Group:
    (group,) = compare.groups(read.gather([folder])[0])
    return group


def test_accuracy_is_shown_against_what_agents_have_spent(folder: Path) -> None:
    group = grouped(folder)
    rows = times.spent(group)
    assert {row["against"] for row in rows} == {"seconds", "joules", "bytes"}
    assert len({row["run"] for row in rows}) == 1  # the other has no clock in seconds
    run = next(entry.run for entry in group.entries if "time" in entry.run.tables)
    table = pl.read_parquet(folder / "apart" / "time.parquet")
    for name in ("seconds", "joules", "bytes"):
        mine = [row for row in rows if row["against"] == name]
        assert [row["x"] for row in mine] == sorted(row["x"] for row in mine)
        assert mine[-1]["x"] == pytest.approx(table[name].max(), rel=1e-4)
        assert mine[-1]["mean"] == pytest.approx(read.final(run).mean(), rel=1e-4)  # all have learned all tasks


def test_before_its_first_measurement_an_agent_is_what_it_began_with() -> None:
    spent, level = np.array([1.0, 2.0, 4.0]), np.array([50.0, 60.0, 70.0])
    assert [times.reached(spent, level, x) for x in (0.0, 1.0, 3.9, 4.0, 9.0)] == [50, 50, 60, 70, 70]


def test_a_timeline_has_a_bar_for_every_stay_at_a_task(folder: Path) -> None:
    units = {}
    for entry in grouped(folder).entries:
        unit, rows = times.stays(entry)
        units[unit] = rows
    apart, away = units["seconds"], units[times.EPOCHS]
    assert {(row["agent"], row["task"]) for row in apart} == {(agent, task) for agent in (0, 1) for task in (4, 5)}
    ends = {row["agent"]: row["end"] for row in apart if row["task"] == 5}
    assert ends[0] < ends[1]  # the slower one
    assert [(row["begin"], row["end"]) for row in away if row["agent"] == 1] == [(24, 26), (28, 30), (30, 36)]
    assert [(row["begin"], row["end"]) for row in away if row["agent"] == 0] == [(24, 30), (30, 36)]


def test_gaps_leave_the_rest_of_an_interval() -> None:
    assert list(times.left((10, 20), ())) == [(10, 20)]
    assert list(times.left((10, 20), ((0, 12), (15, 16), (18, 40)))) == [(12, 15), (16, 18)]
    assert list(times.left((10, 20), ((0, 40),))) == []
    assert list(times.left((10, 20), ((20, 30),))) == [(10, 20)]


def test_the_page_has_both_charts_and_the_age_of_what_is_known(folder: Path) -> None:
    group = grouped(folder)
    names = [figure.name for figure in charts.figures(group, Style(True, tuple(compare.method_order([group]))))]
    assert {"accuracy-against-spending", "timeline"} <= set(names)
    text = page.page([group], [])
    assert "Who was where when" in text
    picture = next(figure for figure in charts.figures(group, Style(True, tuple(compare.method_order([group])))) if
                   figure.name == "network")  # fmt: skip
    links = pl.read_parquet(folder / "away" / "links.parquet").group_by("sender", "receiver").agg(pl.col("age").mean())
    known = {(str(sender), str(receiver)): age for sender, receiver, age in links.iter_rows()}
    label = next(entry.label for entry in group.entries if "time" not in entry.run.tables)
    shown = {(row["sender"], row["receiver"]): row["age"] for row in picture.tables["edges"] if row["run"] == label}
    assert shown == pytest.approx(known, rel=1e-2)


def test_figures_of_time_are_written_to_files(folder: Path, tmp_path: Path) -> None:
    written = {path.name for path in page.draw([grouped(folder)], tmp_path)}
    assert {"accuracy-against-spending.svg", "timeline.svg"} <= written


def test_a_damaged_table_of_time_costs_its_charts_and_a_sentence(folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "runs", ignore=shutil.ignore_patterns("manifest.json")))
    file = place / "apart" / "time.parquet"
    pl.read_parquet(file).with_columns(seconds=pl.lit(float("nan"))).write_parquet(file)
    runs, notes = read.gather([place])
    assert any("time.parquet" in note.why for note in notes)
    (group,) = compare.groups(runs)
    style = Style(True, tuple(compare.method_order([group])))
    assert "accuracy-against-spending" not in [figure.name for figure in charts.figures(group, style)]
