"""Cells side by side: the same results as one after the other, whoever is killed, and nothing left running."""

import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.configure.reading import read
from shoal.errors import Stopped, UserError
from shoal.fleet.run import Moment, Watch
from shoal.settings.groups import Machine, Settings
from shoal.settings.staff import staff
from shoal.study import beside
from shoal.study.cells import finish, finished, place_of
from tests.command import DIGITS, TINY, call, launch, refused

pytestmark = pytest.mark.usefixtures("nowhere")
CHANGED = {"learner.epochs": 4, "tasks.count": 5, "tasks.initial": 3, "seeds": 1, "network": "ring"}
SMALL = (
    *(word for word in TINY if word.partition("=")[0] not in CHANGED),
    *(f"{key}={value}" for key, value in CHANGED.items()),
)
TABLES = ("accuracy.parquet", "ledger.parquet", "training.parquet")


@dataclass(frozen=True)
class Cell:
    name: str
    settings: Settings


def cells_of(*more: str) -> list[Cell]:
    """Three runs with the same common start, two of which share, and one with another."""
    words = {"none": ["sharing=none"], "average": ["sharing=fedavg", "sharing.every=2"], "modules": ["sharing=modmod"]}
    words["other"] = ["sharing=none", "learner.rate=0.02"]
    return [Cell(name, read(DIGITS, [*SMALL, *own, *more])) for name, own in words.items()]


def two(show: Callable[[Cell, Moment], None] = lambda cell, moment: None) -> tuple[Machine, Callable[[Cell], Watch]]:
    """Two processes, and what is told of every cell."""
    return staff(Machine(), 2), lambda cell: lambda moment: show(cell, moment)


def same(cells: list[Cell], one: Path, other: Path) -> None:
    for cell in cells:
        assert finished(cell, one)
        assert finished(cell, other)
        for name in TABLES:
            files = [place_of(cell, folder) / name for folder in (one, other)]
            assert files[0].exists() == files[1].exists() == (bool(cell.settings.sharing) or name != "ledger.parquet")
            assert not files[0].exists() or files[0].read_bytes() == files[1].read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What comes of the cells one after the other."""
    folder = tmp_path_factory.mktemp("alone")
    for cell in cells_of():
        finish(cell, folder, None)
    return folder


def test_cells_side_by_side_end_as_one_after_the_other(alone: Path, tmp_path: Path) -> None:
    """Also where a worker is killed; cells with the same common start learn it once."""
    cells, told, seen, lock = cells_of(), list[str](), dict[str, list[tuple[int, int]]](), threading.Lock()

    def show(cell: Cell, moment: Moment) -> None:
        with lock:
            seen.setdefault(cell.name, []).append((moment.task, moment.epoch))
            if cell.name == "average" and (moment.task, moment.epoch) == (4, 2) and not told:
                told.append("killed")
                (member,) = moment.crew.members
                os.kill(member.process.pid, signal.SIGKILL)  # type: ignore[attr-defined]

    found = list(beside.trained(cells, tmp_path, None, *two(show), told.append))
    assert sorted(cell.name for cell in found) == sorted(cell.name for cell in cells)
    assert told[0] == "killed"
    assert "has ended in the middle of its work (exit code -9); going on from the last checkpoint" in told[1]
    same(cells, alone, tmp_path)
    initial = cells[0].settings.tasks.initial
    learned = [name for name, moments in seen.items() if moments[0][0] < initial]
    assert len(learned) == 2  # one of those with the same start, and the other
    assert "other" in learned
    assert not multiprocessing.active_children()


def test_who_asks_to_stop_finds_all_saved_and_goes_on(alone: Path, tmp_path: Path) -> None:
    cells, once = cells_of(), threading.Lock()

    def show(cell: Cell, moment: Moment) -> None:
        if moment.task == 4 and moment.epoch == 2 and once.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)  # it is heard where the cells are looked after

    begun = beside.trained(cells, tmp_path, None, *two(show))
    with pytest.raises(Stopped, match=r"^stopped and saved; the same command again goes on with all that is left$"):
        list(begun)
    assert not multiprocessing.active_children()
    left = [cell for cell in cells if not finished(cell, tmp_path)]
    assert left
    list(beside.trained(left, tmp_path, None, *two()))
    same(cells, alone, tmp_path)


def test_who_asks_twice_does_not_wait(tmp_path: Path) -> None:
    once = threading.Lock()  # a signal of another cell would come when the test is over, to the tests behind it

    def show(cell: Cell, moment: Moment) -> None:
        if moment.task == 4 and moment.epoch == 2 and once.acquire(blocking=False):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(0.5)  # two at once would be one

    before = set(threading.enumerate())
    with pytest.raises(Stopped, match=r"^stopped at once; the same command again goes on from the last checkpoints"):
        list(beside.trained(cells_of(), tmp_path, None, *two(show)))
    assert not multiprocessing.active_children()
    assert not [one for one in threading.enumerate() if one.name.startswith("shoal-") and one not in before]


def test_one_that_fails_is_raised_and_the_others_are_saved(tmp_path: Path) -> None:
    wrong = Cell("wrong", read(DIGITS, [*SMALL, "learner.rate=1e30", "sharing=none", "tasks.initial=1"]))
    long = Cell("long", read(DIGITS, [*SMALL, "learner.epochs=400", "sharing=none"]))
    with pytest.raises(UserError, match=r"diverged in task .* learner\.rate \(1e\+30\)"):
        list(beside.trained([long, wrong], tmp_path, None, *two()))
    assert not finished(long, tmp_path)
    assert not multiprocessing.active_children()


def test_the_commands_have_workers_and_say_the_same() -> None:
    words = ("sweep", DIGITS, *SMALL, "sharing=none,fedavg", "sharing.every=2", "--no-page", "--json")
    done = [call(*words, "--out", name, *more) for name, more in (("one", ()), ("two", ("--workers", "2")))]
    assert [one.code for one in done] == [0, 0], done
    rows = [one.out.replace('"one/', '"two/').splitlines() for one in done]
    assert len(rows[0]) == len(rows[1]) == 2
    tables = [[path.parent.name, path.read_bytes()] for path in sorted(Path("one").glob("*/accuracy.parquet"))]
    assert tables == [[path.parent.name, path.read_bytes()] for path in sorted(Path("two").glob("*/accuracy.parquet"))]
    assert not multiprocessing.active_children()
    refused(call(*words, "--workers", "none"), "--workers cannot be 'none'; say a number of processes")
    refused(call(*words, "--stacks", "2"), "--address and --stacks are for workers in Ray")


def test_ctrl_c_stops_a_real_command_and_its_workers() -> None:
    """A terminal sends it to all processes of the command."""
    few = [word for word in SMALL if not word.startswith(("learner.epochs", "learner.rate", "network"))]
    words = ("sweep", DIGITS, *few, "learner.epochs=400", "learner.rate=0.01,0.02", "--no-page", "--workers", "2")
    with launch(*words, "--out", "cells", group=True) as process:
        assert process.stderr is not None
        assert any("tasks 1 to" in line for line in process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped and saved; the same command again goes on with all that is left"
    assert "Traceback" not in err
    for _ in range(300):  # of the group one may still be ending
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("some of its processes are still there")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--workers", "9"), r"machine.workers = 9 .* more than there are agents to deal out: 2 agents x 1 seeds = 2"),
        (("--workers", "ray", "--stacks", "9"), r"machine.workers = 9 .* say 2 or fewer"),
        (
            ("--workers", "ray", "--address", "127.0.0.1:1"),
            r"there is no Ray cluster at 127.0.0.1:1 \(Connection",
        ),
        (("--workers", "ray", "--stacks", "2", f"machine.cpus={os.cpu_count()}"), r"2 x .* CPUs? for workers are"),
        (("--workers", "ray", "--address", "auto"), r"machine.address cannot be 'auto'; say HOST:PORT"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "check", "sweep"])
def test_workers_that_cannot_be_are_one_sentence(verb: str, words: tuple[str, ...], why: str) -> None:
    """Before anything is written, so that the command can be mended and given again."""
    if "ray" in words:
        pytest.importorskip("ray")
    if verb == "sweep" and "9" in words:
        return  # more workers than cells and lanes are no mistake there: some have nothing to do
    varied = ("sharing=none,fedavg", "sharing.every=2") if verb == "sweep" else ()
    done = call(verb, DIGITS, *SMALL, *varied, *words, *(() if verb == "check" else ("--out", "there")))
    assert (done.code, done.out) == (2, "")
    assert re.search(rf"^error: .*{why}", done.err.splitlines()[-1])
    if verb != "sweep":
        assert done.err.count("\n") == 1
    assert not list(Path("there").rglob("settings.toml"))
    assert not multiprocessing.active_children()
