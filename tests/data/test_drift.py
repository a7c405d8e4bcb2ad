"""Drift: tasks end where a detector says so; and few labels."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal import data
from shoal.agents.world import World
from shoal.data import Bank
from shoal.data.detectors import PageHinkley
from shoal.data.drift import KINDS, Drift, boundaries
from shoal.errors import CodeError, SettingsError
from shoal.report.compare import groups
from shoal.report.drift import boundaries as shown
from shoal.runs.read import read
from shoal.sharing.anchors import anchor_of

TASKS: dict[str, Any] = {
    "scenario": "drift", "of": "permuted", "detector": "tests.data.test_drift:Slow", "count": 3, "classes": 10,
    "train": 40, "validation": 8, "heads": "one", "initial": 1, "common": False,
}  # fmt: skip
LEARNER: dict[str, Any] = {"epochs": 2, "memory": 8}


class Slow:
    """A detector of one's own: ten numbers in a row that are large."""

    def __init__(self) -> None:
        self.seen, self.drift_detected = 0, False

    def update(self, x: float) -> None:
        self.seen = self.seen + 1 if x > 0.9 else 0
        self.drift_detected = self.seen >= 10


class Never:
    drift_detected = False

    def update(self, x: float) -> None:
        assert 0 <= x <= 1


class Wrong:
    drift_detected = False

    def update(self, x: float) -> None:
        raise ZeroDivisionError("no")


def fleet(given: Any = "digits", **tasks: Any) -> shoal.Fleet:
    return shoal.Fleet(given, model="plain-mlp", agents=2, tasks={**TASKS, **tasks}, learner=LEARNER)


def made(given: Any = "digits", **tasks: Any) -> tuple[World, Drift]:
    (world,) = shoal.prepare(fleet(given, **tasks).settings)
    assert isinstance(world.settings.tasks, Drift)
    return world, world.settings.tasks


def found(world: World) -> pl.DataFrame:
    return boundaries(world.bank, world.settings, world.lanes)


def sites(count: int = 600, moves: bool = True) -> shoal.Data:
    """Two sites whose rows move away in the second half of time."""
    rng = np.random.default_rng(0)
    time = np.tile(np.arange(count), 2)
    label, site = rng.integers(0, 2, 2 * count), np.repeat(["a", "b"], count)
    x = rng.normal(size=(2 * count, 6)) + label[:, None] + (5.0 * (time >= count // 2) * moves)[:, None]
    return shoal.Data.from_arrays(x, label, agent=site, time=time)


def test_tasks_end_soon_after_the_stream_has_changed_and_nowhere_else() -> None:
    world, _ = made()
    table = found(world)
    true = table.filter(pl.col("what") == "true")
    assert len(true) == 2 * 2
    assert true["delay"].is_not_null().all()
    assert all(9 <= late < 40 for late in true["delay"])  # the detector wants ten
    assert not (table["what"] == "false alarm").any()
    assert world.ends.tolist() == [3, 3]


def test_rows_keep_their_kind_and_none_is_lost_or_used_twice() -> None:
    world, tasks = made()
    for stream, line in zip(world.streams, tasks.lines(world.bank, world.settings, world.lanes), strict=True):
        for at, name in enumerate(KINDS):
            mine = np.concatenate([getattr(task, name) for task in stream])
            assert np.array_equal(mine, line.rows[line.kinds == at])
            assert len(np.unique(mine)) == len(mine)


def test_a_stream_that_does_not_change_is_one_task() -> None:
    world, _ = made(count=2, detector="tests.data.test_drift:Slow")
    assert world.ends.tolist() == [2, 2]
    with pytest.raises(SettingsError, match=r"no agent has more than 1 tasks .* say tasks.count=1"):
        made(count=3, detector="tests.data.test_drift:Never")


def test_a_detector_sees_nothing_of_what_comes_later() -> None:
    """The first boundary is the same whatever follows it."""
    first, _ = made(sites(), of="time", classes=2, count=2)
    bank = first.bank
    late = bank.time >= 500  # type: ignore[operator]
    images = bank.images.copy()
    images[late] += 100
    other = Bank(**{**vars(bank), "images": images})
    again = boundaries(other, first.settings, first.lanes)
    assert again["row"][0] == found(first)["row"][0]


def test_in_the_order_of_time_a_move_is_found_and_no_true_boundary_is_known() -> None:
    world, _ = made(sites(), of="time", classes=2, count=2)
    table = found(world)
    assert set(table["what"]) == {"detected"}
    assert table["rows"].to_list() == [480, 480]
    assert all(240 <= at < 280 for at in table["row"])


@pytest.mark.parametrize("detector", ["page-hinkley", "adwin", "kswin"])
@pytest.mark.parametrize("watch", ["rows", "errors"])
def test_detectors_find_permuted_pixels(detector: str, watch: str) -> None:
    if detector != "page-hinkley":
        pytest.importorskip("river", reason="river is not installed: pip install 'shoal[drift]'")
    world, _ = made(detector=detector, watch=watch)
    true = found(world).filter(pl.col("what") == "true")
    assert true["delay"].is_not_null().mean() >= 0.75  # type: ignore[operator]


def test_page_hinkley_finds_a_rise_and_no_fall() -> None:
    """By hand: at a mean of 0 that stays, each number of 1 adds 0.95 less than the mean has risen."""
    rise = PageHinkley(delta=0.05, threshold=2.0)
    for _ in range(100):
        rise.update(0.0)
        assert not rise.drift_detected
    said = []
    for _ in range(3):
        rise.update(1.0)
        said.append(rise.drift_detected)
    assert said == [False, False, True]  # 0.94 and 0.93 and 0.92 from the least of all sums
    fall = PageHinkley(delta=0.05, threshold=2.0)
    for x in [1.0] * 100 + [0.0] * 100:
        fall.update(x)
        assert not fall.drift_detected


def test_the_report_shows_what_was_detected_beside_what_is_true(tmp_path: Path) -> None:
    fleet().run(out=tmp_path / "run")
    run, lost = read(tmp_path / "run")
    assert not lost
    (group,) = groups([run])
    page = shown(group)
    table = run.tables["drift"]
    places = table.filter((pl.col("agent") == 1) & (pl.col("what") != "true"))["row"].to_list()
    assert f">{', '.join(map(str, places))}</td>" in page
    assert "Of 4 true changes it found 4" in page


def test_what_cannot_be_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"there is no detector `adwyn`; did you mean `adwin`\?"):
        made(detector="adwyn")
    with pytest.raises(SettingsError, match="would look for drift in itself"):
        made(of="drift")
    with pytest.raises(SettingsError, match=r"say tasks\.common=false"):
        made(common=True)
    with pytest.raises(
        CodeError, match=r"`tests.data.test_drift:Wrong` fails: ZeroDivisionError|ZeroDivisionError: no"
    ):
        made(detector="tests.data.test_drift:Wrong")
    with pytest.raises(CodeError, match="something with `update"):
        made(detector="tests.data.test_drift:made_of_nothing")
    numbers = shoal.Data.from_arrays(np.ones((9, 2)), np.arange(9) + 0.5, time=np.arange(9))
    with pytest.raises(SettingsError, match=r"counts wrong classes, and .* has numbers to predict"):
        made(numbers, of="time", watch="errors", classes=1)
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(SettingsError, match=r'come with the package river, .*pip install "shoal\[drift\]"'):
        made(detector="adwin")


def made_of_nothing() -> object:
    return object()


# Few labels


def few(labelled: float, **more: Any) -> World:
    tasks = {"count": 3, "classes": 2, "train": 40, "validation": 8, "initial": 1, "common": False}
    said = {"agents": 2, "tasks": {**tasks, "labelled": labelled}, "learner": LEARNER, "model": "plain-mlp", **more}
    (world,) = shoal.prepare(shoal.Fleet("digits", **said).settings)
    return world


def test_few_rows_have_labels_of_every_class_one_at_least_and_the_others_are_there() -> None:
    whole, some = few(1.0), few(0.1)
    for full, part in zip(whole.streams, some.streams, strict=True):
        for one, other in zip(full, part, strict=True):
            assert set(one.train) == set(other.train) | set(other.unlabelled)
            assert not set(other.train) & set(other.unlabelled)
            assert set(whole.bank.labels[other.train]) == set(other.classes)
            assert np.array_equal(one.validation, other.validation)
    share = np.mean([len(task.train) / 80 for stream in some.streams for task in stream])
    assert 0.05 < share < 0.2
    more = few(0.2)  # who has a label with few has one with more
    assert all(set(a.train) <= set(b.train) for a, b in zip(some.streams[0], more.streams[0], strict=True))


def test_an_agent_learns_from_rows_with_labels_alone() -> None:
    world = few(0.1)
    assert int(world.train.sizes.max()) < 20
    assert shoal.simulate(world).task == 3


def test_an_anchor_and_a_detector_look_at_rows_without_labels_too() -> None:
    assert np.allclose(anchor_of(few(0.1), 0, 2)["mean"], anchor_of(few(1.0), 0, 2)["mean"], atol=1e-5)
    one, other = found(made()[0]), found(made(labelled=0.1)[0])
    assert one.equals(other)
    assert len(made(labelled=0.1)[0].streams[0][0].unlabelled)


def test_labels_that_are_missing_in_the_data_are_said_with_what_to_do() -> None:
    with pytest.raises(data.DataError, match=r"y has no value in 1 of 4 rows, the first is row 2; .* leave out"):
        shoal.Data.from_arrays(np.ones((4, 2)), np.array(["a", "b", None, "a"], object))
    with pytest.raises(SettingsError, match=r"tasks.labelled"):
        few(0.0)
