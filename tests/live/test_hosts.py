"""Over real TLS on loopback: the same bits, and nobody comes in without a certificate of the fleet."""

import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.contracts.fleets import difference
from shoal.contracts.mode_case import rows
from shoal.errors import UserError
from shoal.live import authority, fleets, serving
from shoal.live.fleets import Home, agents_of, fleet_of, lines_of, make
from shoal.live.gathered import gather
from shoal.live.life import awake
from shoal.live.over_zenoh import Zenoh, caller
from shoal.live.replaying import replay
from shoal.live.serving import Running
from shoal.sharing.modes import MODES
from tests.live.houses import certified, free_ports, lived, simulated, small

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
FLEET = """\
dataset = "digits"
model = "mlp"
agents = 3
sharing = [{modes}]
network = "ring"
tasks = {{ count = 3, classes = 2, initial = 1, common = false, train = 8, validation = 6 }}
net = {{ width = 16 }}
learner = {{ epochs = 6, batch = 8, memory = 4 }}
{more}
[live]
base = "127.0.0.1:{port}"
"""
RECV = '{ mode = "recv", every = 2, queries = 4, nearest = 2 }'
FREE = 'clock = { pace = "asynchronous", speed = 100, patience = 3 }'


def made(place: Path, modes: str = RECV, more: str = "") -> Path:
    """The folder of a fleet on this host."""
    file = place / "fleet.toml"
    file.write_text(FLEET.format(modes=modes, more=more, port=free_ports(4)))
    make(file, place / "fleet")
    return place / "fleet"


def as_simulated(out: Path, found: dict[int, Any]) -> None:
    want = simulated(fleet_of(out)[1])
    for agent, stack in found.items():
        assert difference(want[agent], stack) == ""
    assert any(row[10] == "accepted" for row in rows(want[0]))


def over_tls(out: Path) -> dict[int, Any]:
    """Agents in threads of this process, each with its own session, keys and certificate."""

    return lived(agents_of(out), transport=lines_of)


def test_over_tls_lock_step_is_the_simulator(tmp_path: Path) -> None:
    out = made(tmp_path)
    as_simulated(out, over_tls(out))
    assert oct((out / "agent-0" / "key.pem").stat().st_mode)[-3:] == "600"


@pytest.mark.slow
@pytest.mark.parametrize("mode", sorted(MODES))
def test_over_tls_every_mode_is_the_same_as_simulated(tmp_path: Path, mode: str) -> None:
    settings = small(mode)
    found, want = lived(certified(settings, tmp_path), transport=lines_of), simulated(settings)
    for agent, stack in found.items():
        assert difference(want[agent], stack) == ""
    assert any(row[10] == "accepted" for row in rows(want[0]))


def entered(home: Home, folder: Path, sender: int) -> Zenoh:
    """The line to an agent of somebody with the certificate in a folder who says that it is some sender."""
    line = caller(folder, home.run, sender, home.agent, home.address)
    line.open(lambda peer, frame: b"")
    time.sleep(0.5)
    return line


def stranger(home: Home, folder: Path, sender: int, patience: float = 1.5) -> bytes | None:
    """What an agent answers to somebody with the certificate in a folder who says that it is some sender."""
    line = entered(home, folder, sender)
    try:
        return line.send(home.agent, b"let me in", patience)
    finally:
        line.close()


def test_nobody_comes_in_without_a_certificate_of_a_neighbour(tmp_path: Path) -> None:
    text = FLEET.format(modes=RECV, more="", port=free_ports(4)).replace("agents = 3", "agents = 4")
    (tmp_path / "fleet.toml").write_text(text)
    make(tmp_path / "fleet.toml", tmp_path / "fleet")
    out = tmp_path / "fleet"
    home = agents_of(out)[0]
    assert home.senders == (1, 3)
    life = awake(home, safe=False)
    life.office.open()
    try:
        assert stranger(home, out / "agent-1", 1) == b"refused:no letter"  # a neighbour is heard, whatever it says
        assert stranger(home, out / "agent-2", 2) is None  # a member that is none reaches nothing,
        assert stranger(home, out / "agent-2", 1) is None  # nor by the name of a neighbour
        assert stranger(home, out / "agent-3", 1) is None  # and no neighbour by that of another
        foreign = tmp_path / "foreign"
        authority.found(foreign / "authority", home.run)
        authority.certify(foreign / "authority", foreign / "agent", home.run, 1, "127.0.0.1")
        assert stranger(home, foreign / "agent", 1) is None
        shutil.copy(out / "agent-1" / "authority.pem", foreign / "agent")  # it trusts us, and we do not trust it
        assert stranger(home, foreign / "agent", 1) is None
        authority.certify(out / "authority", foreign / "old", home.run, 1, "127.0.0.1", days=-0.02)
        assert stranger(home, foreign / "old", 1) is None
        assert [why for _, why, _ in life.store.refusals()] == ["no letter"]
    finally:
        life.office.close()
        life.store.close()


@pytest.mark.slow
def test_a_flood_of_connections_costs_little_and_cuts_nobody_off(tmp_path: Path) -> None:
    """A thousand who connect and say nothing, and fifty who shake hands without a certificate of the fleet: links that
    are there stay, and a neighbour that comes new gets in."""
    out = made(tmp_path)
    home, *_ = agents_of(out)
    life = awake(home, safe=False)
    life.office.open()
    strangers: list[socket.socket] = []
    before = serving.resident()
    old = entered(home, out / "agent-1", 1)
    try:
        assert old.send(0, b"?", 10) == b"refused:no letter"
        host, port = home.address.split(":")
        strangers = [socket.create_connection((host, int(port)), 10) for _ in range(1000)]
        bare = ssl.create_default_context(cafile=str(out / "agent-0" / "authority.pem"))
        bare.check_hostname = False
        for one in strangers[:50]:
            one.settimeout(0.2)
            with suppress(OSError):
                strangers.append(bare.wrap_socket(one))
        for _ in range(20):
            assert old.send(0, b"?", 10) == b"refused:no letter"
        assert serving.resident() - before < 150 * 2**20
        new, until, said = entered(home, out / "agent-2", 2), time.monotonic() + 200, None
        while said is None and time.monotonic() < until:
            said = new.send(0, b"?", 2)
        new.close()
        assert said == b"refused:no letter"
    finally:
        old.close()
        life.office.close()
        life.store.close()
        for one in strangers:
            one.close()


def test_who_is_dropped_is_heard_no_more_and_who_is_added_is(tmp_path: Path) -> None:
    out = made(tmp_path)
    before = (out / "agent-1" / "certificate.pem").read_bytes()
    assert {folder.name for folder in fleets.drop(out, 1)} == {"agent-0", "agent-2"}
    assert agents_of(out)[0].senders == (2,)
    shutil.copytree(out / "agent-1", tmp_path / "kept")
    with pytest.raises(UserError, match=r"key\.pem is missing"):
        authority.guarded(out / "agent-1")
    with pytest.raises(UserError, match="has left already"):
        fleets.drop(out, 1)
    fleets.add(out, 1)
    assert agents_of(out)[0].senders == (1, 2)
    assert (out / "agent-1" / "certificate.pem").read_bytes() != before
    with pytest.raises(UserError, match="is in the fleet already"):
        fleets.add(out, 1)
    with pytest.raises(UserError, match="numbered from 0 to 2"):
        fleets.renew(out, [7])


def test_keys_and_clocks_that_cannot_be_are_said_in_a_sentence(tmp_path: Path) -> None:
    out = made(tmp_path)
    folder = out / "agent-0"
    (folder / "key.pem").chmod(0o644)
    with pytest.raises(UserError, match="can be read by others"):
        authority.guarded(folder)
    fleets.renew(out, [0], days=-0.02)
    with pytest.raises(UserError, match="has expired"):
        authority.guarded(folder)
    fleets.renew(out, [0])
    shutil.copy(out / "agent-1" / "key.pem", folder / "key.pem")
    with pytest.raises(UserError, match="is not the key of"):
        authority.guarded(folder)
    fleets.renew(out, [0])
    home = agents_of(out)[0]
    with socket.create_server(("127.0.0.1", int(home.address.rpartition(":")[2]))):
        life = awake(home, safe=False)
        with pytest.raises(UserError, match="cannot listen at"):
            life.office.open()
        life.store.close()
    (folder / "settings.toml").write_text((folder / "settings.toml").read_text().replace("epochs = 6", "epochs = 5"))
    with pytest.raises(UserError, match="other settings than the fleet was made with"):
        home.settings()


@pytest.mark.parametrize(
    ("live", "word"),
    [
        ("", "do not say where agents are"),
        ('base = "127.0.0.1"', "is no address"),
        ('addresses = ["a:1", "b:2"]', "one for each of the 3 agents"),
        ('addresses = ["a:1", "b:2", "a:1"]', "names an address twice"),
    ],
)
def test_addresses_that_cannot_be_are_said_in_a_sentence(tmp_path: Path, live: str, word: str) -> None:
    text = FLEET.format(modes=RECV, more="", port=1).partition("[live]")[0]
    (tmp_path / "fleet.toml").write_text(f"{text}\n[live]\n{live}\n" if live else text)
    with pytest.raises(UserError, match=word):
        make(tmp_path / "fleet.toml", tmp_path / "fleet")


@pytest.mark.slow
def test_processes_that_are_killed_come_back_answer_and_can_be_replayed(tmp_path: Path) -> None:
    """The way of the guide, with kill -9 in the middle of it."""
    out = made(tmp_path, f'{RECV}, "fedavg"', FREE)
    homes = agents_of(out)

    def start(home: Home) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "shoal", "live", "run", str(home.folder), "--leave", "--slow", "0.3"]
        with (home.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(words, stderr=log)

    agents = [start(home) for home in homes]
    try:
        until = time.monotonic() + 60
        asked: dict[str, Any] = {"task": 0, "epoch": 0, "links": []}
        while time.monotonic() < until and not (asked["epoch"] > 2 and asked["links"]):
            time.sleep(0.3)
            try:
                asked = Running(homes[1].folder).status()
            except UserError:
                continue
        assert len(Running(homes[1].folder).predict(fleet_of(out)[2].images[:7])) == 7
        agents[1].send_signal(signal.SIGKILL)
        agents[1].wait()
        with pytest.raises(UserError, match="no agent answers"):
            Running(homes[1].folder).status()
        agents[1] = start(homes[1])
        assert [agent.wait(120) for agent in agents] == [0, 0, 0]
    finally:
        for agent in agents:
            agent.kill()
    found = gather(out)
    assert found.finished
    assert found.disagreements == []
    for home in homes:
        assert sum(replay(home.folder).letters.values()) > 5
