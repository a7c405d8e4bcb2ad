"""Heads of which not all outputs count, heads that all tasks share, and streams that have ended."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal import data
from shoal.agents.stack import MODEL, Stack, class_counts, start
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.data.sources import bring
from shoal.fleet.run import simulate, train
from shoal.learners.additions import common_units
from shoal.learners.agem import AGEM
from shoal.learners.batches import Images, Pool, balanced, generators, remembered
from shoal.learners.step import Step
from shoal.models.table import MODELS
from shoal.settings.groups import Machine, Settings

SMALL: dict[str, Any] = {"net": {"width": 8, "depth": 2, "dropout": 0.3}}
LEARNER: dict[str, Any] = {"epochs": 3, "batch": 16, "memory": 4}


def uneven(model: str, learner: str, sharing: list[dict[str, Any]], memory: int = 4) -> World:
    """Agent 0 has one task, of three classes, and agent 1 three: of three, two and two."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(48) % 3, np.arange(168) % 7])
    agent = np.repeat([0, 1], [48, 168])
    found = shoal.Data.from_arrays(rng.normal(size=(len(labels), 5)), labels, agent=agent)
    settings = Settings(
        dataset=bring(found), model=model, sharing=sharing, learner={**LEARNER, "method": learner, "memory": memory},
        tasks={"count": 3, "classes": 3, "initial": 1}, **SMALL,
    )  # fmt: skip
    (world,) = worlds(settings, found.bank)
    assert [[len(task.classes) for task in stream] for stream in world.streams] == [[3, 0, 0], [3, 2, 2]]
    return world


@pytest.mark.parametrize(
    ("model", "learner", "sharing"),
    [
        *(("mlp", learner, []) for learner in ("replay", "none", "ewc", "lwf", "agem")),
        ("modular-mlp", "modular", []),
        ("mlp", "replay", [{"mode": "recv", "every": 2}]),
        ("mlp", "replay", [{"mode": "fedcurv", "every": 2}]),
    ],
)
def test_outputs_without_a_class_have_no_effect(model: str, learner: str, sharing: list[dict[str, Any]]) -> None:
    world = uneven(model, learner, sharing)
    first = start(world)
    other = deepcopy(first)
    closed = ~world.open
    other.params["head.weight"][closed] += 3.0
    other.params["head.bias"][closed] -= 2.0
    ends = [simulate(world, stack) for stack in (first, other)]
    assert torch.equal(ends[0].accuracy.nan_to_num(-1), ends[1].accuracy.nan_to_num(-1))
    for name, tensor in ends[0].params.items():
        changed = tensor != ends[1].params[name]
        assert not (changed[~closed] if name in world.model.heads else changed).any()


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize(
    ("model", "mode"), [("modular-mlp", ""), ("modular-mlp", "fedcurv"), ("mlp", "fedcurv"), ("mlp", "uniform")]
)
def test_an_agent_that_has_ended_may_be_alone_in_its_stack(model: str, mode: str, memory: int) -> None:
    learner = "modular" if model == "modular-mlp" else "replay"
    world = uneven(model, learner, [{"mode": mode, "every": 2}] if mode else [], memory)
    (whole,) = train([world])
    alone = [one for lane in world.lanes for one in worlds(world.settings, world.bank, [lane], world.lanes)]
    for row, stack in enumerate(train(alone)):
        assert torch.equal(stack.accuracy[0].nan_to_num(-1), whole.accuracy[row].nan_to_num(-1))
        assert all(torch.equal(tensor[0], whole.params[name][row]) for name, tensor in stack.params.items())


class Normed(torch.nn.Module):
    """A net with running statistics."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(shape[0], 6), torch.nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.layer(x)))


@pytest.mark.parametrize("learner", ["replay", "agem", "lwf"])
def test_running_statistics_do_not_depend_on_who_else_is_in_the_stack(learner: str) -> None:
    world = uneven(MODELS.named(Normed), learner, [])
    world = replace(world, settings=world.settings.model_copy(update={"machine": Machine(threads=1)}))
    (whole,) = train([world])
    for row, lane in enumerate(world.lanes):
        (alone,) = train(worlds(world.settings, world.bank, [lane]))
        assert torch.equal(alone.accuracy[0].nan_to_num(-1), whole.accuracy[row].nan_to_num(-1))
        for name, tensor in alone.of(MODEL).items():
            assert torch.equal(tensor[0], whole.of(MODEL)[name][row])


def shared(learner: str, heads: str = "one", dropout: float = 0.3) -> tuple[World, Stack]:
    tasks = {"scenario": "split", "count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1, "common": False}
    settings = Settings(agents=2, model="mlp", tasks={**tasks, "heads": heads}, learner={**LEARNER, "method": learner},
                        net={**SMALL["net"], "dropout": dropout})  # fmt: skip
    (world,) = worlds(settings, data.load("digits"))
    states: list[Stack] = []
    train([world], watch=lambda moment: states.append(deepcopy(moment.stacks[0])))
    return world, next(one for one in states if (one.task, one.epoch) == (1, 1))


@pytest.mark.parametrize("heads", ["one", "grow"])
def test_ewc_holds_a_head_that_all_tasks_share(heads: str) -> None:
    world, stack = shared("ewc", heads)
    kept = stack.of(world.settings.learner.owner)
    assert {name.removeprefix("sum.") for name in kept if name.startswith("sum.")} == set(stack.params)
    assert kept["sum.head.weight"].any()
    world, stack = shared("ewc", "task")
    assert not any("head" in name for name in stack.of(world.settings.learner.owner))


def test_agem_projects_a_head_that_all_tasks_share() -> None:
    world, stack = shared("agem")
    assert common_units(world).keys() == stack.params.keys()
    learner = world.settings.learner
    assert isinstance(learner, AGEM)
    turn = learner.compare(world, stack, Step(remembered(stack, 128, generators(stack, "agem", 1, 0)), {}, None, {}))
    (change,) = turn.changes
    found = {name: torch.randn_like(tensor) for name, tensor in stack.params.items()}
    other = {name: -tensor for name, tensor in found.items()}
    # One of the two points against what is remembered.
    taken = found["head.weight"] - change(found)["head.weight"] + other["head.weight"] - change(other)["head.weight"]
    assert taken.flatten(1).any(1).all()


def test_agem_compares_what_all_tasks_use_without_dropout() -> None:
    """Heads of single tasks are in neither gradient, and that of the memories is the same whatever is dropped."""
    (world, stack), (plain, _) = shared("agem", "task"), shared("agem", "task", dropout=0.0)
    rng = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(tensor.shape, generator=rng) for name, tensor in stack.params.items()}
    ends = []
    for one in (world, plain):
        learner = one.settings.learner
        assert isinstance(learner, AGEM)
        memories = remembered(stack, 128, generators(stack, "agem", 1, 0))
        (change,) = learner.compare(one, stack, Step(memories, {}, None, {})).changes
        ends.append([change({name: sign * tensor for name, tensor in drawn.items()}) for sign in (1, -1)])
    for here, there in zip(*ends, strict=True):
        assert all(torch.equal(tensor, there[name]) for name, tensor in here.items())
    forth, back = ends[0]
    moved = {name for name, tensor in forth.items() if not torch.equal(tensor, -back[name])}
    assert moved == set(common_units(world)) == {name for name in drawn if "head" not in name}


def test_where_one_head_grows_a_guess_is_among_all_classes_so_far() -> None:
    world, _ = shared("none", "grow")
    assert class_counts(world).tolist() == [[2, 4, 6]] * 2
    world, _ = shared("none", "task")
    assert class_counts(world).tolist() == [[2, 2, 2]] * 2


def test_balanced_replay_repeats_all_memories_about_as_often() -> None:
    place = torch.arange(14)[None]
    held = Pool((Images(place, place, torch.zeros_like(place)),), [14], 14)
    found = balanced(held, [10])
    assert found.y[0, :10].tolist() == list(range(10))
    assert found.y[0, 10:].tolist() == [10, 10, 10, 11, 11, 12, 12, 12, 13, 13]
    assert balanced(held, [4]).y[0].tolist() == list(range(14))
    assert balanced(held, [14]).y[0].tolist() == list(range(14))
