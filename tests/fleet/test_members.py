"""Members in processes of their own: the same bits, the same ledger, and no process left behind."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.agents.stack import Stack, start
from shoal.agents.worlds import worlds
from shoal.configure.reading import resolve
from shoal.contracts import fleets
from shoal.contracts.fleets import difference
from shoal.contracts.mode_case import made_of, model_of
from shoal.data import Bank, load
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.fleet import processes
from shoal.fleet.members import LostError
from shoal.fleet.processes import Process, serve, shared
from shoal.fleet.run import Moment, train
from shoal.fleet.workers import Served
from shoal.letters.ledger import Ledger
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import Record, create
from shoal.settings.groups import Settings
from shoal.settings.staff import staff
from shoal.sharing.modes import MODES
from tests.command import ROOT
from tests.fleets import last_saved

HYBRID = ("recv", "modmod", "fedavg")
RAW: dict[str, Any] = {
    "model": "modular-mlp",
    "agents": 4,
    "tasks": {"count": 4, "classes": 4, "initial": 2, "train": 6, "validation": 4},
    "net": {"width": 8},
    "learner": {"epochs": 3, "batch": 16, "memory": 4, "accept": -1.0},
    "sharing": [{"mode": name, **MODES[name].example} for name in HYBRID],
    "network": {"graph": "ring", "budget": 300, "every": 3},
}
FLAT = {"name": "flat", "agents": [1, 2], "model": "mlp", "learner": {"method": "replay"}}
# A fleet with a common start, hybrid over links with limits; one of several kinds, two seeds, each agent from its own.
FLEETS: dict[str, tuple[int, dict[str, Any]]] = {
    "a common start, of which two processes have a part": (2, {}),
    "kinds, and seeds that are cut": (3, {"kinds": [FLAT], "seeds": 2, "tasks": {**RAW["tasks"], "common": False}}),
    "alone": (2, {"sharing": []}),
}


def settings_of(workers: int, **changes: Any) -> Settings:
    """A fleet here, or dealt to so many processes."""
    machine = {"members": "processes", "workers": workers} if workers else {"members": "here"}
    return resolve({**RAW, **changes, "machine": machine})


def same(found: tuple[Stack, ...], want: tuple[Stack, ...]) -> None:
    assert [stack.lanes for stack in found] == [stack.lanes for stack in want]
    for stack, other in zip(found, want, strict=True):
        assert difference(stack, other) == ""
        assert under_way(stack) == under_way(other)
    assert np.array_equal(found[0].ledger.rows, want[0].ledger.rows)
    assert found[0].ledger.words == want[0].ledger.words


def under_way(stack: Stack) -> list[str]:
    """What each lane has not yet absorbed, in the order in which it came."""
    return [mail.id for mail in sorted(stack.inbox, key=lambda mail: mail.receiver)]


def nobody_is_left() -> bool:
    return not multiprocessing.active_children()


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_that_is_dealt_to_processes_ends_as_in_one(name: str, tmp_path: Path) -> None:
    """Also one that was stopped in the middle of a task, saved, and goes on in another number of processes."""
    workers, changes = FLEETS[name]
    here, dealt = (settings_of(count, **changes) for count in (0, workers))
    assert here.identity() == dealt.identity()
    kept: list[tuple[Stack, ...]] = []

    def watch(moment: Moment) -> None:
        if (moment.task, moment.epoch) in ((1, 2), (3, 1)):  # joint agents still learn for all, and later
            record = Record(tmp_path, dealt)
            record.save(moment.stacks)
            kept.append(last_saved(record) or ())

    want = train(worlds(here, load("digits")))
    assert bool(len(want[0].ledger)) == bool(here.sharing)
    if here.sharing:
        assert len(set(want[0].ledger.column("verdict").tolist())) > 1
        assert set(want[0].ledger.column("mode").tolist()) == set(HYBRID)
    same(train(worlds(dealt, load("digits")), watch=watch), want)
    assert nobody_is_left()
    early, late = kept
    assert early[0].lanes != late[0].lanes or not here.tasks.common
    same(train(worlds(here, load("digits")), early), want)
    if here.sharing:
        same(train(worlds(settings_of(5 - workers, **changes), load("digits")), late), want)
        assert nobody_is_left()


def shared_by(name: str) -> tuple[Settings, Bank]:
    """A small fleet that shares by a mode, with a net that it suits, and its data."""
    modes = (made_of(name),)
    model = model_of(modes)
    return fleets.settings_of(model, agents=4, network="ring", sharing=modes), fleets.bank_of(model)


class Threaded(Process):
    """A worker that does all that one in a process does, in a thread of this one, because that starts at once."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes, self.verb = frozenset(lanes), ""
        self.pending = self.gone = self.opened = False
        self.pipe, there = multiprocessing.Pipe()
        self.process: Any = threading.Thread(target=serve, args=(there,), daemon=True)
        self.process.start()


@pytest.fixture
def threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are in threads."""
    monkeypatch.setattr(processes, "Process", Threaded)
    monkeypatch.setattr(processes, "keep_memory", lambda: None)  # it is this process's
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # only the main thread may say who listens


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize("network", [{}, {"loss": 0.2, "delay": {"least": 0, "most": 2}}], ids=["at once", "late"])
@pytest.mark.parametrize(("name", "workers"), [("fedavg", 2), ("fedavg", 3), ("recv", 2)])
def test_mail_is_arrays_also_between_workers_and_ends_as_here(
    name: str, workers: int, network: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds in two workers: nothing goes from one to the other. In three, one seed is cut: what crosses is the
    content of a worker's letters, once for each that gets any, and not a letter."""
    modes = (made_of(name),)
    here = fleets.settings_of(model_of(modes), agents=4, seeds=2, network={"graph": "ring", **network}, sharing=modes)
    bank, crossed, honest = load("digits"), list[tuple[int, int]](), Served.sent
    want = train(worlds(here, bank))

    def sent(self: Served, posted: Any) -> Any:
        found = honest(self, posted)
        crossed.extend((len(one.contents), len(one.table)) for one in found[1] if one)
        return found

    monkeypatch.setattr(Served, "sent", sent)
    seen: list[str] = []
    there = worlds(here.model_copy(update={"machine": staff(here.machine, workers)}), bank)
    same(train(there, observe=lambda mail, verdict: seen.append(mail.id)), want)
    assert bool(crossed) == (workers == 3)
    assert all(contents <= letters for contents, letters in crossed)
    assert network or all(contents == 1 for contents, _ in crossed)
    assert len(seen) == len(set(seen)) == len(want[0].ledger)


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize("name", sorted(MODES))
def test_every_mode_ends_in_workers_as_here(name: str) -> None:
    here, bank = shared_by(name)
    want = train(worlds(here, bank))
    assert len(want[0].ledger)
    for workers in (2, 4):
        machine = staff(here.machine, workers)
        same(train(worlds(here.model_copy(update={"machine": machine}), bank)), want)


def kill_a_worker() -> None:
    worker = multiprocessing.active_children()[0]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_replaced_and_the_run_ends_the_same(tmp_path: Path) -> None:
    """Twice: before anything was saved, and from the stacks that were saved last."""
    want, record = train(worlds(settings_of(0), load("digits"))), Record(tmp_path, settings_of(2))
    losses: list[str] = []
    killed: set[tuple[int, int]] = set()

    def watch(moment: Moment) -> None:
        now = moment.task, moment.epoch
        if now == (3, 0):
            record.save(moment.stacks)
        if now in ((1, 1), (3, 2)) and now not in killed:
            killed.add(now)
            kill_a_worker()

    def lost(loss: LostError) -> tuple[Stack, ...] | None:
        losses.append(str(loss))
        return last_saved(record)

    same(train(worlds(settings_of(2), load("digits")), watch=watch, lost=lost), want)
    assert len(losses) == 2
    assert all(
        re.fullmatch(r"worker process \d+ has ended in the middle of its work \(exit code -9\)", one) for one in losses
    )
    assert nobody_is_left()


def test_a_run_whose_worker_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    settings = settings_of(2)
    said: list[str] = []
    here, there = create(tmp_path / "here", settings_of(0)), create(tmp_path / "there", settings)
    carry_out(prepare(settings_of(0)), here)
    there.tell = said.append

    def show(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (3, 1) and not said:
            kill_a_worker()

    carry_out(prepare(settings), there, show)
    assert len(said) == 1
    assert said[0].endswith("(exit code -9); going on from the last checkpoint with a new one")
    for name in ("accuracy", "ledger", "training", "growth", "candidates"):
        assert (here.folder / f"{name}.parquet").read_bytes() == (there.folder / f"{name}.parquet").read_bytes()
    found, want = (last_saved(one) for one in (there, here))
    assert found is not None
    assert want is not None
    same(found, want)


def test_a_worker_that_is_killed_again_and_again_is_one_sentence() -> None:
    def kill(moment: Moment) -> None:
        if moment.task == 2:
            kill_a_worker()

    with pytest.raises(UserError) as caught:
        train(worlds(settings_of(2), load("digits")), watch=kill)
    assert re.fullmatch(
        r"worker process \d+ has ended in the middle of its work \(exit code -9\), and 3 times in all since task 1, "
        r"epoch 0; what was saved is whole: see that workers have enough memory, or take fewer, then start the run "
        r"again to go on from there",
        str(caught.value),
    )
    assert nobody_is_left()


def test_more_workers_than_lanes_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"machine.workers = 9 .* 4 agents x 2 seeds = 8; say 8 or fewer"):
        prepare(settings_of(9, seeds=2))


def test_the_data_is_in_one_file_that_goes_with_the_run() -> None:
    bank, there = load("digits"), Path(tempfile.gettempdir())
    with shared(bank) as found:
        assert found.file.parent == there
        assert len(found.content) < 2000
        again = found.opened()
        for name in ("images", "labels", "source", "test"):
            assert np.array_equal(getattr(again, name), getattr(bank, name))
            assert getattr(again, name).flags.writeable
    assert not found.file.exists()


def test_what_goes_wrong_in_a_worker_is_said_as_here() -> None:
    said = []
    for workers in (0, 2):
        diverging = settings_of(workers, learner={**RAW["learner"], "rate": 1e30}, sharing=[])
        with pytest.raises(UserError, match=r"diverged in task .* learner\.rate \(1e\+30\)") as caught:
            train(worlds(diverging, load("digits")))
        said.append(str(caught.value))
        assert nobody_is_left()
    assert said[0] == said[1]


PARENT = """
import multiprocessing, sys
from tests.fleet.test_members import settings_of
from shoal.data import load
from shoal.fleet.run import train
from shoal.agents.worlds import worlds

def watch(moment):
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    sys.stdin.read()

if __name__ == "__main__":
    train(worlds(settings_of(2), load("digits")), watch=watch)
"""


def test_workers_end_with_whoever_started_them(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdin is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    for _ in range(600):
        if not any(alive(worker) for worker in workers):
            return
        time.sleep(0.1)
    raise AssertionError(f"of {workers} some are still there")


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_cannot_begin_leaves_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker is sent settings that it cannot read."""
    honest, count, before = Process.tell, [0], os.environ.get("OMP_NUM_THREADS")

    def tell(self: Process, verb: str, *arguments: Any) -> None:
        count[0] += verb == "open"
        honest(self, verb, *(arguments[:-1] if count[0] == 2 and verb == "open" else arguments))

    monkeypatch.setattr(Process, "tell", tell)
    with pytest.raises(TypeError, match="own"):
        train(worlds(settings_of(2), load("digits")))
    assert nobody_is_left()
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_a_checkpoint_that_lacks_what_agents_learn_with_is_one_sentence() -> None:
    (world,) = worlds(settings_of(0, sharing=[], tasks={**RAW["tasks"], "common": False}), load("digits"))
    stack = start(world)
    del stack.of("memory")["fill"]
    with pytest.raises(UserError, match=r"the checkpoint lacks `memory.fill`: another version of shoal has made it"):
        train([world], [stack])


def test_a_worker_that_is_dismissed_leaves_the_data_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removed the file that all of them map, and whoever came in its place found none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # others make such files at the same time
    whole = worlds(settings_of(2), load("digits"))
    with processes.started(whole) as workers:
        workers.restart(None, Ledger())
        (bank,) = tmp_path.glob("shoal-bank-*")
        workers.members[0].close()
        workers.members[0].gone = True
        assert bank.exists()
        workers.restart(None, Ledger())
    assert not bank.exists()


@pytest.mark.slow
def test_a_run_goes_on_though_all_its_workers_are_killed_at_once() -> None:
    """Each counted as a loss of its own, and three were too many."""
    here, killed = settings_of(0), list[int]()
    want = train(worlds(here, load("digits")))

    def watch(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (2, 1) and not killed:
            killed.extend(member.process.pid for member in moment.crew.members)  # type: ignore[attr-defined]
            for one in killed:
                os.kill(one, signal.SIGKILL)

    same(train(worlds(settings_of(4), load("digits")), watch=watch), want)
    assert len(killed) == 4
