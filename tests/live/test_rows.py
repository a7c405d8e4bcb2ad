"""Rows that come while agents run are learned as the simulator learns them, and agents begin from trained ones."""

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from shoal.agents.worlds import worlds
from shoal.contracts.fleets import difference
from shoal.contracts.mode_case import rows
from shoal.data import load
from shoal.fleet.run import train
from shoal.live.fleets import Home, agents_of, fleet_of, make
from shoal.live.gathered import gather
from shoal.live.life import Life
from shoal.live.replaying import replay
from shoal.live.rows import Rows
from shoal.live.store import Store
from tests.live.houses import lived

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
SITES, WEEKS = ("east", "north", "south"), 5
FLEET = """\
dataset = "csv:{table}?label=state&agent=site&task=week"
model = "mlp"
agents = 3
sharing = [{modes}]
network = "ring"
tasks = {{ count = {count}, classes = 2, initial = {initial}, common = false }}
net = {{ width = 16 }}
learner = {{ epochs = 6, batch = 8, memory = 4 }}
{more}
[live]
base = "127.0.0.1:7900"
{live}
"""
RECV = '{ mode = "recv", every = 2, queries = 4, nearest = 2 }'
LIVE = 'data = "csv:rows.csv?label=state&task=week"\nwatch = 0.4'
FREE = 'clock = { pace = "asynchronous", speed = 200, patience = 2 }'


def table(weeks: int = WEEKS) -> pl.DataFrame:
    """Readings of three sites for some weeks, in which other things matter."""
    rng, parts = np.random.default_rng(0), []
    for week in range(weeks):
        for site in SITES:
            x = np.round(rng.normal(size=(30, 3)), 4)
            state = np.where(x @ rng.normal(size=3) > 0, "hot", "cold")
            parts.append(
                {"heat": x[:, 0], "load": x[:, 1], "wind": x[:, 2], "site": site, "week": week, "state": state}
            )
    return pl.concat([pl.DataFrame(part) for part in parts])


def made(place: Path, weeks: int, modes: str = RECV, **words: Any) -> Path:
    """The folder of a fleet that was made with some weeks; every agent has those of its own site."""
    table(weeks).write_csv(place / "all.csv")
    said = {"count": WEEKS, "initial": 1, "more": "", "live": LIVE, **words}
    begin = said.pop("begin", [])
    (place / "fleet.toml").write_text(FLEET.format(table="all.csv", modes=modes, **said))
    make(place / "fleet.toml", place / "fleet", begin=begin)
    bring(place / "fleet", weeks)
    return place / "fleet"


def bring(out: Path, weeks: int) -> None:
    """Write the rows of some weeks to every host, whole."""
    for home in agents_of(out):
        mine = table(weeks).filter(site=SITES[home.agent]).drop("site")
        mine.write_csv(home.folder / "part.csv")
        (home.folder / "part.csv").replace(home.folder / "rows.csv")


def simulated(out: Path, weeks: int = WEEKS) -> dict[int, Any]:
    """What the simulator makes of all rows at once."""
    table(weeks).write_csv(out.parent / "all.csv")
    settings = fleet_of(out)[1]
    found = {}
    for stack in train(worlds(settings, load(settings.dataset))):
        for row, lane in enumerate(stack.lanes):
            found[lane.agent] = stack.take([row], [lane])
            found[lane.agent].ledger = stack.ledger
    return found


def different(one: Any, other: Any) -> str:
    """What differs, but for the numbers of rows: on a host of its own, an agent counts its own alone."""
    for stack in (one, other):
        stack.states["memory"]["rows"] = torch.zeros(1)
    return difference(one, other)


def growing(out: Path, first: int) -> threading.Thread:
    """Let a week come now and then."""

    def grow() -> None:
        for weeks in range(first + 1, WEEKS + 1):
            time.sleep(0.7)
            bring(out, weeks)

    thread = threading.Thread(target=grow, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("initial", [1, 2])
def test_in_lock_step_tables_that_grow_on_hosts_of_their_own_are_learned_as_in_the_simulator(
    tmp_path: Path, initial: int
) -> None:
    out = made(tmp_path, 2, f'{RECV}, "fedavg"', initial=initial)
    if initial == 2:
        bring(out, 1)  # it waits for the other
    (tmp_path / "all.csv").rename(tmp_path / "gone.csv")  # no host has it
    grown = growing(out, 1 if initial == 2 else 2)
    found = lived(agents_of(out))
    grown.join()
    want = simulated(out)
    for agent, stack in found.items():
        assert different(want[agent], stack) == ""
    assert any(row[10] == "accepted" for row in rows(want[0]))
    for home in agents_of(out):
        assert replay(home.folder).task == WEEKS
    assert gather(out).finished


def test_by_their_own_clocks_agents_answer_while_they_wait_for_rows_and_crash_and_are_replayed(tmp_path: Path) -> None:
    out, crashed, waited = made(tmp_path, 1, more=FREE), set[tuple[int, int]](), set[int]()

    def crash(life: Life) -> bool:
        point = life.home.agent, life.stack.task
        waited.update([life.home.agent] * (life.crew.waits is not None))
        if life.stack.epoch != 6 or point in crashed or life.home.agent == 1:
            return False
        crashed.add(point)
        return True

    grown = growing(out, 1)
    found = lived(agents_of(out), crash=crash)
    grown.join()
    assert len(crashed) == 2 * WEEKS
    assert all(stack.task == WEEKS for stack in found.values())
    for home in agents_of(out):
        assert sum(replay(home.folder).letters.values()) > 5


def test_a_folder_that_grows_is_learned_too(tmp_path: Path) -> None:
    def bring_pictures(place: Path, weeks: range) -> None:
        rng = np.random.default_rng(weeks.start)
        for week in weeks:
            for kind, level in (("dark", 40), ("light", 200)):
                for number in range(12):
                    file = place / str(week) / kind / f"{number}.npy"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    np.save(file, rng.integers(level - 30, level + 30, (6, 6)).astype(np.uint8))

    bring_pictures(tmp_path / "shots", range(1))
    text = FLEET.format(table="", modes='"fedavg"', count=3, initial=1, more=FREE, live="watch = 0.4")
    text = text.replace("csv:?label=state&agent=site&task=week", "folder:shots?pattern={task}/{class}/*")
    (tmp_path / "fleet.toml").write_text(text)
    make(tmp_path / "fleet.toml", tmp_path / "fleet")
    timers = [threading.Timer(0.8 * at, bring_pictures, [tmp_path / "shots", range(at, at + 1)]) for at in (1, 2)]
    for timer in timers:
        timer.start()
    found = lived(agents_of(tmp_path / "fleet"))
    assert [stack.task for stack in found.values()] == [3, 3, 3]
    replay(tmp_path / "fleet" / "agent-2")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An agent with the rows of one week, of five."""
    return agents_of(made(tmp_path, 1))[0]


def looked(home: Home, store: Store, task: int = 1) -> tuple[bool, list[str]]:
    """Have the rows of a task come, and what is said of them?"""
    said: list[str] = []
    found = Rows(home, home.settings(), store, said.append)
    assert found.first(0, lambda seconds: time.sleep(0.1)).streams[0].end == 1
    until = time.monotonic() + 1.5
    while not (come := found.come(task)) and time.monotonic() < until:
        time.sleep(0.1)
    return come, said


def mine(weeks: int) -> pl.DataFrame:
    return table(weeks).filter(site="east").drop("site")


def test_a_week_is_learned_when_it_is_whole(home: Home) -> None:
    store, file = Store(home.letters), home.folder / "rows.csv"
    assert looked(home, store) == (False, [])
    mine(3).head(67).write_csv(file)  # a later one has begun
    assert looked(home, store) == (True, [])
    assert [count for count, _ in store.tasks()] == [30, 30]
    store.close()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda: mine(2)[5:], "has learned task 1 from 30 rows, and `rows` has 25; restore them"),
        (lambda: mine(2).with_columns(heat=pl.col("heat") + 1), "has 30 others; restore them"),
        (lambda: mine(2).drop("wind"), "has heat, load, and the fleet was made with heat, load, wind"),
        (lambda: mine(2).with_columns(state=pl.lit("odd")), "all rows have the class"),
        (
            lambda: mine(2).with_columns(state=pl.when(pl.col("week") == 1).then(pl.lit("odd")).otherwise("state")),
            "has the class 'odd', and the fleet knows cold, hot",
        ),
        (lambda: mine(2).head(31), "has no validation rows"),
    ],
    ids=["shrunk", "changed", "a column less", "one class", "a new class", "a single row"],
)
def test_rows_that_cannot_be_learned_are_waited_for_and_said_once(home: Home, change: Any, word: str) -> None:
    store, file = Store(home.letters), home.folder / "rows.csv"
    change().write_csv(file)
    if "learned task 1" in word or "others" in word:
        shutil.copy(home.folder.parent / "agent-0" / "rows.csv", home.folder / "after.csv")
        mine(1).write_csv(file)
        looked(home, store)
        shutil.move(home.folder / "after.csv", file)
    if "class" in word or "wind" in word:
        mine(1).write_csv(file)
        said: list[str] = []
        found = Rows(home, home.settings(), store, said.append)
        found.first(0, lambda seconds: time.sleep(0.1))
        change().write_csv(file)
    else:
        said = []
        found = Rows(home, home.settings(), store, said.append)
        if not store.tasks():
            mine(1).write_csv(file)
            found.first(0, lambda seconds: time.sleep(0.1))
            change().write_csv(file)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        assert not found.come(1)
        time.sleep(0.05)
    assert len(said) == 1
    assert word in said[0]
    mine(2).write_csv(file)  # restored, it goes on
    until = time.monotonic() + 5
    while not found.come(1):
        assert time.monotonic() < until
        time.sleep(0.05)
    store.close()
