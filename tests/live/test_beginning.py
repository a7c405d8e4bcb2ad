"""Live agents begin from trained ones: of a run, of an earlier life, or of a file."""

from pathlib import Path

import polars as pl
import pytest

import shoal
from shoal.contracts.mode_case import rows
from shoal.errors import UserError
from shoal.live.fleets import agents_of
from shoal.live.gathered import gather
from shoal.live.replaying import replay
from shoal.runs.execute import prepare
from shoal.runs.record import reopen
from tests.live.houses import lived
from tests.live.test_rows import FREE, WEEKS, bring, different, made, table

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
OWN = 'data = "csv:rows.csv?label=state&task=week"'


def data(first: int, last: int) -> shoal.Data:
    weeks = table().filter(pl.col("week").is_between(first, last - 1))
    return shoal.Data.from_table(weeks, label="state", agent="site", task="week")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of the simulator over three weeks."""
    fleet = shoal.Fleet(
        data(0, 3), model="mlp", net={"width": 16}, network="ring", tasks={"initial": 1},
        sharing=[{"mode": "recv", "every": 2, "queries": 4, "nearest": 2}],
        learner={"epochs": 6, "batch": 8, "memory": 4},
    )  # fmt: skip
    fleet.run(out=tmp_path / "run")
    return tmp_path / "run"


def test_agents_that_begin_from_a_run_go_on_as_that_run_does(tmp_path: Path, run: Path) -> None:
    out = made(tmp_path, WEEKS, live=OWN, begin=[run])
    found = lived(agents_of(out))
    shoal.Result.read(run).continue_with(data(3, WEEKS), out=tmp_path / "on")
    record = reopen(tmp_path / "on")
    (whole,) = record.load(prepare(record.settings)) or ()
    for agent, stack in found.items():
        want = whole.take([agent], [whole.lanes[agent]])
        want.ledger = stack.ledger  # a life begins with an empty one
        assert different(want, stack) in ("", "clock/epoch")
        assert len([row for row in rows(stack) if row[4] == agent and row[10] == "accepted"]) > 5
        assert min(row[1] for row in rows(stack)) == 3
    for home in agents_of(out):
        assert replay(home.folder).task == WEEKS


def test_an_earlier_life_and_the_file_of_one_agent_are_begun_from_too(tmp_path: Path, run: Path) -> None:
    (tmp_path / "first").mkdir()
    first = made(tmp_path / "first", 2, count=2, more=FREE, live=OWN)
    before = lived(agents_of(first))
    left = gather(first).folder
    assert len(shoal.Result.read(left).agent("north").tasks) == 2
    (tmp_path / "second").mkdir()
    second = made(tmp_path / "second", 2, more=FREE, begin=[left], live=f"{OWN}\nwatch = 0.3")
    bring(second, WEEKS)
    found = lived(agents_of(second))
    for agent, stack in found.items():
        assert stack.task == WEEKS
        assert stack.accuracy[0, :2, :, :2].nan_to_num(-1).equal(before[agent].accuracy[0].nan_to_num(-1))
    north = shoal.Result.read(run).agent("north").save(tmp_path / "north.safetensors", memory=True)
    (tmp_path / "third").mkdir()
    third = made(tmp_path / "third", 4, '"fedavg"', count=4, begin=[north], live=OWN, more=FREE)
    assert {agent: int(stack.task) for agent, stack in lived(agents_of(third)).items()} == {0: 4, 1: 4, 2: 4}
    learned = [gather(third).folder / "accuracy.parquet"]
    assert (
        pl.read_parquet(learned).filter(agent=1, task=0).height
        == pl.read_parquet(learned).filter(agent=0, task=0).height
    )


def test_what_cannot_be_begun_from_is_said_in_a_sentence(tmp_path: Path, run: Path) -> None:
    agent = shoal.Result.read(run).agent("north")
    for name, said, words in (
        ("bare", {"begin": [agent.save(tmp_path / "bare.safetensors")]}, "was saved without its memory"),
        ("few", {"begin": [run], "count": 3}, "has learned all 3 tasks that the fleet has"),
        (
            "other",
            {"begin": [run], "modes": '"fedavg"', "initial": 2},
            "has learned 3 tasks, and they are not the first",
        ),
        ("seed", {"begin": [run], "more": "seed = 1"}, "say seed=0"),
    ):
        place = tmp_path / name
        place.mkdir()
        with pytest.raises(UserError, match=words):
            made(place, 3 if name == "few" else WEEKS, live=OWN, **said)
        assert not (place / "fleet" / "agent-0" / "begin.safetensors").exists()
