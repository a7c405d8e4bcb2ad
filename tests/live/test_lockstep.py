"""Law 12: a live fleet in lock-step is the simulator, bit for bit, whatever ends or cuts it on the way."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.agents.stack import Stack
from shoal.contracts.fleets import difference
from shoal.contracts.mode_case import rows
from shoal.live.life import Life
from shoal.live.replaying import replay
from shoal.live.transport import Lines
from shoal.settings.groups import Settings
from shoal.sharing.modes import MODES
from tests.live.houses import built, lived, simulated, small

QUICK = ("recv", "modmod", "fedavg")


def equal(settings: Settings, found: dict[int, Stack], flows: bool = True) -> None:
    """Every agent is what it is in the simulator, and so is the ledger of what each has received."""
    want = simulated(settings)
    assert sorted(found) == list(range(settings.agents))
    for agent, stack in found.items():
        assert difference(want[agent], stack) == ""
        mine = [row for row in rows(stack) if row[4] == agent]
        assert Counter(mine) == Counter(row for row in rows(want[0]) if row[4] == agent and row[10] != "over budget")
    assert not flows or any(row[10] == "accepted" for row in rows(want[0]))


@pytest.mark.parametrize("mode", QUICK)
def test_in_lock_step_a_live_fleet_is_the_simulator(tmp_path: Path, mode: str) -> None:
    settings = small(mode)
    equal(settings, lived(built(settings, tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", sorted(set(MODES) - set(QUICK)))
def test_in_lock_step_every_mode_is_the_same_live(tmp_path: Path, mode: str) -> None:
    settings = small(mode)
    equal(settings, lived(built(settings, tmp_path)))


@pytest.mark.parametrize(
    "changes",
    [
        {"network": {"graph": "ring", "budget": "3 kB/task", "every": 2}},
        {"tasks": {"initial": 2, "common": True}, "network": "complete"},
        {"kinds": [{"name": "flat", "agents": [1], "net": {"depth": 2}}]},
    ],
    ids=["limits", "a common start", "kinds"],
)
def test_limits_a_common_start_and_kinds_are_the_same_live(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = small("recv", "fedavg", **changes)
    equal(settings, lived(built(settings, tmp_path)))


def test_an_agent_that_crashes_again_and_again_ends_as_if_it_had_not(tmp_path: Path) -> None:
    settings = small("recv", "fedavg")
    crashes = Counter[tuple[int, int, int]]()

    def crash(life: Life) -> bool:
        """Once after every second epoch, of agents 0 and 2; every third time it has saved before."""
        point = life.home.agent, life.stack.task, life.stack.epoch
        crashes[point] += 1
        if point[0] == 1 or point[2] % 2 or crashes[point] > 1:
            return False
        if sum(crashes.values()) % 3 == 0:
            life.save([life.stack])
        return True

    found = lived(built(settings, tmp_path), crash=crash)
    assert sum(count > 1 for count in crashes.values()) > 3
    equal(settings, found)


def test_nobody_waits_for_an_agent_that_has_diverged(tmp_path: Path) -> None:
    hot = {"name": "hot", "agents": [1], "learner": {"rate": 1e30}}
    settings = small("recv", "fedavg", kinds=[hot])
    homes = built(settings, tmp_path)
    found, want = lived(homes), simulated(settings)
    assert found[1].gone.all()
    for agent in (0, 2):
        assert difference(want[agent], found[agent]) == ""
        assert found[agent].task == settings.tasks.count
    assert lived(homes[1:2])[1].gone.all()  # started again, it ends again


def mended(lines: Lines) -> None:
    lines.cut.clear()
    lines.deaf.clear()


def test_lines_that_are_cut_or_lose_acknowledgements_change_nothing(tmp_path: Path) -> None:
    settings, lines = small("recv"), Lines()
    lines.cut |= {(0, 1), (1, 2)}
    lines.deaf |= {(1, 0), (2, 1)}
    timer = threading.Timer(0.5, mended, [lines])
    timer.start()
    began = time.monotonic()
    homes = built(settings, tmp_path)
    equal(settings, lived(homes, lines))
    assert time.monotonic() - began > 0.5  # nobody can be done before that
    for home in homes:
        assert replay(home.folder).task == settings.tasks.count
