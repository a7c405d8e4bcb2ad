"""What a live agent costs: memory, processor, letters over a link, and a prediction while it learns.

    python -m bench.live

Two agents in processes of their own on this host, over mutual TLS, and a third process that asks; then letters over one
link as fast as they go, each on the disk of its receiver before it is acknowledged. It takes about a minute.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shoal.data import load
from shoal.errors import UserError
from shoal.live.fleets import Home, agents_of, lines_of, make
from shoal.live.life import awake
from shoal.live.serving import Running
from shoal.live.wire import Slip, Turn, sealed

FLEET = """\
dataset = "digits"
model = "mlp"
agents = 2
sharing = ["recv"]
network = "ring"
tasks = {{ count = 6, classes = 2, initial = 1, common = false, train = 16, validation = 8 }}
learner = {{ epochs = 200, batch = 16 }}
clock = {{ {clock} }}
[live]
base = "127.0.0.1:{port}"
"""
FREE = 'pace = "asynchronous", speed = 100, patience = 2'
SECONDS = 5.0


def made(place: Path, port: int, clock: str = "") -> list[Home]:
    """The folders of two agents."""
    (place / "fleet.toml").write_text(FLEET.format(port=port, clock=clock))
    make(place / "fleet.toml", place / "fleet")
    return agents_of(place / "fleet")


def footprint(homes: list[Home]) -> None:
    """Memory and processor of an agent that learns with rests, and what a prediction costs meanwhile."""
    words = [sys.executable, "-m", "shoal", "live", "run", "--slow", "0.05"]
    agents = [subprocess.Popen([*words, str(home.folder)], stderr=subprocess.DEVNULL) for home in homes]
    try:
        one, rows = Running(homes[0].folder), load("digits").images
        said = patient(one)
        before, began = spent(agents[0].pid), time.monotonic()
        times: dict[int, list[float]] = {1: [], 256: []}
        time.sleep(SECONDS)
        share = (spent(agents[0].pid) - before) / (time.monotonic() - began)
        for count, taken in times.items():
            for _ in range(200):
                start = time.perf_counter()
                one.predict(rows[:count])
                taken.append(time.perf_counter() - start)
        said = one.status()
        shared = sum(resident(agents[0].pid, name) for name in ("RssFile", "RssShmem"))
        print(f"memory of an agent: {said['memory'] / 1e6:.0f} MB resident, {shared / 1e6:.0f} MB of it in libraries")
        print(f"processor: {100 * share:.0f} % of a core, at about {1 / 0.05:.0f} epochs a second at most")
        for count, taken in times.items():
            print(f"a prediction of {count} rows while it learns: {1000 * float(np.median(taken)):.1f} ms (median)")
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(30)


def patient(one: Running) -> dict[str, Any]:
    """How an agent is, as soon as it learns and has heard of its neighbour."""
    for _ in range(300):
        try:
            if (said := one.status())["epoch"] > 1 and said["links"]:
                return said
        except UserError:
            pass
        time.sleep(0.2)
    raise SystemExit("the agent did not come to learn")


def resident(pid: int, name: str) -> int:
    """The bytes of a part of the memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def spent(pid: int) -> float:
    """The processor seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def letters(homes: list[Home]) -> None:
    """Letters over one link, one after the other, each acknowledged when it is on the disk."""
    receiver = awake(homes[1])
    receiver.office.open()
    sender = lines_of(homes[0], receiver.office.terms)
    sender.open(lambda peer, frame: b"")
    terms = receiver.office.terms
    while sender.send(1, b"are you there?", 0.5) is None:
        pass
    began, number = time.monotonic(), 0
    while time.monotonic() - began < SECONDS:
        number += 1
        slip = Slip(terms.run, terms.settings, 0, 1, number, number, Turn(0, 0, 0, 0), 0, 0)
        assert sender.send(1, sealed(slip)) == b"kept"
    print(f"letters that are kept on the disk: {number / SECONDS:.0f} a second over one link")
    sender.close()
    receiver.office.close()
    receiver.store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a").mkdir()
        (Path(place) / "b").mkdir()
        footprint(made(Path(place) / "a", 7650, FREE))
        letters(made(Path(place) / "b", 7660))


if __name__ == "__main__":
    main()
