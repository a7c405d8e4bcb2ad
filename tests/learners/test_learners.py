"""What each learner does beyond the laws that all of them keep (tests/test_contracts.py)."""

from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.contracts.fleets import ran
from shoal.contracts.learners import model_of, said_of
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.agem import projected
from shoal.learners.ewc import EWC
from shoal.rng import key
from tests.command import call
from tests.fleets import fleet

FEW: dict[str, Any] = {"count": 4, "classes": 3, "initial": 2, "train": 10, "validation": 5}


def small(name: str, lanes: list[Lane] | None = None, **changes: Any) -> World:
    learner = {"method": name, "epochs": 5, "batch": 8, "memory": 6, "rate": 3e-3, **changes.pop("learner", {})}
    return fleet(model_of(said_of(name)), lanes, learner=learner, tasks={**FEW, **changes.pop("tasks", {})}, **changes)


# Elastic weight consolidation


def consolidated(**own: Any) -> tuple[World, Stack]:
    world = small("ewc", learner={"strength": 10.0, **own})
    return world, simulate(world)


def test_ewc_holds_weights_where_they_were() -> None:
    """With a strength beyond reason nothing moves any more; with none the run is that without it."""
    initial, last = FEW["initial"] - 1, FEW["count"]
    moved = {}
    for strength in (0.0, 1e7):
        states = ran(small("ewc", learner={"strength": strength})).states
        start_, end = (next(s for s in states if (s.task, s.epoch) == (task, 0)) for task in (initial + 1, last))
        moved[strength] = sum(
            float((end.params[name] - start_.params[name]).abs().mean()) for name in ("module.weight", "module.bias")
        )
    assert moved[1e7] < 0.5 * moved[0.0]


def test_the_importance_of_ewc_is_the_fisher_information_of_every_class() -> None:
    """By hand: for each image and each class its probability times the squared slope of its logarithm."""
    world = small("ewc", learner={"samples": 4})
    stack = start(world)
    learner = world.settings.learner
    assert isinstance(learner, EWC)
    found = learner.importance(world, stack, 1, 2)
    at = key(*stack.lanes[1], "ewc", 2).permutation(int(world.train.sizes[1, 2]))[:4]
    weights = {name: tensor[1].clone().requires_grad_() for name, tensor in stack.params.items()}
    want = {name: torch.zeros_like(weights[name]) for name in world.model.body}
    for row in world.train.rows[1, 2, torch.from_numpy(at)]:
        logs = world.model.logits(weights, world.inputs[row][None], 2)[0].log_softmax(0)
        for one in logs:
            slopes = torch.autograd.grad(one, [weights[name] for name in want], retain_graph=True)
            for name, slope in zip(want, slopes, strict=True):
                want[name] += float(one.detach().exp()) * slope.square() / 4
    for name, tensor in want.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-7)


def test_the_online_form_has_one_anchor_and_the_other_one_for_each_task() -> None:
    for online in (False, True):
        world, stack = consolidated(online=online, decay=0.5)
        state = stack.of("ewc")
        name = "module.weight"
        now = stack.params[name][:, : world.model.body[name]]
        anchor = state[f"moment.{name}"] / state[f"sum.{name}"].clamp(min=1e-30)
        there = state[f"sum.{name}"] > 1e-12
        assert torch.allclose(anchor[there], now[there], rtol=1e-3, atol=1e-4) == online


# Learning without forgetting


def test_lwf_keeps_what_earlier_heads_say_on_the_new_images() -> None:
    gaps = {}
    for strength in (0.0, 20.0):
        world = small("lwf", learner={"strength": strength, "epochs": 15}, net={"dropout": 0.0})
        run = ran(world)
        before, end = next(s for s in run.states if (s.task, s.epoch) == (3, 0)), run.stack
        x, total = world.inputs[world.train.rows[0, 3]], 0.0
        for task in range(3):
            said = [
                world.model.logits({n: t[0] for n, t in s.params.items()}, x, task).softmax(1) for s in (before, end)
            ]
            total += float((said[0] - said[1]).abs().mean())
        gaps[strength] = total
    assert gaps[20.0] < 0.5 * gaps[0.0]


# Averaged gradient episodic memory


def test_agem_takes_away_what_points_against_the_memories() -> None:
    rng = torch.Generator().manual_seed(0)
    found = {"a": torch.randn(5, 2, 3, generator=rng), "head": torch.randn(5, 2, generator=rng)}
    wanted = {"a": torch.randn(5, 2, 3, generator=rng)}
    changed = projected(found, wanted)
    before, after = ((one["a"] * wanted["a"]).flatten(1).sum(1) for one in (found, changed))
    assert (before < 0).any()
    assert (before > 0).any()
    np.testing.assert_allclose(after[before < 0], 0, atol=1e-5)
    assert torch.equal(changed["a"][before > 0], found["a"][before > 0])
    assert torch.equal(changed["head"], found["head"])


# Bad input


@pytest.mark.parametrize("name", ["ewc", "lwf", "agem"])
def test_a_learner_that_cannot_serve_a_model_says_so(name: str) -> None:
    with pytest.raises(SettingsError, match=f"the learner `{name}` is for nets that all tasks use as a whole"):
        resolve({"model": "modular-mlp", "learner": name})


def test_growth_needs_a_modular_net() -> None:
    with pytest.raises(SettingsError, match="the learner `modular` needs a modular model, got `mlp`"):
        resolve({"model": "mlp", "learner": "modular"})


def test_replay_without_memories_is_said_by_check() -> None:
    fleet = shoal.Fleet("digits", model="mlp", learner={"memory": 0})
    said = 'learner.memory = 0 leaves nothing to replay: agents learn each task alone, as with learner = "none"'
    assert fleet.settings.learner.doubt == said
    assert said in fleet.check().notes
    assert said in " ".join(call("check", "digits", "model=mlp", "seeds=1", "learner.memory=0").out.split())
    assert not shoal.Fleet("digits", model="mlp").settings.learner.doubt


def test_growth_that_adapts_without_memories_is_said_by_check() -> None:
    fleet = shoal.Fleet("digits", model="modular-mlp", learner={"memory": 0})
    said = "learner.memory = 0 leaves nothing to replay: epochs that adapt all modules see no images kept of"
    assert fleet.settings.learner.doubt.startswith(said)
    assert fleet.settings.learner.doubt in fleet.check().notes
    assert said in " ".join(call("check", "digits", "model=modular-mlp", "seeds=1", "learner.memory=0").out.split())
    assert not shoal.Fleet("digits", model="modular-mlp").settings.learner.doubt
    never: tuple[object, ...] = ("never", 101)  # there are 100 epochs
    for adaptation in never:
        alone = shoal.Fleet("digits", model="modular-mlp", learner={"memory": 0, "adaptation": adaptation})
        assert not alone.settings.learner.doubt


def test_agem_without_memories_says_so() -> None:
    with pytest.raises(SettingsError, match=r"learner\.memory = 0 keeps none"):
        resolve({"model": "mlp", "learner": {"method": "agem", "memory": 0}})
