"""Agents on hosts of their own, as far as one machine can have them: network namespaces with an address each."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.live.fleets import agents_of, make
from shoal.live.gathered import gather
from shoal.live.replaying import replay
from tests.live.test_free import taken_once
from tests.live.test_hosts import FLEET, RECV

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
AGENTS = 3


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def hosts(prefix: str) -> Iterator[list[str]]:
    """Namespaces on one bridge, with addresses from 10.77.0.1 on; skip where the machine allows none."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` here (Debian: apt-get install iproute2)")
    names = [f"{prefix}{at}" for at in range(AGENTS)]
    try:
        ip("link", "add", f"{prefix}br", "type", "bridge")
        ip("link", "set", f"{prefix}br", "up")
        for at, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}o", "master", f"{prefix}br", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{at + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
    except subprocess.CalledProcessError as error:
        gone(prefix, names)
        pytest.skip(f"this machine allows no network namespaces: {error.stderr.strip()}")
    try:
        yield names
    finally:
        gone(prefix, names)


def gone(prefix: str, names: list[str]) -> None:
    for words in [*(["netns", "del", name] for name in names), ["link", "del", f"{prefix}br"]]:
        subprocess.run(["ip", *words], capture_output=True)


@pytest.mark.slow
def test_agents_at_addresses_of_their_own_learn_and_outlive_a_link_that_is_down(tmp_path: Path) -> None:
    more = 'clock = { pace = "asynchronous", speed = 100, patience = 2 }'
    text = FLEET.format(modes=f'{RECV}, "fedavg"', more=more, port=7500)
    addresses = [f"10.77.0.{at + 1}:7500" for at in range(AGENTS)]
    (tmp_path / "fleet.toml").write_text(text.partition("[live]")[0] + f"[live]\naddresses = {addresses}\n")
    make(tmp_path / "fleet.toml", tmp_path / "fleet")
    homes = agents_of(tmp_path / "fleet")
    agents: list[subprocess.Popen[bytes]] = []
    with hosts("shoal") as names:
        try:
            for home, name in zip(homes, names, strict=True):
                words = [sys.executable, "-m", "shoal", "live", "run", str(home.folder), "--leave", "--slow", "0.6"]
                with (home.folder / "log.txt").open("ab") as log:
                    agents.append(subprocess.Popen(["ip", "netns", "exec", name, *words], stdout=log, stderr=log))
            until = time.monotonic() + 120
            while not (homes[1].record / "checkpoint.safetensors").exists():
                assert time.monotonic() < until, (homes[1].folder / "log.txt").read_text()
                time.sleep(0.3)
            ip("link", "set", f"{names[1]}o", "down")
            time.sleep(4)
            ip("link", "set", f"{names[1]}o", "up")
            assert [agent.wait(200) for agent in agents] == [0] * AGENTS
        finally:
            for agent in agents:
                agent.kill()
    assert taken_once(homes) > 10
    found = gather(tmp_path / "fleet")
    assert found.finished
    assert found.disagreements == []
    assert sum(replay(homes[1].folder).letters.values()) > 3
