"""Files of a run directory: what is damaged is named, what is no file is not opened, and one folder has one run."""

import json
import os
import re
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from shoal.agents.stack import Stack, start
from shoal.configure.reading import read
from shoal.runs import about as made_by
from shoal.runs import checked, checkpoints, files
from shoal.runs import record as records
from shoal.runs.checked import Unusable, table_of
from shoal.runs.execute import carry_out, prepare
from shoal.runs.files import RecordError
from shoal.runs.read import gather
from shoal.runs.record import Record, create, reopen
from shoal.settings.writing import toml
from shoal.study.cells import measured
from tests.command import DIGITS, TINY, call, refused

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("nowhere")  # commands write into the folder where they run


@pytest.fixture
def run(shown: Path, tmp_path: Path) -> Path:
    """A copy of a finished run whose agents share."""
    shutil.copytree(shown / "recv", tmp_path / "run")
    return tmp_path / "run"


def unlisted(folder: Path) -> Path:
    """The run as an earlier version would have left it."""
    (folder / "manifest.json").unlink()
    return folder


def flipped(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= 1
    file.write_bytes(content)


# Checksums


def test_the_manifest_lists_every_file(run: Path) -> None:
    listed = files.listed(run)
    assert listed.keys() == {path.name for path in run.iterdir()} - {"manifest.json"}
    for name, sums in listed.items():
        assert sums == [files.digest((run / name).read_bytes())]


@pytest.mark.parametrize("name", ["ledger.parquet", "growth.parquet", "about.json", "data.json", "summary.json"])
def test_a_damaged_file_costs_what_it_held_and_a_sentence(run: Path, name: str) -> None:
    flipped(run / name, 100)
    (found,), notes = gather([run])
    assert found.complete
    said = [note.why for note in notes if name in note.why]
    assert len(said) == 1
    assert "its SHA-256 is not the one in manifest.json" in said[0]


@pytest.mark.parametrize("name", ["settings.toml", "accuracy.parquet"])
def test_without_settings_or_measurements_nothing_is_shown(run: Path, name: str) -> None:
    flipped(run / name, 100)
    with pytest.raises(ValueError, match=rf"{name}: its SHA-256 is not the one in manifest\.json"):
        gather([run])


@pytest.mark.parametrize("name", ["settings.toml", "summary.json", "accuracy.parquet", "ledger.parquet", "about.json"])
def test_compare_uses_nothing_that_is_damaged(run: Path, shown: Path, name: str) -> None:
    flipped(run / name, 200)
    refused(call("compare", shown / "vanilla", run, "--no-page"), name, "its SHA-256 is not the one in manifest.json")


def test_a_damaged_manifest_is_named(run: Path) -> None:
    flipped(run / "manifest.json", 40)
    (found,), notes = gather([run])
    assert found.complete
    assert any(note.why.startswith("manifest.json is damaged") for note in notes)


def test_a_run_without_a_manifest_is_read_as_before(run: Path) -> None:
    before, said = gather([run])
    after, notes = gather([unlisted(run)])
    assert np.array_equal(before[0].accuracy, after[0].accuracy, equal_nan=True)
    assert notes == said
    assert reopen(run).finished


def test_what_a_kill_leaves_between_two_moves_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = create(tmp_path / "run", read(DIGITS, TINY))
    record.write("data.json", b"{}")

    def killed(part: Path, path: Path) -> None:
        if path.name == "data.json":
            raise KeyboardInterrupt
        part.replace(path)

    monkeypatch.setattr(records, "settle", killed)
    with pytest.raises(KeyboardInterrupt):
        record.write("data.json", b'{"a": 1}')
    assert files.read_whole(record.folder / "data.json") == b"{}"
    (record.folder / "data.json.part").replace(record.folder / "data.json")
    assert files.read_whole(record.folder / "data.json") == b'{"a": 1}'


@pytest.mark.parametrize(
    ("name", "by"),
    [("final_accuracy", 1e-4), ("auc", 1e-3), ("final_accuracy_se", 1e-3), ("messages", 1), ("bytes_total", 8)],
)
def test_compare_verifies_the_summary_against_the_records(run: Path, name: str, by: float) -> None:
    summary = json.loads((unlisted(run) / "summary.json").read_text())
    summary[name] += by
    (run / "summary.json").write_text(json.dumps(summary))
    refused(call("compare", run, "--no-page"), name, "summary.json says")


# Checkpoints


def stacks_of(record: Record) -> tuple[Stack, ...]:
    found = record.load(prepare(record.settings))
    assert found is not None
    return found


def saved_twice(folder: Path) -> Record:
    """A run that was saved at two moments."""
    settings = read(DIGITS, [*TINY, "model=mlp", "tasks.common=false"])
    record = create(folder, settings)
    stack = start(prepare(settings)[0])
    for task in (1, 2):
        stack.task = task
        record.save([stack])
    return record


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "empty"])
def test_of_two_checkpoints_the_one_that_is_whole_is_used(tmp_path: Path, damage: str) -> None:
    record = saved_twice(tmp_path / "run")
    content = record.checkpoint.read_bytes()
    broken = {"flipped": content[:-1] + bytes([content[-1] ^ 1]), "cut": content[:-9], "empty": b""}
    if damage == "gone":
        record.checkpoint.unlink()
    else:
        record.checkpoint.write_bytes(broken[damage])
    told: list[str] = []
    record.tell = told.append
    assert stacks_of(record)[0].task == 1
    assert len(told) == 1
    assert told[0].endswith("going on from the checkpoint before it")
    assert not record.earlier.exists()
    assert stacks_of(record)[0].task == 1  # and it is now the last


def test_if_both_checkpoints_are_damaged_that_is_said(tmp_path: Path) -> None:
    record = saved_twice(tmp_path / "run")
    for place in (record.checkpoint, record.earlier):
        flipped(place, -1)
    with pytest.raises(RecordError, match="is damaged"):
        record.load(prepare(record.settings))


def test_a_digest_covers_types_and_shapes() -> None:
    numbers = torch.arange(6, dtype=torch.int32)
    plain = checkpoints.digest({}, {"x": numbers})
    assert plain != checkpoints.digest({}, {"x": numbers.view(2, 3)})
    assert plain != checkpoints.digest({}, {"x": numbers.view(torch.float32)})
    assert plain == checkpoints.digest({}, {"x": numbers.clone()})


def test_what_is_no_number_is_never_saved(tmp_path: Path) -> None:
    record = saved_twice(tmp_path / "run")
    (stack,) = stacks_of(record)
    next(iter(stack.params.values()))[1].flatten()[0] = torch.nan
    with pytest.raises(RecordError, match="weights of agent 1 of seed 10 are not numbers; what was saved before stays"):
        record.save([stack])
    assert stacks_of(record)[0].task == 2


# One folder, one run


def test_two_runs_that_want_one_folder_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find it empty; one of them is refused, and the settings are those of the other."""
    made = [read(DIGITS, [*TINY, f"seed={seed}"]) for seed in (1, 2)]
    own, ready = records.begin, threading.Barrier(2)
    ends: list[int | str] = []

    def slow(record: Record) -> None:
        own(record)
        ends.append(record.settings.seed)

    monkeypatch.setattr(records, "begin", slow)

    def begin(at: int) -> None:
        ready.wait()
        try:
            create(tmp_path / "run", made[at])
        except RecordError as error:
            ends.append(str(error))

    both = [threading.Thread(target=begin, args=(at,)) for at in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    (seed,) = (end for end in ends if isinstance(end, int))
    (why,) = (end for end in ends if isinstance(end, str))
    assert "holds an unfinished run" in why
    assert reopen(tmp_path / "run").settings.seed == seed


def test_a_folder_is_locked_while_a_run_is_put_there(tmp_path: Path) -> None:
    settings = read(DIGITS, TINY)
    with Record(tmp_path, settings).alone(), pytest.raises(RecordError, match="is in use by another process"):
        create(tmp_path, settings)
    assert not list(tmp_path.iterdir())


def test_a_run_does_not_begin_where_the_settings_of_another_are(tmp_path: Path) -> None:
    mine, other = (read(DIGITS, [*TINY, f"seed={seed}"]) for seed in (1, 2))
    record = create(tmp_path / "run", mine)
    (tmp_path / "run" / "settings.toml").write_text(toml(other))
    with pytest.raises(RecordError, match="has other settings than the run that was about to begin there"):
        carry_out(prepare(mine), record)


def test_settings_of_another_run_are_noticed(run: Path, shown: Path, tmp_path: Path) -> None:
    unlisted(run)
    text = (run / "settings.toml").read_text()
    (run / "settings.toml").write_text(re.sub(r"rate = [0-9.e-]+", "rate = 0.5", text, count=1))
    refused(call("compare", run, "--no-page"), "one of them belongs to another run")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"identity": "aaaaaaaa"}))
    _, notes = gather([run])
    assert any("summary.json is of the run aaaaaaaa" in note.why for note in notes)


def test_settings_that_change_no_result_can_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = read(DIGITS, [*TINY, "learner.epochs=1"])
    create(folder, settings)
    text = (folder / "settings.toml").read_text()
    (folder / "settings.toml").write_text(text.replace("checkpoint = 30.0", "checkpoint = 99.0"))
    assert call("resume", folder).code == 0
    assert files.listed(folder)["settings.toml"] == [files.digest((folder / "settings.toml").read_bytes())]


# Another machine


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cpu", "NEON", "instruction set"),
        ("commit", "0123456789ab", "commit"),
        ("packages", {"torch": "1.0"}, "torch"),
        ("kernel", "compiled by cc 1.0", "kernel torch in place of compiled by cc 1.0"),
    ],
)
def test_going_on_with_something_else_is_said(
    tmp_path: Path, name: str, value: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_by, "commit", lambda: "ba9876543210")
    record = create(tmp_path / "run", read(DIGITS, TINY))
    told: list[str] = []
    record.tell = told.append
    record.again("torch")
    assert not told
    made = json.loads((record.folder / "about.json").read_text())
    made["resumed"][-1][name] = value
    record.write("about.json", files.text(made))
    record.again("torch")
    assert len(told) == 1
    assert told[0].startswith(f"the run goes on with {said}")


def test_folders_are_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = create(tmp_path / "run", read(DIGITS, TINY))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    record.write("x", b"new")
    assert record.folder.stat().st_ino in synced
    assert synced[-1] == record.folder.stat().st_ino


# What is no file, or not what it should be


@pytest.mark.parametrize("name", ["settings.toml", "summary.json", "about.json", "accuracy.parquet", "ledger.parquet"])
@pytest.mark.parametrize("what", ["pipe", "zero", "folder", "link"])
def test_what_is_no_regular_file_is_not_opened(run: Path, tmp_path: Path, name: str, what: str) -> None:
    unlisted(run)
    place = run / name
    if what == "link":
        place.rename(tmp_path / "elsewhere")
    else:
        place.unlink()
    match what:
        case "pipe":
            os.mkfifo(place)
        case "zero":
            place.symlink_to("/dev/zero")
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to(tmp_path / "elsewhere")
    refused(call("compare", run, "--no-page"))
    if name in ("settings.toml", "accuracy.parquet"):
        with pytest.raises(ValueError, match=name):
            gather([run])
    else:
        _, notes = gather([run])
        assert any(name in note.why for note in notes)


def test_a_graph_file_is_never_read_from_a_run_directory(run: Path, tmp_path: Path) -> None:
    unlisted(run)
    text = (run / "settings.toml").read_text()
    os.mkfifo(tmp_path / "pipe")
    for graph in ("/dev/zero", str(tmp_path / "pipe")):
        (run / "settings.toml").write_text(re.sub('graph = "[^"]*"', f'graph = "{graph}"', text))
        refused(call("compare", run, "--no-page"), f'network.graph = "{graph}" is a file')
        refused(call("resume", run), "a run directory holds its edges itself")
        assert call("report", run, "--out", tmp_path / "page.html").code == 0


@pytest.mark.parametrize("name", ["accuracy", "growth", "ledger", "training"])
def test_a_table_has_no_more_rows_than_a_run(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unlisted(run)
    monkeypatch.setattr(checked, "FEW", 2_000)
    table = pl.read_parquet(run / f"{name}.parquet")
    row = table.head(1)
    pl.concat([row] * 400_000).write_parquet(run / f"{name}.parquet", statistics=False)
    with pytest.raises(Unusable, match=r"it has 400,000 rows, and at most [0-9,]+ are read of such a run"):
        table_of(run, name)


def test_a_file_that_is_too_large_is_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TEXT", 100)
    with pytest.raises(files.DamagedError, match="more than the 100 that are read of such a file"):
        files.read_whole(run / "settings.toml", files.TEXT)


@pytest.mark.parametrize("kind", [pl.UInt8, pl.UInt64, pl.Int128, pl.Int16])
@pytest.mark.parametrize("name", ["accuracy", "growth", "ledger"])
def test_whole_numbers_of_any_kind_are_read(run: Path, name: str, kind: pl.DataType) -> None:
    unlisted(run)
    table = pl.read_parquet(run / f"{name}.parquet")
    small = [one for one in ("seed", "agent", "task", "epoch", "tested", "sender", "receiver") if one in table.columns]
    table.with_columns(pl.col(small).cast(kind)).write_parquet(run / f"{name}.parquet")
    (found,), notes = gather([run])
    assert found.complete
    assert not notes
    assert call("compare", run, "--no-page").code == 0


def test_a_number_that_does_not_fit_is_a_sentence(run: Path) -> None:
    unlisted(run)
    table = pl.read_parquet(run / "ledger.parquet")
    table.with_columns(pl.lit(2**70, pl.Int128).alias("bytes")).write_parquet(run / "ledger.parquet")
    _, notes = gather([run])
    assert any("cannot read ledger.parquet" in note.why for note in notes)


SUMMARIES = {
    "empty": "", "a list": "[]", "half": '{"dataset": "digits"', "nothing in it": "{}", "deep": "[" * 100_000,
    "a number": "5", "no text": "\udcff",
}  # fmt: skip


@pytest.mark.parametrize("what", SUMMARIES)
def test_a_damaged_summary_is_a_sentence(run: Path, tmp_path: Path, what: str) -> None:
    (unlisted(run) / "summary.json").write_text(SUMMARIES[what], errors="surrogateescape")
    refused(call("resume", run), "summary.json")
    refused(call("compare", run, "--no-page"), "summary.json")
    assert call("report", run, "--out", tmp_path / "page.html").code == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("final_accuracy", "high"), ("dataset", 5), ("dataset", None), ("sharing", 7), ("sharing", [{}]),
        ("kinds", []), ("messages", "many"), ("seconds", []), ("auc_se", {}), ("modules", "x"), ("out", 3),
    ],
)  # fmt: skip
def test_a_summary_with_something_else_in_it_is_a_sentence(run: Path, name: str, value: object) -> None:
    summary = json.loads((unlisted(run) / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {name: value}))
    refused(call("resume", run), "summary.json has no", f"`{name}`")
    (run / "summary.json").write_text(json.dumps({one: two for one, two in summary.items() if one != name}))
    assert call("compare", run, "--no-page").code in (0, 2)


@pytest.mark.parametrize("value", [5, "x", None, [5, None], {}])
def test_sessions_that_are_none_are_passed_over(run: Path, value: object) -> None:
    about = json.loads((unlisted(run) / "about.json").read_text())
    (run / "about.json").write_text(json.dumps(about | {"resumed": value}))
    assert call("compare", run, "--no-page").code == 0
    reopen(run).again("torch")
    assert len(json.loads((run / "about.json").read_text())["resumed"]) == 1


@pytest.mark.parametrize("place", ["dataset", "agents", "seed", "tasks.count", "learner.rate", "network.graph", "x"])
def test_a_date_in_the_settings_is_a_sentence(run: Path, tmp_path: Path, place: str) -> None:
    unlisted(run)
    date = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    text = (run / "settings.toml").read_text()
    group, _, name = place.rpartition(".")
    start = text.index(f"[{group}]") if group else 0
    changed = re.sub(rf"^{name} = .*$", f"{name} = {date}", text[start:], count=1, flags=re.MULTILINE)
    (run / "settings.toml").write_text(text[:start] + (changed if name != "x" else f"x = {date}\n{changed}"))
    refused(call("compare", run, "--no-page"))
    refused(call("resume", run))
    done = call("report", run, "--out", tmp_path / "page.html")
    assert done.code in (0, 2), done.err


def test_measurements_are_those_of_a_run_that_is_whole(run: Path) -> None:
    assert len(measured(run).agents) == 4
