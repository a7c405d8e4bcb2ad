"""Learners that keep images, weights or what was said: each against its formula, computed once more in the plainest
way."""

from collections import Counter
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import shoal
from shoal.agents.evaluate import nets, within
from shoal.agents.stack import MODEL, Stack, start
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.contracts.fleets import Run, ran
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners import reservoir
from shoal.learners.adam import sgd
from shoal.learners.batches import Batch, Images, Pool, batches, generators, pool, trained
from shoal.learners.der import DERpp
from shoal.learners.er import ER
from shoal.learners.erace import ERACE
from shoal.learners.gdumb import GDumb
from shoal.learners.lwf import LwF
from shoal.learners.rehearsal import relearned
from shoal.learners.step import Frame, Part, Step, Tensors
from shoal.learners.usual import usage_of
from shoal.models import heads
from shoal.rng import key
from tests.fleets import fleet

LANES = [Lane(0, 0), Lane(0, 1)]
TASKS: dict[str, Any] = {"count": 3, "classes": 2, "initial": 1, "train": 8, "validation": 4, "common": False}


def small(method: str, lanes: list[Lane] | None = None, **changes: Any) -> World:
    """Plain nets without dropout, three tasks of two classes."""
    learner = {"method": method, "epochs": 2, "batch": 8, "memory": 4, "rate": 0.05, **changes.pop("learner", {})}
    tasks = {**TASKS, **changes.pop("tasks", {})}
    net = {"width": 8, "depth": 2, "dropout": 0.0}
    return fleet("plain-mlp", lanes or LANES, learner=learner, tasks=tasks, net=net, **changes)


def later(world: World, task: int = 1) -> Stack:
    """A fresh stack that has come to a task."""
    stack = start(world)
    stack.task = task
    return stack


def everything(stack: Stack) -> dict[str, Part]:
    return {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}


def one_batch(world: World, task: int, count: int = 6) -> Batch:
    """The first images of a task."""
    held = trained(world, [task])
    shown = (held.x[:, :count], held.y[:, :count])
    return Batch(*shown, torch.ones(len(held.y), count), held.task[:, :count])


def weights(stack: Stack, row: int) -> Tensors:
    return {name: tensor[row].clone().requires_grad_() for name, tensor in stack.params.items()}


def plain(world: World, params: Tensors, batch: Batch, row: int) -> Tensor:
    """One agent's logits of a batch, with all outputs."""
    found: Tensor = world.model.logits(params, batch.x[row], batch.task[row])
    return found


def a_step(world: World, stack: Stack, batch: Batch) -> Step:
    """The first step of an epoch, before anybody has added to it."""
    return Step(batch, everything(stack), None, usage_of(world, stack))


def same(turn: Step, found: Tensors, row: int, params: Tensors, loss: Tensor) -> None:
    """Is what a turn makes of the gradients of the new images the gradient of a loss?"""
    (change,) = turn.changes
    changed = change(found)
    for name, slope in zip(params, torch.autograd.grad(loss, list(params.values())), strict=True):
        torch.testing.assert_close(changed[name][row], slope, rtol=1e-4, atol=1e-6)


# Steps


def test_sgd_goes_down_the_slope_and_leaves_what_is_not_active() -> None:
    world = small("none", learner={"rate": 0.1})
    stack, name = later(world), "head.weight"
    before = stack.params[name].clone()
    slope = torch.randn(before.shape, generator=torch.Generator().manual_seed(0))
    active = torch.tensor([[True, False, True], [False, False, True]])
    sgd(world, stack, {name: (slice(0, 3),)}, {name: slope}, {name: active})
    torch.testing.assert_close(stack.params[name][active], (before - 0.1 * slope)[active])
    assert torch.equal(stack.params[name][~active], before[~active])
    sgd(world, stack, {name: (slice(0, 3),)}, {name: slope})
    torch.testing.assert_close(stack.params[name][~active], (before - 0.1 * slope)[~active])


def test_a_run_by_sgd_has_no_moments() -> None:
    stack = simulate(small("none", learner={"optimiser": "sgd"}))
    assert not any(tensor.any() for owner in ("mean", "var", "steps") for tensor in stack.of(owner).values())


def test_steps_are_dealt_to_epochs_and_passes_follow_each_other() -> None:
    learner = small("none", learner={"iterations": 7}).settings.learner
    assert [learner.steps(epoch) for epoch in range(2)] == [3, 4]
    x = torch.arange(5)[None].expand(2, -1)
    held = Pool((Images(x, x, x),), [5, 0], 5)
    rngs = [key(0, row) for row in range(2)]
    drawn = list(batches(held, rngs, 4, exactly=5))
    assert len(drawn) == 5
    seen = torch.cat([one.y[0] for one in drawn]).tolist()
    assert all(sorted(seen[at : at + 5]) == list(range(5)) for at in range(0, 20, 5))  # four passes
    assert not any(one.weight[1].any() for one in drawn)  # who has nothing, takes no step


def test_a_run_takes_as_many_steps_as_it_is_told() -> None:
    stack = simulate(small("none", learner={"iterations": 7}))
    steps = stack.of("steps")["net.1.weight"]
    assert steps.unique().tolist() == [7 * TASKS["count"]]


def test_fewer_steps_than_epochs_cannot_be_dealt() -> None:
    with pytest.raises(SettingsError, match=r"learner\.iterations = 3 steps cannot be dealt to learner\.epochs = 100"):
        resolve({"model": "mlp", "learner": {"method": "none", "iterations": 3}})


# A memory over the stream


def test_a_reservoir_is_what_one_image_after_the_other_makes_of_it() -> None:
    world = small("er")
    state = start(world).of("er")
    room = state["y"].shape[1]
    kept: list[list[tuple[int, int]]] = [[], []]
    for turn in range(6):
        batch = one_batch(world, turn % 3, 5)
        batch = batch._replace(weight=torch.tensor([[1.0] * 5, [1.0, 1, 0, 1, 0]]))
        reservoir.add(state, batch, [key(0, turn, row) for row in range(2)])
        for row, mine in enumerate(kept):
            luck = key(0, turn, row).random(int(batch.weight[row].sum()))
            for number, at in enumerate(batch.weight[row].nonzero().flatten().tolist()):
                count = 3 * turn + number + 1 if row else 5 * turn + number + 1
                place = count - 1 if count <= room else int(luck[number] * count)
                said = (int(batch.task[row, at]), int(batch.y[row, at]))
                mine[place : place + 1] = [said] if place < room else []
    assert state["seen"].tolist() == [30, 18]
    for row, mine in enumerate(kept):
        assert list(zip(state["task"][row].tolist(), state["y"][row].tolist(), strict=True)) == mine


def test_every_image_is_as_likely_in_a_reservoir() -> None:
    world = small("er", [Lane(0, 0)])
    counts = np.zeros(40)
    for trial in range(400):
        state = start(world).of("er")
        for first in range(0, 40, 8):
            numbers = torch.arange(first, first + 8)[None]
            x = torch.zeros(1, 8, *state["x"].shape[2:], dtype=state["x"].dtype)
            reservoir.add(state, Batch(x, numbers, torch.ones(1, 8), numbers), [key(trial, first)])
        counts[state["task"][0].numpy()] += 1
    assert abs(counts / 400 - 12 / 40).max() < 0.1


def remembering(method: str, **changes: Any) -> tuple[World, Stack, Batch]:
    """A stack at its second task with six memories of the first, and a batch of the second."""
    world = small(method, **changes)
    stack = later(world)
    old = one_batch(world, 0)
    rng = torch.Generator().manual_seed(1)
    said = torch.randn(2, 6, world.open.shape[2], generator=rng) if "said" in stack.of(method) else None
    reservoir.add(stack.of(method), old, [key(0, 9, row) for row in range(2)], said)
    return world, stack, one_batch(world, 1)


def test_replay_step_by_step_is_the_mean_over_new_images_and_memories() -> None:
    world, stack, batch = remembering("er", learner={"replayed": 4})
    learner = world.settings.learner
    assert isinstance(learner, ER)
    old, _ = reservoir.draw(stack.of("er"), 4, generators(stack, "er", 1, 0, 0))
    assert (old.task == 0).all()
    found = relearned(world, stack, everything(stack), batch, usage_of(world, stack))
    turn = learner.rehearse(world, stack, a_step(world, stack, batch))
    for row in range(2):
        params = weights(stack, row)
        both = [F.cross_entropy(plain(world, params, one, row), one.y[row], reduction="sum") for one in (batch, old)]
        same(turn, found, row, params, (both[0] + both[1]) / 10)
    assert stack.of("er")["seen"].tolist() == [12, 12]


def test_memories_can_count_as_much_as_earlier_tasks_are() -> None:
    world = small("er", learner={"keep": "task", "mix": "tasks", "replayed": 3})
    stack = simulate(world)
    stack.task = 2
    learner, batch = world.settings.learner, one_batch(world, 2)
    assert isinstance(learner, ER)
    found = relearned(world, stack, everything(stack), batch, usage_of(world, stack))
    turn = learner.rehearse(world, stack, a_step(world, stack, batch))
    assert turn.also is not None
    for row in range(2):
        params = weights(stack, row)
        new, old = (F.cross_entropy(plain(world, params, one, row), one.y[row]) for one in (batch, turn.also))
        same(turn, found, row, params, new / 3 + 2 * old / 3)


def test_der_with_labels_is_its_formula() -> None:
    world, stack, batch = remembering("derpp", learner={"replayed": 4, "alpha": 0.3, "beta": 0.7})
    learner, before = world.settings.learner, deepcopy(stack.of("derpp"))
    assert isinstance(learner, DERpp)
    rngs = generators(stack, "derpp", 1, 0, 0)
    first, at = reservoir.draw(before, 4, rngs)
    second, _ = reservoir.draw(before, 4, rngs)
    found = relearned(world, stack, everything(stack), batch, usage_of(world, stack))
    turn = learner.additions()[0](world, stack, a_step(world, stack, batch))
    for row in range(2):
        params = weights(stack, row)
        said = before["said"][row, at[row]]
        loss = F.cross_entropy(plain(world, params, batch, row), batch.y[row])
        loss = loss + 0.3 * F.mse_loss(plain(world, params, first, row), said)
        loss = loss + 0.7 * F.cross_entropy(plain(world, params, second, row), second.y[row])
        same(turn, found, row, params, loss)
        now = plain(world, params, batch, row)
        torch.testing.assert_close(stack.of("derpp")["said"][row, 6:12], now.detach())


@pytest.mark.parametrize("outputs", ["seen", "all"])
def test_new_images_push_down_no_class_of_earlier_tasks(outputs: str) -> None:
    tasks = {"scenario": "split", "heads": "grow", "outputs": outputs, "replacement": False}
    world, stack, batch = remembering("er-ace", learner={"replayed": 4}, tasks=tasks)
    learner = world.settings.learner
    assert isinstance(learner, ERACE)
    old, _ = reservoir.draw(stack.of("er-ace"), 4, generators(stack, "er-ace", 1, 0, 0))
    turn = learner.rehearse(world, stack, a_step(world, stack, batch))
    found = relearned(world, stack, everything(stack), batch, turn.usage)
    for row in range(2):
        params = weights(stack, row)
        present, met = set(batch.y[row].tolist()), world.open[row, :2].any(0).nonzero().flatten().tolist()
        shut = [k for k in range(10) if k not in present and (outputs == "seen" or k in met)]
        logits = plain(world, params, batch, row)
        logits = logits.index_fill(1, torch.tensor(shut), heads.CLOSED)
        known = plain(world, params, old, row)
        if outputs == "seen":
            known = known.index_fill(1, torch.tensor([k for k in range(10) if k not in met]), heads.CLOSED)
        same(turn, found, row, params, F.cross_entropy(logits, batch.y[row]) + F.cross_entropy(known, old.y[row]))


# Memories alone, and all data


def test_the_memory_of_gdumb_has_as_many_of_each_class() -> None:
    world = small("gdumb", tasks={"scenario": "split", "heads": "grow", "replacement": False, "train": 12})
    stack = start(world)
    learner = world.settings.learner
    assert isinstance(learner, GDumb)
    for task in range(3):
        stack.task = task
        learner.collect(world, stack, trained(world, [task]))
        state = stack.of("gdumb")
        for row in range(2):
            counts = Counter(state["y"][row, : state["seen"][row]].tolist())
            assert len(counts) == 2 * (task + 1)
            assert max(counts.values()) - min(counts.values()) <= 1
            assert sum(counts.values()) == 12
            there = {tuple(one.flatten().tolist()) for one in state["x"][row]}
            known = trained(world, range(task + 1)).x[row]
            assert there <= {tuple(one.flatten().tolist()) for one in known}


def test_gdumb_begins_every_task_with_a_fresh_net() -> None:
    world = small("gdumb", learner={"optimiser": "sgd", "rate": 1e-9})
    stack = simulate(world)
    for row, lane in enumerate(world.lanes):
        for name, tensor in world.model.start(key(*lane, "gdumb", 2)).items():
            torch.testing.assert_close(stack.params[name][row], tensor, rtol=1e-5, atol=1e-6)


def test_joint_training_has_all_images_of_all_tasks_so_far() -> None:
    world = small("joint")
    stack = later(world, 2)
    held = pool(world, stack, 2, past=False, held=trained(world, range(3)))
    assert held.sizes == [48, 48]
    rows = world.train.rows[0].flatten()
    assert torch.equal(held.x[0], world.inputs[rows])
    assert held.task[0].tolist() == [0] * 16 + [1] * 16 + [2] * 16


# Weights that are held


def moved(run: Run, name: str, task: int) -> list[Tensor]:
    """How a tensor moved in each epoch of a task, which is a step."""
    at = [stack.params[name] for stack in run.states if (stack.task, stack.epoch) in {(task, 1), (task, 2)}]
    before = next(stack.params[name] for stack in run.states if (stack.task, stack.epoch) == (task, 0))
    return [at[0] - before, at[1] - at[0]]


def test_the_importance_of_si_is_what_the_way_was_worth() -> None:
    """With SGD and one step an epoch, the gradient is the movement divided by the rate."""
    world = small("si", learner={"optimiser": "sgd", "batch": 16, "damping": 0.2, "strength": 0.4})
    run = ran(world)
    name = "net.1.weight"
    total = torch.zeros_like(run.stack.params[name])
    first = start(world).params[name]
    ends = [next(one.params[name] for one in run.states if (one.task, one.epoch) == (task, 0)) for task in (1, 2, 3)]
    middle = next(one.params[name] for one in run.states if (one.task, one.epoch) == (0, 1))
    ways = [[middle - first, ends[0] - middle], moved(run, name, 1), moved(run, name, 2)]
    for way in ways:
        worth = sum((one.square() / 0.05 for one in way), torch.zeros_like(total))
        total += worth / (sum(way, torch.zeros_like(total)).square() + 0.2)
    torch.testing.assert_close(run.stack.of("si")[f"importance.{name}"], total, rtol=1e-3, atol=1e-6)
    assert torch.equal(run.stack.of("si")[f"anchor.{name}"], run.stack.params[name])


def test_si_pulls_weights_back_and_clips_slopes() -> None:
    world = small("si", learner={"strength": 3.0, "clip": 0.5})
    stack = later(world)
    state, learner = stack.of("si"), world.settings.learner
    for name in world.model.body:
        state[f"anchor.{name}"] = stack.params[name] - 0.1
        state[f"path.{name}"] = torch.zeros_like(stack.params[name])
        state[f"importance.{name}"] = torch.full_like(stack.params[name], 0.2)
    found = {
        name: torch.randn(one.shape, generator=torch.Generator().manual_seed(0)) for name, one in stack.params.items()
    }
    turn = learner.additions()[0](world, stack, a_step(world, stack, one_batch(world, 1)))
    (change,) = turn.changes
    changed = change(dict(found))
    torch.testing.assert_close(changed["net.1.bias"], (found["net.1.bias"] + 0.12).clamp(-0.5, 0.5))
    torch.testing.assert_close(changed["head.bias"], found["head.bias"].clamp(-0.5, 0.5))


@pytest.mark.parametrize("prune", [None, 0.75])
def test_packed_tasks_are_never_changed(prune: float | None) -> None:
    world = small("packnet", learner={"epochs": 6, **({} if prune is None else {"prune": prune})})
    run = ran(world)
    ends = {one.task: one for one in run.states if one.epoch == 0}
    x = world.inputs[world.test.rows[0, 0, :20]]
    for task in range(3):
        said = [nets(world, ends[at])[0].read(x, task) for at in range(task + 1, 4)]
        assert all(torch.equal(said[0], one) for one in said)
    owners = run.stack.of("packnet")["net.1.weight"][0]
    shares = [float((owners == mark).float().mean()) for mark in (1, 2, 3)]
    want = [1 / 3] * 3 if prune is None else [0.25, 0.1875, 0.140625]
    np.testing.assert_allclose(shares, want, atol=0.01)
    assert (run.stack.of("packnet")["net.1.bias"] == 1).all()


# Distillation by one head


@pytest.mark.parametrize(
    ("kind", "scenario"), [("one", "parity"), ("one", "split"), ("grow", "split")], ids=["places", "one", "grow"]
)
def test_lwf_distils_one_head_as_a_whole(kind: str, scenario: str) -> None:
    world = small("lwf", tasks={"heads": kind, "scenario": scenario, "replacement": False})
    stack = later(world)
    learner = world.settings.learner
    assert isinstance(learner, LwF)
    learner.end(world, stack)
    for name in world.model.body:
        stack.params[name].mul_(1.1)
    stack.task, batch = 2, one_batch(world, 2)
    row, usage = 0, usage_of(world, stack)
    known = usage[heads.OPEN][row] if heads.OPEN in usage else None
    alone = Batch(*(part[row] for part in batch))
    state = {name: tensor[row] for name, tensor in stack.of("lwf").items()}
    params = {name: tensor[row] for name, tensor in stack.params.items()}
    found = learner.penalty(Frame(world.model, params, {}, {}, alone, state, known))
    before = {name: tensor for name, tensor in state.items() if name != "known"}
    old, new = (world.model.logits(one, alone.x, 0) for one in (before, params))
    if scenario == "split":
        old = old.masked_fill(~world.open[row, :2].any(0), -1e9)
    if known is not None:
        new = new.masked_fill(~known[2], -1e9)
    want = -((old / 2).softmax(1) * (new / 2).log_softmax(1)).sum(1).mean() * (2 if scenario == "parity" else 1)
    torch.testing.assert_close(found, want)


# Scenarios and bad input


def test_a_head_that_grows_can_have_all_outputs_from_the_start() -> None:
    tasks = {"scenario": "split", "heads": "grow", "replacement": False}
    for outputs, count in (("seen", 2), ("all", 10)):
        world = small("none", tasks={**tasks, "outputs": outputs})
        usage = world.usage(start(world).of(MODEL), 0)
        assert (heads.OPEN in usage) == (outputs == "seen")
        assert start(world).of("record")["classes"][:, 0].tolist() == [count, count]


def test_who_is_told_the_task_guesses_among_its_classes() -> None:
    world = small("none", tasks={"scenario": "split", "heads": "grow", "replacement": False})
    stack = simulate(world)
    right = within([(world, stack)])
    assert right is not None
    assert (right > stack.accuracy[:, -1, -1].mean(1).numpy()).all()  # fine-tuning says the last classes
    assert within([(small("none"), stack)]) is None


def test_less_can_be_held_out() -> None:
    worlds = [small("none", tasks={"train": "all", "validation": "all", "held_out": share}) for share in (0.2, 0.05)]
    sizes = [int(world.train.sizes[0].sum()) for world in worlds]
    assert sizes[1] / sizes[0] == pytest.approx(0.95 / 0.8, abs=0.03)


def test_first_weights_by_glorot() -> None:
    world = small("none")
    settings = {"net": {"width": 8, "depth": 2, "dropout": 0.0, "weights": "xavier"}}
    made = fleet("plain-mlp", LANES, tasks=TASKS, **settings)
    for name, ins, outs in (("net.1.weight", 64, 8), ("net.3.weight", 8, 8), ("head.weight", 8, 2)):
        bound = 2**0.5 * (6 / (ins + outs)) ** 0.5
        drawn = start(made).params[name]
        assert 0.9 * bound < float(drawn.abs().max()) <= bound
        assert not torch.equal(drawn, start(world).params[name])
    assert not start(made).params["head.bias"].any()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        *(
            ({"learner": {"method": name, "memory": 0}}, f"`{name}` learns from remembered rows, but")
            for name in ("er", "der", "derpp", "agem", "gdumb")
        ),
        (
            {"learner": "er-ace"},
            '`er-ace` is for agents with one head that grows (tasks.heads = "grow"), got tasks.heads',
        ),
        ({"learner": "packnet", "tasks": {"heads": "one"}}, "`packnet` is for agents with a head for each task"),
        ({"learner": "packnet", "sharing": "fedavg"}, "`packnet` keeps the weights of finished tasks as they are, and"),
        ({"learner": "gdumb", "tasks": {"classes": 1}}, "`gdumb` needs classes, and with tasks.classes = 1 numbers"),
        ({"learner": "lwf", "tasks": {"classes": 1}}, "`lwf` needs classes, and with tasks.classes = 1 numbers"),
        ({"learner": "none", "tasks": {"outputs": "all"}}, 'tasks.outputs = "all" is for a head that grows, got'),
        (
            {"learner": "none", "net": {"weights": "xavier"}},
            'net.weights = "xavier" is for model = "plain-mlp", got "mlp"',
        ),
        ({"learner": "none", "tasks": {"held_out": 0.0}}, "`tasks.held_out` cannot be 0.0"),
        ({"learner": {"method": "none", "optimiser": "lbfgs"}}, "cannot be 'lbfgs'; allowed: 'adam', 'sgd'"),
        *(
            ({"model": "modular-mlp", "learner": name}, f"`{name}` is for nets that all tasks use as a whole")
            for name in ("si", "er", "er-ace", "der", "derpp", "gdumb", "packnet", "joint")
        ),
    ],
)
def test_what_a_learner_cannot_serve_gets_one_sentence(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve({"model": "mlp", **raw})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_is_said_before_a_run_what_would_be_received_for_nothing() -> None:
    def notes(learner: str, **mode: Any) -> str:
        fleet = shoal.Fleet("digits", agents=2, model="mlp", learner=learner, sharing=[{"mode": "recv", **mode}])
        return str(fleet.check())

    assert "`packnet` learns nothing from rows of finished tasks, and `recv` can bring such rows" in notes("packnet")
    assert "finished tasks" not in notes("packnet", scope="current") + notes("none")
