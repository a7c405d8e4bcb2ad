"""Workers in Ray actors, on this machine or on a cluster (shoal/fleet/cluster.py): one for each deal of lanes.

Whoever drives the run calls actors, and no actor calls another. Parcels go from actor to actor through the object
store: the driver holds references, and never fetches one (Ray sends what is smaller than 100 kB along with the calls).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from shoal.agents.world import World
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.errors import StaffError, UserError
from shoal.fleet.cluster import fetched, imported, session
from shoal.fleet.members import LostError
from shoal.fleet.parcels import Told
from shoal.fleet.placement import deal
from shoal.fleet.size import size
from shoal.fleet.workers import SENDING, Handle, Served, Workers
from shoal.own_code import told_apart
from shoal.settings.groups import Settings


class Worker:
    """What runs in an actor."""

    def __init__(self) -> None:
        from shoal.agents.engine import keep_memory

        torch.set_num_threads(1)
        keep_memory()
        self.served = Served()

    def about(self) -> str:
        """On which node it is."""
        found: str = imported().util.get_node_ip_address()
        return f"process {os.getpid()} on node {found}"

    def act(self, verb: str, *arguments: Any) -> Any:
        """Do as told, and say if it went well, or what went wrong; parcels come behind that."""
        try:
            with told_apart():
                value = self.served.act(verb, arguments)
        except Exception as error:
            answer: tuple[bool, Any] = False, portable(error)
            return (answer, *[None] * self.served.count) if verb in SENDING else answer
        return ((True, value[0]), *value[1]) if verb in SENDING else (True, value)


def portable(error: Exception) -> Exception:
    """An error as it can be sent."""
    from ray import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class Actor:
    """A handle on stacks in an actor."""

    def __init__(self, ray: Any, actor: Any, lanes: Sequence[Lane], parcels: int) -> None:
        self.ray, self.actor, self.lanes, self.parcels = ray, actor, frozenset(lanes), parcels
        self.pending = self.gone = False
        self.verb, self.refs = "", [actor.about.remote()]
        self.about: str = fetched(ray, self.refs[0])

    def tell(self, verb: str, *arguments: Any) -> None:
        self.verb, self.pending = verb, True
        count = 1 + self.parcels if verb in SENDING else 1
        refs = self.actor.act.options(num_returns=count).remote(verb, *arguments)
        self.refs = refs if count > 1 else [refs]

    def told(self) -> Any:
        self.pending = False
        try:
            fine, value = fetched(self.ray, self.refs[0])
        except LostError as error:
            self.gone = True
            why = str(error).partition(".")[0]
            raise LostError(f"the worker in {self.about} has ended in the middle of its work ({why})") from None
        if not fine and self.verb == "open" and isinstance(value, UserError):  # what is here is not there
            raise StaffError(
                f"the worker in {self.about} cannot begin: {value}; see that what is here is there too, then start the "
                "run again"
            )
        if not fine:
            raise value
        return Told(value, self.refs[1:]) if self.verb in SENDING else value

    def alike(self, whole: Sequence[World], there: Sequence[str]) -> None:
        """Raise if the steps of its worlds are not taken as they would be here: that gives other bits."""
        here = [one.kernel for one in whole if not self.lanes.isdisjoint(one.lanes)]
        for own, other in zip(here, there, strict=bool(here)):
            if own != other:
                raise StaffError(
                    f"the worker in {self.about} takes its steps with another kernel ({other}) than this machine "
                    f"({own}), which gives other bits; install the same wheel there and set SHOAL_INSTRUCTIONS to what "
                    "both have, or say machine.kernel=torch, then start the run again"
                )

    def close(self) -> None:
        with suppress(Exception):
            self.ray.kill(self.actor)


def needed(settings: Settings, bank: Bank) -> int:
    """Bytes of the object store that a run would like: its data once, and stacks on their way twice."""
    arrays = (getattr(bank, name) for name in ("images", "labels", "source", "test", "task", "time", "targets"))
    nets = size(settings, bank).parts
    return sum(int(one.nbytes) for one in arrays if one is not None) + 2 * (nets["nets"] + nets["memories"])


@contextmanager
def started(whole: Sequence[World]) -> Iterator[Workers]:
    """Actors with all lanes of a fleet, as many as `machine.workers` says. They end with what is done inside."""
    settings, peers = whole[0].fleet, whole[0].peers
    machine = settings.machine
    with session(machine, needed(settings, whole[0].bank)) as open_:
        count = open_.count(len(peers), machine)
        deals, bank = deal(whole, count), open_.ray.put(whole[0].bank)
        there = settings
        if machine.gpus:  # it is Ray that says which
            there = settings.model_copy(update={"machine": machine.model_copy(update={"device": "cuda"})})

        def hire(places: Sequence[int]) -> list[Handle]:
            actors = open_.hire(Worker, len(places), machine)
            members = [Actor(open_.ray, actor, deals[at], len(deals)) for actor, at in zip(actors, places, strict=True)]
            try:
                for member, at in zip(members, places, strict=True):
                    member.tell("open", there, bank, peers, deals, at)
                for member in members:
                    member.alike([] if machine.gpus else whole, member.told())
            except BaseException:
                for member in members:
                    member.close()
                raise
            return list(members)

        workers = Workers(whole, deals, hire)
        fine = False
        try:
            yield workers
            fine = True
        finally:
            for member in workers.members:
                if not fine or member.gone or member.pending:
                    member.close()
            if fine:
                idle = [member for member in workers.members if not (member.gone or member.pending)]
                open_.release(Worker, machine, [member.actor for member in idle])  # type: ignore[attr-defined]
