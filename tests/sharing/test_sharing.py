"""What sharing modes do beyond the laws that all of them keep (tests/test_contracts.py), and when they act."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shoal.agents import received
from shoal.agents.events import due
from shoal.agents.stack import CLOCK, Stack
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.data.tasks import Lane
from shoal.fleet.run import simulate
from shoal.letters.letter import Room
from shoal.letters.mail import ACCEPTED, AT_REST, OVER_BUDGET, Mail
from shoal.mail.post import Post
from shoal.models import dropout
from shoal.models.table import MODELS
from shoal.sharing.contract import Sharing
from shoal.sharing.federated import Federated
from shoal.sharing.modes import MODES
from shoal.sharing.plan import quoted
from shoal.testing import check_mode
from shoal.units import limit
from tests.fleets import (
    FEW,
    MODULE,
    entries,
    exchange,
    exchanges,
    fleet,
    model_of,
    models_of,
    ready,
    same,
    tables_of,
    total,
)

FEDERATED = {name: mode for name, mode in MODES.items() if issubclass(mode, Federated)}
# Two components, and agent 4 alone; of the second seed the first component.
PAIRS = ((0, 1), (1, 0), (2, 3), (3, 2))
FIRST, SECOND = (Lane(0, 0), Lane(0, 1)), (Lane(1, 0), Lane(1, 1))
LANES = (*FIRST, Lane(0, 2), Lane(0, 3), Lane(0, 4), *SECOND)


def edges(pairs: Sequence[tuple[int, int]], **limits: Any) -> dict[str, Any]:
    return {"graph": "edges", "edges": [{"sender": a, "receiver": b, **limits} for a, b in pairs]}


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


def flowed(stack: Stack) -> None:
    """Mail was posted, and all of it accepted."""
    assert len(stack.ledger)
    assert (stack.ledger.column("verdict") == ACCEPTED).all()
    assert total(stack) == stack.ledger.column("floats").sum() > 0


# Agents that are not trained have nothing to say of dictionaries, which `colla` sends once a task is fitted, or of sums
# of what they have seen; and what others send does not help to fit one.
every_mode = pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("colla", "statistics")])
every_model = pytest.mark.parametrize("model", [model for model in MODELS if model not in ("factor", "ridge")])


@pytest.mark.parametrize("modes", [("recv", "fedavg"), ("recv", "modmod", "fedavg")])
def test_modes_that_act_together_keep_the_laws_of_modes(modes: tuple[str, ...]) -> None:
    """In their own order, which is that of acting."""
    check_mode(*modes)


@pytest.mark.parametrize(
    ("model", "mode"), [(model, mode) for mode in MODES for model in models_of(mode)[:2] if model.endswith("mlp")]
)
def test_the_number_of_threads_changes_nothing(model: str, mode: str) -> None:
    learner = {"epochs": 2, "memory": 4, "accept": -1.0}
    few: dict[str, Any] = {"tasks": {**FEW, "count": 3}, "learner": learner}
    tables = tables_of(mode, 1)
    made = [
        fleet(model, agents=17, seeds=2, network={"graph": "ring"}, sharing=tables, machine={"threads": n}, **few)
        for n in (1, 2)
    ]
    assert [len(one.pieces) for one in made] == [1, 2]
    one, two = (simulate(each) for each in made)
    flowed(two)
    same(one, two)
    assert np.array_equal(one.ledger.rows, two.ledger.rows)


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


@every_model
def test_strangers_do_not_leak_when_dropout_does(model: str) -> None:
    few: dict[str, Any] = {"tasks": {"count": 4}, "sharing": {"leak": True}}
    among, apart = (simulate(small(model, "recv", lanes, **few)) for lanes in ((*FIRST, Lane(0, 4)), FIRST))
    assert among.of(dropout.OWNER)["off"].tolist() == [True, True, False]
    same(among.take([0, 1], FIRST), apart)


@pytest.mark.parametrize("mode", [mode for mode in FEDERATED if "modular-mlp" in models_of(mode)])
def test_averaging_a_common_basis_that_nobody_adapts_changes_nothing(mode: str) -> None:
    """Complete graph, modular, no adaptation: as alone with a common start (self-check 2 of the reference)."""
    network = {"graph": "complete", "edges": []}
    groups = {"tasks": {"common": True}, "learner": {"adaptation": "never"}, "network": network}
    shared, alone = (simulate(small("modular-mlp", one, LANES[:5], **groups)) for one in (mode, None))
    flowed(shared)
    same(shared, alone, but=(mode, received.OWNER))


# When modes act


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


FORMS = ("{} floats", "{} B", "{} floats/task", "{} B/task")
budgets = st.one_of(
    st.just("unlimited"), st.integers(0, 2500), st.builds(str.format, st.sampled_from(FORMS), st.integers(0, 9999))
)
COMPLETE = [(a, b) for a in range(3) for b in range(3) if a != b]


@every_mode
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_no_edge_ever_carries_more_or_more_often_than_it_may(mode: str, data: st.DataObject) -> None:
    links = [
        {"sender": a, "receiver": b, "budget": data.draw(budgets), "every": data.draw(st.integers(1, 5))}
        for a, b in COMPLETE
    ]
    own: dict[str, Any] = {"mode": mode, "budget": data.draw(budgets)}
    if "every" in MODES[mode].example:
        moments = get_args(MODES[mode].model_fields["when"].annotation)
        own |= {"every": tables_of(mode, data.draw(st.integers(1, 2)))[0]["every"]}
        own |= {"when": data.draw(st.sampled_from(moments))}
    world, stack = ready(model_of(mode), [own], network={"graph": "edges", "edges": links})
    before = deepcopy(stack)
    exchanges(world, stack, tasks=2)  # `audit` is part of it
    epochs, (shared,) = world.settings.learner.epochs, world.settings.sharing
    assert len(stack.ledger)
    heard = set()
    for (sender, receiver), edge in world.edges.items():
        uses: dict[int, tuple[int, int, int]] = {}  # by moment: task, floats and bytes
        for row in entries(stack.ledger):
            if (row["sender"], row["receiver"]) != (sender.agent, receiver.agent):
                continue
            now = row["task"] * epochs + row["epoch"]
            last = max(uses, default=-99)
            resting = last < now < last + edge.every
            limits = [one for one in (limit(edge.budget), limit(shared.budget)) if one is not None]
            sent = [(when, *use) for when, use in uses.items()]
            over = False
            for most in limits:
                period, at = (row["task"], 1) if most.per == "task" else (now, 0)
                gone = sum(use[2 if most.unit == "floats" else 3] for use in sent if use[at] == period)
                over |= not most.amount or gone + row[most.unit] > most.amount
            if resting:
                assert row["verdict"] == AT_REST
            elif over:
                assert row["verdict"] == OVER_BUDGET
            else:
                assert row["verdict"] == ACCEPTED
                _, floats, size = uses.get(now, (0, 0, 0))
                uses[now] = row["task"], floats + row["floats"], size + row["bytes"]
                if row["kind"] != "question":
                    heard.add(receiver)
        total = stack.ledger.every.one((sender, receiver)).total
        assert total == tuple(sum(use[at] for use in uses.values()) for at in (1, 2))
    for row_, lane in enumerate(world.lanes):
        if lane not in heard:  # refused mail changes nothing
            alone = [one.take([row_], [lane]) for one in (before, stack)]
            same(alone[0], alone[1], but=(CLOCK, mode))


@every_mode
@settings(max_examples=12, deadline=None)
@given(budget=st.integers(0, 2500), whose=st.sampled_from(["edge", "mode"]))
def test_what_crosses_is_never_more_than_quoted(mode: str, budget: int, whose: str) -> None:
    limits = {"budget": budget} if whose == "mode" else {}
    network = {"graph": "complete", "budget": budget if whose == "edge" else "unlimited"}
    world, stack = ready(model_of(mode), [{"mode": mode, **limits}], network=network)
    check_quotes(world, stack, world.settings.sharing[0], budget)


def check_quotes(world: World, stack: Stack, mode: Sharing, budget: int | None) -> None:
    quotes = {one.kind: one for one in mode.quote(world, Room(floats=budget))}
    exchanges(world, stack)
    assert len(stack.ledger)
    for row in entries(stack.ledger):
        quote = quotes[row["kind"]]
        found = (row["items"], row["floats"])
        if mode.mode in FEDERATED:
            assert found == (quote.items, quote.floats)
        elif row["verdict"] == ACCEPTED:
            assert (row["items"] <= quote.items, row["floats"] <= quote.floats) == (True, True), (row, quote)


@every_mode
@settings(max_examples=12, deadline=None)
@given(amount=st.integers(1, 12_000), form=st.sampled_from(FORMS), whose=st.sampled_from(["edge", "mode"]))
def test_quotes_hold_in_floats_and_bytes_per_exchange_and_task(mode: str, amount: int, form: str, whose: str) -> None:
    budget = form.format(amount)
    limits = {"budget": budget} if whose == "mode" else {}
    network = {"graph": "complete", "budget": budget if whose == "edge" else "unlimited"}
    world, stack = ready(model_of(mode), [{"mode": mode, **limits}], network=network)
    most = limit(budget)
    assert most is not None
    room = Room(**{most.unit: most.amount})
    quotes = {one.kind: one for one in quoted(world.settings.sharing[0], world, room, world, world.lanes[0])}
    exchanges(world, stack, tasks=2)
    spent: dict[tuple[int, ...], int] = {}
    for row in entries(stack.ledger):
        if row["verdict"] == OVER_BUDGET:
            continue
        quote = quotes[row["kind"]]
        assert (row["items"] <= quote.items, row["floats"] <= quote.floats, row["bytes"] <= quote.bytes) == (True,) * 3
        now = row["task"] * world.settings.learner.epochs + row["epoch"]  # the end of a task is the start of the next
        period = row["sender"], row["receiver"], now if most.per == "exchange" else row["task"]
        spent[period] = spent.get(period, 0) + row[most.unit]
    assert max(spent.values(), default=0) <= most.amount


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
    budget = fit * ((2 if FEDERATED[mode].beside else 1) * MODULE["mlp"] + 1)
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
    assert {use.carried.floats for use in stack.ledger.uses.values()} == {budget}


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
    torch.testing.assert_close(stack.of("fedcurv")["sum.module.weight"][0], want)


# Bad mail


def tampering(
    patch: pytest.MonkeyPatch, mode: str, change: Callable[[Mail], Mail | None], verb: str = "answer"
) -> list[int]:
    """Let agent 1's mail to agent 0 be changed, or lost; how often that happened."""
    done: list[int] = []
    honest = getattr(MODES[mode], f"{verb}s_of")

    def wrapped(self: Sharing, post: Post, *questions: Sequence[Mail]) -> list[Mail]:
        mails = []
        for mail in honest(self, post, *questions):
            if (mail.sender.agent, mail.receiver.agent) == (1, 0):
                done.append(post.now)
                mail = change(mail)
            if mail is not None:
                mails.append(mail)
        return mails

    patch.setattr(MODES[mode], f"{verb}s_of", wrapped)
    return done


# Images are bytes, and every byte is a number.
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
        return replace(mail, payload=payload) if mail.kind == "model" else mail

    ends = []
    for one in (change, lambda mail: mail):
        world, stack = ready("mlp", [{"mode": mode}])
        with monkeypatch.context() as patch:
            assert tampering(patch, mode, one) == []
            exchanges(world, stack)
        ends.append(stack)
    same(ends[0], ends[1])
