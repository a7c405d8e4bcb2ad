"""Run directories: what is in them, and that no file in them is ever half."""

import errno
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import shoal
from shoal.agents.stack import Stack, grid
from shoal.configure.reading import read
from shoal.learners.candidates import modules
from shoal.learners.modular import Growth
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.runs import about as made_by
from shoal.runs.execute import carry_out, prepare
from shoal.runs.files import RecordError
from shoal.runs.record import Record, create, reopen
from shoal.settings.groups import Settings
from tests.command import DIGITS, TINY

CPU = torch.device("cpu")
FILES = {
    "about.json", "agents.parquet", "source.json",
    "data.json", "settings.toml", "checkpoint.safetensors", "accuracy.parquet", "growth.parquet", "others.parquet",
    "validation.parquet", "summary.json", "training.parquet", "manifest.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def settings() -> Settings:
    return read(DIGITS, TINY)


@pytest.fixture(scope="module", params=["modular-mlp", "mlp"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Stack]:
    """A finished run and its stack."""
    settings = read(DIGITS, [*TINY, f"model={request.param}"])
    record = create(tmp_path_factory.mktemp("runs") / request.param, settings)
    carry_out(prepare(settings), record)
    stacks = record.load(prepare(record.settings))
    assert stacks is not None
    return record, stacks[0]


def table(record: Record, name: str) -> pl.DataFrame:
    return pl.read_parquet(record.folder / f"{name}.parquet")


def same(one: Stack, other: Stack) -> bool:
    """Are two stacks equal to the last bit, NaN included?"""
    if (one.lanes, one.task, one.epoch) != (other.lanes, other.task, other.epoch):
        return False
    if one.tensors.keys() != other.tensors.keys():
        return False
    return all(same_bits(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.numpy().tobytes() == other.numpy().tobytes()


def test_a_finished_directory_holds_what_is_promised(finished: tuple[Record, Stack]) -> None:
    record, _ = finished
    assert {path.name for path in record.folder.iterdir()} == FILES
    assert record.finished


def test_every_file_can_be_read_by_those_the_umask_allows(finished: tuple[Record, Stack]) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in finished[0].folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_accuracy_has_a_row_for_each_measurement(finished: tuple[Record, Stack]) -> None:
    record, stack = finished
    found = table(record, "accuracy")
    assert dict(found.schema) == {
        "seed": pl.Int64, "agent": pl.Int64, "task": pl.Int64, "epoch": pl.Int64, "tested": pl.Int64,
        "accuracy": pl.Float32,
    }  # fmt: skip
    labels = grid(record.settings.learner.epochs)
    rebuilt = torch.full_like(stack.accuracy, np.nan)
    for seed, agent, task, epoch, tested, accuracy in found.iter_rows():
        rebuilt[stack.lanes.index((seed, agent)), task, labels.index(epoch), tested] = accuracy
    assert same_bits(rebuilt, stack.accuracy)
    assert len(found) == int((~stack.accuracy.isnan()).sum())
    assert set(found["epoch"]) == {0, 1, record.settings.learner.epochs + 1}
    assert found["accuracy"].is_between(0, 1).all()


def test_every_task_is_tested_from_its_start_until_the_end(finished: tuple[Record, Stack]) -> None:
    record, _ = finished
    count, initial = record.settings.tasks.count, record.settings.tasks.initial
    found = table(record, "accuracy")
    for task in range(initial, count):
        assert sorted(set(found.filter(pl.col("task") == task)["tested"])) == list(range(task + 1))


def test_growth_has_a_row_for_each_trial(finished: tuple[Record, Stack]) -> None:
    record, stack = finished
    found = table(record, "growth")
    origins = ["origin_agent", "origin_task", "root_agent", "root_task", "hops"]
    assert found.columns == ["seed", "agent", "task", "with", "without", "kept", *origins]
    if family(record.settings) != GROWTH:
        assert found.is_empty()
        return
    tasks = range(record.settings.tasks.initial, record.settings.tasks.count)
    expected = [(lane.seed, lane.agent, task) for lane in stack.lanes for task in tasks]
    assert found.select("seed", "agent", "task").rows() == expected
    learner = record.settings.learner
    assert isinstance(learner, Growth)
    gained = (found["with"] - found["without"]) > learner.accept * found["without"] + 1e-9
    assert found["kept"].to_list() == gained.to_list()
    grew = found.group_by("seed", "agent").agg(pl.col("kept").sum()).sort("seed", "agent")["kept"]
    assert (grew + record.settings.net.shape["basis"]).to_list() == modules(stack).tolist()
    # Nothing was shared: every module began as a fresh one of its own agent and task.
    assert found["origin_agent"].is_null().all()
    assert found.select("root_agent", "root_task").rows() == found.select("agent", "task").rows()
    assert found["kept"].any(), "no module was kept: choose settings that show more"
    assert not found["kept"].all(), "every module was kept: choose settings that show more"


def test_others_has_a_row_for_each_task_that_only_others_met(finished: tuple[Record, Stack]) -> None:
    record, stack = finished
    found = table(record, "others")
    assert dict(found.schema) == {
        "seed": pl.Int64, "agent": pl.Int64, "other": pl.Int64, "task": pl.Int64, "accuracy": pl.Float64
    }  # fmt: skip
    assert len(found) > 0
    assert (found["agent"] != found["other"]).all()
    assert set(found["seed"]) <= {lane.seed for lane in stack.lanes}
    # The initial tasks are common: nobody met them alone.
    assert found["task"].min() >= record.settings.tasks.initial  # type: ignore[operator]


def test_the_summary_is_that_of_the_tables(finished: tuple[Record, Stack]) -> None:
    record, stack = finished
    summary = json.loads(record.summary.read_text())
    last = table(record, "accuracy").filter(task=5, epoch=record.settings.learner.epochs + 1)
    mean = last["accuracy"].cast(pl.Float64).mean()
    assert summary["final_accuracy"] == pytest.approx(100 * mean)  # type: ignore[operator]
    grown = modules(stack).mean() if family(record.settings) == GROWTH else None
    assert summary["modules"] == grown
    assert summary["identity"] == record.settings.identity()
    assert (summary["agents"], summary["seeds"], summary["tasks"]) == (2, 2, 6)
    assert summary["out"] == str(record.folder)
    assert 0 < summary["seconds"] < 60


def test_a_run_without_neighbours_has_empty_tables_of_the_same_shape(tmp_path: Path) -> None:
    settings = read(DIGITS, [*TINY, "agents=1", "seeds=1", "tasks.count=4", "learner.epochs=1"])
    record = create(tmp_path / "run", settings)
    summary = carry_out(prepare(settings), record)
    assert summary["zero_shot_others"] is None
    assert summary["final_accuracy_se"] is None
    assert table(record, "others").is_empty()
    origins = ["origin_agent", "origin_task", "root_agent", "root_task", "hops"]
    assert table(record, "growth").columns == ["seed", "agent", "task", "with", "without", "kept", *origins]


def test_about_says_what_made_the_run(settings: Settings, tmp_path: Path) -> None:
    create(tmp_path / "run", settings)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    made = {"format", "shoal", "commit", "command", "started", "python", "machine", "cpu", "packages", "identity"}
    assert set(about) == made
    assert about["cpu"] == torch.backends.cpu.get_cpu_capability()
    assert about["identity"] == settings.identity()
    assert (about["format"], about["shoal"]) == (made_by.FORMAT, shoal.__version__)
    assert about["packages"]["torch"] == torch.__version__
    assert set(about["packages"]) == set(made_by.PACKAGES)
    assert about["commit"] is None or re.fullmatch(r"[0-9a-f]{12}(-dirty)?", about["commit"])
    assert abs(datetime.now(UTC) - datetime.fromisoformat(about["started"])) < timedelta(minutes=1)


def test_the_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/shoal", "run", "my file.toml", "model=mlp"])
    assert made_by.about()["command"] == "shoal run 'my file.toml' model=mlp"


def test_outside_a_source_tree_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_by, "__file__", str(tmp_path / "about.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert made_by.commit.__wrapped__() is None


def test_settings_in_the_directory_are_resolved_and_read_back(settings: Settings, tmp_path: Path) -> None:
    create(tmp_path / "run", settings)
    assert read(tmp_path / "run" / "settings.toml") == settings
    assert reopen(tmp_path / "run").settings == settings


def test_a_failed_write_leaves_the_old_file(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = create(tmp_path / "run", settings)
    record.write("x", b"old")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError) as caught:
        record.write("x", b"new")
    assert str(caught.value) == (
        f"cannot write {record.folder / 'x'}: No space left on device; what was saved before is whole: make room, then "
        f"`shoal resume {record.folder}`"
    )
    assert (record.folder / "x").read_bytes() == b"old"
    assert not list(record.folder.glob("*.part"))


def test_a_writer_is_seen_only_when_it_is_done(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = create(tmp_path / "run", settings)
    record.write("x", b"old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append((record.folder / "x").read_bytes()))
    record.write("x", b"new")
    assert seen == [b"old", b"old", b"old", b"new"]  # the file, the manifest and the folder, and the folder again
    assert (record.folder / "x").read_bytes() == b"new"


def test_a_checkpoint_is_the_stack(finished: tuple[Record, Stack], tmp_path: Path) -> None:
    record, stack = finished
    copy = create(tmp_path / "copy", record.settings)
    copy.save([stack])
    again = copy.load(prepare(copy.settings))
    assert again is not None
    assert same(again[0], stack)
    assert copy.seconds >= 0


def test_without_a_checkpoint_there_is_no_stack(settings: Settings, tmp_path: Path) -> None:
    assert create(tmp_path / "run", settings).load(prepare(settings)) is None


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1])
def test_a_cut_checkpoint_is_noticed(finished: tuple[Record, Stack], tmp_path: Path, keep: float) -> None:
    content = finished[0].checkpoint.read_bytes()
    cut = int(len(content) * keep) if isinstance(keep, float) else keep
    damage(finished[0], tmp_path, content[:cut])


def test_a_changed_byte_anywhere_in_a_checkpoint_is_noticed(finished: tuple[Record, Stack], tmp_path: Path) -> None:
    content = finished[0].checkpoint.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    data = np.random.default_rng(0).integers(start, len(content), 20)
    for at in [0, 9, content.index(b'"seconds"') + 11, content.index(b'"lanes"') + 9, start, len(content) - 1, *data]:
        damage(finished[0], tmp_path / str(at), content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def damage(record: Record, folder: Path, content: bytes) -> None:
    copy = create(folder / "run", record.settings)
    copy.checkpoint.write_bytes(content)
    with pytest.raises(RecordError, match=r"is damaged \(.*\); delete it and `shoal resume .*` starts again"):
        copy.load(prepare(copy.settings))


def test_a_checkpoint_of_another_program_is_not_ours(settings: Settings, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    record = create(tmp_path / "run", settings)
    save_file({"x": torch.zeros(3)}, record.checkpoint)
    with pytest.raises(RecordError, match="is damaged"):
        record.load(prepare(record.settings))


def test_a_checkpoint_of_other_settings_is_refused(finished: tuple[Record, Stack], tmp_path: Path) -> None:
    record, _ = finished
    other = record.settings.model_copy(update={"seed": 5})
    copy = create(tmp_path / "run", other)
    copy.checkpoint.write_bytes(record.checkpoint.read_bytes())
    with pytest.raises(RecordError, match="belongs to other settings"):
        copy.load(prepare(copy.settings))


def test_where_it_ran_does_not_matter_to_a_checkpoint(finished: tuple[Record, Stack], tmp_path: Path) -> None:
    record, stack = finished
    machine = record.settings.machine.model_copy(update={"threads": 2, "checkpoint": 1.0})
    copy = create(tmp_path / "run", record.settings.model_copy(update={"machine": machine}))
    copy.checkpoint.write_bytes(record.checkpoint.read_bytes())
    again = copy.load(prepare(copy.settings))
    assert again is not None
    assert same(again[0], stack)


def test_an_empty_folder_can_become_a_run(settings: Settings, tmp_path: Path) -> None:
    assert create(tmp_path, settings).folder == tmp_path


@pytest.mark.parametrize("left", [["about.json.part"], ["about.json"], ["about.json", "settings.toml.part"]])
def test_a_kill_while_a_directory_is_made_does_not_block_it(
    settings: Settings, tmp_path: Path, left: list[str]
) -> None:
    for name in left:
        (tmp_path / name).write_text('{"shoal": "0"}' if name == "about.json" else "half")
    create(tmp_path, settings)
    assert reopen(tmp_path).settings == settings
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(("name", "text"), [("notes.txt", "mine"), ("about.json", '{"mine": 1}')])
def test_a_folder_with_other_things_is_left_alone(settings: Settings, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RecordError, match="is not empty, and holds no run; choose another folder as `out`"):
        create(tmp_path, settings)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Inside, access rights count, also if the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("rights", [0o555, 0o000])
def test_a_folder_that_cannot_be_made_is_named(settings: Settings, tmp_path: Path, rights: int) -> None:
    tmp_path.chmod(rights)
    with ordinary_user(), pytest.raises(RecordError) as caught:
        create(tmp_path / "run", settings)
    tmp_path.chmod(0o755)
    assert str(caught.value) == (
        f"cannot make the folder {tmp_path / 'run'}: Permission denied; choose another as `out`"
    )


def test_a_directory_in_use_is_left_to_its_process(tmp_path: Path) -> None:
    first, second = (Record(tmp_path, Settings()) for _ in range(2))
    with first.alone(), pytest.raises(RecordError, match="is in use by another process"), second.alone():
        pass
    with second.alone():
        pass


def test_tables_of_results_are_no_change_of_the_code(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=one", "-c", "user.email=one@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    program, results = tmp_path / "code.py", tmp_path / "results.csv"
    program.write_text("1\n", encoding="utf-8")
    results.write_text("a\n", encoding="utf-8")
    assert made_by.commit_of(program) is None
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    clean = made_by.commit_of(program)
    assert clean is not None
    assert re.fullmatch(r"[0-9a-f]{12}", clean)
    results.write_text("b\n", encoding="utf-8")
    assert made_by.commit_of(program) == clean
    program.write_text("2\n", encoding="utf-8")
    assert made_by.commit_of(program) == f"{clean}-dirty"
