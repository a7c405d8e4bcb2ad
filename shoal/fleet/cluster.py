"""Ray: one of a run's own on this machine, or the cluster whose address it is told; and actors that it finds room for.

Ray is an extra, and imported here and nowhere else. A run never joins a cluster by accident, sends no statistics of
use, and has no dashboard. A Ray of its own listens on this machine's loopback alone, asks for a token that only its own
processes know, works in a folder that is the user's alone, and has a watchdog that ends it with its driver.
"""

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import torch

from shoal.errors import StaffError, UserError
from shoal.fleet import watchdog
from shoal.fleet.around_ray import hearing, hushed, marked, with_token
from shoal.fleet.members import LostError
from shoal.machine import free
from shoal.settings.groups import Machine

# What Ray would do unasked: count its use, rebuild environments, end actors where another program fills the memory, let
# everybody else's processes go first, give up on a busy machine, start anew where a thread calls it after its end.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
SLACK = 1e-9  # for sums of fractions
POLL = 0.1  # seconds; in between, Ctrl-C is heard
STORE = 128 * 10**6  # bytes of the object store, at least
TRIES = 3  # a machine that is busy may start Ray too slowly for Ray's own patience
NAMES = ("shoal", "torch", "ray", "python")  # what must be the same everywhere
PREFIX = "shoal-ray-"
HERE = "this machine"
LOOPBACK = "127.0.0.1"  # what a Ray of a run's own listens on, so that no other machine can speak to it


@cache
def imported() -> Any:
    """Ray, if it is installed."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError(
            "workers in Ray need the package `ray`, which is not installed; `pip install 'shoal[ray]'` brings it, and "
            "--workers 2 works without"
        ) from None
    return ray


class Session:
    """A connection to Ray, and actors that have nothing to do."""

    def __init__(self, address: str) -> None:
        self.ray, self.address = imported(), address
        self.idle: dict[Any, list[Any]] = {}
        self.hired: list[Any] = []  # every actor that there ever was
        self.lock = threading.Lock()  # several runs of one program may hire
        self.checked: set[str] = set()  # the nodes that have what this machine has

    @property
    def where(self) -> str:
        return f"the Ray cluster at {self.address}" if self.address else HERE

    def hire(self, kind: type, count: int, machine: Machine, **options: Any) -> list[Any]:
        """So many actors of a kind, those first that have nothing to do."""
        self.check()
        name = kind, machine.cpus, machine.gpus
        make = self.ray.remote(kind).options(
            num_cpus=machine.cpus,
            num_gpus=machine.gpus,
            max_restarts=0,  # whoever has ended is replaced, and goes on from a checkpoint
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            **options,
        )
        with self.lock:
            idle = self.idle.setdefault(name, [])
            for other, left in self.idle.items():  # they have CPUs that are wanted now
                while other != name and len(idle) < count and left:
                    self.ray.kill(left.pop())
            found = [idle.pop() if idle else make.remote() for _ in range(count)]
            self.hired.extend(actor for actor in found if actor not in self.hired)
        limit = time.monotonic() + machine.patience
        try:
            for at, actor in enumerate(found):
                try:
                    fetched(self.ray, actor.about.remote(), limit)
                except LostError:  # one that was idle has ended meanwhile, or its node has no room for it any more
                    found[at] = make.remote()
                    self.hired.append(found[at])
                    fetched(self.ray, found[at].about.remote(), limit)
        except BaseException as error:
            for actor in found:
                self.ray.kill(actor)
            if isinstance(error, TimeoutError):
                raise StaffError(
                    f"{self.where} has had no room for {count} worker{'s' * (count > 1)} with {machine.cpus:g} CPUs "
                    f"{f'and {machine.gpus:g} GPUs ' * bool(machine.gpus)}each for {machine.patience:g} seconds; what "
                    "was saved is whole: bring back the node, free CPUs or take fewer workers (--stacks), then start "
                    "the run again to go on from there"
                ) from None
            raise
        return found

    def count(self, lanes: int, machine: Machine) -> int:
        """How many workers a run of so many lanes has; raise if they can never be."""
        return fitting(self.ray.cluster_resources(), lanes, machine, self.where)

    def check(self) -> None:
        """Raise if a node of the cluster has another shoal, torch, Ray or Python than this one, also one that has come
        since others were asked."""
        if not self.address:  # a Ray of this machine has what this machine has
            return
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["NodeID"] not in self.checked]
        if not nodes:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = self.ray.remote(num_cpus=0, max_retries=0)(carried(cast(FunctionType, facts)))
        strategies = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        asked = [probe.options(scheduling_strategy=one).remote() for one in strategies]
        own, limit = facts(), time.monotonic() + 120
        for node, ref in zip((node["NodeManagerAddress"] for node in nodes), asked, strict=True):
            try:
                there = fetched(self.ray, ref, limit)
            except (LostError, TimeoutError) as error:
                raise UserError(
                    f"node {node} does not say which versions it has ({error}); see that it is well"
                ) from None
            differs(own, there, node)
        self.checked |= {node["NodeID"] for node in nodes}

    def end_all(self) -> None:
        """End all actors at once, whatever they are at."""
        for actor in list(self.hired):
            with suppress(Exception):
                self.ray.kill(actor)

    def release(self, kind: type, machine: Machine, actors: Sequence[Any]) -> None:
        """Actors have nothing to do any more."""
        self.idle.setdefault((kind, machine.cpus, machine.gpus), []).extend(actors)


def fitting(there: Mapping[str, float], lanes: int, machine: Machine, where: str) -> int:
    """How many workers a run of so many lanes has where there is so much: what is said, else as many as there is room
    for. Raise if they can never be: Ray would wait for ever."""
    wanted = [("CPU", machine.cpus, "cpus")] + [("GPU", machine.gpus, "gpus")] * bool(machine.gpus)
    most = min(there.get(name, 0) / each for name, each, _ in wanted)
    count = machine.workers or max(1, min(lanes, int(most + SLACK)))
    for name, each, key in wanted:
        have = there.get(name, 0)
        if count * each > have + SLACK:
            fits = int(have / each + SLACK)
            fewer = f"say --stacks {fits}{' or fewer' * (fits > 1)}, or lower" if 0 < fits < count else "lower"
            raise UserError(
                f"{count} x {each:g} {name}{'s' * (each != 1)} for workers are {count * each:g}, and {where} has "
                f"{have:g}; {fewer} machine.{key}"
            )
    return count


def possible(machine: Machine, lanes: int) -> int:
    """How many workers a run has; raise if they cannot be. It is for those who want to know before they begin: a
    cluster is asked, and a Ray of the run's own will have what this machine has."""
    ray = imported()
    if machine.address or ray.is_initialized():
        with session(machine) as open_:
            open_.check()
            return open_.count(lanes, machine)
    there = {"CPU": os.cpu_count() or 1, "GPU": torch.cuda.device_count()}
    return fitting(there, lanes, machine, HERE)


def facts() -> dict[str, str]:
    """The versions of what must be the same everywhere. It runs where there may be no shoal."""
    import sys
    from importlib import metadata

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("shoal", "torch", "ray"):
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def carried(function: FunctionType) -> Callable[[], Any]:
    """A function that is sent as it is, not by the name of its module, which may not be there."""
    copy = FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


def differs(own: Mapping[str, str], there: Mapping[str, str], node: str) -> None:
    """Raise if a node has another version of something."""
    for name in NAMES:
        if there[name] != own[name]:
            has = f"{name} {there[name]}" if there[name] else f"no {name}"
            raise UserError(
                f"node {node} has {has}, and this machine has {name} {own[name]}; a run needs the same versions of "
                f"{', '.join(NAMES[:-1])} and {NAMES[-1]} on all nodes"
            )


OPEN: list[Session] = []  # the session that is open, if one is


@contextmanager
def session(machine: Machine, wanted: int = STORE) -> Iterator[Session]:
    """Ray, for what is done inside: a fresh one with an object store of about so many bytes, or the cluster at
    `machine.address`. One inside another is the same."""
    if OPEN:
        if OPEN[0].address != machine.address:
            raise UserError(
                f"this program uses {OPEN[0].where} already, and cannot use {machine.address or 'another'} beside it; "
                "close that one first"
            )
        yield OPEN[0]
        return
    ray, address, own = imported(), machine.address, None
    mine = not ray.is_initialized()  # else the program around has chosen its Ray
    if mine and address:
        join(ray, address)
    elif mine:
        own = begin(ray, wanted)
    found = Session(address)
    OPEN.append(found)
    try:
        yield found
    finally:
        OPEN.clear()
        for actors in found.idle.values():
            for actor in actors:
                with suppress(Exception):
                    ray.kill(actor)
        if mine:
            with hearing():
                ray.shutdown()
        if own:
            with_token(None)
            closed(*own)


def begin(ray: Any, wanted: int) -> "tuple[subprocess.Popen[bytes], Path]":
    """Start a Ray of this process's own; gives its watchdog, and the folder that it works in."""
    with_token(secrets.token_hex(32))
    for at in range(TRIES):
        folder = working_folder()
        dog = watched(folder)
        try:
            with hearing(), marked(folder):
                ray.init(
                    address="local",
                    num_cpus=os.cpu_count(),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=store(wanted),
                    namespace="shoal",
                    _temp_dir=str(folder / "ray"),  # Ray lets everybody write there; the folder around it is ours alone
                    _node_ip_address=LOOPBACK,
                )
            return dog, folder
        except Exception as error:
            with hearing():
                ray.shutdown()
            closed(dog, folder)
            if at == TRIES - 1:
                why = str(error).partition("\n")[0]
                raise UserError(
                    f"Ray could not be started here ({type(error).__name__}: {why}); --workers 2 works without it"
                ) from None
        except BaseException:
            closed(dog, folder)
            raise
    raise AssertionError


def watched(folder: Path) -> "subprocess.Popen[bytes]":
    """A watchdog for a Ray that works in a folder (shoal/fleet/watchdog.py). It hears none of our signals."""
    words = [sys.executable, "-I", "-S", watchdog.__file__, str(folder), str(os.getpid())]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def closed(dog: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End whoever still works in a folder, and the watchdog with them."""
    watchdog.sweep(folder, os.getpid())
    with suppress(OSError, subprocess.TimeoutExpired):
        dog.communicate(watchdog.WELL, timeout=2 * watchdog.PATIENCE)


def working_folder() -> Path:
    """A new folder of ours alone for Ray's files. Those of processes that were killed are removed. The path is short:
    that of a socket has 107 letters at most."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
    for left in root.glob(f"{PREFIX}*"):
        number = left.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError, ValueError):
            if left.stat().st_uid == os.getuid() and not Path(f"/proc/{int(number)}").exists():
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))


def store(wanted: int) -> int:
    """Bytes of the object store: what is wanted, within a third of what is free."""
    return max(80 * 10**6, min(max(STORE, wanted), (free() or 10**10) // 3))


def join(ray: Any, address: str) -> None:
    """Connect to a cluster that is there."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(
            f"machine.address cannot be {address!r}; say HOST:PORT, as `ray start --head` prints it, and run the "
            "command on a machine of the cluster"
        )
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    except OSError as error:
        raise UserError(
            f"there is no Ray cluster at {address} ({error.strerror or error}); start one with `ray start --head "
            "--port=6379`, or leave out --address for a Ray of the run's own"
        ) from None
    said: list[str] = []
    try:
        with hearing(), hushed(said):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="shoal")
    except Exception as error:
        with hearing():
            ray.shutdown()
        if any("AuthToken" in one for one in said):
            raise UserError(
                f"the Ray cluster at {address} wants another token than this machine has; set RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN as they were set where the cluster was started"
            ) from None
        why = " ".join(str(error).split())[:300]
        raise UserError(
            f"cannot join the Ray cluster at {address} ({type(error).__name__}: {why}); all its machines and this one "
            f"need the same versions of {', '.join(NAMES[:-1])} and {NAMES[-1]}, and the same token (RAY_AUTH_TOKEN)"
        ) from None


def fetched(ray: Any, ref: Any, limit: float | None = None) -> Any:
    """What an actor says. It is waited for in short turns, so that signals are heard; a time limit is a TimeoutError,
    and whatever keeps the actor from saying anything a LostError."""
    while not ray.wait([ref], timeout=POLL)[0]:
        if limit is not None and time.monotonic() > limit:
            raise TimeoutError
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        raise LostError(" ".join(str(error).split())[:200]) from None
