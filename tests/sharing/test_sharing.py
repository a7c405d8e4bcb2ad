"""Laws that every sharing mode keeps, over the table of modes and all models, and what the post does with mail."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.run import simulate
from shoal.fleet.stack import Stack, remember, start
from shoal.fleet.world import World
from shoal.mail.ledger import COLUMNS, Ledger
from shoal.mail.mail import ACCEPTED, AT_REST, NOT_FINITE, OUT_OF_RANGE, OVER_BUDGET, WRONG_SHAPE, Mail, pack
from shoal.mail.post import Observe, Post
from shoal.models import Modular
from shoal.network.graphs import GRAPHS
from shoal.reproduce.counting import counted
from shoal.runs.record import Record
from shoal.settings.reading import resolve
from shoal.sharing.clock import due
from shoal.sharing.contract import Sharing
from shoal.sharing.modes import MODES
from tests.fleets import exchange, fleet

MODELS = ("mlp", "modular-mlp", "cnn", "modular-cnn")
FEDERATED = ("fedavg", "fedprox", "fedcurv", "fedfish")
# Small enough to be quick: what is left out here has its default.
QUICK: dict[str, dict[str, Any]] = {
    "recv": {"queries": 6, "nearest": 3, "memory": 12},
    "simp": {"images": 10, "memory": 12},
    "uniform": {"images": 10, "memory": 12},
    "fedcurv": {"samples": 8},
    "fedfish": {"samples": 8},
    "modmod": {"min_similarity": -1.0},
}
# With four of ten classes in a task, agents have classes in common.
FEW: dict[str, Any] = {"count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4}
# Two components, and agent 4 alone; of the second seed the first component.
PAIRS = ((0, 1), (1, 0), (2, 3), (3, 2))
FIRST, SECOND = (Lane(0, 0), Lane(0, 1)), (Lane(1, 0), Lane(1, 1))
LANES = (*FIRST, Lane(0, 2), Lane(0, 3), Lane(0, 4), *SECOND)
# What has another shape if agents share, and what only a mode remembers.
SHARED = ("shared", "shared_labels", "shared_marks", "kept")


def edges(pairs: Sequence[tuple[int, int]], **limits: Any) -> dict[str, Any]:
    return {"graph": "edges", "edges": [{"sender": a, "receiver": b, **limits} for a, b in pairs]}


def tables_of(modes: str, every: int, **own: Any) -> list[dict[str, Any]]:
    """The [[sharing]] tables of modes joined by "+", quick ones."""
    names = modes.split("+")
    return [
        {"mode": one, **({} if one == "modmod" else {"every": every}), **QUICK.get(one, {}), **own} for one in names
    ]


def small(model: str, mode: str | None, lanes: Sequence[Lane] = LANES, **changes: Any) -> World:
    """A fleet that exchanges twice in each of its tasks 1 and 2; `sharing` changes settings of the mode."""
    cnn = model.endswith("cnn")
    epochs = 2 if cnn else 4
    own = changes.pop("sharing", {})
    groups: dict[str, Any] = {
        "tasks": {**FEW, "train": 4} if cnn else FEW,
        "learner": {"epochs": epochs, "memory": 4, "accept": -1.0},
        "network": edges(PAIRS),
    }
    groups = {name: {**group, **changes.pop(name, {})} for name, group in groups.items()}
    tables = tables_of(mode, epochs // 2, **own) if mode else []
    return fleet(model, list(lanes), agents=5, seeds=2, sharing=tables, **groups, **changes)


@dataclass
class Run:
    """A run with all that was posted and its stack after every epoch and task."""

    world: World
    stack: Stack
    posted: list[Mail]
    states: list[Stack]


@cache
def ran(model: str, mode: str | None, lanes: tuple[Lane, ...] = LANES) -> Run:
    """A small fleet's run. Nobody may change it."""
    posted: list[Mail] = []
    states: list[Stack] = []

    made = small(model, mode, lanes)
    stack = simulate(made, None, lambda stack: states.append(deepcopy(stack)), lambda mail, _: posted.append(mail))
    return Run(made, stack, posted, states)


def same(one: Stack, other: Stack, but: Sequence[str] = ()) -> None:
    """Every tensor of two stacks is equal, bit for bit, `but` for some groups."""
    assert one.lanes == other.lanes
    names = [{name for name in each.tensors if name.partition("/")[0] not in but} for each in (one, other)]
    assert names[0] == names[1]
    for name in names[0]:
        found, want = one.tensors[name], other.tensors[name]
        torch.testing.assert_close(found, want, rtol=0, atol=0, equal_nan=True, msg=name)


def rows(run: Run, lanes: Sequence[Lane]) -> Stack:
    """Some lanes of a run."""
    return run.stack.take([run.world.row[lane] for lane in lanes], lanes)


def ledger_of(stack: Stack, lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """What some lanes have sent, in the order of posting."""
    return [row for row in entries(stack.ledger) if Lane(row["seed"], row["sender"]) in lanes]


def total(stack: Stack) -> int:
    """The floats that all edges have carried."""
    return sum(use.total for use in stack.ledger.uses.values())


def flowed(stack: Stack, mode: str) -> None:
    """Mail was posted and accepted, and it has left a trace with its receivers."""
    assert len(stack.ledger)
    assert (stack.ledger.column("verdict") == ACCEPTED).all()
    assert total(stack) == stack.ledger.column("floats").sum() > 0
    for one in mode.split("+"):
        if one == "modmod":
            assert (stack.origin >= 0).any()
        elif one not in FEDERATED:
            assert stack.shared_fill.sum() > 0


# Several at once; in their own order, which is that of acting.
HYBRIDS = ("recv+fedavg", "recv+modmod+fedavg")


def suited(model: str, modes: str) -> bool:
    return model.startswith("modular-") or "modmod" not in modes


def model_of(mode: str) -> str:
    """The smallest model that a mode suits."""
    return next(model for model in MODELS if suited(model, mode))


every_mode = pytest.mark.parametrize("mode", MODES)
every_pair = pytest.mark.parametrize(
    ("model", "mode"), [(model, mode) for model in MODELS for mode in (*MODES, *HYBRIDS) if suited(model, mode)]
)
every_model = pytest.mark.parametrize("model", MODELS)


# The laws


@every_pair
def test_agents_that_share_learn_something_else_than_alone(model: str, mode: str) -> None:
    run, alone = ran(model, mode), ran(model, None)
    flowed(run.stack, mode)
    for pair in (FIRST, SECOND):  # one of two may have nothing that the other wants
        shared, own = (rows(one, pair).params["module.weight"] for one in (run, alone))
        assert not torch.equal(shared, own)


def next_of(world: World, stack: Stack) -> Stack:
    """A copy of a stack, trained to the next watch point."""
    copy = deepcopy(stack)

    def stop(stack: Stack) -> None:
        raise EOFError

    with pytest.raises(EOFError):
        simulate(world, copy, watch=stop)
    return copy


@every_pair
def test_loop_and_vmap_give_the_same_stack(model: str, mode: str) -> None:
    """From watch point to watch point: over many steps rounding grows where a net has a kink, or a choice is close."""
    run = ran(model, mode, FIRST)
    other = {"loop": "vmap", "vmap": "loop"}[run.world.engine]
    made = small(model, mode, FIRST, machine={"engine": other})
    flowed(run.stack, mode)
    shared = [state for state in run.states if state.task]
    for state, want in pairwise(shared):
        found = next_of(made, state)
        assert (found.task, found.epoch) == (want.task, want.epoch)
        assert np.array_equal(found.ledger.rows, want.ledger.rows)
        for name, tensor in found.tensors.items():
            if name.partition("/")[0] in ("params", "kept", "shared"):
                # A gradient that is nothing but rounding becomes a step of full size in Adam: a few may differ.
                gap = (tensor.float() - want.tensors[name].float()).abs().flatten()
                assert not len(gap) or (gap > 1e-5).float().mean() < 0.002, name
            elif not tensor.is_floating_point():
                assert tensor.equal(want.tensors[name]), name
        torch.testing.assert_close(found.accuracy, want.accuracy, rtol=0, atol=0.03, equal_nan=True)
    assert len(shared[0].ledger) == 0
    assert len(shared[-1].ledger) == len(run.stack.ledger)


@every_pair
def test_the_same_seed_is_the_same_run(model: str, mode: str) -> None:
    one, other = ran(model, mode, FIRST), simulate(small(model, mode, FIRST))
    flowed(other, mode)
    same(one.stack, other)
    assert np.array_equal(one.stack.ledger.rows, other.ledger.rows)


@pytest.mark.parametrize(
    ("model", "mode"), [(model, mode) for model in ("mlp", "modular-mlp") for mode in MODES if suited(model, mode)]
)
def test_the_number_of_threads_changes_nothing(model: str, mode: str) -> None:
    learner = {"epochs": 2, "memory": 4, "accept": -1.0}
    few: dict[str, Any] = {"tasks": {**FEW, "count": 3 if mode == "modmod" else 2}, "learner": learner}
    tables = tables_of(mode, 1)
    made = [
        fleet(model, agents=17, seeds=2, network={"graph": "ring"}, sharing=tables, machine={"threads": n}, **few)
        for n in (1, 2)
    ]
    assert [len(one.pieces) for one in made] == [1, 2]
    one, two = (simulate(each) for each in made)
    flowed(two, mode)
    same(one, two)
    assert np.array_equal(one.ledger.rows, two.ledger.rows)


@every_pair
def test_no_edges_means_alone(model: str, mode: str) -> None:
    network = {"graph": "disconnected", "edges": []}
    stack = simulate(small(model, mode, FIRST, network=network))
    same(stack, rows(ran(model, None), FIRST), but=SHARED)
    assert len(stack.ledger) == 0
    assert stack.ledger.uses == {}


@pytest.mark.parametrize(
    ("model", "whose", "mode"),
    [
        (model, whose, mode)
        for model, whose in (*((model, "edge") for model in MODELS), ("mlp", "mode"), ("modular-mlp", "mode"))
        for mode in (*MODES, *HYBRIDS)
        if suited(model, mode)
    ],
)
def test_a_budget_of_zero_means_alone_and_everything_is_refused(model: str, whose: str, mode: str) -> None:
    limit = {"network": edges(PAIRS, budget=0)} if whose == "edge" else {"sharing": {"budget": 0}}
    stack = simulate(small(model, mode, FIRST, **limit))
    same(stack, rows(ran(model, None), FIRST), but=SHARED)
    assert len(stack.ledger)
    assert (stack.ledger.column("verdict") == OVER_BUDGET).all()
    assert stack.ledger.uses == {}


@every_pair
def test_an_agent_without_edges_ends_as_alone_among_others_that_share(model: str, mode: str) -> None:
    run, lane = ran(model, mode), Lane(0, 4)
    flowed(run.stack, mode)
    same(rows(run, [lane]), rows(ran(model, None), [lane]), but=SHARED)
    assert not len(ledger_of(run.stack, [lane]))


def test_an_agent_that_a_random_graph_leaves_alone_ends_as_alone() -> None:
    seed = next(seed for seed in range(99) if 0 < len(small_random(seed).receivers) < 4)
    made = small_random(seed)
    stack, alone = simulate(made), simulate(small_random(seed, sharing=()))
    lonely = [lane for lane in made.lanes if lane not in made.receivers]
    for lane in made.lanes:
        row = made.row[lane]
        equal = torch.equal(stack.params["module.weight"][row], alone.params["module.weight"][row])
        assert equal == (lane in lonely)
    assert lonely
    assert len(stack.ledger)


def small_random(seed: int, sharing: Any = ({"mode": "fedavg", "every": 1},)) -> World:
    few: dict[str, Any] = {"tasks": {**FEW, "count": 2}, "learner": {"epochs": 2, "memory": 4}}
    return fleet("mlp", agents=4, seed=seed, network={"graph": "random", "p": 0.3}, sharing=list(sharing), **few)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_topology_runs_to_the_end(graph: str) -> None:
    """Two modes at once; in G(n, 0.1) most agents are alone, and end so."""
    few: dict[str, Any] = {"tasks": FEW, "learner": {"epochs": 2, "memory": 4, "accept": 0.0}, "agents": 10}
    tables = [{"mode": "recv", "every": 2, **QUICK["recv"]}, {"mode": "fedavg", "every": 1}]
    made = fleet("modular-mlp", network={"graph": graph, "p": 0.1}, sharing=tables, **few)
    stack, alone = simulate(made), simulate(fleet("modular-mlp", **few))
    assert not stack.accuracy[:, -1, -1].isnan().any()
    sent = {(row["sender"], row["receiver"]) for row in entries(stack.ledger)}
    assert sent == {(sender.agent, receiver.agent) for sender, receiver in made.edges}
    for lane in made.lanes:
        row = made.row[lane]
        as_alone = torch.equal(stack.params["module.weight"][row], alone.params["module.weight"][row])
        assert as_alone == (lane not in made.receivers)


@every_pair
def test_strangers_do_not_leak(model: str, mode: str) -> None:
    """Without the other component, the lonely agent and the other seed, the first component is the same."""
    among, apart = ran(model, mode), ran(model, mode, FIRST)
    flowed(apart.stack, mode)
    same(rows(among, FIRST), apart.stack)
    assert ledger_of(among.stack, FIRST) == entries(apart.stack.ledger)


@every_pair
def test_seeds_are_independent(model: str, mode: str) -> None:
    among, apart = ran(model, mode), simulate(small(model, mode, SECOND))
    flowed(apart, mode)
    same(rows(among, SECOND), apart)
    assert ledger_of(among.stack, SECOND) == entries(apart.ledger)
    assert not torch.equal(apart.params["module.weight"], rows(among, FIRST).params["module.weight"])


@every_model
def test_strangers_do_not_leak_when_dropout_does(model: str) -> None:
    few: dict[str, Any] = {"tasks": {"count": 4}, "sharing": {"leak": True}}
    among, apart = (simulate(small(model, "recv", lanes, **few)) for lanes in ((*FIRST, Lane(0, 4)), FIRST))
    assert among.silent.tolist() == [True, True, False]
    same(among.take([0, 1], FIRST), apart)


@every_pair
def test_stopped_anywhere_and_resumed_a_run_ends_where_the_unbroken_one_does(
    model: str, mode: str, tmp_path: Path
) -> None:
    run = ran(model, mode, FIRST)
    flowed(run.stack, mode)
    epochs = run.world.settings.learner.epochs
    clocks = [(1, 0), (1, 1), (1, epochs), (2, 0), (2, epochs - 1), (3, 0)]
    found = {(state.task, state.epoch): state for state in run.states}
    for clock in clocks if model == "mlp" else clocks[1::2]:
        record = Record(tmp_path, run.world.settings)
        record.save([found[clock]])
        stacks = record.load(torch.device("cpu"))
        assert stacks is not None
        (saved,) = stacks
        assert len(saved.ledger) == len(found[clock].ledger)
        assert saved.ledger.uses == found[clock].ledger.uses
        resumed = simulate(run.world, saved)
        same(resumed, run.stack)
        assert np.array_equal(resumed.ledger.rows, run.stack.ledger.rows)
        assert resumed.ledger.uses == run.stack.ledger.uses


@pytest.mark.parametrize("mode", FEDERATED)
def test_averaging_a_common_basis_that_nobody_adapts_changes_nothing(mode: str) -> None:
    """Complete graph, modular, no adaptation: as alone with a common start (self-check 2 of the reference)."""
    network = {"graph": "complete", "edges": []}
    groups = {"tasks": {"common": True}, "learner": {"adaptation": "never"}, "network": network}
    shared, alone = (simulate(small("modular-mlp", one, LANES[:5], **groups)) for one in (mode, None))
    flowed(shared, mode)
    same(shared, alone, but=SHARED)


# The ledger

PIXELS = {"mlp": 8 * 8, "cnn": 3 * 16 * 16}
MODULE = {"mlp": 16 * 16 + 16, "cnn": 6 * 6 * 3 * 3 + 6}  # weights and biases
MODULES = {"mlp": 4, "modular-mlp": 4, "cnn": 3, "modular-cnn": 4}  # layers, or the basis


def by_paper(mode: str, model: str) -> int:
    """The paper's floats per directed edge and exchange. A new mode needs a line here."""
    size, module = PIXELS[model.removeprefix("modular-")], MODULE[model.removeprefix("modular-")]
    return {
        "recv": 6 * (3 + 1) * size,  # q (k + 1) H W C
        "simp": 10 // 5 * 6 * size,  # as recv, with q = b/5 and k = 5
        "uniform": 10 * size,
        "fedavg": MODULES[model] * module,
        "fedprox": MODULES[model] * module,
        "fedcurv": 2 * MODULES[model] * module,
        "fedfish": MODULES[model] * module,
    }[mode]


@every_pair
def test_the_ledger_has_every_message_at_the_price_of_its_real_payload(model: str, mode: str) -> None:
    run = ran(model, mode)
    ledger = run.stack.ledger
    assert len(ledger) == len(run.posted) > 0
    assert len({mail.id for mail in run.posted}) == len(run.posted)
    for known, mail in zip(entries(ledger), run.posted, strict=True):
        assert (known["seed"], known["sender"], known["receiver"]) == (*mail.sender, mail.receiver.agent)
        assert mail.sender.seed == mail.receiver.seed
        assert (known["mode"], known["kind"]) == (mail.mode, mail.kind)
        assert (known["task"], known["epoch"]) == (mail.task, mail.epoch)
        assert known["bytes"] == len(pack(mail)[1]) == len(save(dict(mail.payload)))
        assert known["floats"] == sum(tensor.numel() for tensor in mail.payload.values())
        assert known["items"] == len(next(iter(mail.payload.values())))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "modmod"])
@every_model
def test_the_ledger_has_the_papers_price_of_every_edge_and_exchange(model: str, mode: str) -> None:
    run = ran(model, mode)
    settings, ledger = run.world.settings, run.stack.ledger
    (shared,) = settings.sharing
    every = shared.every
    epochs = [0, every] if shared.when == "before" else [every, 2 * every]
    moments = [(task, epoch) for task in (1, 2) for epoch in epochs]
    want = {(*edge, *moment): by_paper(mode, model) for edge in run.world.edges for moment in moments}
    found: dict[tuple[Any, ...], int] = {}
    prices = counted(settings, ledger)
    for row, price in zip(entries(ledger), prices.tolist(), strict=True):
        ends = Lane(row["seed"], row["sender"]), Lane(row["seed"], row["receiver"])
        edge = (*ends, row["task"], row["epoch"])
        found[edge] = found.get(edge, 0) + price
    assert found == want
    assert prices.sum() == len(run.world.edges) * 4 * by_paper(mode, model)


def moments(*tables: dict[str, Any], epochs: int = 100) -> dict[str, list[int]]:
    """When each mode acts in task 4 of a run."""
    made = resolve({"sharing": list(tables), "learner": {"epochs": epochs}})
    found: dict[str, list[int]] = {table["mode"]: [] for table in tables}
    for epoch in range(epochs + 1):
        for one in due(made, 4, epoch, ended=epoch == epochs):
            found[one.mode].append(epoch)
    return found


@pytest.mark.parametrize(
    ("table", "want"),
    [
        ({"mode": "fedavg"}, list(range(0, 100, 5))),  # 20 exchanges per task
        ({"mode": "fedavg", "every": 16}, [0, 16, 32, 48, 64, 80]),  # the last chunk, 96..100, is no period
        ({"mode": "fedavg", "every": 100}, [0]),
        ({"mode": "recv"}, [16, 32, 48, 64, 80, 96]),
        ({"mode": "simp"}, [16, 32, 48, 64, 80, 96]),
        ({"mode": "simp", "every": 20, "when": "before"}, [0, 20, 40, 60, 80]),
        ({"mode": "recv", "every": 9}, list(range(9, 100, 9))),  # 11
        ({"mode": "recv", "every": 50}, [50, 100]),  # the second after the end of the task
        ({"mode": "recv", "every": 1}, list(range(1, 101))),
        ({"mode": "fedavg", "every": 1}, list(range(100))),
    ],
)
def test_a_mode_acts_as_often_as_the_paper_says(table: dict[str, Any], want: list[int]) -> None:
    assert moments(table) == {table["mode"]: want}


def test_several_modes_cut_training_at_all_their_periods() -> None:
    """A mode `before` acts ahead of the chunks that end at a multiple of its period."""
    # Cuts: 5 10 15 16 20 25 30 32 35 40 45 48 50 55 60 64 65 70 75 80 85 90 95 96 100
    fed = [0, 5, 10, 16, 20, 25, 32, 35, 40, 48, 50, 55, 64, 65, 70, 75, 80, 85, 90, 96]
    assert moments({"mode": "recv"}, {"mode": "fedavg"}) == {"recv": [16, 32, 48, 64, 80, 96], "fedavg": fed}
    assert moments({"mode": "fedavg"}, {"mode": "recv"})["fedavg"] == fed


def test_at_one_moment_modes_after_come_first() -> None:
    made = resolve({"sharing": [{"mode": "fedavg"}, {"mode": "recv"}]})
    assert [one.mode for one in due(made, 4, 16)] == ["recv", "fedavg"]
    assert [one.mode for one in due(made, 4, 80)] == ["recv", "fedavg"]


@pytest.mark.parametrize(("start", "first"), [("initial", 4), (3, 3), (0, 0), (7, 7)])
def test_a_mode_starts_with_the_task_it_says(start: Any, first: int) -> None:
    made = resolve({"sharing": [{"mode": "fedavg", "start": start}]})
    assert [task for task in range(10) if due(made, task, 0)] == list(range(first, 10))


# Budgets


def ready(model: str, tables: Sequence[dict[str, Any]], agents: int = 3, **changes: Any) -> tuple[World, Stack]:
    """Agents in task 2, not trained, with memories of the tasks before."""
    groups: dict[str, Any] = {
        "tasks": {**FEW, "count": 4},
        "learner": {"epochs": 6, "memory": 4},
    }
    groups = {name: {**group, **changes.pop(name, {})} for name, group in groups.items()}
    filled = [tables_of(table["mode"], 1)[0] | table for table in tables]
    world = fleet(model, agents=agents, sharing=filled, **groups, **changes)
    stack = start(world)
    for task in range(2):
        remember(world, stack, task)
        if isinstance(world.model, Modular) and task:
            stack.alive[:, world.model.slot(task)] = True  # a module of zeros
    stack.task = 2
    return world, stack


def exchanges(world: World, stack: Stack, tasks: int = 1, observe: Observe | None = None) -> None:
    """All exchanges of some tasks, and no training."""
    epochs = world.settings.learner.epochs
    for _ in range(tasks):
        for epoch in range(epochs + 1):
            stack.epoch = epoch
            exchange(world, stack, epoch == epochs, observe)
        stack.task, stack.epoch = stack.task + 1, 0


def entries(ledger: Ledger) -> list[dict[str, Any]]:
    columns = [ledger.column(name).tolist() for name in COLUMNS]
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


budgets = st.one_of(st.just("unlimited"), st.integers(0, 2500))
COMPLETE = [(a, b) for a in range(3) for b in range(3) if a != b]


@every_mode
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_edge_ever_carries_more_or_more_often_than_it_may(mode: str, data: st.DataObject) -> None:
    links = [
        {"sender": a, "receiver": b, "budget": data.draw(budgets), "every": data.draw(st.integers(1, 5))}
        for a, b in COMPLETE
    ]
    own = {"mode": mode, "budget": data.draw(budgets)}
    if mode != "modmod":
        own |= {"every": data.draw(st.integers(1, 2)), "when": data.draw(st.sampled_from(["before", "after"]))}
    world, stack = ready(model_of(mode), [own], network={"graph": "edges", "edges": links})
    before = deepcopy(stack)
    exchanges(world, stack, tasks=2)  # `audit` is part of it
    epochs, (shared,) = world.settings.learner.epochs, world.settings.sharing
    assert len(stack.ledger)
    heard = set()
    for (sender, receiver), edge in world.edges.items():
        uses: dict[int, int] = {}
        for row in entries(stack.ledger):
            if (row["sender"], row["receiver"]) != (sender.agent, receiver.agent):
                continue
            now = row["task"] * epochs + row["epoch"]
            last = max(uses, default=-99)
            resting = last < now < last + edge.every
            limits = [one for one in (edge.budget, shared.budget) if isinstance(one, int)]
            left = min(limits) - uses.get(now, 0) if limits else 10**9
            if resting:
                assert row["verdict"] == AT_REST
            elif row["floats"] > left or 0 in limits:
                assert row["verdict"] == OVER_BUDGET
            else:
                assert row["verdict"] == ACCEPTED
                uses[now] = uses.get(now, 0) + row["floats"]
                if row["kind"] != "question":
                    heard.add(receiver)
            assert uses.get(now, 0) <= min(limits, default=10**9)
        assert sum(uses.values()) == stack.ledger.use(sender, receiver).total
    for row_, lane in enumerate(world.lanes):
        if lane not in heard:  # refused mail changes nothing
            alone = [one.take([row_], [lane]) for one in (before, stack)]
            same(alone[0], alone[1], but=("kept",))


@every_mode
@settings(max_examples=12, deadline=None)
@given(budget=st.integers(0, 2500), whose=st.sampled_from(["edge", "mode"]))
def test_what_crosses_is_never_more_than_quoted(mode: str, budget: int, whose: str) -> None:
    limits = {"budget": budget} if whose == "mode" else {}
    network = {"graph": "complete", "budget": budget if whose == "edge" else "unlimited"}
    world, stack = ready(model_of(mode), [{"mode": mode, **limits}], network=network)
    check_quotes(world, stack, world.settings.sharing[0], budget)


@pytest.mark.parametrize(
    ("model", "mode"), [(model, mode) for model in MODELS for mode in MODES if suited(model, mode)]
)
def test_without_a_limit_no_more_than_quoted_crosses_either(model: str, mode: str) -> None:
    world, stack = ready(model, [{"mode": mode}])
    check_quotes(world, stack, world.settings.sharing[0], None)
    assert (stack.ledger.column("verdict") == ACCEPTED).all()


def check_quotes(world: World, stack: Stack, mode: Sharing, budget: int | None) -> None:
    quotes = {one.kind: one for one in mode.quote(world, budget)}
    exchanges(world, stack)
    assert len(stack.ledger)
    for row in entries(stack.ledger):
        quote = quotes[row["kind"]]
        found = (row["items"], row["floats"])
        if mode.mode in FEDERATED:
            assert found == quote[1:]
        elif row["verdict"] == ACCEPTED:
            assert all(one <= most for one, most in zip(found, quote[1:], strict=True)), (row, quote)


def test_the_quote_of_simp_holds_for_agents_that_ask_for_few_classes() -> None:
    """What a short question leaves of the budget, the answer takes: a budget may carry an image more than quoted."""
    for budget in range(200, 270, 2):  # an image and its label are 65 floats, a class and its worth two
        network = {"graph": "complete", "budget": budget}
        world, stack = ready("mlp", [{"mode": "simp", "every": 6}], network=network, tasks={"classes": 2})
        check_quotes(world, stack, world.settings.sharing[0], budget)


@pytest.mark.parametrize(
    ("mode", "fit", "rest"),
    [*((mode, 1, 1) for mode in FEDERATED), *(("fedavg", fit, rest) for fit in (1, 2, 3) for rest in (1, 2, 3, 4))],
)
def test_modules_that_do_not_fit_go_in_turn_until_all_are_averaged(mode: str, fit: int, rest: int) -> None:
    """Also over an edge that rests while the mode acts: its turn is that of the edge, not of the mode."""
    copies = 2 if mode == "fedcurv" else 1
    budget = fit * (copies * MODULE["mlp"] + 1)
    network = {"graph": "complete", "budget": budget, "every": rest}
    world, stack = ready("mlp", [{"mode": mode}], network=network, learner={"epochs": 30})
    seen: dict[tuple[Lane, Lane], set[int]] = {}

    def noting(mail: Mail, verdict: str) -> None:
        if verdict == ACCEPTED:
            assert len(mail.payload["modules"]) == fit
            seen.setdefault((mail.sender, mail.receiver), set()).update(mail.payload["modules"].tolist())

    exchanges(world, stack, observe=noting)
    assert seen.keys() == world.edges.keys()
    assert all(modules == {0, 1, 2, 3} for modules in seen.values()), seen


def test_modes_share_an_edges_budget_in_the_order_of_acting() -> None:
    budget = 4 * (MODULE["mlp"] + 1) + 65  # a model, and one image with its label
    tables = [{"mode": "fedavg", "when": "before"}, {"mode": "uniform", "when": "before"}]
    world, stack = ready("mlp", tables, network={"graph": "complete", "budget": budget})
    exchange(world, stack)
    for row in entries(stack.ledger):
        assert row["verdict"] == ACCEPTED
        assert (row["mode"], row["items"]) in (("fedavg", 4), ("uniform", 1))
    assert {use.carried for use in stack.ledger.uses.values()} == {budget}


@every_mode
def test_an_edge_leads_one_way_only(mode: str) -> None:
    """Nothing crosses against its direction: what cannot be answered is not answered."""
    world, stack = ready(model_of(mode), [{"mode": mode, "when": "before"}], network=edges([(0, 1)]))
    before = deepcopy(stack)
    exchanges(world, stack)
    assert {(row["sender"], row["receiver"]) for row in entries(stack.ledger)} <= {(0, 1)}
    for row, lane in enumerate(world.lanes):
        if lane.agent != 1:
            same(stack.take([row], [lane]), before.take([row], [lane]), but=("kept",))


def test_modes_with_a_penalty_wait_for_their_own_mail() -> None:
    """FedProx has heard before FedCurv has: its penalty acts, the other's does not yet."""
    tables = [{"mode": "fedprox", "every": 1}, {"mode": "fedcurv", "every": 2, "when": "after", "samples": 8}]
    few: dict[str, Any] = {"tasks": {**FEW, "count": 2}, "learner": {"epochs": 4, "memory": 4}}
    stack = simulate(fleet("mlp", sharing=tables, **few))
    assert set(stack.ledger.column("mode").tolist()) == {"fedprox", "fedcurv"}


@pytest.mark.parametrize("budget", ["unlimited", 2 * (2 * MODULE["mlp"] + 1)])
def test_fedcurv_remembers_what_came_in_the_last_exchange(budget: Any) -> None:
    """Agent 2's edge to agent 0 rests every other time, or modules come in turn: what came before is forgotten."""
    links = [{"sender": 1, "receiver": 0}, {"sender": 2, "receiver": 0, "every": 2}]
    world, stack = ready("mlp", [{"mode": "fedcurv"}], network={"graph": "edges", "edges": links, "budget": budget})
    heard: dict[tuple[int, int], Tensor] = {}

    def noting(mail: Mail, verdict: str) -> None:
        if verdict == ACCEPTED:
            for at, matters in zip(mail.payload["modules"].tolist(), mail.payload["fisher.module.weight"], strict=True):
                heard[mail.sender.agent, at] = matters

    for stack.epoch in range(2):
        heard.clear()
        exchange(world, stack, observe=noting)
    assert [row["verdict"] for row in entries(stack.ledger)] == [ACCEPTED, ACCEPTED, ACCEPTED, AT_REST]
    want = torch.zeros(4, 16, 16)
    for (_, at), matters in heard.items():
        want[at] += matters
    torch.testing.assert_close(stack.kept["fedcurv.sum.module.weight"][0], want)


# Bad mail


def ints(payload: dict[str, Tensor]) -> str:
    return next(name for name, tensor in payload.items() if tensor.dtype == torch.int32)


def damaged(payload: dict[str, Tensor], how: str) -> dict[str, Tensor]:
    """A payload that no honest sender would send."""
    bad = {name: tensor.clone() for name, tensor in payload.items()}
    first = next(iter(bad))
    if how == "a tensor is missing":
        del bad[first]
    elif how == "a tensor is unknown":
        bad["gift"] = bad[first]
    elif how == "a tensor has another type":
        bad[first] = bad[first].double()
    elif how == "a tensor has another shape":
        bad[first] = bad[first][..., None]
    elif how == "a tensor is shorter than the others":
        bad[first] = bad[first][:-1]
    elif how == "an id is too large":
        bad[ints(bad)][0] = 10**6
    elif how == "an id is negative":
        bad[ints(bad)][-1] = -1
    else:
        name = next(name for name, tensor in bad.items() if tensor.is_floating_point())
        bad[name].view(-1)[0] = {"a number is not one": torch.nan, "a number is infinite": torch.inf}[how]
    return bad


HARM = {
    "a tensor is missing": WRONG_SHAPE,
    "a tensor is unknown": WRONG_SHAPE,
    "a tensor has another type": WRONG_SHAPE,
    "a tensor has another shape": WRONG_SHAPE,
    "a tensor is shorter than the others": WRONG_SHAPE,
    "an id is too large": OUT_OF_RANGE,
    "an id is negative": OUT_OF_RANGE,
    "a number is not one": NOT_FINITE,
    "a number is infinite": NOT_FINITE,
}


def tampering(
    patch: pytest.MonkeyPatch, mode: str, change: Callable[[Mail], Mail | None], verb: str = "answer"
) -> list[int]:
    """Let agent 1's mail to agent 0 be changed, or lost; how often that happened."""
    done: list[int] = []
    honest = getattr(MODES[mode], verb)

    def wrapped(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        mails = []
        for mail in honest(self, post, *questions):
            if (mail.sender.agent, mail.receiver.agent) == (1, 0):
                done.append(post.now)
                mail = change(mail)
            if mail is not None:
                mails.append(mail)
        return mails

    patch.setattr(MODES[mode], verb, wrapped)
    return done


def spoil(how: str) -> Callable[[Mail], Mail]:
    def change(mail: Mail) -> Mail:
        return replace(mail, payload=damaged(dict(mail.payload), how))

    return change


# Images are bytes, and every byte is a number.
@pytest.mark.parametrize(
    ("how", "mode"),
    [(how, mode) for how in HARM for mode in MODES if mode in (*FEDERATED, "modmod") or "number" not in how],
)
def test_bad_mail_is_refused_and_is_as_if_it_had_never_come(
    how: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for change in (spoil(how), lambda mail: None):
        world, stack = ready(model_of(mode), [{"mode": mode}])
        with monkeypatch.context() as patch:
            done = tampering(patch, mode, change)
            exchanges(world, stack)
        assert done
        ends.append(stack)
    spoilt, lost = ends
    verdicts = {
        row["verdict"]
        for row in entries(spoilt.ledger)
        if (row["sender"], row["receiver"]) == (1, 0) and row["kind"] != "question"
    }
    assert verdicts == {HARM[how]}
    others = [row["verdict"] for row in entries(spoilt.ledger) if (row["sender"], row["receiver"]) != (1, 0)]
    assert set(others) == {ACCEPTED}
    same(spoilt, lost)  # it was paid for
    assert total(spoilt) > total(lost)


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        *((how, mode) for how in ("a tensor is missing", "an id is too large") for mode in ("recv", "simp", "modmod")),
        *(("a tensor is shorter than the others", mode) for mode in ("recv", "simp")),  # modmod's has one tensor only
    ],
)
def test_a_bad_question_is_refused_and_has_no_answer(how: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, stack = ready(model_of(mode), [{"mode": mode}])
    assert tampering(monkeypatch, mode, spoil(how), "ask") == []
    exchanges(world, stack)
    found = entries(stack.ledger)
    asked = [row for row in found if row["kind"] == "question" and (row["sender"], row["receiver"]) == (1, 0)]
    assert {row["verdict"] for row in asked} == {HARM[how]}
    answered = {(row["sender"], row["receiver"]) for row in found if row["kind"] != "question"}
    assert answered == set(COMPLETE) - {(0, 1)}


@every_mode
def test_a_run_goes_on_with_bad_mail(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, times = [], 1 if mode == "modmod" else 4
    for change in (spoil("a tensor has another shape"), lambda mail: None):
        with monkeypatch.context() as patch:
            done = tampering(patch, mode, change)
            ends.append(simulate(small(model_of(mode), mode, FIRST)))
        assert len(done) == times
    same(ends[0], ends[1])
    assert (ends[0].ledger.column("verdict") == WRONG_SHAPE).sum() == times
    assert (ends[0].ledger.column("verdict") == ACCEPTED).sum() > 0


def test_an_answer_to_a_question_that_was_not_asked_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six queries may be asked; with one validation image per class an agent asks four."""

    def change(mail: Mail) -> Mail:
        payload = {**mail.payload, "queries": torch.full_like(mail.payload["queries"], 5)}
        return replace(mail, payload=payload)

    ends = []
    for one in (change, lambda mail: None):
        few = {"classes": 4, "validation": 1}
        world, stack = ready("mlp", [{"mode": "recv", "scope": "current", "when": "before"}], tasks=few)
        with monkeypatch.context() as patch:
            done = tampering(patch, "recv", one)
            exchange(world, stack)
        assert len(done) == 1
        ends.append(stack)
    assert total(ends[0]) > total(ends[1])
    same(ends[0], ends[1])


@pytest.mark.parametrize("mode", FEDERATED)
def test_modules_are_averaged_by_name_in_whatever_order_they_come(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(mail: Mail) -> Mail:
        payload = {name: tensor.flip(0) for name, tensor in mail.payload.items()}
        return replace(mail, payload=payload)

    ends = []
    for one in (change, lambda mail: mail):
        world, stack = ready("mlp", [{"mode": mode}])
        with monkeypatch.context() as patch:
            assert tampering(patch, mode, one) == []
            exchanges(world, stack)
        ends.append(stack)
    same(ends[0], ends[1])
