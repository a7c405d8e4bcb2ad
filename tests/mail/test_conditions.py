"""Conditions of links and agents: what is drawn, what becomes of mail, what absent agents do, graphs that change."""

import tomllib
from copy import deepcopy
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.configure.entries import network_of
from shoal.configure.reading import override, resolve
from shoal.contracts.fleets import saved
from shoal.errors import SettingsError
from shoal.fleet.run import simulate, train
from shoal.letters.mail import ABSENT, ACCEPTED, EXPIRED, LOST, OVERTAKEN, UNDER_WAY
from shoal.network.edges import Edge, edges, moves, version
from shoal.network.graphs import near
from shoal.network.weather import Weather
from shoal.rng import numbers
from shoal.settings.conditions import Bursts, Drawn, Presence
from shoal.settings.groups import Settings
from shoal.settings.writing import toml
from tests.fleets import fleet, plain, same, tables_of

EPOCHS = 4


def sky(loss: Any = 0.0, delay: Any = 0, down: Any = (), count: int = 4000, seed: int = 0) -> Weather:
    return Weather([(seed, Edge(at // 100, at % 100, None, 1, loss, delay, down)) for at in range(count)])


# What is drawn


def test_numbers_are_uniform_and_depend_on_the_path_and_the_place_alone() -> None:
    places = np.arange(20000), np.arange(20000) % 7
    found = numbers(3, "weather", at=places)
    assert 0 <= found.min() <= found.max() < 1
    counts = np.histogram(found, 20, (0, 1))[0]
    assert (((counts - 1000) ** 2) / 1000).sum() < 45  # chi squared with 19 degrees of freedom, p < 0.001
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
    some = np.array([5, 17, 19999])
    assert np.array_equal(numbers(3, "weather", at=tuple(one[some] for one in places)), found[some])
    assert not np.array_equal(numbers(4, "weather", at=places), found)


def test_independent_loss_is_lost_as_often_as_said() -> None:
    weather = sky(0.3)
    found = np.stack([weather.lost(when) for when in range(20)])
    assert found.mean() == pytest.approx(0.3, abs=0.01)
    after = found[1:][found[:-1]].mean()  # what comes after a loss is as likely lost as any other
    assert after == pytest.approx(0.3, abs=0.015)


@pytest.mark.parametrize(("share", "length"), [(0.2, 5.0), (0.6, 2.0), (0.45, 1.0)])
def test_bursts_have_their_share_and_their_length(share: float, length: float) -> None:
    weather = sky(Bursts(share=share, length=length))
    found = np.stack([weather.lost(when) for when in range(60)])
    assert found.mean() == pytest.approx(share, abs=0.02)
    assert (~found[1:])[found[:-1]].mean() == pytest.approx(1 / length, abs=0.02)  # a bad time ends
    assert found[0].mean() == pytest.approx(share, abs=0.03)  # also at the beginning


def test_bad_times_are_what_a_chain_that_is_followed_from_the_start_says() -> None:
    bursts = Bursts(share=0.3, length=4.0, bad=0.9, good=0.05)
    weather = sky(bursts, count=300)
    state = weather.luck("times", 0) < bursts.share
    for when in range(1, 40):
        state = weather.luck("times", when) < np.where(state, 1 - bursts.mends, bursts.worsens)
        assert np.array_equal(weather.bad(when), state)
    lost = np.stack([sky(bursts).lost(when) for when in range(40)]).mean()
    assert lost == pytest.approx(0.3 * 0.9 + 0.7 * 0.05, abs=0.02)


def test_delays_are_as_said() -> None:
    assert set(sky(delay=3, count=10).delays(5).tolist()) == {3}
    even = sky(delay=Drawn(least=1, most=4)).delays(5)
    assert set(even.tolist()) == {1, 2, 3, 4}
    assert np.bincount(even)[1:] == pytest.approx(1000, abs=110)
    rare = np.concatenate([sky(delay=Drawn(mean=2.5)).delays(when) for when in range(10)])
    assert rare.min() == 0
    assert rare.mean() == pytest.approx(2.5, abs=0.06)
    assert (rare == 0).mean() == pytest.approx(1 / 3.5, abs=0.01)


def test_a_link_is_down_when_said() -> None:
    weather = sky(down=((3, 5), (7, 8)), count=1)
    assert [when for when in range(10) if weather.down(when)[0]] == [3, 4, 7]


def test_the_weather_is_the_same_for_every_mode_and_fleet() -> None:
    """It depends on seed, edge and moment alone."""
    one, many = sky(0.5, count=1), sky(0.5, count=100)
    assert [one.lost(when)[0] for when in range(50)] == [many.lost(when)[0] for when in range(50)]
    other = sky(0.5, count=1, seed=1)
    assert [one.lost(when)[0] for when in range(50)] != [other.lost(when)[0] for when in range(50)]


# Settings


def test_conditions_are_said_in_toml_in_words_and_in_python() -> None:
    raw = override({"dataset": "digits"}, ["network.loss={share=0.2, length=5}", "network.delay=2", "network=ring"])
    network = resolve(raw).network
    assert network.loss == Bursts(share=0.2, length=5.0)
    assert network.delay == 2
    own = Settings(network={"graph": "ring", "edges": [{"sender": 0, "receiver": 1, "loss": 0.5, "down": [[3, 9]]}]})
    found = {edge[:2]: edge for edge in edges(own.network, 8, 0)}
    assert (found[0, 1].loss, found[0, 1].down) == (0.5, ((3, 9),))
    assert (found[1, 0].loss, found[1, 0].down) == (0.0, ())


def test_a_run_keeps_its_name_without_conditions_and_has_another_with_them() -> None:
    plain: dict[str, Any] = {"dataset": "digits", "sharing": "recv"}
    assert Settings(**plain).identity() == Settings(**plain, network={"loss": 0}, presence={}).identity()
    others: list[dict[str, Any]] = [
        {"network": {"loss": 0.1}},
        {"network": {"delay": 1}},
        {"presence": {"absent": [{"agents": [1], "tasks": [5]}]}},
    ]
    names = {Settings(**plain, **one).identity() for one in others} | {Settings(**plain).identity()}
    assert len(names) == 4


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "loss 1.5": ({"network": {"loss": 1.5}}, "`network.loss` cannot be 1.5; allowed: a number from 0 to 1"),
    "loss -0.1": ({"network": {"loss": -0.1}}, "cannot be -0.1"),
    "loss true": ({"network": {"loss": True}}, "cannot be True"),
    "a word": ({"network": {"loss": "much"}}, "cannot be 'much'"),
    "short bursts": ({"network": {"loss": {"share": 0.9, "length": 2.0}}}, "must last 9 epochs or more"),
    "half a burst": ({"network": {"loss": {"share": 0.9}}}, "allowed: a number from 0 to 1, or bursts"),
    "a delay of -1": ({"network": {"delay": -1}}, "`network.delay` cannot be -1; allowed: a whole number of epochs"),
    "two delays": ({"network": {"delay": {"most": 3, "mean": 1.0}}}, "either `most` or `mean`"),
    "an upside-down delay": ({"network": {"delay": {"least": 3, "most": 1}}}, "`most` = 1 is less than `least` = 3"),
    "an interval backwards": ({"network": {"down": [[9, 3]]}}, r"interval \[9, 3\], which ends before it begins"),
    "no interval": ({"network": {"down": [[9]]}}, "a list of intervals in epochs"),
    "an edge's loss": (
        {"network": {"graph": "ring", "edges": [{"sender": 0, "receiver": 1, "loss": 2}]}},
        r"`network.edges\[0\].loss` cannot be 2",
    ),
    "a stranger": ({"presence": {"absent": [{"agents": [8], "tasks": [5]}]}}, "names agent 8.*the last agent is 7"),
    "no such task": ({"presence": {"absent": [{"agents": [1], "tasks": [10]}]}}, "names task 10.*tasks.count = 10"),
    "nothing": ({"presence": {"absent": [{"agents": [1]}]}}, "an absence has `tasks` or `epochs`"),
    "absent backwards": ({"presence": {"absent": [{"agents": [1], "epochs": [[9, 3]]}]}}, "ends before it begins"),
    "never there": (
        {"presence": {"joins": [{"agents": [1], "task": 5}], "leaves": [{"agents": [1], "task": 5}]}},
        "agent 1 leave at epoch 500, and it joins at 500: it would never be there",
    ),
    "gone at once": ({"presence": {"leaves": [{"agents": [1], "epoch": 0}]}}, "it would never be there"),
    "twice": (
        {"presence": {"joins": [{"agents": [1], "task": 5}, {"agents": [1], "task": 6}]}},
        "joins names agent 1 twice",
    ),
    "both": ({"presence": {"joins": [{"agents": [1], "task": 5, "epoch": 3}]}}, "say one of the two"),
    "no list": ({"presence": {"absent": "agent 3"}}, "`presence.absent` cannot be 'agent 3'; allowed: a list such as"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_said_in_a_sentence(name: str) -> None:
    raw, sentence = WRONG[name]
    with pytest.raises(SettingsError, match=sentence):
        Settings(dataset="digits", learner={"epochs": 100}, **raw)


def test_presence_in_tasks_and_epochs_is_one_row_of_intervals() -> None:
    presence = Presence.model_validate(
        {
            "absent": [{"agents": [1, 2], "tasks": [1, 2]}, {"agents": [1], "epochs": [[29, 33]]}],
            "joins": [{"agents": [3], "task": 1}],
            "leaves": [{"agents": [3], "epoch": 25}],
        }
    )
    assert presence.away(10) == {1: ((10, 33),), 2: ((10, 30),), 3: ((0, 10), (25, 2**40))}


# Absent agents


SMALL: dict[str, Any] = {
    "agents": 4,
    "tasks": {"count": 4, "classes": 4, "initial": 1, "train": 6, "validation": 4, "common": False},
    "learner": {"epochs": EPOCHS, "batch": 16, "memory": 4, "rate": 3e-3},
}


def trained(mode: str, **changes: Any) -> tuple[World, Stack]:
    model = "modular-mlp" if "modmod" in mode else "mlp"
    own = fleet(model, sharing=tables_of(mode, 1) if mode else [], **{**SMALL, **changes})
    return own, simulate(own)


def test_an_absent_agent_does_not_train_and_comes_back_as_it_was() -> None:
    presence = {"absent": [{"agents": [2], "tasks": [2]}, {"agents": [1], "epochs": [[5, 7]]}]}
    own = fleet("mlp", sharing=[], presence=presence, **SMALL)
    seen: dict[tuple[int, int], Tensor] = {}
    end = simulate(own, watch=lambda now: seen.update({(now.task, now.epoch): now.params["module.weight"].clone()}))
    for before, after in (((2, 0), (3, 0)), ((2, 1), (2, 4))):
        assert torch.equal(seen[before][2], seen[after][2])
        assert not torch.equal(seen[before][3], seen[after][3])
    assert torch.equal(seen[1, 1][1], seen[1, 3][1])
    assert not torch.equal(seen[1, 3][1], seen[1, 4][1])
    assert end.of("memory")["fill"][2].tolist() == [4, 4, 0, 4]  # of the task that it has missed it keeps nothing
    assert not end.accuracy[2, 3, -1].isnan().any()
    _, alone = trained("")
    assert torch.equal(end.params["module.weight"][0], alone.params["module.weight"][0])


def test_nobody_hears_of_an_absent_agent_and_mail_for_it_is_lost() -> None:
    _, stack = trained("fedavg", presence={"leaves": [{"agents": [3], "task": 2}]})
    ledger = stack.ledger
    late, verdict = ledger.column("task") >= 2, ledger.column("verdict")
    assert not (late & (ledger.column("sender") == 3)).any()
    to = late & (ledger.column("receiver") == 3)
    assert to.any()
    assert set(verdict[to].tolist()) == {ABSENT}
    assert set(verdict[~to].tolist()) == {ACCEPTED}
    assert ledger.crossed[to].all()  # paid for


def test_mail_waits_for_an_agent_that_comes_back() -> None:
    gone = {"absent": [{"agents": [3], "tasks": [2]}], "mail": "waits"}
    _, stack = trained("uniform", presence=gone)
    ledger = stack.ledger
    to = (ledger.column("receiver") == 3) & (ledger.column("task") == 2) & (ledger.column("epoch") < EPOCHS)
    assert to.any()
    assert set(ledger.column("verdict")[to].tolist()) == {ACCEPTED}
    assert ledger.column("late")[to].min() > 0
    _, lost = trained("uniform", presence={**gone, "mail": "lost"})
    seen = [one.of("received")["seen"][3].sum() for one in (stack, lost)]
    assert seen[0] > seen[1]


def test_the_newest_model_counts_and_late_questions_expire() -> None:
    _, stack = trained("fedavg", network={"delay": {"least": 0, "most": 3}})
    verdicts = set(stack.ledger.column("verdict").tolist())
    assert {ACCEPTED, OVERTAKEN, UNDER_WAY} <= verdicts
    _, stack = trained("recv", network={"delay": {"mean": 2.0}})
    questions = stack.ledger.among("kind", ["question"])
    verdicts = set(stack.ledger.column("verdict")[questions].tolist())
    assert {ACCEPTED, EXPIRED} <= verdicts
    answers = ~questions & stack.ledger.among("verdict", [ACCEPTED])
    assert (stack.ledger.column("late")[answers] > 0).any()  # it remembers what it has asked


# Graphs that change


def walk(agents: int, p: float, generator: np.random.Generator, epoch: int = 0) -> Any:
    """A ring that turns: agent i is connected with agent i + 1 + epoch."""
    return nx.Graph([(one, (one + 1 + epoch % (agents - 1)) % agents) for one in range(agents)])


def test_near_finds_all_pairs() -> None:
    places = np.random.default_rng(0).random((300, 2))
    for radius in (0.02, 0.1, 0.34, 2.0):
        gaps = ((places[:, None] - places[None]) ** 2).sum(2)
        want = [(a, b) for a, b in zip(*np.nonzero(gaps <= radius**2), strict=True) if a < b]
        assert [tuple(pair) for pair in near(places, radius).tolist()] == want


def test_agents_move_and_stay_in_the_square() -> None:
    network = network_of({"graph": "geometric", "radius": 0.3, "speed": 0.05})
    graphs = [{edge[:2] for edge in edges(network, 30, 0, epoch)} for epoch in (0, 1, 10, 50)]
    assert graphs[0] != graphs[1] != graphs[2] != graphs[3]
    assert len(graphs[0] & graphs[1]) > len(graphs[0] & graphs[3])  # a step is small
    still = network_of({"graph": "geometric", "radius": 0.3})
    assert edges(still, 30, 0, 50) == edges(still, 30, 0)
    assert (version(network, 7), version(still, 7), moves(network), moves(still)) == (7, 0, True, False)


def test_a_network_has_other_graphs_from_a_time_on() -> None:
    changes = [{"task": 2, "graph": "disconnected"}, {"epoch": 4, "graph": "ring"}]
    own = Settings(**{**SMALL, "network": {"graph": "complete", "changes": changes}})
    assert [one.epoch for one in own.network.changes] == [4, 8]
    assert [len(edges(own.network, 4, 0, epoch)) for epoch in (0, 3, 4, 7, 8, 100)] == [12, 12, 8, 8, 0, 0]
    assert Settings(**tomllib.loads(toml(own))) == own
    _, stack = trained("fedavg", network={"graph": "complete", "changes": changes})
    tasks = stack.ledger.column("task")
    assert {(tasks == task).sum() for task in (2, 3)} == {0}
    assert (tasks == 1).sum() == EPOCHS * 8


@pytest.mark.parametrize("mode", ["recv+modmod+fedavg", "push"])
def test_a_graph_that_moves_carries_all_modes(mode: str) -> None:
    """Of a stranger's function; stopped and resumed, and cut into stacks, it is the same run."""
    network = {"graph": f"{__name__}:walk", "loss": 0.2}
    kinds = [{"name": "odd", "agents": [3, 1]}]
    own, end = trained(mode, network=network)
    accepted = end.ledger.among("verdict", [ACCEPTED])
    pairs = {
        epoch: {tuple(row[3:5]) for row in end.ledger.rows[accepted].tolist() if row[2] == epoch} for epoch in (0, 1)
    }
    if mode != "push":
        assert pairs[0] != pairs[1]
    assert LOST in end.ledger.column("verdict")
    states: list[Stack] = []
    simulate(own, watch=lambda now: states.append(deepcopy(now)))
    (again,) = saved([own], [states[len(states) // 2]])
    same(simulate(own, again), end)
    net = {"width": 16, "head": own.settings.net.head}
    raw = {**SMALL, "model": own.settings.model, "net": net, "network": network, "kinds": kinds}
    parts = worlds(resolve(plain({**raw, "sharing": tables_of(mode, 1)})), own.bank)
    for part, stack in zip(parts, train(parts), strict=True):
        same(stack, end.take([own.row[lane] for lane in part.lanes], part.lanes))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "without a time": ({"changes": [{"graph": "ring"}]}, r"network.changes\[0\] needs a `task` or an `epoch`"),
    "two at once": (
        {"changes": [{"epoch": 3, "graph": "ring"}, {"epoch": 3, "graph": "tree"}]},
        "two graphs from epoch 3 on",
    ),
    "an unknown graph": ({"changes": [{"epoch": 3, "graph": "rnig"}]}, 'did you mean "ring"'),
    "an unknown key": ({"changes": [{"epoch": 3, "grpah": "ring"}]}, r"network.changes\[0\].grpah.*did you mean"),
    "an edge too far": (
        {"changes": [{"epoch": 3, "graph": "edges", "edges": [{"sender": 0, "receiver": 9}]}]},
        "the last agent is 7",
    ),
    "no radius": ({"graph": "geometric", "radius": 0.0}, "`network.radius` cannot be 0.0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_cannot_be_is_said_in_a_sentence(name: str) -> None:
    network, sentence = CHANGES[name]
    with pytest.raises(SettingsError, match=sentence):
        Settings(dataset="digits", network=network)
