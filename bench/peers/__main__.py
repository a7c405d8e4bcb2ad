"""Measure shoal beside Flower, GossiPy and Avalanche on the same work: `python -m bench.peers [NAME ...]`.

Each gets an environment of its own in bench/peers/.envs, which is made once: torch first, in the version that shoal has
here, then the peer in a fixed version. It needs an index of packages, about 1 GB each and some minutes. One that
cannot be installed here is skipped, and the reason is printed. Shoal and the peer take turns; what counts is
agent-steps per second, exchanges included, and the ratio of neighbouring turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import cases, results
from bench.peers import work
from bench.race import rate
from shoal.agents.engine import keep_memory
from shoal.fleet.exchange import meet_all
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.members import crew_of
from shoal.fleet.run import one_thread

ENVIRONMENTS = Path(__file__).parent / ".envs"
FILE = results.ROOT / "docs" / "results" / "peers.csv"
TORCH = "torch==" + torch.__version__.partition("+")[0]
VISION = "torchvision==0.28.0"  # what pairs with torch 2.13.0


@dataclass(frozen=True)
class Peer:
    """Another system: what to install, what runs it, and what shoal does beside it."""

    module: str
    packages: tuple[str, ...]
    alone: tuple[str, ...]  # packages without what they depend on
    graph: str  # of shoal's fleet; empty: agents share nothing, and replay
    what: str


PEERS = {
    "flower": Peer("flower", ("flwr==1.41.0",), (), "complete", "FedAvg, five epochs between exchanges"),
    "gossipy": Peer(
        "gossip",
        ("gossipy-dfl==0.0.1",),
        (VISION,),
        "ring",
        "averaging on a ring, five epochs between exchanges",
    ),
    "avalanche": Peer("avalanche", ("avalanche-lib==0.6.0", VISION), (), "", "replay, nothing shared"),
}


def python_of(name: str) -> Path:
    return ENVIRONMENTS / name / ("Scripts" if os.name == "nt" else "bin") / "python"


def installed(name: str) -> str:
    """Make the environment of a peer, if it is not there; why that failed, if it did."""
    peer, place = PEERS[name], ENVIRONMENTS / name
    mark, wanted = place / ".installed", "\n".join((TORCH, *PEERS[name].packages, *PEERS[name].alone))
    if mark.exists() and mark.read_text() == wanted:
        return ""
    print(f"installing {name} into {place}", file=sys.stderr)
    venv.create(place, with_pip=True, clear=True)
    # torch first and named again with the peer, or pip would take the newest, with gigabytes for GPUs.
    steps = [[TORCH, "numpy"], [TORCH, *peer.packages], *([["--no-deps", *peer.alone]] if peer.alone else [])]
    for words in steps:
        command = [str(python_of(name)), "-m", "pip", "install", "-q", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return f"pip could not install {' '.join(words)}: {(said or ['no reason given'])[0]}"
    mark.write_text(wanted)
    return ""


class Process:
    """A peer at work."""

    def __init__(self, name: str) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe that nobody reads would fill up
        self.process = subprocess.Popen(
            [python_of(name), "-m", f"bench.peers.{PEERS[name].module}"],
            cwd=results.ROOT,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
        )
        self.heard()

    def heard(self) -> dict[str, Any]:
        """Its next line of JSON; what else it prints is passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        self.process.wait()
        self.said.seek(0)
        said = self.said.read().strip().splitlines()
        raise ChildProcessError(said[-1] if said else "it ended without a word")

    def rate(self, agents: int, seconds: float, clock: str) -> float:
        assert self.process.stdin is not None
        print(agents, seconds, clock, file=self.process.stdin, flush=True)
        return float(self.heard()["rate"])

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()
        self.said.close()


def ours(graph: str, agents: int, cores: int) -> cases.Work:
    """The same work in shoal: rounds of five epochs and an exchange, or epochs of replay."""
    words = [f"agents={agents}", "seeds=1", f"machine.threads={cores}"]
    if not graph:
        fleet = cases.fleet_of("mlp", cases.mnist(quick=True), agents, *words)
        return cases.epochs(fleet, cases.midway(fleet))
    words += ["sharing=fedavg", f"sharing.fedavg.every={work.EPOCHS}", f"network.graph={graph}", "learner.memory=0"]
    fleet = cases.fleet_of("mlp", cases.mnist(quick=True), agents, *words)
    stack = cases.midway(fleet)
    crew = crew_of([fleet], [stack])

    def one() -> int:
        meet_all(crew)
        for epoch in range(work.EPOCHS):
            learn_epoch([(fleet, stack)], epoch)
        return work.STEPS * agents

    return one


def measure(
    name: str, sizes: tuple[int, ...], turns: int, seconds: float, cores: int, clock: str, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Turns of a peer and of shoal, at every size."""
    peer, rows = PEERS[name], []
    process = Process(name)
    try:
        for agents in sizes:
            mine, theirs = [], []
            round_ = ours(peer.graph, agents, cores)
            with one_thread():
                round_()  # the first is not timed, as with the peer
            for _ in range(turns):
                with one_thread():
                    mine.append(rate(round_, seconds, clock))
                theirs.append(process.rate(agents, seconds, clock))
            ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
            rows.append(
                {
                    "peer": name,
                    "version": peer.packages[0],
                    "work": peer.what,
                    "graph": peer.graph or "none",
                    "agents": agents,
                    "shoal": statistics.median(mine),
                    "rate": statistics.median(theirs),
                    "ratio": statistics.median(ratios),
                    "ratio_low": min(ratios),
                    "ratio_high": max(ratios),
                    "turns": turns,
                    "clock": clock,
                }
            )
            say(f"{name}, {agents} agents: shoal {rows[-1]['ratio']:.1f} times as fast")
    finally:
        process.end()
    return rows


def table(rows: list[dict[str, Any]] | list[dict[str, str]]) -> str:
    """The rows of docs/results/peers.csv as a markdown table."""
    lines = [
        [
            f"{row['peer']} ({row['version']})",
            str(row["work"]),
            str(row["agents"]),
            results.whole(str(row["rate"])),
            results.whole(str(row["shoal"])),
            f"{float(row['ratio']):.1f} ({float(row['ratio_low']):.1f} to {float(row['ratio_high']):.1f})",
        ]
        for row in rows
    ]
    return results.markdown(["peer", "work", "agents", "peer", "shoal", "shoal / peer"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PEERS)} (all)")
    parser.add_argument("--agents", type=int, nargs="+", default=[8, 64], help="sizes of fleets (8 64)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn, at least (2)")
    parser.add_argument("--cores", type=int, default=1, help="threads of shoal (1, as the peers have)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu where others work too (wall)")
    parser.add_argument("--out", type=Path, default=FILE, help="the CSV file (docs/results/peers.csv)")
    given = parser.parse_args()
    if given.clock == "cpu" and given.cores > 1:
        parser.error("--clock cpu cannot tell how well several cores are used; say --cores 1")
    for name in given.names:
        if name not in PEERS:
            parser.error(f"{name} is no peer; use one or more of {', '.join(PEERS)}")
    keep_memory()
    names = given.names or list(PEERS)
    rows = [dict(row) for row in results.read(given.out) if row["peer"] not in names]
    for name in names:
        why = installed(name)
        try:
            words = tuple(given.agents), given.turns, given.seconds, given.cores, given.clock
            found = [] if why else measure(name, *words, print)
        except ChildProcessError as error:
            why, found = f"it does not run here: {error}", []
        if why:
            print(f"{name} is skipped: {why}")
            continue
        rows += [row | results.stamp() for row in found]
        results.write(given.out, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
