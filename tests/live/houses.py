"""Live agents under test: folders without certificates, and lives in threads of one process, over lines that can be
cut."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from shoal.agents.stack import Stack
from shoal.agents.worlds import worlds
from shoal.contracts.fleets import settings_of
from shoal.contracts.mode_case import edges, made_of, model_of
from shoal.data import load
from shoal.errors import Stopped, UserError
from shoal.fleet.health import DivergedError
from shoal.fleet.run import train
from shoal.live import authority
from shoal.live.crew import world_of
from shoal.live.fleets import Home, Plan, home_of, keep, real
from shoal.live.life import Life, awake
from shoal.live.transport import Lines
from shoal.settings.groups import Settings
from shoal.settings.writing import toml

PAIRS = ((0, 1), (1, 0), (1, 2), (2, 1), (0, 2))  # agent 0 never hears of agent 2
FREE = {"pace": "asynchronous", "speed": 200.0, "patience": 5.0}


def small(*modes: str, agents: int = 3, **changes: Any) -> Settings:
    """A fleet of a few agents that share often."""
    made = [made_of(mode) for mode in modes]
    raw = {"agents": agents, "seeds": 1, "network": edges(PAIRS), "sharing": tuple(made), **changes}
    return real(settings_of(model_of(made) if made else "mlp", **raw))[0]


def simulated(settings: Settings) -> dict[int, Stack]:
    """What the simulator makes of it: each agent alone; all have the ledger of the fleet."""
    found = {}
    for stack in train(worlds(settings, load(settings.dataset))):
        for row, lane in enumerate(stack.lanes):
            found[lane.agent] = stack.take([row], [lane])
            found[lane.agent].ledger = stack.ledger
    return found


def free_ports(count: int) -> int:
    """The first of so many ports in a row at which nobody listens."""
    for first in range(20000 + os.getpid() % 9000, 60000, count):
        with held(first, count) as fine:
            if fine:
                return first
    raise AssertionError("no ports are free")


@contextmanager
def held(first: int, count: int) -> Iterator[bool]:
    """Are so many ports in a row free? Those that are stay taken meanwhile."""
    with ExitStack() as taken:
        try:
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            yield False
            return
        yield True


def certified(settings: Settings, place: Path) -> list[Home]:
    """A folder for each agent, with a key and a certificate, at ports of this host that are free."""
    homes = built(settings, place, free_ports(settings.agents))
    authority.found(place / "authority", homes[0].run)
    for home in homes:
        authority.certify(place / "authority", home.folder, home.run, home.agent, "127.0.0.1")
    return homes


def built(settings: Settings, place: Path, port: int = 7900) -> list[Home]:
    """A folder for each agent."""
    addresses = tuple(f"127.0.0.1:{port + agent}" for agent in range(settings.agents))
    names = tuple(f"agent {agent}" for agent in range(settings.agents))
    plan, bank, homes = Plan("cafe", settings.identity(), addresses, names), load(settings.dataset), []
    for agent in range(settings.agents):
        folder = place / f"agent-{agent}"
        folder.mkdir(parents=True)
        keep(folder / "settings.toml", toml(settings).rstrip("\n"))
        homes.append(home_of(folder, plan, world_of(settings, bank, agent), agent))
        homes[-1].write()
    keep(place / "live.json", json.dumps(vars(plan)))
    return homes


class CrashError(Stopped):
    """A process that ends in the middle of its work."""


def lived(
    homes: Sequence[Home],
    lines: Lines | None = None,
    crash: Callable[[Life], bool] = lambda life: False,
    seconds: float = 200,
    transport: Callable[[Home, Any], Any] | None = None,
    lost: float = 5,
    stay: Callable[[], bool] = lambda: False,
) -> dict[int, Stack]:
    """Let agents learn their streams side by side, and return what has become of them. One for whom `crash` says so
    ends then, unsaved, and begins again from its folder. After `lost` seconds nobody waits for one who is away;
    nobody leaves while they are to `stay`."""
    lines = lines or Lines()
    found: dict[int, Stack] = {}
    failed: list[BaseException] = []
    over = threading.Event()

    def run(home: Home) -> None:
        def watch(life: Life) -> None:
            if crash(life):
                raise CrashError

        try:
            while home.agent not in found and not over.is_set():
                way = transport or (lambda home, terms: lines.line(home.agent))
                life = awake(home, way, over.is_set, watch, safe=False, lost=lost)
                life.office.open()
                try:
                    if not life.record.finished:
                        life.learn()
                    life.linger(lambda: over.is_set() or (life.needless() and not stay()))  # noqa: B023
                    found[home.agent] = life.stack
                except CrashError:
                    continue
                except DivergedError as end:
                    (found[home.agent],) = end.stacks
                finally:
                    life.office.close()
                    life.store.close()
        except BaseException as error:
            failed.append(error)
            over.set()

    threads = [threading.Thread(target=run, args=(home,), daemon=True) for home in homes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    late = any(thread.is_alive() for thread in threads)
    over.set()
    if failed:
        raise failed[0]
    if late:
        raise UserError(f"agents {[home.agent for home in homes if home.agent not in found]} did not end")
    return found
