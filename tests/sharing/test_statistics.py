"""Closed form: agents that pass on sums end with the weights of all rows together, on any graph."""

import multiprocessing
import os
import signal
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

import shoal
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.contracts.fleets import saved, settings_of
from shoal.errors import SettingsError, UserError
from shoal.fleet.members import LostError
from shoal.fleet.run import Moment, train
from shoal.learners.gram import cut, packed, rebuilt, solved, squared, summed
from shoal.learners.table import LEARNERS
from shoal.letters.mail import ACCEPTED, Mail
from shoal.settings.staff import staff
from shoal.sharing.statistics import diagonal

AGENTS, CLOSE = 6, 1e-5
SPLIT: dict[str, Any] = {
    "count": 5, "classes": 2, "train": 12, "validation": 4, "initial": 1, "scenario": "split", "replacement": False,
}  # fmt: skip
GRAPHS = ["ring", "tree", "server", {"graph": "connected", "p": 0.4}]


def fleet(graph: Any, data: Any = "digits", **changes: Any) -> shoal.Fleet:
    said: dict[str, Any] = {
        "model": "ridge",
        "agents": AGENTS,
        "sharing": ["statistics"],
        "learner": {"epochs": 6},
        "tasks": {**SPLIT, "heads": "one", **changes.pop("tasks", {})},
    }
    return shoal.Fleet(data, network=graph, **{**said, **changes})


def ran(made: shoal.Fleet, sent: list[Mail] | None = None) -> tuple[World, Stack]:
    (world,) = shoal.prepare(made.settings)
    return world, shoal.simulate(world, observe=lambda mail, _: sent.append(mail) if sent is not None else None)


def wanted(world: World, ridge: float) -> np.ndarray:
    """What least squares on the rows of all agents, each as often as somebody has it, comes to: [D + 1, C]."""
    bank, first = world.bank, world.settings.tasks.initial
    rows = [task.train for stream in world.streams for at, task in enumerate(stream) if at >= first]
    joint = world.settings.tasks.common
    starts = [task.train for stream in world.streams[: 1 if joint else None] for task in stream[:first]]
    every = np.concatenate([*rows, *starts])
    x = world.model.encode(bank.take(every), bank.peak, world.lanes[0].seed).double().numpy()
    y = np.eye(len(bank.classes))[bank.labels[bank.base(every)]] if bank.targets is None else bank.targets[every]
    mean, middle = x.mean(0), y.mean(0)
    held = (x - mean).var(0) * len(x)
    held = held if bank.scale == "standard" else np.full_like(held, held.mean())
    below = np.diag(np.sqrt(ridge * held))  # rows that pull at weights
    weights = np.linalg.lstsq(np.vstack([x - mean, below]), np.vstack([y - middle, 0 * below[:, : y.shape[1]]]))[0]
    found: np.ndarray = np.vstack([weights, middle - mean @ weights])
    return found


def gap(world: World, stack: Stack) -> float:
    """How far the farthest agent is from that, relative to its length, for one head that stands for all classes."""
    want = torch.from_numpy(wanted(world, world.settings.learner.ridge))  # type: ignore[attr-defined]
    weight, bias = stack.params["head.weight"][:, 0].double(), stack.params["head.bias"][:, 0].double()
    found = torch.cat([weight, bias[..., None]], 2).mT
    return float((found - want).flatten(1).norm(dim=1).max() / want.norm())


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("common", [False, True])
def test_all_agents_come_to_the_weights_of_all_rows(graph: Any, common: bool) -> None:
    world, stack = ran(fleet(graph, tasks={"common": common}))
    assert gap(world, stack) < CLOSE
    assert (
        stack.params["head.weight"] == stack.params["head.weight"][:1]
    ).all()  # who knows the same has the same bits
    alone = ran(fleet(graph, tasks={"common": common}, sharing=[]))
    assert gap(*alone) > 100 * CLOSE


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_so_they_do_where_a_third_is_lost_and_after_a_stop(graph: Any) -> None:
    said = graph if isinstance(graph, dict) else {"graph": graph}
    made = fleet({**said, "loss": 0.33}, learner={"epochs": 30})
    (world,) = shoal.prepare(made.settings)
    states: list[Stack] = []
    whole = shoal.simulate(world, watch=lambda now: states.append(deepcopy(now)))
    assert (whole.ledger.column("verdict") == "lost").any()
    assert gap(world, whole) < CLOSE
    (resumed,) = saved([world], [states[len(states) // 2]])
    assert gap(world, shoal.simulate(world, resumed)) < CLOSE


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_so_they_do_where_a_worker_is_killed(graph: Any) -> None:
    """By `kill -9`, in the middle of a run whose mail is lost too; it goes on from what was saved before."""
    said = graph if isinstance(graph, dict) else {"graph": graph}
    made = fleet({**said, "loss": 0.33}, learner={"epochs": 30}).settings
    (world,) = shoal.prepare(made)
    states: list[tuple[Stack, ...]] = []
    losses: list[str] = []

    def watch(moment: Moment) -> None:
        if moment.task == 2 and not states:
            states.append(deepcopy(moment.stacks))
        if (moment.task, moment.epoch) == (3, 7) and not losses:
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

    def lost(loss: LostError) -> tuple[Stack, ...]:
        losses.append(str(loss))
        return states[0]

    (end,) = train(shoal.prepare(made.model_copy(update={"machine": staff(made.machine, 2)})), watch=watch, lost=lost)
    assert len(losses) == 1
    assert "exit code -9" in losses[0]
    assert gap(world, end) < CLOSE


@settings(max_examples=12, deadline=None)
@given(strategies.data())
def test_sums_do_not_depend_on_order_or_partition(draw: strategies.DataObject) -> None:
    rng = np.random.default_rng(draw.draw(strategies.integers(0, 99)))
    x, y = torch.from_numpy(rng.normal(size=(40, 5)) + 3), torch.from_numpy(rng.normal(size=(40, 2)))
    order = torch.tensor(draw.draw(strategies.permutations(range(40))))
    cuts = sorted(draw.draw(strategies.sets(strategies.integers(1, 39), max_size=6)))
    parts = [summed(x[at], y[at]) for at in order.tensor_split(cuts)]
    gram, cross = (sum(one) for one in zip(*parts, strict=True))
    at_once = summed(x, y)
    found = solved(squared(torch.as_tensor(gram), 6), torch.as_tensor(cross), 0.1, False)
    assert torch.allclose(found, solved(squared(at_once[0], 6), at_once[1], 0.1, False), rtol=1e-9)


def test_nothing_is_counted_twice_however_often_it_comes() -> None:
    """On a complete graph everything comes by many ways."""
    world, stack = ran(fleet("complete"))
    told, own = stack.of("statistics")["version"], stack.of("analytic")["seen"][:, 0]
    apart = ~torch.eye(AGENTS, dtype=torch.bool)
    assert (told == own)[apart].all()
    assert (told[~apart] == 0).all()  # nobody is told of itself
    assert gap(world, stack) < CLOSE


def test_nothing_is_sent_that_its_receiver_has() -> None:
    sent: list[Mail] = []
    _, stack = ran(fleet("tree"), sent)
    told = [mail for mail in sent if mail.kind == "statistics"]
    names = [(mail.receiver, one, rows) for mail in told for one, rows in pairs(mail)]
    assert len(names) == len(set(names)) > 0  # on a tree there is one way
    assert {str(one) for one in stack.ledger.column("verdict")} == {ACCEPTED}


def pairs(mail: Mail) -> list[tuple[int, int]]:
    return list(zip(mail.payload["agent"].tolist(), mail.payload["version"].tolist(), strict=True))


def test_a_link_with_a_budget_carries_those_with_most_news_first_and_all_in_the_end() -> None:
    size, classes = 65, 10
    one = 8 * (size * (size + 1) // 2 + size * classes)
    sent: list[Mail] = []
    made = fleet({"graph": "ring", "budget": f"{one + 600} B"}, learner={"epochs": 40}, agents=4)
    world, stack = ran(made, sent)
    assert {len(mail.payload["agent"]) for mail in sent if mail.kind == "statistics"} == {1}
    assert gap(world, stack) < CLOSE
    free: list[Mail] = []
    ran(fleet("ring", agents=4), free)
    for mail in free:
        rows = [rows for _, rows in pairs(mail)] if mail.kind == "statistics" else []
        assert rows == sorted(rows, reverse=True) or mail.task > 1  # at first nobody knows anything


@pytest.mark.parametrize("heads", ["task", "grow"])
def test_heads_of_tasks_and_heads_that_grow_read_the_same_solution(heads: str) -> None:
    world, stack = ran(fleet("ring", tasks={"heads": heads, "common": False}))
    one, other = ran(fleet("ring", tasks={"common": False}))
    last = world.settings.tasks.count - 1
    for row, stream in enumerate(world.streams):
        classes = list(stream[last].outputs)
        mine = stack.params["head.weight"][row, last if heads == "task" else 0, : len(classes)]
        assert torch.equal(mine, other.params["head.weight"][row, 0, classes])
    assert one.lanes == world.lanes


def places() -> shoal.Data:
    """Numbers of six sites whose rows lie far from zero, and far from each other."""
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(AGENTS), 80)
    x = rng.normal(size=(len(site), 5)) * [1, 10, 0.1, 3, 5] + [100, 0, 5, -20, 1] + 3 * site[:, None]
    y = x @ [1, -0.2, 4, 0.5, 0] + rng.normal(size=len(site)) + 50
    return shoal.Data.from_arrays(x, y, agent=site, task=np.tile(np.repeat(np.arange(4), 20), AGENTS))


def test_numbers_of_agents_that_scale_rows_each_for_itself_are_fitted_as_one() -> None:
    """In raw units, all agents predict what one that has all rows would."""
    made = shoal.Fleet(
        places(), model="ridge", sharing=["statistics"], network="ring", learner={"epochs": 4},
        tasks={"heads": "one", "initial": 1, "common": False},
    )  # fmt: skip
    (world,) = shoal.prepare(made.settings)
    assert world.bank.scale == "standard"
    result = made.run()
    want = wanted(world, 0.01)
    rows = world.bank.images[:50]
    for agent in result.agents:
        told = agent.logits(rows).double().numpy()
        assert np.allclose(told, rows @ want[:-1] + want[-1], rtol=1e-4)


def test_a_cut_matrix_has_the_mean_the_diagonal_and_what_varies_most() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=rng, dtype=torch.float64) * torch.arange(1, 9) + 4
    triangle, _ = summed(x, x[:, :1])
    whole = squared(triangle, 9)
    assert torch.allclose(packed(whole), triangle)
    assert torch.allclose(triangle[diagonal(9)], whole.diagonal())
    for rank, most in ((8, 1e-12), (4, 0.2), (1, 0.5)):
        found = rebuilt(cut(triangle, 9, rank), 200.0)
        assert torch.allclose(found.diagonal(), whole.diagonal())
        assert torch.allclose(found[-1], whole[-1])
        assert float((found - whole).norm() / whole.norm()) < most


def test_dials_send_fewer_bytes_and_stay_near() -> None:
    exact: list[Mail] = []
    ran(fleet("ring"), exact)
    full = sum(mail.bytes for mail in exact)
    for said, share, far in (({"eigenvectors": 8}, 0.6, 0.7), ({"precision": "single"}, 0.55, 1e-3)):
        sent: list[Mail] = []
        world, stack = ran(fleet("ring", sharing=[{"mode": "statistics", **said}]), sent)
        assert sum(mail.bytes for mail in sent) < share * full
        assert gap(world, stack) < far
    fewer: list[Mail] = []
    world, stack = ran(fleet("ring", net={"projections": 24}), fewer)
    assert sum(mail.bytes for mail in fewer) < 0.4 * full
    assert gap(world, stack) < CLOSE  # fewer projections are another problem, solved as exactly


def test_projections_are_those_of_the_seed_for_all_agents() -> None:
    (world,) = shoal.prepare(fleet("ring", net={"projections": 24}).settings)
    rows = world.bank.images[:3]
    first, second = (world.model.encode(rows, world.bank.peak, seed) for seed in (0, 1))
    assert first.shape == (3, 24)
    assert float(first.min()) >= 0
    assert not torch.equal(first, second)


def test_what_does_not_go_together_is_said_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"`analytic` solves for heads .*, got `mlp`; use model = \"ridge\""):
        settings_of("mlp", learner={"method": "analytic"})
    with pytest.raises(SettingsError, match=r"mode `statistics` sends sums .*, and `mlp` has none"):
        settings_of("mlp", sharing="statistics")
    with pytest.raises(
        SettingsError, match="keeps sums of what it has seen, and has no use for what mode `recv` sends"
    ):
        settings_of("ridge", sharing=[{"mode": "recv", "every": 2}])
    with pytest.raises(SettingsError, match=r'fits numbers of all tasks together, .*; say tasks.heads = "one"'):
        settings_of("ridge", tasks={"classes": 1})
    for method in LEARNERS:
        if method != "analytic":
            with pytest.raises(SettingsError):
                settings_of("ridge", learner={"method": method})
    with pytest.raises(UserError, match=r"net.projections = 9 needs rows that all agents read alike"):
        shoal.prepare(shoal.Fleet(places(), model="ridge", net={"projections": 9}, tasks={"heads": "one"}).settings)


def test_a_matrix_that_does_not_fit_memory_is_said_before() -> None:
    said = r"this run needs about \d+ TB of memory \(.*nets .*GB are free here; lower .*net.projections = 200,000"
    with pytest.raises(UserError, match=said):
        fleet("ring", net={"projections": 200_000}).run()
    rng, place = np.random.default_rng(0), np.arange(60)
    wide = shoal.Data.from_arrays(rng.random((60, 120_000), np.float32), place % 2, agent=place % 3)
    with pytest.raises(UserError, match=r"[TG]B of memory .*; lower what is large \(.*numbers in a row = 120,000"):
        shoal.Fleet(wide, model="ridge", tasks={"classes": 2}).run()
