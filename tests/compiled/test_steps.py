"""The compiled kernel: its gradients are autograd's, its Adam is Adam, and a lane's bits are that lane's alone."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isclose
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from shoal.agents.evaluate import nets
from shoal.agents.memory import remember
from shoal.agents.stack import MODEL, PARAMS, Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import world as make
from shoal.compiled.library import kernel as built
from shoal.fleet.lessons import learn_piece
from shoal.learners import orders as kernel
from shoal.learners.batches import Batch, deal, generators, pool, source
from shoal.learners.fisher import fisher
from shoal.learners.growth import cuts, slots
from shoal.learners.in_kernel import InKernel, backend
from shoal.learners.in_torch import InTorch, autograd, objective
from shoal.learners.step import Part, Step, view
from shoal.learners.usual import dropped, masks, usage_of
from shoal.models import dropout
from shoal.models.heads import NAMES as HEADS
from shoal.models.heads import OPEN
from shoal.models.modular import Modular
from shoal.models.params import MODULE, STRUCTURE
from tests import golden
from tests.fleets import fleet

pytestmark = pytest.mark.skipif(built().library is None, reason=built().about)

TASK = 5
MODELS = ("mlp", "modular-mlp", "cnn", "modular-cnn")
ODD = {"width": 13, "depth": 3}  # nothing fills vectors
FEW, MANY = (
    {"width": 3, "depth": 4},
    {"width": 23, "depth": 3},
)  # channels; at the last of four depths one pixel is left


def midway(world: World, task: int = TASK) -> Stack:
    """A stack with random weights everywhere at the start of a task, of which one lane lacks a module."""
    stack, rng = start(world), np.random.default_rng(0)
    for past in range(task):
        remember(world, stack, past)
    stack.task = task
    for tensor in stack.params.values():
        tensor.copy_(torch.from_numpy(rng.normal(scale=0.3, size=tensor.shape)))
    if isinstance(world.model, Modular):
        stack.of(MODEL)["alive"][:] = True
        stack.of(MODEL)["alive"][1, world.model.basis] = False
    return stack


def with_kernel(world: World, name: str) -> World:
    machine = world.settings.machine.model_copy(update={"kernel": name})
    return replace(world, settings=world.settings.model_copy(update={"machine": machine}))


def a_batch(world: World, stack: Stack, past: bool, size: int = 11) -> Batch:
    """Images of which one lane has only a few, and another none."""
    held = pool(world, stack, stack.task, past=past)
    batch = next(iter(deal(held, generators(stack, "test"), size))).batch
    weight = batch.weight.clone()
    weight[0, 4:] = 0
    weight[2] = 0
    return batch._replace(weight=weight)


def doubled(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def same(value: Any) -> Any:
    return value


def truth(
    world: World,
    stack: Stack,
    batch: Batch,
    parts: Mapping[str, Part],
    task: int | None,
    usage: dict[str, Any],
    read: Mapping[str, Part],
) -> dict[str, Tensor]:
    """The gradients by autograd, in double precision, one lane after the other. (Images of bytes are read as floats of
    32 bits, and so are CNNs.)"""
    twice = same if world.model.engine == "loop" else doubled
    exact = Stack(stack.lanes, {**stack.states, PARAMS: type(stack.params)(3, {})})
    for name, tensor in stack.params.items():
        exact.params[name] = twice(tensor)
    arguments = tree.tree_map(twice, (batch, usage, []))
    looped = replace(
        world,
        settings=world.settings.model_copy(
            update={"machine": world.settings.machine.model_copy(update={"engine": "loop"})}
        ),
    )

    def function(*given: Any) -> Tensor:
        return objective(world.model, Step(batch, parts, task, usage), False, True, *given)

    found = autograd(looped, exact, function, arguments, parts, read)
    return {name: one.double() for name, one in found.items()}


Case = Callable[[World, Stack], tuple[Batch, dict[str, Part], int | None, dict[str, Any], dict[str, Part]]]


def everything(world: World, stack: Stack) -> Any:
    """All parameters, images of several tasks."""
    parts: dict[str, Part] = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    batch = a_batch(world, stack, past=True)
    drawn = masks(world, stack, generators(stack, "drop"), world.model.mask_shapes(batch.y.shape[1]))
    return batch, parts, None, usage_of(world, stack) | drawn, {}


def some_layers(world: World, stack: Stack) -> Any:
    """A net of which the first layer is frozen, and one head of one task."""
    batch, parts, _, usage, _ = everything(world, stack)
    parts |= dict.fromkeys(MODULE, (slice(1, 3),)) | dict.fromkeys(HEADS, (slice(2, 4),))
    return batch, parts, 3, usage, {}


def heads_alone(world: World, stack: Stack) -> Any:
    batch, _, _, usage, _ = everything(world, stack)
    return batch, dict.fromkeys(HEADS, (slice(0, 1),)), None, usage, {}


def an_initial_task(world: World, stack: Stack) -> Any:
    model = world.model
    assert isinstance(model, Modular)
    batch = a_batch(world, stack, past=False)
    parts: dict[str, Part] = {name: (slice(0, units),) for name, units in model.body.items()}
    parts |= {name: (slice(2, 3),) for name in HEADS}
    drawn = masks(world, stack, generators(stack, "drop"), model.initial_masks(batch.y.shape[1]))
    return batch, parts, 2, slots(world, stack, model.basis) | drawn, cuts(model, model.basis, model.basis)


def a_candidate(world: World, stack: Stack) -> Any:
    """A module, a structure and a head, as in component dropout."""
    model = world.model
    assert isinstance(model, Modular)
    slot, own = model.slot(TASK), slice(TASK, TASK + 1)
    batch = a_batch(world, stack, past=False)
    parts: dict[str, Part] = {STRUCTURE: (own, slice(0, slot + 1)), **dict.fromkeys(HEADS, (own,))}
    parts |= dict.fromkeys(MODULE, (slice(slot, slot + 1),))
    drawn = masks(world, stack, generators(stack, "drop"), model.soft_masks(batch.y.shape[1], slot + 1))
    return batch, parts, TASK, slots(world, stack, slot + 1) | drawn, cuts(model, slot + 1, slot + 1)


def a_hidden_candidate(world: World, stack: Stack) -> Any:
    model = world.model
    assert isinstance(model, Modular)
    slot, own = model.slot(TASK), slice(TASK, TASK + 1)
    hidden = torch.zeros_like(stack.of(MODEL)["alive"])
    hidden[:, slot] = True
    batch = a_batch(world, stack, past=False)
    parts: dict[str, Part] = {STRUCTURE: (own, slice(0, slot + 1)), **dict.fromkeys(HEADS, (own,))}
    drawn = masks(world, stack, generators(stack, "drop"), model.soft_masks(batch.y.shape[1], slot))
    return batch, parts, TASK, slots(world, stack, slot + 1, hidden) | drawn, cuts(model, slot, slot + 1)


def all_modules(world: World, stack: Stack) -> Any:
    """Modules alone, images of several tasks, as in adaptation."""
    model = world.model
    assert isinstance(model, Modular)
    width = model.slot(TASK) + 1
    batch = a_batch(world, stack, past=True)
    parts: dict[str, Part] = dict.fromkeys(MODULE, (slice(0, width),))
    drawn = masks(world, stack, generators(stack, "drop"), model.soft_masks(batch.y.shape[1], width))
    return batch, parts, None, slots(world, stack, width) | drawn, cuts(model, width, width)


CASES: list[tuple[str, Case, dict[str, Any]]] = [
    ("mlp", everything, {}),
    ("mlp", everything, {"net": ODD | {"dropout": 0.3}}),
    ("mlp", everything, {"net": {"dropout": 0.0}, "tasks": {"heads": "grow"}}),
    ("mlp", some_layers, {"net": ODD}),
    ("mlp", heads_alone, {}),
    ("modular-mlp", everything, {"net": {"dropout_basis": True}}),
    ("modular-mlp", an_initial_task, {"net": {"dropout_basis": True}}),
    ("modular-mlp", an_initial_task, {"net": ODD | {"initial_structure": "own"}}),
    ("modular-mlp", a_candidate, {}),
    ("modular-mlp", a_candidate, {"net": ODD, "learner": {"hidden": "keep"}}),
    ("modular-mlp", a_hidden_candidate, {"learner": {"hidden": "keep"}}),
    ("modular-mlp", a_hidden_candidate, {"net": ODD | {"dropout": 0.3}}),
    ("modular-mlp", all_modules, {}),
    ("modular-mlp", all_modules, {"net": ODD | {"dropout_basis": True}}),
    ("cnn", everything, {}),
    ("cnn", everything, {"net": FEW | {"dropout": 0.3}, "learner": {"batch": 9}}),
    ("cnn", everything, {"net": MANY | {"dropout": 0.0}, "tasks": {"heads": "grow"}}),
    ("cnn", some_layers, {}),
    ("cnn", heads_alone, {}),
    ("modular-cnn", everything, {"net": {"dropout_basis": True}}),
    ("modular-cnn", an_initial_task, {"net": FEW | {"dropout_basis": True}}),
    ("modular-cnn", a_candidate, {}),
    ("modular-cnn", a_hidden_candidate, {"net": {"dropout": 0.3}, "learner": {"hidden": "keep"}}),
    ("modular-cnn", all_modules, {"net": MANY | {"dropout_basis": True}}),
]


@pytest.mark.parametrize(("model", "case", "changes"), CASES)
def test_the_gradients_of_the_kernel_are_those_of_autograd(model: str, case: Case, changes: dict[str, Any]) -> None:
    world = fleet(model, agents=3, **changes)
    stack = midway(world)
    batch, parts, task, usage, read = case(world, stack)
    told = kernel.described(world, stack, Step(batch, parts, task, usage, read))
    assert told is not None
    found, want = kernel.gradients(world, stack, told, parts), truth(world, stack, batch, parts, task, usage, read)
    assert found.keys() == want.keys() == parts.keys()
    for name, one in want.items():
        torch.testing.assert_close(found[name].double(), one, rtol=2e-4, atol=2e-6)
        assert name not in (*MODULE, STRUCTURE) or one[:2].any(), "a test of zeros"
        assert not found[name][2].any(), "a lane without an image has no gradient"


@pytest.mark.parametrize("numbers", [False, True])
def test_grey_images_of_an_odd_side_are_read_as_torch_reads_them(numbers: bool) -> None:
    """Of a row of thirteen pixels the last is pooled with nothing. Images may also be numbers."""
    colour = fleet("cnn", agents=3)
    images = colour.bank.images[:, 0, :13, :13]
    bank = replace(colour.bank, images=(images / 100).astype(np.float32) if numbers else images)
    grey = make(colour.settings, bank)
    stack = midway(grey)
    batch, parts, task, usage, read = everything(grey, stack)
    told = kernel.described(grey, stack, Step(batch, parts, task, usage, read))
    assert told is not None
    found, want = kernel.gradients(grey, stack, told, parts), truth(grey, stack, batch, parts, task, usage, read)
    for name, one in want.items():
        torch.testing.assert_close(found[name].double(), one, rtol=2e-4, atol=2e-6)
    rows = torch.arange(70)
    quick, slow = (nets(with_kernel(grey, name), stack)[1].logits(rows, 0) for name in ("compiled", "torch"))
    torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-4)


def test_outputs_that_do_not_count_and_numbers_to_predict() -> None:
    world = fleet("mlp", net=ODD)
    stack = midway(world)
    batch, parts, task, usage, read = everything(world, stack)
    known = torch.ones(3, world.settings.tasks.count, world.open.shape[2], dtype=torch.bool)
    known[:, ::2, 1] = False
    with_closed = usage | {OPEN: known}
    numbers = torch.from_numpy(
        np.random.default_rng(0).normal(size=(*batch.y.shape, known.shape[2])).astype(np.float32)
    )
    for one, how in ((batch._replace(y=batch.y * 0), with_closed), (batch._replace(y=numbers), usage)):
        told = kernel.described(world, stack, Step(one, parts, task, how, read))
        assert told is not None
        found, want = kernel.gradients(world, stack, told, parts), truth(world, stack, one, parts, task, how, read)
        for name, tensor in want.items():
            torch.testing.assert_close(found[name].double(), tensor, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("model", MODELS)
def test_squares_of_gradients_are_those_of_each_image(model: str) -> None:
    world = fleet(model, agents=3, sharing=[{"mode": "fedcurv", "every": 1}])
    stack = midway(world)
    found, want = (fisher(with_kernel(world, name), stack, "sample", 20) for name in ("compiled", "torch"))
    for name, one in want.items():
        assert one.any()
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-6 * float(one.max()))


@pytest.mark.parametrize("rate", [0.5, 0.3])
@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("model", ["modular-mlp", "modular-cnn"])
def test_masks_that_the_kernel_draws_are_those_that_are_drawn(model: str, rate: float, spare: int) -> None:
    world = fleet(model, agents=3, net={**ODD, "dropout": rate})
    stack = midway(world)
    stack.of(dropout.OWNER)["off"][1] = True
    batch, parts, task, usage, read = all_modules(world, stack)
    size, net = batch.y.shape[1], world.model
    assert isinstance(net, Modular)
    bits, more = source(stack, "drop", 1), source(stack, "drop", 2)
    width = net.slot(TASK) + 1
    dropped(world, stack, bits, net.soft_masks(size, width - spare))  # what comes before counts, too
    undrawn = dropped(world, stack, bits, net.soft_masks(size, width - spare))["masks"]
    if spare:
        undrawn = undrawn._replace(
            further=dropped(world, stack, more, net.block.shapes(spare, size, net.depth))["masks"]
        )
    live = source(stack, "drop", 1).live
    shapes, first = (
        net.soft_masks(size, width - spare),
        slice(0, net.soft_masks(size, width - spare)[0][net.block.axis]),
    )
    dropout.draw(live, shapes, rate, world.device)
    torch.testing.assert_close(
        undrawn.drawn()[0].movedim(net.block.axis + 1, 1)[:2:2, first].movedim(1, net.block.axis + 1),
        dropout.draw(live, shapes, rate, world.device)[0][:2:2],
        rtol=0,
        atol=0,
    )
    found = []
    for masked in (undrawn, undrawn.drawn()):
        told = kernel.described(world, stack, Step(batch, parts, task, usage | {"masks": masked}, read))
        assert told is not None
        found.append(kernel.gradients(world, stack, told, parts))
    for name in parts:
        assert torch.equal(found[0][name], found[1][name])


def test_adam_leaves_alone_what_is_frozen_and_moves_the_rest_as_torch_does() -> None:
    world = fleet("modular-mlp", net=ODD)
    stacks = [midway(world) for _ in range(2)]
    rng = np.random.default_rng(1)
    _, parts, _, _, _ = a_candidate(world, stacks[0])
    parts = {**parts, **dict.fromkeys(MODULE, (slice(1, 4),))}
    active = dict.fromkeys(MODULE, torch.from_numpy(rng.random((3, 3)) < 0.5))
    before = {name: tensor.clone() for name, tensor in stacks[0].tensors.items()}
    for _ in range(3):
        gradient = {
            name: torch.from_numpy(rng.normal(size=view(stacks[0].params[name], part).shape)).float()
            for name, part in parts.items()
        }
        for stack, name in zip(stacks, ("auto", "torch"), strict=True):
            step = Step(a_batch(world, stack, past=True), parts, None, {}, active=active)
            backend(with_kernel(world, name), stack).adam(step, gradient)
    on = active[MODULE[0]]
    for name, tensor in stacks[0].tensors.items():
        torch.testing.assert_close(tensor, stacks[1].tensors[name], rtol=1e-5, atol=1e-6, equal_nan=True)
        if name.split("/")[1] in MODULE:
            assert torch.equal(tensor[:, 1:4][~on], before[name][:, 1:4][~on])
            assert (tensor[:, 1:4][on] != before[name][:, 1:4][on]).reshape(int(on.sum()), -1).any(1).all()


@pytest.mark.parametrize("changes", [{}, {"net": ODD | {"dropout": 0.2}, "learner": {"batch": 9}}])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("epoch", [0, 3])  # the last adapts
def test_a_lane_learns_the_same_bits_however_lanes_are_cut(model: str, epoch: int, changes: dict[str, Any]) -> None:
    world = fleet(model, agents=3, **changes)
    assert world.compiled
    for task in (0, TASK):
        whole = midway(world, task)
        begun = whole.take(range(3), whole.lanes)
        learn_piece(world, whole, epoch)
        assert not torch.equal(whole.params[MODULE[0]], begun.params[MODULE[0]])
        for rows in ([1], [2, 0]):
            some = begun.take(rows, [begun.lanes[row] for row in rows])
            learn_piece(world.piece(rows), some, epoch)
            for name, tensor in some.tensors.items():
                assert torch.equal(tensor.nan_to_num(), whole.tensors[name][rows].nan_to_num()), name


@pytest.mark.parametrize("model", MODELS)
def test_steps_that_wait_for_each_other_are_those_that_do_not(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a penalty of one agent makes necessary must not change the bits of another."""
    world = fleet(model, agents=3)
    stacks = [midway(world) for _ in range(2)]
    learn_piece(world, stacks[0], 0)
    monkeypatch.setattr(InKernel, "take", InTorch.take)
    learn_piece(world, stacks[1], 0)
    for name, tensor in stacks[0].tensors.items():
        assert torch.equal(tensor.nan_to_num(), stacks[1].tensors[name].nan_to_num()), name


@pytest.mark.parametrize("name", [name for name in golden.usual() if "paper" not in name])
def test_a_run_comes_to_what_it_comes_to_in_torch(name: str) -> None:
    want = json.loads(golden.FILE.read_text(encoding="utf-8"))["runs"][name]
    found = golden.measured(golden.usual()[name], "compiled")
    assert isclose(found["accuracy"], want["accuracy"], abs_tol=0.01)
    assert isclose(found["weights"], want["weights"], rel_tol=0.002)
    assert found.get("messages") == want.get("messages")
