"""A run that is killed, anywhere and any number of times, ends bit for bit where an unbroken one does."""

import json
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
from safetensors import safe_open

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.configure.reading import read
from shoal.errors import Stopped
from shoal.fleet.run import Lost, Moment, Watch, train
from shoal.runs import execute as session
from shoal.runs import files
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create, reopen
from tests.command import DIGITS, TINY, call, fork, launch

OFTEN = "machine.checkpoint=0.0001"  # a checkpoint after every epoch
KINDS: dict[str, tuple[str, ...]] = {
    "modular, common start": ("model=modular-mlp", "tasks.common=true"),
    "modular, own start": ("model=modular-mlp", "protocol=paper"),
    "monolithic, own start": ("model=mlp", "tasks.common=false"),
    "nothing but a common start": ("model=mlp", "tasks.common=true", "tasks.count=4"),
    "images shared": ("model=modular-mlp", "sharing=recv", "sharing.every=2", "network.every=3"),
    "several kinds": (
        "agents=3",
        'kinds=[{name = "flat", agents = [1], model = "mlp"}]',
        "sharing=recv",
        "sharing.every=2",
    ),
    "models shared": ("model=mlp", "sharing=fedprox,fedcurv", "sharing.fedprox.every=1", "sharing.fedcurv.every=2"),
}


EVERYDAY = ("modular, common start", "images shared", "models shared")


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind not in EVERYDAY)) for kind in KINDS]
)
def unbroken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A run without a break, and its settings."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    words = (*TINY, *KINDS[request.param], OFTEN)
    done = call("run", DIGITS, *words, "--out", folder)
    assert done.code == 0, done.err
    return folder, words


def assert_same(one: Path, other: Path) -> None:
    """Every tensor, every row and every number, to the last bit; only times and places may differ. What is there is
    what the manifest says."""
    for folder in (one, other):
        listed = files.listed(folder)
        assert listed.keys() == {path.name for path in folder.iterdir()} - {"manifest.json"}
        assert all(files.digest((folder / name).read_bytes()) in sums for name, sums in listed.items())
        assert all(len(sums) == 1 for name, sums in listed.items())
    assert checkpoint(one) == checkpoint(other)
    for name in (
        "accuracy",
        "training",
        "growth",
        "others",
        "validation",
        *(["ledger"] if (one / "ledger.parquet").exists() else []),
    ):
        tables = [pl.read_parquet(folder / f"{name}.parquet") for folder in (one, other)]
        assert tables[0].schema == tables[1].schema
        assert tables[0].equals(tables[1])
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (one, other)]
    for summary in summaries:
        del summary["seconds"], summary["out"]
    assert summaries[0] == summaries[1]
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    assert not list(other.glob("*.part"))


def checkpoint(folder: Path) -> dict[str, object]:
    """All that a checkpoint holds, but for the time it took and the checksum over it."""
    with safe_open(folder / "checkpoint.safetensors", "pt") as file:
        about = {name: value for name, value in file.metadata().items() if name not in ("seconds", "digest")}
        names = list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    return about | {name: (t.dtype, tuple(t.shape), t.numpy().tobytes()) for name, t in tensors.items()}


def words_for(folder: Path, words: tuple[str, ...]) -> tuple[object, ...]:
    """Begin a run, or go on with it."""
    return ("resume", folder) if (folder / "settings.toml").exists() else ("run", DIGITS, *words, "--out", folder)


def clock(folder: Path) -> tuple[int, int]:
    """How far the checkpoint is."""
    record = reopen(folder)
    stacks = record.load(prepare(record.settings))
    return (stacks[0].task, stacks[0].epoch) if stacks else (-1, -1)


def test_killed_at_random_moments_it_ends_the_same(unbroken: tuple[Path, tuple[str, ...]], tmp_path: Path) -> None:
    folder, words = unbroken
    broken = tmp_path / "run"
    draw, kills = random.Random(0), 0
    while not (broken / "summary.json").exists():
        before = written(broken)
        process = fork(*words_for(broken, words))
        wait(lambda: written(broken) != before or not process.is_alive())  # noqa: B023 - it is over before they change
        # The first at once, so that a fast machine cannot be done before it; on a busy one every epoch would be killed.
        process.join(draw.uniform(0, 0.05 * bool(kills)) if kills < 30 else None)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
    assert kills > 0
    assert_same(folder, broken)


def written(folder: Path) -> int:
    """When the checkpoint was last written; a change says that a process is at work."""
    try:
        return (folder / "checkpoint.safetensors").stat().st_mtime_ns
    except FileNotFoundError:  # not yet, or it is becoming the earlier one just now
        return 0


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def test_killed_in_the_middle_of_writing_it_ends_the_same(
    unbroken: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    folder, words = unbroken
    broken = tmp_path / "run"
    draw, kills, half = random.Random(0), 0, set()
    most = len(last_writes(folder)) + 4  # more than the last session writes, so that it can end
    while True:
        process = fork(*words_for(broken, words), fatal=draw.randint(1, most))
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        assert kills < 500, "it never ends"
        half |= {path.name for path in broken.glob("*.part")}
    assert kills > 2
    assert "checkpoint.safetensors.part" in half
    assert_same(folder, broken)


def test_killed_at_each_of_its_last_writes_it_ends_the_same(
    unbroken: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """A kill at what a session writes first, or at the end, leaves a run that is not finished."""
    folder, _ = unbroken
    for at, name in enumerate(last_writes(folder), start=1):
        broken = tmp_path / str(at)
        copy(folder, broken, but=["summary.json", "others.parquet"])
        process = fork("resume", broken, fatal=at)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert f"{name}.part" in [path.name for path in broken.glob("*.part")]
        assert call("resume", broken).code == 0
        assert_same(folder, broken)


def last_writes(folder: Path) -> list[str]:
    """The files that a session writes if nothing is left to learn, in order."""
    shared = ["ledger.parquet", "links.parquet", "consensus.parquet"] if (folder / "ledger.parquet").exists() else []
    tables = ["accuracy.parquet", "training.parquet", "growth.parquet", *shared, "others.parquet", "validation.parquet"]
    last = ["about.json", "checkpoint.safetensors", *tables, "summary.json"]
    # Before each of them the manifest is written, which says what it will be.
    return [name for file in last for name in (file, "manifest.json")]


def copy(folder: Path, to: Path, but: list[str]) -> None:
    to.mkdir()
    for path in folder.iterdir():
        if path.name not in but:
            (to / path.name).write_bytes(path.read_bytes())


def test_killed_while_the_directory_is_made_it_can_be_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for at in (1, 2, 3, 4):
        process = fork("run", DIGITS, *TINY, "--out", folder, fatal=at)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (folder / "settings.toml").exists()
    assert call("run", DIGITS, *TINY, "learner.epochs=1", "--out", folder).code == 0
    assert not list(folder.glob("*.part"))


def test_a_killed_command_is_resumed(tmp_path: Path) -> None:
    """The same with the real command, from its start; long enough to be alive when the signal comes."""
    folder, broken = tmp_path / "unbroken", tmp_path / "run"
    words = (*TINY, "learner.epochs=30", OFTEN)
    assert call("run", DIGITS, *words, "--out", folder).code == 0
    with launch("run", DIGITS, *words, "--out", broken) as process:
        assert process.stderr is not None
        assert any("task 4/6 done" in line for line in process.stderr)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (broken / "summary.json").exists()
    assert call("resume", broken, "--json").code == 0
    assert_same(folder, broken)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = (*TINY, "learner.epochs=100")
    with launch("run", DIGITS, *words, "--out", folder, "--json") as process:
        wait((folder / "checkpoint.safetensors").exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == f"stopped and saved; go on with `shoal resume {folder}`"
    assert "Traceback" not in err
    assert clock(folder) > (0, 0)
    assert not (folder / "summary.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_polite_kill_saves_and_the_run_ends_the_same(
    unbroken: tuple[Path, tuple[str, ...]], tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the middle of the second epoch stops the run after it, with that epoch saved."""
    folder, words = unbroken
    broken = tmp_path / "run"
    stops = 0

    def disturbed(
        fleet: Sequence[World], stacks: Sequence[Stack] | None, watch: Watch, lost: Lost
    ) -> tuple[Stack, ...]:
        epochs = 0

        def tell(moment: Moment) -> None:
            nonlocal epochs, stops
            epochs += 1
            if epochs == 2 and stops < 3:
                stops += 1
                signal.raise_signal(number)
            watch(moment)

        return train(fleet, stacks, tell, lost=lost)

    monkeypatch.setattr(session, "train", disturbed)
    outside = signal.signal(number, signal.default_int_handler)  # the tests may run where it is ignored, as by `nohup`
    try:
        clocks = []
        for _ in range(3):
            done = call(*words_for(broken, words))
            assert (done.code, done.out) == (130, "")
            assert done.err.splitlines()[-1] == f"stopped and saved; go on with `shoal resume {broken}`"
            clocks.append(clock(broken))
        assert clocks == sorted(set(clocks))
        assert signal.getsignal(number) == signal.default_int_handler
    finally:
        signal.signal(number, outside)
    assert call("resume", broken).code == 0
    assert_same(folder, broken)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    settings = read(DIGITS, [*TINY, "machine.checkpoint=1000.0"])
    record = create(tmp_path / "run", settings)

    def impatient(moment: Moment) -> None:
        if moment.epoch == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Stopped, match=r"stopped at once; `shoal resume .*` goes on from the last checkpoint"):
        carry_out(prepare(settings), record, impatient)
    assert clock(record.folder) == (3, 0)


def test_a_run_saves_as_often_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seldom: at the end of every task, and when it is done. Often: after every epoch."""
    saved: list[tuple[int, int]] = []
    settings = read(DIGITS, [*TINY, "machine.checkpoint=1000.0"])
    monkeypatch.setattr(
        "shoal.runs.record.Record.save", lambda record, stacks: saved.append((stacks[0].task, stacks[0].epoch))
    )
    carry_out(prepare(settings), create(tmp_path / "seldom", settings))
    assert saved == [*((task, 0) for task in range(1, 7)), (6, 0)]
    saved.clear()
    settings = read(DIGITS, [*TINY, OFTEN])
    carry_out(prepare(settings), create(tmp_path / "often", settings))
    epochs = [(task, epoch) for task in (3, 4, 5) for epoch in range(1, 7)]
    assert saved == [*sorted([*((task, 0) for task in range(1, 7)), *epochs]), (6, 0)]


def test_the_time_of_all_sessions_is_counted(tmp_path: Path) -> None:
    settings = read(DIGITS, TINY)
    record = create(tmp_path / "run", settings)
    record.seconds = 1000.0

    def stop(moment: Moment) -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        carry_out(prepare(settings), record, stop)
    summary = carry_out(prepare(settings), reopen(tmp_path / "run"))
    assert 1000 < summary["seconds"] < 1060
