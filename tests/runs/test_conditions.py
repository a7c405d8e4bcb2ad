"""What links and agents were like, in a run directory."""

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.letters.ledger import Ledger, Settled
from shoal.letters.mail import ACCEPTED, DOWN, LOST, UNDER_WAY, Mail
from shoal.runs.checkpoints import DamagedError
from shoal.runs.conditions import consensus, links
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create, reopen
from shoal.settings.groups import Settings
from tests.command import DIGITS, TINY, call, fork
from tests.fleets import last_saved
from tests.runs.test_execute import assert_same, words_for, written

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp",
    "agents": 3,
    "tasks": {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1},
    "learner": {"epochs": 4, "batch": 8, "memory": 4},
    "sharing": [{"mode": "fedavg", "every": 1}],
}


def mail(epoch: int, task: int = 0) -> Mail:
    return Mail(Lane(0, 0), Lane(0, 1), "fedavg", "model", {}, 1, f"0/0-1/fedavg/model/{task}.{epoch}", "", task, epoch)


def test_a_link_tells_what_became_of_mail_and_how_old_what_is_known_is() -> None:
    """Sent at 0 and seen at once, sent at 2 and lost, sent at 3 and seen at 6, sent at 4 and kept back; the end is at
    12: ages are (0..6), then (3..9), with means 3 and 6."""
    ledger = Ledger()
    posted = [(0, 0, ACCEPTED), (2, 0, LOST), (3, 0, UNDER_WAY), (0, 1, DOWN), (1, 2, UNDER_WAY)]
    ledger.write([(mail(epoch, task), verdict) for epoch, task, verdict in posted])
    ledger.seen([Settled("0/0-1/fedavg/model/0.3", ACCEPTED, 3)])
    (row,) = links(Settings(**SMALL), ledger).to_dicts()
    counts = {"sent": 4, "delivered": 1, "late": 1, "lost": 1, "refused": 0, "under_way": 1, "kept_back": 1}
    assert {name: row[name] for name in counts} == counts
    assert row["age"] == pytest.approx((6 * 3 + 6 * 6) / 12)


def test_a_run_has_its_measures_and_resumed_the_same(tmp_path: Path) -> None:
    settings = Settings(
        **SMALL,
        network={"loss": 0.3, "delay": {"least": 0, "most": 2}},
        presence={"absent": [{"agents": [2], "tasks": [1]}]},
    )
    summary = carry_out(prepare(settings), create(tmp_path / "one", settings))
    assert summary["lost"] > 0
    assert summary["late"] > 0
    assert summary["information_age"] > 0
    ledger, table = (pl.read_parquet(tmp_path / "one" / f"{name}.parquet") for name in ("ledger", "links"))
    assert len(table) == 6
    assert table["sent"].sum() == summary["messages"] == len(ledger)
    assert (ledger["late"] > 0).any()
    agreed = pl.read_parquet(tmp_path / "one" / "consensus.parquet")
    assert agreed["task"].to_list() == [1, 2]
    assert (agreed["distance"] > 0).all()
    told = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert told["under_way"] == (ledger["verdict"] == "under way").sum()


def test_models_that_are_averaged_by_all_agree(tmp_path: Path) -> None:
    """Averaging after the last epoch leaves nothing between agents; on lossy links something is left."""
    distances = []
    for loss in (0.0, 0.5):
        raw = {**SMALL, "sharing": [{"mode": "fedavg", "every": 1, "when": "after"}]}
        settings = Settings(**raw, network={"loss": loss})
        carry_out(prepare(settings), create(tmp_path / str(loss), settings))
        distances.append(pl.read_parquet(tmp_path / str(loss) / "consensus.parquet")["distance"].to_list())
    assert max(distances[0]) < 1e-6 < min(distances[1])


DAYS: dict[str, tuple[str, ...]] = {
    "late mail and absence": (
        "network.delay={least = 1, most = 3}",
        "network.loss=0.2",
        "presence.absent=[{agents = [1], epochs = [[26, 28]]}]",
    ),
    "clocks of their own": (
        "clock.pace=asynchronous",
        "clock.speed=[100.0, 61.0]",
        "network.bandwidth=400 kbit/s",
        "network.latency=30 ms",
        "network.loss=0.2",
    ),
}


@pytest.mark.parametrize("day", DAYS)
def test_killed_with_mail_in_flight_it_ends_the_same(day: str, tmp_path: Path) -> None:
    """By `kill -9`, at any moment after a checkpoint that has mail under way."""
    often = "machine.checkpoint=0.0001"
    words = (*TINY, "model=mlp", "sharing=fedavg", "sharing.every=1", *DAYS[day], often)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert call("run", DIGITS, *words, "--out", whole).code == 0
    flown = []
    for kill in (True, True, False):
        before = written(broken)
        process = fork(*words_for(broken, words))
        while kill and process.is_alive() and not (written(broken) != before and flying(broken)):
            process.join(0.002)
        if kill:
            process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            flown.append(flying(broken))
        else:
            assert process.exitcode == 0
    assert max(flown, default=0) > 0
    assert_same(whole, broken)
    for name in ("links", *(["time"] if "clock" in day else [])):
        assert pl.read_parquet(whole / f"{name}.parquet").equals(pl.read_parquet(broken / f"{name}.parquet"))


def flying(folder: Path) -> int:
    """How many mails are under way in a checkpoint; none, where it is just being written."""
    try:
        stacks = last_saved(reopen(folder))
    except (UserError, OSError, RuntimeError, DamagedError):  # of safetensors, if the file has just been moved
        return 0
    return sum(len(stack.inbox) for stack in stacks or ())


@pytest.mark.parametrize(
    ("model", "mode"), [("frozen-mlp", {"mode": "heads"}), ("masked-mlp", {"mode": "masks", "every": 1})]
)
def test_agents_with_no_weights_in_common_have_no_distance(model: str, mode: dict[str, Any]) -> None:
    settings = Settings(
        **SMALL | {"model": model, "learner": {"epochs": 2, "batch": 8, "memory": 0}, "sharing": [mode]}
    )
    (world,) = shoal.prepare(settings)
    stack = shoal.simulate(world)
    assert not len(consensus(settings, [stack], [dict(world.model.body)]))
