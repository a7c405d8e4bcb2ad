"""Workers in processes of their own, on this machine.

They are started anew, not forked, because torch's threads do not survive a fork. What goes through a pipe is pickled:
both ends are ours. The data lies in one file that all of them map into their memory, so that it is there once.
"""

import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from shoal.agents.engine import THREADS, keep_memory
from shoal.agents.world import World
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.fleet.members import LostError
from shoal.fleet.parcels import Told
from shoal.fleet.placement import deal
from shoal.fleet.workers import SENDING, Handle, Served, Workers, headcount
from shoal.own_code import told_apart

DONE = "done"  # what a driver says last
ALIGNED = 64  # bytes: where an array may begin in a file
LOCK = threading.Lock()  # several runs of one program may start processes
ALIVE: "WeakSet[Process]" = WeakSet()
POOLS: list[list["Process"]] = []  # that of processes that wait for the next run, if they are to wait


@dataclass(frozen=True)
class Shared:
    """An object whose arrays lie in a file."""

    file: Path
    content: bytes  # the object but for its arrays, pickled
    sizes: list[int]  # of the arrays, in bytes; each begins at a multiple of ALIGNED

    def opened(self) -> Any:
        """The object; its arrays are the file's, and what is written to them stays here."""
        memory = np.memmap(self.file, np.uint8, "c") if sum(self.sizes) else np.zeros(0, np.uint8)
        buffers, first = [], 0
        for size in self.sizes:
            buffers.append(memory[first : first + size].data)
            first += padded(size)
        return pickle.loads(self.content, buffers=buffers)


def padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


@contextmanager
def shared(thing: Bank) -> Iterator[Shared]:
    """An object in a file that is there until the end, for processes to map into their memory."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(thing, 5, buffer_callback=buffers.append)
    handle, name = tempfile.mkstemp(prefix="shoal-bank-")
    try:
        sizes = []
        with os.fdopen(handle, "wb") as file:
            for buffer in buffers:
                with buffer.raw() as raw:
                    sizes.append(raw.nbytes)
                    file.write(raw)
                    file.write(bytes(padded(raw.nbytes) - raw.nbytes))
        yield Shared(Path(name), content, sizes)
    finally:
        with suppress(OSError):
            Path(name).unlink()


class Process:
    """A handle on stacks in a process of their own. It ends with the process that made it, however that ends."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes, self.verb = frozenset(lanes), ""
        self.pending = self.gone = self.opened = False
        context = get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there,), daemon=True)
        with deaf():
            self.process.start()
        there.close()
        ALIVE.add(self)

    def tell(self, verb: str, *arguments: Any) -> None:
        self.verb = verb
        try:
            self.pipe.send_bytes(pickle.dumps((verb, arguments)))
        except (BrokenPipeError, ConnectionError):
            raise self.lost() from None
        self.pending = True

    def told(self) -> Any:
        self.pending = False
        try:
            fine, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise self.lost() from None
        if not fine:
            raise value
        self.opened = True
        return Told(*value) if self.verb in SENDING else value

    def lost(self) -> UserError:
        self.gone = True
        self.process.join(5)
        code = f"(exit code {self.process.exitcode})"
        if not self.opened:
            return UserError(
                f"a worker process has ended before it could begin {code}; what it said stands above. A script that "
                'trains in processes does so below `if __name__ == "__main__":`, because each process imports it'
            )
        return LostError(f"worker process {self.process.pid} has ended in the middle of its work {code}")

    def close(self) -> None:
        """End the process."""
        dismiss(self.pipe)
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def dismiss(pipe: Connection) -> None:
    """Say to a process at the other end that its work is done. One that hears nothing more knows that its driver has
    ended, and removes what that has left."""
    with suppress(OSError, ValueError):
        if not pipe.closed:
            pipe.send_bytes(pickle.dumps((DONE, ())))
    pipe.close()


def serve(pipe: Connection) -> None:
    """What a process of its own does: verbs come, results go, until nobody is there any more."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # whoever drives the run decides when it stops
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_memory()
    served, bank = Served(), Path()
    while True:
        try:
            verb, arguments = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            orphaned(bank)
            break
        if verb == DONE:
            break
        try:
            if verb == "open":
                settings, data, *rest = arguments
                bank, arguments = data.file, (settings, data.opened(), *rest)
            if verb == "receive":
                arguments = (arguments[0], *map(pickle.loads, arguments[1:]))
            with told_apart():
                answer = True, served.act(verb, arguments)
            if verb in SENDING:  # parcels are not opened on their way
                receipt, parcels = answer[1]
                answer = True, (receipt, [None if parcel is None else pickle.dumps(parcel, 5) for parcel in parcels])
        except Exception as error:  # whatever it is, it is raised where the run is driven
            answer = False, error
        try:
            content = pickle.dumps(answer)
        except Exception:
            content = pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
        try:
            pipe.send_bytes(content)
        except ConnectionError:  # whoever drove the run has ended, or given it up
            break


def orphaned(bank: Path) -> None:
    """Remove the data of a run whose driver was killed. A driver that is there does so itself, when nobody needs it."""
    with suppress(OSError):
        bank.unlink()


@contextmanager
def started(whole: Sequence[World]) -> Iterator[Workers]:
    """Processes with all lanes of a fleet, as many as `machine.workers` says. They end with what is done inside."""
    settings, peers = whole[0].fleet, whole[0].peers
    deals = deal(whole, headcount(settings))
    with shared(whole[0].bank) as bank:

        def hire(places: Sequence[int]) -> list[Handle]:
            members: list[Process] = []
            try:
                members.extend(found([deals[at] for at in places], len(deals)))
                for member, at in zip(members, places, strict=True):
                    member.tell("open", settings, bank, peers, deals, at)
                for member in members:
                    member.told()
            except BaseException:
                close(members)
                raise
            return list(members)

        workers, fine = Workers(whole, deals, hire), False
        try:
            yield workers
            fine = True
        finally:
            with LOCK:
                well = [one for one in workers.members if fine and POOLS and not (one.gone or one.pending)]
                for pool in POOLS:
                    pool.extend(well)  # type: ignore[arg-type]
            close([one for one in workers.members if one not in well])


def found(deals: Sequence[Sequence[Lane]], count: int) -> list[Process]:
    """A process for each of some deals, of so many in all: those first that wait."""
    members = []
    with LOCK:
        for lanes in deals:
            idle = POOLS[0] if POOLS else []
            while idle and not idle[-1].process.is_alive():
                idle.pop()
            if idle:
                members.append(idle.pop())
                members[-1].lanes = frozenset(lanes)
                continue
            with few_threads(count):
                members.append(Process(lanes))
    return members


@contextmanager
def kept(count: int) -> Iterator[None]:
    """So many processes, for runs side by side. Inside, those that have nothing to do wait for the next run."""
    pool: list[Process] = []
    POOLS.append(pool)
    try:
        with few_threads(1):
            pool.extend(Process(()) for _ in range(count))
        yield
    finally:
        POOLS.remove(pool)
        close(pool)


def end_all() -> None:
    """End all processes at once, whatever they are at."""
    for one in list(ALIVE):
        if one.process.is_alive():
            one.process.kill()


@contextmanager
def deaf() -> Iterator[None]:
    """Let a process that is started inside hear no Ctrl-C, also before it can say so itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def close(members: Sequence[Any]) -> None:
    """End processes, all at once, so that none waits for another to end."""
    for member in members:
        dismiss(member.pipe)
    for member in members:
        member.close()


@contextmanager
def few_threads(processes: int) -> Iterator[None]:
    """Let processes that are started here divide the threads of the machine among them."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(max(1, THREADS // processes))
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
