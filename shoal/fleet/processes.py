"""Members in processes of their own, one or several stacks in each.

They are started anew, not forked, because torch's threads do not survive a fork. What goes through a pipe is pickled:
both ends are ours. Mail between lanes of one process never leaves it.
"""

import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch

from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.fleet.engine import THREADS, keep_memory
from shoal.fleet.members import Here
from shoal.fleet.placement import deal
from shoal.fleet.stack import Stack
from shoal.fleet.world import World, joint_lanes, worlds
from shoal.mail.ledger import Ledger
from shoal.mail.mail import ACCEPTED, Envelope, Mail, pack, unpack
from shoal.settings.groups import Settings


@dataclass
class Parcel:
    """A mail that is in another process, as far as it must be known here: its address and its weight. `content` is the
    packed payload, if its receiver is elsewhere."""

    envelope: Envelope
    content: bytes | None
    floats: int
    bytes: int

    def __getattr__(self, name: str) -> Any:
        if name not in Envelope._fields:  # before it is unpickled it has no envelope either
            raise AttributeError(name)
        return getattr(self.envelope, name)

    def opened(self) -> Mail:
        assert self.content is not None
        return unpack(self.envelope, self.content)


class Process:
    """A handle on stacks in a process of their own. It ends with the process that made it, however that ends."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes, self.opened = frozenset(lanes), False
        context = get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there,), daemon=True)
        self.process.start()
        there.close()

    def tell(self, verb: str, *arguments: Any) -> None:
        if verb == "receive":  # letters of its own come back to it by their name alone
            arguments = ([parcel(mail, mail.sender in self.lanes) for mail in arguments[0]],)
        try:
            self.pipe.send_bytes(pickle.dumps((verb, arguments)))
        except (BrokenPipeError, ConnectionError):
            raise self.lost() from None

    def told(self) -> Any:
        try:
            fine, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise self.lost() from None
        if not fine:
            raise value
        return value

    def lost(self) -> UserError:
        self.process.join(5)
        code = f"(exit code {self.process.exitcode})"
        if not self.opened:
            return UserError(
                f"a worker process has ended before it could begin {code}; what it said stands above. A script that "
                'trains in processes does so below `if __name__ == "__main__":`, because each process imports it'
            )
        return UserError(
            f"a worker process has ended in the middle of its work {code}; what was saved before is whole: start the "
            "run again to go on from there"
        )

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def parcel(mail: "Mail | Parcel", known: bool) -> Parcel:
    """A mail as it goes into another process, or, if it is `known` there, its address alone."""
    if isinstance(mail, Parcel):
        return Parcel(mail.envelope, None if known else mail.content, mail.floats, mail.bytes)
    envelope, content = pack(mail)
    return Parcel(envelope, content, mail.floats, mail.bytes)


class Served:
    """A `Here` that is told what to do through a pipe. Mail between its own lanes never leaves it."""

    here: Here
    kept: dict[str, Mail]

    def open(
        self,
        settings: Settings,
        bank: Bank,
        lanes: Sequence[Lane],
        peers: Sequence[Lane],
        stacks: Sequence[Stack] | None,
        ledger: Ledger,
    ) -> None:
        self.here, self.kept = Here(worlds(settings, bank, lanes, peers), stacks), {}
        self.here.ledger = ledger  # its rows are written where the run is driven; limits hold where mail leaves
        self.here.bind()

    def act(self, verb: str, arguments: Sequence[Any]) -> Any:
        if verb == "open":
            return self.open(*arguments)
        if verb == "receive":
            mails = [self.kept.pop(one.id) if one.content is None else one.opened() for one in arguments[0]]
            return self.here.receive(mails)
        value = getattr(self.here, verb)(*arguments)
        if verb in ("ask", "answer"):
            return [(self.posted(mail, verdict), verdict) for mail, verdict in value]
        return value

    def posted(self, mail: Mail, verdict: str) -> Parcel:
        """What goes out of the process of a mail: its address alone, if nobody elsewhere will open it."""
        if verdict == ACCEPTED and mail.receiver not in self.here.lanes:
            return parcel(mail, known=False)
        if verdict == ACCEPTED:
            self.kept[mail.id] = mail
        envelope = Envelope(*(getattr(mail, name) for name in Envelope._fields))
        return Parcel(envelope, None, mail.floats, mail.bytes)


def serve(pipe: Connection) -> None:
    """What a process of its own does: verbs come, results go, until nobody is there any more."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # whoever drives the run decides when it stops
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_memory()
    served = Served()
    while True:
        try:
            verb, arguments = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            return
        try:
            answer = True, served.act(verb, arguments)
        except Exception as error:  # whatever it is, it is raised where the run is driven
            answer = False, error
        try:
            content = pickle.dumps(answer)
        except Exception:
            content = pickle.dumps((False, RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
        try:
            pipe.send_bytes(content)
        except ConnectionError:  # whoever drove the run has ended, or given it up
            return


@contextmanager
def started(whole: Sequence[World], stacks: Sequence[Stack] | None, ledger: Ledger) -> Iterator[list[Process]]:
    """Processes with all lanes of a fleet, as many as `machine.workers` says. They end with what is done inside."""
    settings, peers = whole[0].fleet, whole[0].peers
    deals = deal(whole, settings.machine.workers or os.cpu_count() or 1)
    members: list[Process] = []
    try:
        with few_threads(len(deals)):
            members.extend(Process(mine) for mine in deals)
        for member, mine in zip(members, deals, strict=True):
            known = ledger.sent_by(member.lanes)
            member.tell("open", settings, whole[0].bank, mine, peers, dealt(whole, stacks, mine), known)
        for member in members:
            member.told()
            member.opened = True
        yield members
    finally:
        for member in members:  # all at once, so that none waits for another to end
            member.pipe.close()
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


def dealt(whole: Sequence[World], stacks: Sequence[Stack] | None, lanes: Sequence[Lane]) -> list[Stack] | None:
    """What a member with some lanes gets of the stacks of a fleet."""
    if stacks is None:
        return None
    found = []
    for one, stack in zip(whole, stacks, strict=True):
        mine = [lane for lane in one.lanes if lane in lanes]
        if not mine:
            continue
        wanted = mine if stack.lanes == one.lanes else list(joint_lanes(mine))
        found.append(stack.take([stack.lanes.index(lane) for lane in wanted], wanted))
    return found
