"""Data from anywhere: arrays, datasets, folders, tables and saved files become banks that can be learned from."""

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, TensorDataset

import shoal
from shoal.configure.reading import read as read_settings
from shoal.data import load
from shoal.data.dataset import DataError
from shoal.data.scenarios import streams
from shoal.data.sources import bring, read
from shoal.data.tasks import lanes_of
from shoal.errors import UserError
from shoal.runs.execute import carry_out, prepare
from shoal.runs.files import RecordError
from shoal.runs.record import create, reopen
from shoal.settings.groups import Settings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = np.arange(60) % 3


def arrays(x: Any = X, y: Any = Y, **more: Any) -> shoal.Data:
    return shoal.Data.from_arrays(x, y, **more)


def test_labels_of_any_kind_keep_their_names() -> None:
    assert arrays(y=Y).bank.classes == ("0", "1", "2")
    assert arrays(y=np.array(["cat", "dog", "ant"])[Y]).bank.classes == ("ant", "cat", "dog")
    assert arrays(y=Y > 0).bank.classes == ("False", "True")
    assert arrays(y=(Y + 9).astype(float)).bank.classes == ("9", "10", "11")
    assert arrays(y=[None or f"{one + 9}" for one in Y]).bank.classes == ("9", "10", "11")
    assert arrays(y=Y[:, None]).bank.labels.tolist() == Y.tolist()


def test_numbers_with_a_fraction_are_to_be_predicted() -> None:
    bank = arrays(y=X[:, 0]).bank
    assert bank.targets is not None
    assert bank.targets.shape == (60, 1)
    assert len(bank.classes) == 1
    wide = arrays(y=X[:, :2]).bank.targets
    assert wide is not None
    assert wide.shape == (60, 2)
    whole = arrays(y=Y.astype(float), predict="numbers").bank.targets
    assert whole is not None
    assert arrays(y=np.arange(60) // 2, predict="classes").bank.targets is None


def test_tensors_and_lists_are_arrays() -> None:
    plain = arrays(X.astype(np.float32)).bank.digest
    assert arrays(torch.tensor(X, dtype=torch.float32, requires_grad=True), torch.tensor(Y)).bank.digest == plain
    assert arrays(X.astype(np.float32).tolist(), Y.tolist()).bank.digest == plain
    assert arrays(torch.tensor(X).to(torch.bfloat16), Y).bank.images.dtype == np.float32
    assert arrays([torch.tensor(row) for row in X.astype(np.float32)]).bank.digest == plain


def test_sparse_tensors_are_filled_and_those_without_values_refused() -> None:
    assert (arrays(torch.tensor(X).to_sparse()).bank.images == arrays().bank.images).all()
    with pytest.raises(DataError, match="x is a tensor without values"):
        arrays(torch.zeros(60, 4, device="meta"))


def test_data_shows_itself_in_a_line() -> None:
    said = repr(arrays(agent=np.arange(60) % 2, time=np.arange(60)))
    assert said == "Data of 60 rows of shape [4] (12 to test on), 3 classes, of 2 agents, with time"
    assert "1 number to predict" in repr(arrays(y=X[:, 0]))


def test_pictures_of_bytes_are_divided_by_the_largest_and_all_else_is_scaled_for_each_agent() -> None:
    grey = RNG.integers(0, 200, (60, 8, 8)).astype(np.uint8)
    bank = arrays(grey).bank
    assert (bank.scale, bank.peak) == ("peak", int(grey[~bank.test].max()))
    last = RNG.integers(0, 200, (60, 8, 9, 3)).astype(np.uint8)
    assert arrays(last).bank.images.shape == (60, 3, 8, 9)
    assert np.array_equal(arrays(last).bank.images[5, 2], last[5, :, :, 2])
    assert arrays(grey[..., None]).bank.images.shape == (60, 8, 8)
    assert arrays(grey.astype(float)).bank.scale == arrays(grey.reshape(60, -1)).bank.scale == "standard"


def test_agents_are_in_order_and_keep_their_names() -> None:
    assert arrays(agent=np.arange(60) % 12).bank.sources == tuple(map(str, range(12)))
    bank = arrays(agent=["b" if one % 2 else "a" for one in range(60)]).bank
    assert bank.sources == ("a", "b")
    assert bank.source.tolist() == [0, 1] * 30


def test_tasks_are_numbered_for_each_agent_in_the_order_of_time() -> None:
    agent, task = np.repeat([0, 1], 30), np.array(["late", "early", "late"])[np.arange(60) % 3]
    assert arrays(agent=agent, task=task).bank.task is not None
    time = np.where(task == "early", 1.0, 2.0)
    time[30:] *= -1
    found = arrays(agent=agent, task=task, time=time).bank.task
    assert found is not None
    assert found[:3].tolist() == [1, 0, 1]
    assert found[30:33].tolist() == [0, 1, 0]


def test_times_are_numbers_or_dates() -> None:
    for time in (
        np.datetime64("2026-03-01T00:00") + np.arange(60).astype("timedelta64[m]"),
        [datetime(2026, 3, 1, 0, at, tzinfo=UTC) for at in range(60)],
        [f"2026-03-01T00:{at:02}:00Z" for at in range(60)],
    ):
        found = arrays(time=time).bank.time
        assert found is not None
        assert np.diff(found).tolist() == [60.0] * 59
        assert found[0] == datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    with pytest.raises(DataError, match="dates such as"):
        arrays(time=["noon"] * 60)
    with pytest.raises(DataError, match="time is missing in 1 rows, the first is row 0"):
        arrays(time=np.array(["NaT", *["2026-03-01"] * 59], "datetime64[s]"))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=6, max_size=60))
def test_a_fifth_of_every_group_is_held_out_and_every_task_that_can_be_is_tested(rows: list[Any]) -> None:
    agent, task, label = np.array([*rows, (0, 0, 0), (0, 0, 1)]).T
    bank = arrays(np.zeros((len(agent), 2)), label, agent=agent, task=task).bank
    assert bank.task is not None
    assert np.array_equal(bank.test, arrays(np.zeros((len(agent), 2)), label, agent=agent, task=task).bank.test)
    for a in np.unique(bank.source):
        for t in np.unique(bank.task[bank.source == a]):
            here = (bank.source == a) & (bank.task == t)
            assert bank.test[here].any() == (here.sum() >= 3)
            assert not bank.test[here].all()
            for c in np.unique(bank.labels[here]):
                group = here & (bank.labels == c)
                if group.sum() >= 3:
                    assert bank.test[group].sum() == max(1, round(group.sum() / 5))


def test_words_say_which_rows_are_for_testing() -> None:
    words = np.array(["train", "test", "val"])[np.arange(60) % 3]
    assert arrays(test=words).bank.test.tolist() == [False, True, False] * 20
    words = np.array(["train", "val", "train"])[np.arange(60) % 3]
    assert arrays(test=words).bank.test.tolist() == [False, True, False] * 20
    assert arrays(test=[0, 1, 0] * 20).bank.test.tolist() == [False, True, False] * 20


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ({"y": Y[:50]}, "y must have one value, or a row of numbers, for each of the 60 rows of x, got shape [50]"),
        ({"agent": [1, 2]}, "agent must have one value for each of the 60 rows of x"),
        ({"x": [[1.0, 2.0]] * 59 + [[1.0]]}, "row 0 has [2], row 59 has [1]; pad or cut them"),
        ({"x": np.array([np.zeros(2), np.zeros(3)] * 30, object)}, "different shapes"),
        ({"x": np.where(X > 2, np.nan, X)}, "that are not numbers"),
        ({"x": np.array([["a"]] * 60)}, "x must be numbers, got <U1; give words as columns of numbers"),
        ({"x": 3.0}, "a row for each example"),
        ({"x": np.zeros((0, 3)), "y": []}, "there are no rows"),
        ({"y": [1] * 60}, "at least two to tell apart"),
        ({"y": np.arange(60)}, 'say predict="numbers"'),
        ({"y": np.eye(3)[Y]}, "give y.argmax(1)"),
        ({"y": np.eye(3)[Y].astype(int) * 2}, "of whole numbers"),
        ({"y": [None, *Y[1:]]}, "y has no value in 1 of 60 rows, the first is row 0"),
        ({"y": np.where(Y == 0, np.nan, 1.5)}, "20 values that are not numbers, in 20 rows"),
        ({"predict": "words"}, 'predict must be "classes" or "numbers"'),
        ({"test": [True] * 60}, "nothing to learn from"),
        ({"test": [False] * 60}, "nothing to test on"),
        ({"test": ["yes", "no"] * 30}, "got no, yes"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(wrong: dict[str, Any], parts: str) -> None:
    with pytest.raises(UserError) as error:
        arrays(**wrong)
    assert parts in str(error.value)
    assert "astype" not in str(error.value)


# Datasets


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return torch.tensor(X[at], dtype=torch.float32), int(Y[at])


class Held(Items):
    data = torch.tensor(X, dtype=torch.float32)
    targets = Y.tolist()

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        raise AssertionError("what is held need not be asked for")


class Changed(Held):
    def transform(self, x: Any) -> Any:
        return x

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        return self.data[at] * 2, self.targets[at]


def test_a_dataset_is_taken_as_it_is_held_or_item_by_item(capsys: pytest.CaptureFixture[str]) -> None:
    plain = arrays(X.astype(np.float32)).bank
    assert np.array_equal(shoal.Data.from_dataset(Held()).bank.images, plain.images)
    pair = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(Y))
    assert np.array_equal(shoal.Data.from_dataset(pair).bank.images, plain.images)
    assert capsys.readouterr().err == ""
    found = shoal.Data.from_dataset(Items(), agent=np.arange(60) % 2)
    assert np.array_equal(found.bank.images, plain.images)
    assert found.bank.sources == ("0", "1")
    assert capsys.readouterr().err == "reading 60 items of Items, each once\n"
    assert np.array_equal(shoal.Data.from_dataset(Changed()).bank.images, plain.images * 2)


def test_another_dataset_is_for_testing() -> None:
    bank = shoal.Data.from_dataset(Held(), test=Items()).bank
    assert bank.test.tolist() == [False] * 60 + [True] * 60


def test_what_is_no_dataset_is_refused() -> None:
    with pytest.raises(DataError, match=r"for arrays use Data\.from_arrays"):
        shoal.Data.from_dataset(3)
    with pytest.raises(DataError, match=r"item 0 of the dataset must be \(x, y\), got int"):
        shoal.Data.from_dataset([1, 2, 3])


# Folders


def folder_of(place: Path, pattern: str = "{agent}/{split}/{class}/{at}.npy", size: int = 4) -> Path:
    for at in range(48):
        words = {"{agent}": f"a{at % 2}", "{split}": "test" if at % 8 > 5 else "train", "{class}": f"c{at // 2 % 3}"}
        file = pattern.replace("{at}", f"{at:02}")
        for name, word in words.items():
            file = file.replace(name, word)
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        np.save(place / file, RNG.integers(0, 255, (size, size)).astype(np.uint8))
    return place


def test_the_parts_of_a_path_say_whose_a_file_is(tmp_path: Path) -> None:
    bank = shoal.Data.from_folder(folder_of(tmp_path), "{agent}/{split}/{class}/*.npy").bank
    assert (bank.sources, bank.classes, len(bank)) == (("a0", "a1"), ("c0", "c1", "c2"), 48)
    assert int(bank.test.sum()) == 12
    assert bank.scale == "peak"


def test_usual_folders_need_no_pattern(tmp_path: Path) -> None:
    assert shoal.Data.from_folder(folder_of(tmp_path / "a", "{class}/{at}.npy")).bank.classes == ("c0", "c1", "c2")
    bank = shoal.Data.from_folder(folder_of(tmp_path / "b", "{split}/{class}/{at}.npy")).bank
    assert (bank.classes, int(bank.test.sum())) == (("c0", "c1", "c2"), 12)
    named = shoal.Data.from_folder(folder_of(tmp_path / "c", "{class}-{agent}-{at}.npy"), "{class}-{agent}-{time}.npy")
    assert named.bank.sources == ("a0", "a1")
    assert named.bank.time is not None


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (None, "it is not clear which part of a0/t"),
        ("{kind}/*", "{kind} in the pattern {kind}/* is not known; allowed: {class}, {agent}"),
        ("{class}/{class}/*", "twice"),
        ("{agent}/*", "put {class} into it"),
        ("{class}/*.png", "no file in"),
    ],
)
def test_a_folder_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path, pattern: str | None, parts: str) -> None:
    with pytest.raises(DataError) as error:
        shoal.Data.from_folder(folder_of(tmp_path), pattern)
    assert parts in str(error.value)


def test_files_of_different_sizes_are_named(tmp_path: Path) -> None:
    folder_of(tmp_path, "{class}/{at}.npy")
    np.save(tmp_path / "c1" / "large.npy", np.zeros((9, 9), np.uint8))
    with pytest.raises(DataError, match=r"00\.npy has the shape \[4, 4\] and .*large\.npy \[9, 9\].*size="):
        shoal.Data.from_folder(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        shoal.Data.from_folder(tmp_path / "none")


def test_without_pillow_pictures_are_asked_for_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "one.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r'pip install "shoal\[images\]"'):
        shoal.Data.from_folder(tmp_path)


def test_pictures_are_opened_resized_and_made_alike(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install shoal[images]")
    for at in range(12):
        (tmp_path / f"c{at % 2}").mkdir(exist_ok=True)
        made = image.new("L" if at else "RGB", (8, 6), 20 * at if at else (255, 0, 0))
        made.save(tmp_path / f"c{at % 2}" / f"{at:02}.png")
    bank = shoal.Data.from_folder(tmp_path).bank
    assert bank.images.shape == (12, 3, 6, 8)
    assert bank.images[0, :, 0, 0].tolist() == [255, 0, 0]
    assert shoal.Data.from_folder(tmp_path, size=(3, 4)).bank.images.shape == (12, 3, 3, 4)
    assert shoal.Data.from_folder(tmp_path, size=5).bank.images.shape == (12, 3, 5, 5)
    for wrong in (0, -3, "big", (3,) * 3, True, 3.5):
        with pytest.raises(DataError, match=r"size cannot be .*say one number for height and width"):
            shoal.Data.from_folder(tmp_path, size=wrong)  # type: ignore[arg-type]
    image.new("L", (9, 9)).save(tmp_path / "c0" / "large.png")
    with pytest.raises(DataError, match=r"large\.png \[9, 9, 3\].*size="):
        shoal.Data.from_folder(tmp_path)
    (tmp_path / "c0" / "large.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot read .*large\.png"):
        shoal.Data.from_folder(tmp_path)


# Tables


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "heat": X[:, 0],
            "wind": X[:, 1],
            "sky": np.array(["sun", "rain"])[np.arange(60) % 2],
            "site": np.array(["b", "a"])[np.arange(60) // 30],
            "when": [f"2026-03-{1 + at % 28:02}T00:00:00" for at in range(60)],
            "ok": np.array(["yes", "no", "perhaps"])[Y],
        }
    )


def test_a_table_comes_from_files_and_frames(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "a.csv")
    frame().write_parquet(tmp_path / "a.parquet")
    said: dict[str, Any] = {"label": "ok", "agent": "site", "time": "when", "onehot": ["sky"]}
    banks = [
        shoal.Data.from_table(one, **said).bank for one in (frame(), tmp_path / "a.csv", str(tmp_path / "a.parquet"))
    ]
    assert len({bank.digest for bank in banks}) == 1
    bank = banks[0]
    assert (bank.images.shape, bank.sources, bank.classes) == ((60, 4), ("a", "b"), ("no", "perhaps", "yes"))
    assert bank.images[:2, 2:].tolist() == [[0, 1], [1, 0]]
    assert bank.time is not None
    few = shoal.Data.from_table(frame(), label="ok", columns=["wind"]).bank
    assert few.images.shape == (60, 1)
    two = shoal.Data.from_table(frame(), label=["heat", "wind"], onehot=["sky"], columns=["sky"]).bank.targets
    assert two is not None
    assert two.shape == (60, 2)


def test_a_frame_of_pandas_is_a_table() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(frame().to_dict(as_series=False))
    table["when"] = pandas.to_datetime(table["when"], utc=True)
    found = shoal.Data.from_table(table, label="ok", agent="site", time="when", onehot=["sky"])
    assert (
        found.bank.digest
        == shoal.Data.from_table(frame(), label="ok", agent="site", time="when", onehot=["sky"]).bank.digest
    )


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ({"label": "okay"}, "label: there is no column `okay`; did you mean `ok`? there are heat"),
        ({"label": "ok", "agent": "place"}, "agent: there is no column `place`"),
        ({"label": "ok", "columns": ["heat", "sky", "when"]}, "no numbers are in `sky` (String), `when` (String)"),
        ({"label": "ok", "columns": ["heat", "gap"]}, "values are missing in `table`, which has 60 rows: `gap` in 2"),
    ],
)
def test_a_table_that_cannot_be_used_is_said_in_one_sentence(said: dict[str, Any], parts: str) -> None:
    table = frame().with_columns(gap=pl.Series([None, float("nan"), *range(58)], dtype=pl.Float64))
    with pytest.raises(DataError) as error:
        shoal.Data.from_table(table, **said)
    assert parts in str(error.value)


# Names in settings


def saved(place: Path) -> dict[str, str]:
    """Names of the same data in every kind of file."""
    frame().write_csv(place / "a.csv")
    frame().write_parquet(place / "a.parquet")
    site = frame()["site"].to_numpy().astype(str)
    np.savez(place / "a.npz", x=X, y=Y, agent=site)
    folder_of(place / "files", "{agent}/{class}/{at}.npy")
    hub(place / "hub", frame().drop("when", "sky"))
    return {
        "csv": "csv:a.csv?label=ok&agent=site&columns=heat,wind",
        "parquet": "parquet:a.parquet?label=ok&agent=site&columns=heat,wind",
        "npz": "npz:a.npz",
        "folder": "folder:files?pattern={agent}/{class}/*",
        "hf": "hf:hub?label=ok&agent=site",
    }


def hub(place: Path, table: pl.DataFrame, features: dict[str, Any] | None = None) -> None:
    """What `Dataset.save_to_disk` writes."""
    place.mkdir(parents=True)
    table.write_ipc_stream(place / "data-00000-of-00001.arrow", compat_level=pl.CompatLevel.oldest())
    (place / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    told = features or {name: {"dtype": "float64", "_type": "Value"} for name in table.columns}
    (place / "dataset_info.json").write_text(json.dumps({"features": told}))


@pytest.mark.parametrize("scheme", ["csv", "parquet", "npz", "folder", "hf"])
def test_a_settings_file_names_data_beside_it_and_nothing_else(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = saved(tmp_path)[scheme]
    (tmp_path / "mine.toml").write_text(f'dataset = "{name}"\n')
    monkeypatch.chdir(tmp_path.parent)
    chosen = read_settings(tmp_path / "mine.toml", ["learner.epochs=2", "model=mlp"])
    assert chosen.agents == 2
    assert chosen.dataset.startswith(f"{scheme}:{tmp_path}")
    assert load(chosen.dataset) is load(chosen.dataset)
    carry_out(prepare(chosen), create(tmp_path / "out", chosen))
    assert reopen(tmp_path / "out").settings == chosen
    about = json.loads((tmp_path / "out" / "data.json").read_text())
    assert about["digest"] == load(chosen.dataset).digest
    assert [one["scaling"]["scale"] for one in about["agents"]] == [load(chosen.dataset).scale] * 2


def test_parts_of_a_saved_dataset_and_its_names_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "both"
    features = {"heat": {"_type": "Value"}, "kind": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    table = pl.DataFrame({"heat": X[:20, 0], "kind": [0, 1] * 10})
    hub(place / "train", table, features)
    hub(place / "test", table[:6], features)
    (place / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    bank = read(f"hf:{place}").bank
    assert (bank.classes, bank.images.shape, int(bank.test.sum())) == (("no", "yes"), (26, 1), 6)


def test_pictures_of_a_saved_dataset_are_opened(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install shoal[images]")
    cells = []
    for at in range(12):
        content = io.BytesIO()
        image.new("L", (4, 5), 20 * at).save(content, "PNG")
        cells.append({"bytes": content.getvalue(), "path": None})
    features = {"image": {"_type": "Image"}, "label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    kind = pl.Struct({"bytes": pl.Binary, "path": pl.String})
    hub(tmp_path / "hub", pl.DataFrame({"image": pl.Series(cells, dtype=kind), "label": [0, 1] * 6}), features)
    bank = read(f"hf:{tmp_path / 'hub'}").bank
    assert (bank.images.shape, bank.classes, bank.images[3, 0, 0]) == ((12, 5, 4), ("no", "yes"), 60)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("csv:a.csv", "say ?label=NAME, one of heat, wind"),
        ("csv:a.csv?lable=ok", "`lable` in"),
        ("csv:a.csv?lable=ok", "did you mean `label`?"),
        ("csv:a.csv?label", "cannot read `label`"),
        ("csv:a.csv?label=ok&label=ok", "twice"),
        ("csv:", "names no path"),
        ("csv:none.csv?label=ok", "No such file"),
        ("npz:a.csv", "cannot read"),
        ("folder:files?size=big", "size cannot be 'big'"),
        ("hf:files", "is no dataset that was saved to disk"),
        ("cvs:a.csv", "did you mean `csv:`?"),
        ("memory:12345678", "run that program again"),
    ],
)
def test_a_name_that_cannot_be_read_is_said_in_one_sentence(
    name: str, parts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        prepare(Settings(dataset=name))
    assert parts in str(error.value)


def test_a_file_that_python_reads_has_the_name_that_settings_give_it(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "a.csv")
    found = shoal.Data.from_table(tmp_path / "a.csv", label="ok", agent="site", columns=["heat", "wind"])
    assert found.name == f"csv:{tmp_path}/a.csv?label=ok&agent=site&columns=heat,wind"
    assert read(found.name).bank.digest == found.bank.digest


def test_a_run_is_not_resumed_on_other_data(tmp_path: Path) -> None:
    frame().write_csv(tmp_path / "a.csv")
    name = f"csv:{tmp_path}/a.csv?label=ok&agent=site&columns=heat,wind"
    chosen = Settings(dataset=name, model="mlp", learner={"epochs": 1})
    carry_out(prepare(chosen), create(tmp_path / "out", chosen))
    (tmp_path / "out" / "summary.json").unlink()
    frame().with_columns(heat=pl.col("heat") + 1).write_csv(tmp_path / "a.csv")
    record = reopen(tmp_path / "out")
    with pytest.raises(RecordError, match=r"has changed since it began.*restore the data, or start a new run"):
        carry_out(prepare(record.settings), record)


# What data says


@st.composite
def datasets(draw: st.DrawFn) -> shoal.Data:
    """Small data of any kind, in which every agent has rows enough to learn, validate and test on."""
    agents, classes, each = draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(5, 60))
    count = agents * classes * each
    label = np.arange(count) % classes
    if draw(st.booleans()):
        label[draw(st.integers(0, count - 1))] = classes  # one that is there once
    agent = np.arange(count) // classes % agents
    more: dict[str, Any] = {"agent": agent} if agents > 1 or draw(st.booleans()) else {}
    if draw(st.booleans()):
        more["time"] = np.arange(count) * draw(st.sampled_from([-1.0, 1.0, 3600.0]))
    if draw(st.booleans()):
        more["task"] = np.arange(count) // (agents * classes) * draw(st.integers(1, min(3, each // 3))) // each
    y: Any = label + np.arange(count) % 7 / 10 if draw(st.booleans()) else label
    return shoal.Data.from_arrays(np.arange(3.0 * count).reshape(count, 3) % 11, y, **more)


@settings(max_examples=40, deadline=None)
@given(datasets())
def test_what_data_says_can_be_run(found: shoal.Data) -> None:
    chosen = Settings(dataset=bring(found))
    made = streams(found.bank, chosen, lanes_of(chosen))
    assert max(stream.end for stream in made) == chosen.tasks.count
    assert Settings(dataset=found).identity() == chosen.identity()
    prepare(chosen)


def test_the_user_wins_over_what_data_says() -> None:
    found = arrays(agent=np.arange(60) % 2)
    said = Settings(dataset=found, agents=3, tasks={"scenario": "dirichlet", "alpha": 5.0})
    assert (said.agents, said.tasks.scenario) == (3, "dirichlet")
    prepare(said)
    assert Settings(dataset=found, tasks={"classes": 3}).tasks.count == 2  # other rows of the same classes


def test_nets_for_tables_are_small_where_nobody_says() -> None:
    rows, label = np.arange(240.0).reshape(60, 4) % 7, np.arange(60) % 3
    table, pictures = shoal.Data.from_arrays(rows, label), shoal.Data.from_arrays(rows.reshape(60, 2, 2), label)
    found = [Settings(dataset=one).net for one in (table, pictures)]
    assert [(net.depth, net.dropout) for net in found] == [(2, 0.0), (4, 0.5)]
    said = Settings(dataset=table, net={"depth": 3}, model="mlp").net
    assert (said.depth, said.dropout) == (3, 0.0)
    assert (Settings(dataset="digits").net.depth, Settings(dataset="digits").net.dropout) == (4, 0.5)


def test_tables_without_rows_and_words_for_numbers_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("heat,state\n")
    with pytest.raises(DataError, match="there are no rows in `names`, only names of columns"):
        read(f"csv:{tmp_path}/names.csv?label=state")
    with pytest.raises(DataError, match="y has words, such as 'up', and predict=\"numbers\" needs numbers"):
        shoal.Data.from_arrays([[1.0], [2.0]], ["up", "down"], predict="numbers")
