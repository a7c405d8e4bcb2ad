"""Clocks of their own: when tasks come, who acts when, what mail under way does, and what clocks cannot be."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents import events
from shoal.agents.events import arrivals, quiet
from shoal.agents.stack import RECORD, Stack
from shoal.agents.worlds import worlds
from shoal.contracts.fleets import difference
from shoal.data import load
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import train
from shoal.letters.mail import ACCEPTED, Mail, pack
from shoal.mail.post import Post
from shoal.settings.groups import Settings
from shoal.sharing.modes import MODES
from tests.fleets import singly

RAW: dict[str, Any] = {
    "model": "modular-mlp",
    "agents": 3,
    "seeds": 2,
    "tasks": {"count": 4, "classes": 4, "initial": 2, "train": 6, "validation": 4},
    "net": {"width": 8},
    "learner": {"epochs": 4, "batch": 16, "memory": 4, "accept": -1.0},
    "sharing": [{"mode": name, **MODES[name].example} for name in ("recv", "fedavg", "modmod")],
}
APART = {"pace": "asynchronous", "speed": [100.0, 37.0, 220.5], "step_joules": 2.0, "byte_joules": 0.001}
WIRES = {"bandwidth": "400 kbit/s", "latency": "10 ms"}


def settings_of(**changes: Any) -> Settings:
    return Settings(**{**RAW, **changes})


def ended(*stacks: Stack, **changes: Any) -> Stack:
    return train(worlds(settings_of(**changes), load("digits")), stacks or None)[0]


def same(one: Stack, other: Stack) -> None:
    assert difference(one, other) == ""
    assert np.array_equal(one.ledger.rows, other.ledger.rows)
    assert one.ledger.words == other.ledger.words


def test_tasks_come_at_once_at_given_times_or_at_random() -> None:
    tasks = {"count": 5, "initial": 2, "common": False}
    times = [0.0, 3.0, 4.5, 4.5, 20.0]
    one, two = Lane(0, 1), Lane(0, 2)
    assert arrivals(settings_of(tasks=tasks), one).tolist() == [0] * 5
    assert arrivals(settings_of(tasks=tasks, clock={"starts": 7.0}), two).tolist() == [14] * 5
    # The initial tasks are learned together; where all wait for each other, a task begins with an epoch.
    listed = settings_of(tasks=tasks, clock={"arrivals": times, "starts": [0.0, 0.5, 9.0]})
    assert arrivals(listed, one).tolist() == [4, 4, 5, 5, 21]
    exact = settings_of(tasks=tasks, clock={"arrivals": [times] * 3, "pace": "asynchronous", "speed": 10.0})
    assert arrivals(exact, two).tolist() == [3, 3, 4.5, 4.5, 20]
    drawn = settings_of(tasks={"count": 400, "initial": 2}, clock={"arrivals": "poisson", "gap": 8.0})
    found = arrivals(drawn, one)
    assert found[:3].tolist() == [0, 0, 0]
    assert np.diff(found[2:]).mean() == pytest.approx(8, rel=0.15)
    assert arrivals(drawn, two)[3:].tolist() != found[3:].tolist()


def test_agents_are_at_different_tasks_at_the_same_moment_and_answer_late_joiners() -> None:
    points: set[tuple[tuple[int, int], ...]] = set()
    posted: list[Mail] = []

    def watch(moment: Any) -> None:
        clock = moment.stacks[0].clock
        points.add(tuple(zip(clock["task"].tolist(), clock["epoch"].tolist(), strict=True)))

    settings = settings_of(clock={"starts": 5.0})
    end = train(worlds(settings, load("digits")), None, watch, lambda mail, verdict: posted.append(mail))[0]
    assert any(len({task for task, _ in at}) > 1 for at in points)
    assert end.clock["task"].tolist() == [4] * 6
    # Nobody sends to an agent that has not begun: agent 2 begins after 10 epochs, when agent 0 has learned two tasks.
    early = [mail for mail in posted if mail.sender.agent == 0 and mail.receiver.agent == 2]
    assert min(mail.task for mail in early) == 3
    offers = [mail for mail in posted if mail.kind == "modules" and mail.receiver.agent == 2]
    assert any(mail.task > 2 for mail in offers)
    assert not end.accuracy[:, 3, -1, :4].isnan().any()


@pytest.mark.parametrize(
    ("clock", "network"),
    [
        pytest.param(APART, WIRES, id="asynchronous"),
        pytest.param({"starts": 3.0, "arrivals": "poisson", "gap": 5.0, "speed": 100.0}, WIRES, id="staggered"),
        pytest.param({"speed": [100.0, 50.0, 25.0]}, WIRES, id="lock-step"),
    ],
)
def test_in_processes_clocks_are_the_same(clock: dict[str, Any], network: dict[str, Any]) -> None:
    here = ended(clock=clock, network=network)
    assert ACCEPTED in here.ledger.column("verdict")
    same(here, ended(clock=clock, network=network, machine={"members": "processes", "workers": 2}))


@pytest.mark.parametrize("clock", [{"arrivals": [0.0, 0.0]}, APART], ids=["lock-step", "asynchronous"])
def test_where_all_is_a_common_start_nothing_is_left_to_the_clocks(clock: dict[str, Any]) -> None:
    end = ended(clock=clock, sharing=(), tasks={**RAW["tasks"], "count": 2, "initial": 2, "common": True})
    assert end.task == 2
    assert not end.accuracy[:, -1, -1].isnan().any()
    if "seconds" in end.clock:
        assert end.clock["seconds"].isfinite().all()


@pytest.mark.parametrize("mode", ["fedavg", "fedcurv"])
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_tables_come_to_the_same_as_single_letters(mode: str, loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some agents have the speed of others, so that lanes act together that lie next to each other, equally far apart,
    or neither; some mail is there when it is sent."""
    changes: dict[str, Any] = {
        "agents": 5,
        "clock": {**APART, "speed": [100.0, 37.0, 100.0, 100.0, 53.0]},
        "network": {"edges": [{"sender": 0, "receiver": 1, **WIRES}], "loss": loss},
        "sharing": [{"mode": mode, **MODES[mode].example, "every": 2}],
    }
    bundled = ended(**changes)
    assert ACCEPTED in bundled.ledger.column("verdict")
    singly(monkeypatch)
    letters = ended(**changes)
    same(bundled, letters)
    for name in ("uses", "shares", "latest", "open"):
        assert getattr(bundled.ledger, name) == getattr(letters.ledger, name)
    assert [pack(mail) for mail in bundled.inbox] == [pack(mail) for mail in letters.inbox]


def test_epochs_between_which_nothing_comes_are_learned_at_once_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"clock": APART, "network": WIRES, "sharing": [{"mode": "fedavg", "every": 2}]}
    assert [quiet(settings_of(**changes), 2, epoch) for epoch in range(1, 5)] == [True, False, True, False]
    assert not quiet(settings_of(clock=APART), 2, 1)  # recv asks
    moments: list[int] = []
    at_once = train(worlds(settings_of(**changes), load("digits")), None, lambda moment: moments.append(1))[0]
    monkeypatch.setattr(events, "quiet", lambda *point: False)
    one_by_one: list[int] = []
    each = train(worlds(settings_of(**changes), load("digits")), None, lambda moment: one_by_one.append(1))[0]
    same(at_once, each)
    assert len(moments) < len(one_by_one)


def test_mail_that_is_late_is_absorbed_once_and_not_before_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: Counter[str] = Counter()
    early: list[Mail] = []
    collect = Post.collect

    def noted(post: Post, asked: bool) -> Sequence[Mail]:
        found = collect(post, asked)
        taken.update(mail.id for mail in found)
        assert post.time is not None
        early.extend(mail for mail in found if mail.due > post.time)
        return found

    monkeypatch.setattr(Post, "collect", noted)
    sharing = [{"mode": "fedavg", "every": 1}]
    end = ended(clock=APART, network={"bandwidth": "100 kbit/s", "latency": 0.02}, sharing=sharing)
    assert taken
    assert max(taken.values()) == 1
    assert not early
    assert len(taken) < len(end.ledger)  # of several models of one sender the newest counts; some are still under way


def test_who_waits_for_the_slowest_learns_the_same_in_more_seconds() -> None:
    plain = ended()
    timed = ended(clock={"speed": [100.0, 50.0, 25.0], "step_joules": [1.0, 2.0, 3.0]}, network=WIRES)
    counted = ("clock/seconds", "clock/sent", "clock/rests", "record/steps", "record/spent")
    assert difference(plain, timed, lambda name: name in counted) == ""
    assert np.array_equal(plain.ledger.rows, timed.ledger.rows)
    seconds, joules, sent = timed.of(RECORD)["spent"][:, -1, -1].T
    assert len(set(seconds.reshape(2, 3)[0].tolist())) == 1  # all of a seed wait for its slowest
    steps = timed.of(RECORD)["steps"]
    assert torch.equal(joules, steps * torch.tensor([1.0, 2.0, 3.0]).repeat(2).double())
    assert (seconds >= steps.reshape(2, 3).amax(1).repeat_interleave(3) / 100).all()
    lanes = list(zip(timed.ledger.column("seed"), timed.ledger.column("sender"), strict=True))
    weights = Counter[tuple[int, int]]()
    for lane, weight in zip(lanes, timed.ledger.column("bytes").tolist(), strict=True):
        weights[lane] += weight
    assert timed.clock["sent"].tolist() == [weights[lane] for lane in timed.lanes]
    assert (sent <= timed.clock["sent"]).all()
    spent = timed.of(RECORD)["spent"][:, 2:].flatten(1, 2)
    assert (spent.diff(dim=1) >= 0).all()


def test_a_slow_link_is_busy_and_keeps_the_order() -> None:
    posted: list[tuple[Mail, str]] = []
    network = {"graph": "edges", "edges": [{"sender": 0, "receiver": 1, "bandwidth": "8 kbit/s", "latency": 0.5}]}
    settings = settings_of(
        agents=2, seeds=1, clock={"pace": "asynchronous", "speed": 100.0}, network=network,
        sharing=[{"mode": "fedavg", "every": 1}],
    )  # fmt: skip
    train(worlds(settings, load("digits")), observe=lambda *one: posted.append(one))
    mails = [mail for mail, _ in posted]
    assert len(mails) > 3
    gaps = np.diff([mail.due for mail in mails])
    assert gaps == pytest.approx([mail.bytes / 1000 for mail in mails[1:]])  # each waits for the one before it
    assert mails[0].due == pytest.approx(mails[0].bytes / 1000 + 0.5)


def test_who_asks_waits_for_answers_with_patience() -> None:
    sharing = [{"mode": "recv", **MODES["recv"].example}]
    slow = {"bandwidth": "100 kbit/s"}
    clock = {"pace": "asynchronous", "speed": 100.0}
    alone, waits, hurries = (
        ended(clock=clock, sharing=[]),
        ended(clock=clock, sharing=sharing, network=slow),
        ended(clock={**clock, "patience": 0.0}, sharing=sharing, network=slow),
    )
    last = [float(end.of(RECORD)["spent"][:, -1, -1, 0].mean()) for end in (alone, hurries, waits)]
    assert last[0] < last[2]
    assert last[1] < last[2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clock": {"speed": 0.0}}, "`clock.speed` cannot be 0.0; allowed: a finite number above 0"),
        ({"clock": {"speed": [1.0, -2.0, 1.0]}}, "`clock.speed` cannot be"),
        ({"clock": {"speed": [1.0, 2.0]}}, "clock.speed lists 2 agents, but there are 3"),
        ({"clock": {"speed": 1.0}, "network": {"bandwidth": "0 kB/s"}}, "`network.bandwidth` cannot be '0 kB/s'"),
        ({"clock": {"speed": 1.0}, "network": {"bandwidth": -5}}, "`network.bandwidth` cannot be -5"),
        ({"clock": {"speed": 1.0}, "network": {"bandwidth": "5 kB"}}, 'such as "1 Mbit/s" or "50 kB/s"'),
        ({"clock": {"speed": 1.0}, "network": {"latency": -1}}, "`network.latency` cannot be -1"),
        ({"network": {"bandwidth": "1 Mbit/s"}}, "network.bandwidth needs a clock in seconds"),
        ({"clock": {"pace": "asynchronous"}}, "needs a clock in seconds; say how many steps"),
        ({"clock": {"pace": "slowly"}}, "`clock.pace` cannot be 'slowly'; allowed: 'wait', 'asynchronous'"),
        ({"clock": {"arrivals": [0.0, 1.0]}}, "clock.arrivals has 2 times, fewer than the 4 tasks"),
        ({"clock": {"arrivals": [0.0, 2.0, 1.0, 3.0]}}, "goes backwards: task 3 comes at 1, before task 2 at 2"),
        ({"clock": {"arrivals": [[0.0, 1.0, 2.0, 3.0]] * 2}}, "has 2 lists of times, but there are 3 agents"),
        ({"clock": {"arrivals": "never"}}, "`clock.arrivals` cannot be 'never'; allowed: 'at once', 'poisson'"),
        ({"clock": {"starts": -1.0}}, "`clock.starts` cannot be -1.0"),
        ({"clock": {"arrivals": "poisson", "gap": 0.0}}, "`clock.gap` cannot be 0.0"),
        ({"clock": {"speed": 1.0, "step_joules": -1.0}}, "`clock.step_joules` cannot be -1.0"),
        ({"clock": {"clock": 1}}, "unknown setting `clock.clock`"),
    ],
)  # fmt: skip
def test_clocks_that_cannot_be_are_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings_of(**changes)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
