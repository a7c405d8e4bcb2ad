"""Recv's search for all lanes at once finds what it finds lane by lane."""

from typing import Any

import numpy as np
import pytest
import torch

from shoal.agents import received
from shoal.agents.evaluate import nets, read_all
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.compiled import answers, nearest
from shoal.compiled.library import kernel as built
from shoal.sharing.search import Queries
from tests.compiled.test_steps import midway, with_kernel
from tests.fleets import exchange, fleet, singly

pytestmark = pytest.mark.skipif(built().library is None, reason=built().about)

MODELS = ("mlp", "modular-mlp")
CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "few": {"queries": 7, "nearest": 1, "scope": "current"},
    "without labels": {"prefilter": "none", "receive": "none", "labels": "query", "oldest": 2},
    "more than there are": {"queries": 30, "nearest": 40, "memory": 4, "buffer": "replace", "scorer": "margin"},
}


def shared(model: str, kernel: str, case: str) -> tuple[World, Stack]:
    """A fleet after one exchange."""
    mode = {"mode": "recv", "every": 2, **CASES[case]}
    tasks = {"count": 6, "classes": 4, "train": 20, "validation": 10, "common": False}
    made = fleet(model, agents=4, seeds=2, tasks=tasks, net={"width": 48}, sharing=[mode])
    world = with_kernel(made, kernel)
    stack = midway(world)
    stack.epoch = 2
    exchange(world, stack)
    return world, stack


def assert_same(one: Stack, other: Stack) -> None:
    """Both have sent and received the same."""
    assert np.array_equal(one.ledger.rows, other.ledger.rows)
    for name, tensor in one.of(received.OWNER).items():
        assert tensor.equal(other.of(received.OWNER)[name]), name
    assert int(one.of(received.OWNER)["seen"].sum()) > 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", MODELS)
def test_torch_finds_what_the_kernel_finds(model: str, case: str) -> None:
    one, other = (shared(model, kernel, case)[1] for kernel in ("torch", "compiled"))
    if model == "mlp":
        assert_same(one, other)
        return
    # Of a modular net's images that are as near up to rounding, one in so many lies where rounding is up or down.
    assert np.array_equal(one.ledger.rows, other.ledger.rows)
    ours, theirs = (stack.of(received.OWNER)["x"].flatten(3) for stack in (one, other))
    there = (ours != 0).any(3)
    assert there.sum() > 0
    assert (ours != theirs).any(3).sum() <= 0.02 * there.sum()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", MODELS)
def test_all_lanes_at_once_find_what_each_finds_alone(model: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = shared(model, "compiled", case)[1]
    monkeypatch.setattr("shoal.sharing.mode.companion_of", lambda mode, post: None)
    assert_same(together, shared(model, "compiled", case)[1])


@pytest.mark.parametrize("model", MODELS)
def test_mail_one_by_one_finds_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = shared(model, "compiled", "usual")[1]
    singly(monkeypatch)
    assert_same(bundled, shared(model, "compiled", "usual")[1])


@pytest.mark.parametrize("what", ["logits", "features"])
@pytest.mark.parametrize("model", MODELS)
def test_nets_are_read_together_as_alone(model: str, what: str) -> None:
    world, stack = shared(model, "compiled", "usual")
    rng, trained = np.random.default_rng(0), nets(world, stack)
    lane, task, counts = rng.integers(8, size=30), rng.integers(6, size=30), rng.integers(5, size=30)
    source = rng.integers(2, size=30)
    rows = torch.from_numpy(rng.integers(len(world.inputs), size=counts.sum()))
    x = [world.inputs, world.inputs.flip(0)]
    found = read_all(world, stack, what, answers.Asks(lane, task, source, counts, rows, x))
    alone = [
        trained[lane[at]].answer(what, x[source[at]], part, int(task[at]))
        for at, part in enumerate(rows.split(counts.tolist()))
    ]
    assert found.equal(torch.cat(alone))


def test_of_images_that_are_as_near_the_first_is_found() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 3.0], [1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    searches = nearest.Searches(*(np.array([one]) for one in (0, 2, 2, 4)))
    number, task = np.array([0, 1, 10, 11, 12, 13]), np.array([0, 0, 0, 1, 1, 0])
    found = nearest.nearest(searches, features, number, task, np.array([[True, True], [False, True]]), 3)
    assert found.tolist() == [[10, 11, 12], [12, 11, -1]]


def test_questions_are_cut_where_the_lane_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.sharing.search.AT_ONCE", 10)
    items = np.array([4, 4, 4, 1, 20, 1])
    asked = Queries(np.array([0, 0, 2, 3, 3, 5]), items.cumsum() - items, items)
    assert [part.who.tolist() for part in asked.parts()] == [[0, 0, 2], [3, 3], [5]]
    assert np.concatenate([part.first for part in asked.parts()]).tolist() == asked.first.tolist()


def test_cut_questions_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shared("mlp", "compiled", "usual")[1]
    monkeypatch.setattr("shoal.sharing.search.AT_ONCE", 30)
    assert_same(whole, shared("mlp", "compiled", "usual")[1])
