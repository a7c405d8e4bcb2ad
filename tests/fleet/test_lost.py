"""Workers and nodes that are lost: whatever a fleet shares, and whatever a worker was at when its process was killed or
its node removed, the run ends with the same bits and the same ledger.

One Ray serves all killed workers, and one cluster of several nodes all removed ones.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.agents.stack import Stack
from shoal.agents.worlds import worlds
from shoal.data import Bank, load
from shoal.fleet.members import LostError
from shoal.fleet.run import Moment, train
from shoal.runs.record import Record
from shoal.settings.groups import Settings
from shoal.sharing.modes import MODES
from tests.command import ROOT
from tests.fleet.test_actors import OWN, ray_of
from tests.fleet.test_members import FLAT, same, settings_of, shared_by
from tests.fleets import last_saved

pytest.importorskip("ray")
from shoal.fleet import actors, cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
# Beside every mode alone: three modes over links with limits, from starts of their own or a common one, the same with
# agents of two kinds, and agents that share nothing.
OTHERS: dict[str, dict[str, Any]] = {
    "alone": {**OWN, "sharing": []},
    "hybrid": OWN,
    "hybrid from a common start": {},
    "mixed": {**OWN, "kinds": [FLAT]},
}
FLEETS = (*OTHERS, *sorted(MODES))
REMOVED = ("alone", "recv", "fedavg", "modmod", "hybrid", "mixed")
LOST = r"the worker in process \d+ on node \S+ has ended in the middle of its work.*"


def fleet_of(name: str) -> tuple[Settings, Bank]:
    """A small fleet and its data."""
    return (settings_of(0, **OTHERS[name]), load("digits")) if name in OTHERS else shared_by(name)


def on(settings: Settings, **machine: Any) -> Settings:
    """The same fleet in two actors."""
    return settings.model_copy(update={"machine": ray_of(2, machine).machine})


def process_of(member: Any) -> int:
    (found,) = re.findall(r"process (\d+)", member.about)
    return int(found)


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    with cluster.session(ray_of(4).machine):
        yield


class Killer:
    """Kills workers at some points of a run: as soon as one has been told a verb when a task has so many epochs behind
    it. So it ends while it does as told, or before it has begun to."""

    def __init__(self, points: list[tuple[str, tuple[int, int]]], patch: pytest.MonkeyPatch) -> None:
        self.points, self.clock = points, (0, 0)
        honest = actors.Actor.tell

        def tell(member: actors.Actor, verb: str, *arguments: Any) -> None:
            honest(member, verb, *arguments)
            if self.points and verb == self.points[0][0] and self.clock >= self.points[0][1]:
                self.points.pop(0)
                os.kill(process_of(member), signal.SIGKILL)

        patch.setattr(actors.Actor, "tell", tell)

    def watch(self, moment: Moment) -> None:
        self.clock = moment.task, moment.epoch


def ends_as_here(name: str, points: list[tuple[str, tuple[int, int]]], folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Train a fleet whose workers are killed at some points, going on from the end of the last task, and here."""
    settings, bank = fleet_of(name)
    want, record = train(worlds(settings, bank)), Record(folder, settings)
    assert bool(len(want[0].ledger)) == bool(settings.sharing)
    killer, losses = Killer(points, patch), list[str]()
    count = sum(verb != "restore" for verb, _ in points)  # who ends as it begins again is replaced without a word

    def watch(moment: Moment) -> None:
        killer.watch(moment)
        if moment.epoch == 0:
            record.save(moment.stacks)

    def lost(loss: LostError) -> tuple[Stack, ...] | None:
        losses.append(str(loss))
        return last_saved(record)

    same(train(worlds(on(settings), bank), watch=watch, lost=lost), want)
    assert not killer.points
    assert len(losses) == count
    assert all(re.fullmatch(LOST, one, re.DOTALL) for one in losses)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("name", FLEETS)
def test_whatever_a_fleet_shares_it_ends_the_same_if_workers_are_killed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in an epoch in the middle of a task, and one in an exchange of the last task."""
    settings, _ = fleet_of(name)
    task = settings.tasks.count - 2
    points = [("learn", (task, 1))] + [("answer", (task + 1, 0))] * bool(settings.sharing)
    ends_as_here(name, points, tmp_path, monkeypatch)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    "verb", ["begin", "learn", "end", "turn", "ask", "receive", "answer", "absorb", "stacks", "restore"]
)
def test_whatever_a_worker_was_at_when_it_is_killed_the_run_ends_the_same(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it is asked for its stacks to save them, or told to go on from those that were."""
    points = [("learn", (2, 1)), (verb, (2, 1))] if verb == "restore" else [(verb, (2, 1))]
    ends_as_here("hybrid", points, tmp_path, monkeypatch)


def test_a_node_that_is_removed_is_replaced_and_one_that_stays_away_ends_the_run(tmp_path: Path) -> None:
    """Several fleets on a cluster of three nodes on this machine, in a program of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fleet.nodes", str(tmp_path), *REMOVED],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=1800)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, err[-2000:]
    *runs, last = (json.loads(line[2:]) for line in out.splitlines() if line.startswith("> "))
    assert [run["fleet"] for run in runs] == list(REMOVED)
    for run in runs:
        assert (run["differs"], run["ledger"]) == ([], True), run
        assert re.match(LOST, run["told"][0])
    assert re.match(
        r"the Ray cluster at \S+ has had no room for \d workers? with 1 CPUs each for 5 seconds; what was saved is "
        r"whole: bring back the node, free CPUs or take fewer workers",
        last["error"],
    )
    assert last["saved"] == [3, 0]
