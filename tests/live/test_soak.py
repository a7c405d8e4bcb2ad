"""Eight processes under bad weather: kills, stops, lines that are cut, held and slow. All end, and nothing is lost."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.live.fleets import Home, agents_of, make
from shoal.live.gathered import gather
from shoal.live.relay import Relay
from shoal.live.replaying import replay
from shoal.live.serving import Running
from tests.live.houses import free_ports
from tests.live.test_free import taken_once

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
AGENTS, KILLS, CUTS, STOPS = 8, 20, 20, 6
FLEET = """\
dataset = "digits"
model = "modular-mlp"
agents = 8
sharing = [{{ mode = "recv", every = 2, queries = 4, nearest = 2 }}, "modmod"]
network = "ring"
tasks = {{ count = 4, classes = 2, initial = 1, common = false, train = 8, validation = 6 }}
net = {{ width = 16 }}
learner = {{ epochs = 12, batch = 8, memory = 4 }}
clock = {{ pace = "asynchronous", speed = 100, patience = 1 }}
machine = {{ checkpoint = 2 }}
[live]
base = "127.0.0.1:{port}"
"""


def relayed(homes: list[Home], port: int) -> dict[frozenset[int], list[Relay]]:
    """Lines between neighbours, one for each direction in which they connect."""
    found: dict[frozenset[int], list[Relay]] = {}
    for home in homes:
        places = dict(home.addresses)
        for peer in home.addresses:
            relay = Relay(f"127.0.0.1:{port}", home.addresses[peer])
            places[peer], port = relay.address, port + 1
            found.setdefault(frozenset((home.agent, peer)), []).append(relay.open())
        replace(home, addresses=places).write()
    return found


class Processes:
    """The agents of a fleet, each a process that is started again when it has been killed."""

    def __init__(self, homes: list[Home]) -> None:
        self.homes, self.every = homes, {home.agent: self.start(home) for home in homes}

    def start(self, home: Home) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "shoal", "live", "run", str(home.folder), "--leave", "--slow", "1"]
        with (home.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log)

    def learning(self) -> list[int]:
        """Who is there and still learns."""
        found = []
        for home in self.homes:
            try:
                if self.every[home.agent].poll() is None and not Running(home.folder).status()["finished"]:
                    found.append(home.agent)
            except UserError:
                continue
        return found

    def kill(self, agent: int) -> None:
        self.every[agent].kill()
        self.every[agent].wait()
        self.every[agent] = self.start(self.homes[agent])


@contextmanager
def processes(homes: list[Home]) -> Iterator[Processes]:
    found = Processes(homes)
    try:
        yield found
    finally:
        for one in found.every.values():
            one.send_signal(signal.SIGCONT)
            one.kill()
            one.wait()


@pytest.mark.slow
def test_eight_processes_in_bad_weather_all_end_and_lose_nothing(tmp_path: Path) -> None:
    rng, done = random.Random(0), dict.fromkeys(("kill", "cut", "stop"), 0)
    port = free_ports(AGENTS + 2 * AGENTS)
    (tmp_path / "fleet.toml").write_text(FLEET.format(port=port))
    make(tmp_path / "fleet.toml", tmp_path / "fleet")
    lines = relayed(agents_of(tmp_path / "fleet"), port + AGENTS)
    homes = agents_of(tmp_path / "fleet")
    calm: list[tuple[float, Relay]] = []  # when a line is mended

    def cut(relays: list[Relay]) -> None:
        what = rng.choice(["cut", "held", "delay"])
        for relay in relays:
            setattr(relay, what, 0.2 if what == "delay" else True)
            calm.append((time.monotonic() + rng.uniform(0.5, 4), relay))

    with processes(homes) as agents:
        until = time.monotonic() + 400
        while any(one.poll() is None for one in agents.every.values()):
            assert time.monotonic() < until, [home.agent for home in homes if agents.every[home.agent].poll() is None]
            for at, relay in calm[:]:
                if time.monotonic() > at:
                    relay.cut = relay.held = False
                    relay.delay = 0.0
                    calm.remove((at, relay))
            left = [what for what, most in (("kill", KILLS), ("cut", CUTS), ("stop", STOPS)) if done[what] < most]
            there = agents.learning() if left else []
            time.sleep(rng.uniform(0.0, 0.6))
            if not there or not left:
                continue
            what, agent = rng.choice(left), rng.choice(there)
            done[what] += 1
            if what == "kill":
                agents.kill(agent)
            elif what == "cut":
                cut(lines[rng.choice([ends for ends in lines if agent in ends])])
            else:
                agents.every[agent].send_signal(signal.SIGSTOP)
                time.sleep(rng.uniform(0.5, 3))
                agents.every[agent].send_signal(signal.SIGCONT)
        assert {agent: one.returncode for agent, one in agents.every.items()} == dict.fromkeys(range(AGENTS), 0)
    for relays in lines.values():
        for relay in relays:
            relay.close()
    assert done == {"kill": KILLS, "cut": CUTS, "stop": STOPS}
    assert taken_once(homes) > 200
    found = gather(tmp_path / "fleet")
    assert found.finished
    assert found.disagreements == []
    for home in homes[::3]:
        assert sum(replay(home.folder).letters.values()) > 10
