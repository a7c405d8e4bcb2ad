"""Workers in Ray actors: the same bits and the same ledger, whoever is killed, and nothing left running.

One Ray serves all tests of this file that need no other; it has as many actors as the largest of them.
"""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.configure.reading import resolve
from shoal.data import load
from shoal.errors import StaffError, UserError
from shoal.fleet import around_ray, cluster, delivery, watchdog
from shoal.fleet.members import LostError
from shoal.fleet.parcels import routed
from shoal.fleet.run import Moment, train
from shoal.runs.execute import prepare
from shoal.runs.record import Record, reopen
from shoal.settings.groups import Machine, Settings
from shoal.sharing.modes import MODES
from shoal.study import beside
from shoal.study.cells import finish, place_of
from tests.command import DIGITS, ROOT, TINY, command
from tests.fleet.test_members import FLAT, RAW, alive, same, settings_of, shared_by
from tests.fleets import last_saved

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
OWN = {"tasks": {**RAW["tasks"], "common": False}}  # every agent begins for itself, so that there is less to learn


def ray_of(count: int, machine: dict[str, Any] | None = None, **changes: Any) -> Settings:
    """A fleet in so many actors."""
    own = {"members": "ray", "workers": count, "cpus": 0.5, "patience": 300.0, **(machine or {})}
    return resolve({**RAW, **changes, "machine": own})


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """A Ray of this machine with room for four actors."""
    with cluster.session(ray_of(4).machine):
        yield


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_fleet_in_actors_ends_as_in_one_process(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hybrid over links with limits, with a common start. Whoever drives the run never sees a payload."""
    want = train(worlds(settings_of(0), load("digits")))
    seen: list[Any] = []
    parcels: list[Any] = []

    def noted(*arguments: Any) -> tuple[Any, ...]:
        route, *found = routed(*arguments)
        parcels.extend(found)
        return (route, *found)

    monkeypatch.setattr(delivery, "routed", noted)
    found = train(worlds(ray_of(count), load("digits")), observe=lambda mail, verdict: seen.append(mail))
    same(found, want)
    assert len(seen) == len(want[0].ledger) > 0
    assert not any(mail.payload for mail in seen)
    assert bool(parcels) == (count > 1)
    assert {type(one).__name__ for one in parcels} <= {"ObjectRef"}


@pytest.mark.usefixtures("ray")
def test_an_actor_that_is_killed_is_replaced_and_the_run_ends_the_same(tmp_path: Path) -> None:
    here = settings_of(0, **OWN, kinds=[FLAT])
    want, record = train(worlds(here, load("digits"))), Record(tmp_path, here)
    losses: list[str] = []

    def watch(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (2, 0):
            record.save(moment.stacks)
        if (moment.task, moment.epoch) == (2, 1) and not losses:
            (process,) = re.findall(r"process (\d+)", moment.crew.members[0].about)  # type: ignore[attr-defined]
            os.kill(int(process), signal.SIGKILL)

    def lost(loss: LostError) -> tuple[Stack, ...] | None:
        losses.append(str(loss))
        return last_saved(record)

    same(train(worlds(ray_of(2, **OWN, kinds=[FLAT]), load("digits")), watch=watch, lost=lost), want)
    (loss,) = losses
    assert re.match(r"the worker in process \d+ on node \S+ has ended in the middle of its work", loss)


@pytest.mark.usefixtures("ray")
def test_what_goes_wrong_in_an_actor_is_said_as_here() -> None:
    said = []
    for settings in (settings_of(0, **OWN, sharing=[]), ray_of(2, **OWN, sharing=[])):
        diverging = settings.model_copy(update={"learner": settings.learner.model_copy(update={"rate": 1e30})})
        with pytest.raises(UserError, match=r"diverged in task .* learner\.rate \(1e\+30\)") as caught:
            train(worlds(diverging, load("digits")))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_more_actors_than_there_is_room_for_are_one_sentence_before_anything_is_started() -> None:
    cpus = os.cpu_count() or 1
    with pytest.raises(UserError) as caught:
        prepare(ray_of(4, {"cpus": float(cpus)}))
    assert str(caught.value) == (
        f"4 x {cpus} CPU{'s' * (cpus > 1)} for workers are {4 * cpus}, and this machine has {cpus}; say --stacks 1, or "
        "lower machine.cpus"
    )
    gpus = torch.cuda.device_count()
    with pytest.raises(UserError, match=rf"2 x {gpus + 1} GPUs? for workers are {2 * gpus + 2}, and .* has {gpus}; "):
        prepare(ray_of(2, {"gpus": gpus + 1.0}))


@pytest.mark.parametrize(
    ("there", "machine", "count"),
    [
        ({"CPU": 8.0}, {}, 4),  # no more than lanes
        ({"CPU": 3.0}, {}, 3),
        ({"CPU": 0.9}, {"cpus": 0.3}, 3),
        ({"CPU": 8.0, "GPU": 1.0}, {"gpus": 0.5}, 2),
        ({"CPU": 1.0}, {"workers": 4, "cpus": 0.25}, 4),
    ],
)
def test_where_nobody_says_how_many_there_are_as_many_as_fit(
    there: dict[str, float], machine: dict[str, Any], count: int
) -> None:
    assert cluster.fitting(there, 4, Machine(members="ray", **machine), "it") == count


@pytest.mark.usefixtures("ray")
def test_a_session_has_one_ray() -> None:
    with pytest.raises(UserError, match=r"this program uses this machine already, and cannot use 127.0.0.1:1 beside"):
        train(worlds(ray_of(2, {"address": "127.0.0.1:1"}), load("digits")))


@pytest.mark.usefixtures("ray")
def test_a_cluster_that_has_no_room_is_not_waited_for_for_ever() -> None:
    """All CPUs are taken by somebody else."""
    ray, cpus = cluster.imported(), os.cpu_count() or 1
    busy = ray.remote(num_cpus=cpus)(Idle).remote()
    for left in cluster.OPEN[0].idle.values():
        while left:
            ray.kill(left.pop())
    assert cluster.fetched(ray, busy.about.remote(), time.monotonic() + 60)
    with pytest.raises(UserError) as caught:
        train(worlds(ray_of(2, {"patience": 1.0}), load("digits")))
    ray.kill(busy)
    assert str(caught.value).startswith(
        "this machine has had no room for 2 workers with 0.5 CPUs each for 1 seconds; what was saved is whole:"
    )


class Idle:
    def about(self) -> bool:
        return True


def test_a_node_with_other_versions_is_named() -> None:
    own = cluster.facts()
    assert own.keys() == set(cluster.NAMES)
    cluster.differs(own, own, "10.0.0.7")
    with pytest.raises(UserError, match=r"^node 10.0.0.7 has torch 1.0, and this machine has torch .*; a run needs"):
        cluster.differs(own, {**own, "torch": "1.0"}, "10.0.0.7")
    with pytest.raises(UserError, match=r"^node 10.0.0.7 has no shoal, and this machine has shoal "):
        cluster.differs(own, {**own, "shoal": ""}, "10.0.0.7")


@pytest.mark.usefixtures("ray")
def test_every_node_is_asked_for_its_versions_where_there_may_be_no_shoal(monkeypatch: pytest.MonkeyPatch) -> None:
    session, honest = cluster.OPEN[0], cluster.differs
    monkeypatch.setattr(session, "address", "as if it were elsewhere")
    session.check()
    assert len(session.checked) == 1
    monkeypatch.setattr(session, "checked", set())
    monkeypatch.setattr(cluster, "differs", lambda own, there, node: honest({**own, "python": "2.7.18"}, there, node))
    with pytest.raises(UserError, match=r"^node \S+ has python 3.* and this machine has python 2.7.18;"):
        session.check()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", r"there is no Ray cluster at 127.0.0.1:1 \(Connection refused\); start one with `ray start"),
        ("ray://somewhere:10001", r"machine.address cannot be 'ray://somewhere:10001'; say HOST:PORT"),
        ("auto", r"machine.address cannot be 'auto'; say HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_one_sentence(address: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "OPEN", [])
    with pytest.raises(UserError, match=why):
        cluster.join(cluster.imported(), address)


def test_more_actors_than_lanes_are_one_sentence() -> None:
    with pytest.raises(UserError, match=r"machine.workers = 5 .* 4 agents x 1 seeds = 4; say 4 or fewer"):
        prepare(ray_of(5))


def test_without_the_extra_it_is_one_sentence_and_nothing_else_imports_ray() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import shoal.cli.commands, shoal.fleet.run, shoal.fleet.processes, shoal.fleet.actors\n"
        "from shoal.fleet import cluster\n"
        "from shoal.settings.groups import Machine\n"
        "try: cluster.session(Machine()).__enter__()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == (
        "UserError workers in Ray need the package `ray`, which is not installed; `pip install 'shoal[ray]'` brings "
        "it, and --workers 2 works without\n"
    )


@pytest.mark.usefixtures("ray")
def test_what_a_node_lacks_is_one_sentence_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A net of one's own that is here and not there; data is sent, so that it is missing nowhere."""
    (tmp_path / "only_here.py").write_text("from torch import nn\n\ndef net():\n    return nn.Flatten()\n")
    monkeypatch.syspath_prepend(tmp_path)
    fleet = worlds(
        ray_of(1, **OWN, model="only_here:net", learner={"epochs": 3, "memory": 4}, sharing=[]), load("digits")
    )
    with pytest.raises(UserError, match=r"the worker in process \d+ on node \S+ cannot begin: .*only_here"):
        train(fleet)


@pytest.mark.usefixtures("ray")
def test_a_node_that_would_take_its_steps_otherwise_is_one_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has another C compiler, or none: that gives other bits."""
    monkeypatch.setattr(World, "kernel", property(lambda world: "compiled by another"))
    with pytest.raises(
        StaffError, match=r"the worker in process \d+ on node \S+ takes its steps with another kernel \(.*\) than this "
    ):
        train(worlds(ray_of(1, **OWN, sharing=[]), load("digits")))


def test_what_others_write_to_stderr_is_kept_from_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    with around_ray.hushed(said):
        os.write(2, b"one\ntwo\n")
    print("three", file=sys.stderr)
    assert said == ["one", "two"]
    assert capfd.readouterr().err == "three\n"


@pytest.mark.usefixtures("ray")
def test_cells_side_by_side_are_in_actors(tmp_path: Path) -> None:
    """The same as one after the other; actors that have nothing to do take the next cell."""
    cells = [Cell(f"of-{seed}", ray_of(1, **OWN, seed=seed)) for seed in range(3)]
    there, machine = tmp_path / "there", ray_of(2).machine
    found = list(beside.trained(cells, there, None, machine, lambda cell: lambda moment: None))
    assert {cell.name for cell in found} == {cell.name for cell in cells}
    for cell in cells:
        finish(cell, tmp_path / "here", None, machine=settings_of(0).machine)
        for name in ("accuracy", "ledger", "training"):
            files = [place_of(cell, tmp_path / where) / f"{name}.parquet" for where in ("here", "there")]
            assert files[0].read_bytes() == files[1].read_bytes()


@dataclass(frozen=True)
class Cell:
    name: str
    settings: Settings


def marked(mark: str) -> list[int]:
    """The processes that were started by one whose environment has a mark, and whoever these have started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes() and alive(int(place.name)):
                found.append(int(place.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_command_that_is_stopped_or_killed_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    """What was saved is whole, and the same run goes on from it without Ray and ends as if it had not been stopped."""
    mark, place, home = f"SHOAL_MARK={os.getpid()}-{time.monotonic_ns()}", tmp_path / "run", tmp_path / "home"
    home.mkdir()
    words = (*TINY, "learner.epochs=200", "machine.patience=300.0", "machine.checkpoint=1.0", "--out", place)
    with subprocess.Popen(
        command("run", DIGITS, *words, "--workers", "ray", "--stacks", "2"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHOAL_MARK": mark.partition("=")[2], "HOME": str(home)},
    ) as process:  # fmt: skip
        limit = time.monotonic() + 400
        while not (place / "checkpoint.safetensors").exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert len(marked(mark)) > 3
        process.send_signal(number)
        _, said = process.communicate(timeout=400)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert (process.returncode, said.splitlines()[-1]) == (
            130,
            f"stopped and saved; go on with `shoal resume {place}`",
        )
        assert "Traceback" not in said
    assert not list(home.rglob("*token*"))  # Ray would write one for all to read
    limit = time.monotonic() + 60
    while left := marked(mark):
        assert time.monotonic() < limit, left
        time.sleep(0.5)
    assert not list(Path("/tmp").glob(f"{cluster.PREFIX}{process.pid}-*"))
    if number == signal.SIGTERM:
        assert not list(Path(tempfile.gettempdir()).glob(f"{cluster.PREFIX}{process.pid}-*"))
        assert last_saved(Record(place, reopen(place).settings))


FAILING = """
import os, signal, threading, time
from pathlib import Path
from shoal.errors import UserError
from shoal.fleet import cluster
from shoal.settings.groups import Machine

def at_work():
    mine, found = f"{cluster.PREFIX}{os.getpid()}-", {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if mine in words:
            found[int(place.name)] = words
    return found

def kill():
    while not (raylets := [one for one, words in at_work().items() if "raylet_socket_name" in words]):
        time.sleep(0.02)
    os.kill(raylets[0], signal.SIGKILL)

cluster.TRIES = 1
threading.Thread(target=kill, daemon=True).start()
try:
    cluster.session(Machine()).__enter__()
except UserError as error:
    print(">", error)
print(">", list(at_work().values()), list(Path("/tmp").glob(f"{cluster.PREFIX}{os.getpid()}-*")))
"""


@pytest.mark.slow
def test_a_ray_that_cannot_be_started_is_one_sentence_and_leaves_nothing_running() -> None:
    """Its raylet is killed as it begins, which Ray notices after half a minute."""
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, cwd=ROOT, timeout=600)
    said, left = (line[2:] for line in done.stdout.splitlines() if line.startswith("> "))
    assert re.fullmatch(r"Ray could not be started here \(.*\); --workers 2 works without it", said)
    assert left == "[] []"


TOKENS = [letter * 64 for letter in "ab"]


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[str]:
    """A cluster with a token and two CPUs, whose node says that it has another torch."""
    (tmp_path / "torch-1.0.dist-info").mkdir()
    (tmp_path / "torch-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mark, folder = f"{os.getpid()}-{time.monotonic_ns()}", cluster.working_folder()
    more = {"SHOAL_MARK": mark, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKENS[0], **cluster.QUIET}
    words = ("start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={folder}")
    try:
        subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", *words],
            env={**os.environ, **more, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, check=True, capture_output=True,
        )  # fmt: skip
        yield f"127.0.0.1:{port}"
    finally:
        for process in marked(f"SHOAL_MARK={mark}"):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_real_cluster_that_cannot_do_a_run_is_one_sentence_and_nothing_is_written(
    stranger: str, tmp_path: Path
) -> None:
    words = ("run", DIGITS, *TINY, "--out", tmp_path / "run", "--workers", "ray", "--address", stranger)
    for token, why in (
        (TOKENS[0], r"error: node \S+ has torch 1.0, and this machine has torch \S+; a run needs the same versions .*"),
        (TOKENS[1], rf"error: the Ray cluster at {stranger} wants another token than this machine has; .*"),
    ):
        environment = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        done = subprocess.run(
            command(*words), env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(why, done.stderr.strip())
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("name", sorted(MODES))
def test_every_mode_ends_in_actors_as_here(name: str) -> None:
    here, bank = shared_by(name)
    want = train(worlds(here, bank))
    assert len(want[0].ledger)
    same(train(worlds(here.model_copy(update={"machine": ray_of(2).machine}), bank)), want)


def listening(processes: set[int]) -> list[tuple[int, str]]:
    """The processes that listen, and the addresses that they listen on, as the kernel writes them."""
    sockets = {}
    for one in processes:
        for file in Path(f"/proc/{one}/fd").glob("*"):
            with suppress(OSError):
                sockets[str(file.readlink())] = one
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.append((sockets[f"socket:[{words[9]}]"], words[1].partition(":")[0]))
    return found


LOOPBACKS = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


@pytest.mark.usefixtures("ray")
def test_a_ray_of_ones_own_listens_on_loopback_alone_in_a_folder_of_ones_own() -> None:
    (folder,) = Path("/tmp").glob(f"{cluster.PREFIX}{os.getpid()}-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    found = listening({os.getpid(), *watchdog.at_work(folder, os.getpid())})
    assert len({process for process, _ in found}) > 3
    assert {address for _, address in found} <= {*LOOPBACKS}


def test_who_only_names_the_folder_of_a_ray_is_not_ended(tmp_path: Path) -> None:
    """The clean-up ended every process with the folder's name in its command line, an editor that shows it too."""
    folder = tmp_path / "ray"
    folder.mkdir()
    (folder / "log").write_text("")
    waits = "import sys; print('begun', flush=True); sys.stdin.read()"
    reads = f"file = open({str(folder / 'log')!r}); {waits}"
    writes = f"file = open({str(folder / 'log')!r}, 'a'); {waits}"
    mark = {**os.environ, watchdog.MARK: str(folder)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        for code, env in ((waits, None), (reads, None), (writes, None), (waits, mark))
    ]
    try:
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == b"begun\n"
        watchdog.sweep(folder, os.getpid())
        assert [one.wait(60) for one in started[2:]] == [-signal.SIGKILL] * 2
        assert [one.poll() for one in started[:2]] == [None, None]
    finally:
        for one in started:
            one.kill()
            one.communicate(timeout=60)
    assert not folder.exists()


def test_without_rays_private_names_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """They let Ray read its environment again; without them a token would keep a Ray from its own driver."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(around_ray, "BEFORE", {})
    monkeypatch.setattr(around_ray, "import_module", missing)
    around_ray.with_token("secret")
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.usefixtures("ray")
def test_a_run_goes_on_though_all_its_actors_are_killed(tmp_path: Path) -> None:
    here = settings_of(0, **OWN, kinds=[FLAT])
    want, record = train(worlds(here, load("digits"))), Record(tmp_path, here)
    losses: list[str] = []

    def watch(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (2, 0):
            record.save(moment.stacks)
        if (moment.task, moment.epoch) == (2, 1) and not losses:
            for member in moment.crew.members:
                (process,) = re.findall(r"process (\d+)", member.about)  # type: ignore[attr-defined]
                os.kill(int(process), signal.SIGKILL)

    def lost(loss: LostError) -> tuple[Stack, ...] | None:
        losses.append(str(loss))
        return last_saved(record)

    same(train(worlds(ray_of(2, **OWN, kinds=[FLAT]), load("digits")), watch=watch, lost=lost), want)
    assert losses


@pytest.mark.slow
@pytest.mark.parametrize("part", ["DashboardAgent", "RuntimeEnvAgent", "raylet/raylet"])
def test_a_part_of_ray_that_is_killed_ends_the_run_with_a_sentence_and_leaves_nothing(
    part: str, tmp_path: Path
) -> None:
    """The driver ended without a word, and helpers went on."""
    mark, place = f"SHOAL_MARK={os.getpid()}-{time.monotonic_ns()}", tmp_path / "run"
    words = (*TINY, "learner.epochs=2000", "machine.patience=60.0", "machine.checkpoint=1.0", "--out", place)
    with subprocess.Popen(
        command("run", DIGITS, *words, "--workers", "ray", "--stacks", "2"),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHOAL_MARK": mark.partition("=")[2]},
    ) as process:  # fmt: skip
        limit = time.monotonic() + 200
        while not (place / "checkpoint.safetensors").exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        assert process.poll() is None, process.stderr and process.stderr.read()
        (folder,) = Path("/tmp").glob(f"{cluster.PREFIX}{process.pid}-*")
        parts = watchdog.at_work(folder, process.pid)
        (victim, *_) = [one for one in parts if part.encode() in Path(f"/proc/{one}/cmdline").read_bytes()]
        os.kill(victim, signal.SIGKILL)
        try:
            _, said = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode != 0
    assert re.search(r"what\s+was saved is whole", said), said[-2000:]
    limit = time.monotonic() + 60
    while left := marked(mark):
        assert time.monotonic() < limit, left
        time.sleep(0.1)
    assert not folder.exists()
