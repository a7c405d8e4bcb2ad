"""Models: the exact savings are exact, hidden slots have no effect, frozen does not move, masked Adam is Adam."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.fleet import here
from shoal.fleet.lessons import learn_epoch, measure
from shoal.fleet.run import simulate
from shoal.learners.adam import adam
from shoal.learners.batches import batches, generators, pool
from shoal.learners.candidates import alive, begin
from shoal.learners.in_kernel import backend
from shoal.learners.step import Step
from shoal.models import dropout
from shoal.models.blocks import conv
from shoal.models.cnn import Conv, halved
from shoal.models.mlp import Linear
from shoal.models.modular import Modular, Slots
from shoal.rng import key
from tests.fleets import colours, fleet


def modular(dropout_basis: bool = False) -> tuple[Modular, dict[str, torch.Tensor], Slots]:
    """A modular MLP with random weights in all its slots, of which one is empty."""
    model = Modular(
        Linear(64, 8), depth=3, tasks=6, classes=2, basis=4, initial=4, dropout_basis=dropout_basis, rule="onehot"
    )
    rng = np.random.default_rng(0)
    params = model.start(rng)
    params["module.weight"], params["module.bias"] = model.block.start(rng, model.slots)
    params["structure"] = torch.from_numpy(rng.normal(size=params["structure"].shape).astype(np.float32))
    alive = torch.tensor([True, True, True, True, False, True])
    return model, params, Slots(torch.arange(6), alive, alive, model.choose(rng))


def plain(params: dict[str, torch.Tensor], shares: torch.Tensor, task: int, x: torch.Tensor) -> torch.Tensor:
    """Soft layer ordering in its simplest form."""
    h = x
    for k in range(shares.shape[1]):
        outputs = [torch.relu(h @ w.T + b) for w, b in zip(params["module.weight"], params["module.bias"], strict=True)]
        h = sum(share * output for share, output in zip(shares[:, k], outputs, strict=True))
    return h @ params["head.weight"][task].T + params["head.bias"][task]


def test_a_modular_net_is_the_weighted_sum_of_its_modules() -> None:
    model, params, slots = modular()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    logits = params["structure"][5].masked_fill(~slots.counted[:, None], -torch.inf)
    torch.testing.assert_close(model.logits(params, x, 5, slots=slots), plain(params, logits.softmax(0), 5, x))


def test_an_initial_task_uses_one_module_per_depth() -> None:
    model, params, slots = modular()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    onehot = F.one_hot(slots.choice[2], 6).T.float()
    torch.testing.assert_close(model.logits(params, x, 2, slots=slots), plain(params, onehot, 2, x))


def test_initial_structures_use_every_module() -> None:
    model, _, _ = modular()
    for seed in range(20):
        assert len(model.choose(np.random.default_rng(seed)).unique()) == 4
    assert replace(model, rule="own").choose(np.random.default_rng(0)).tolist() == [[0] * 3, [1] * 3, [2] * 3, [3] * 3]


def test_a_batch_of_several_tasks_is_each_image_by_its_own() -> None:
    model, params, slots = modular()
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    tasks = torch.arange(6)
    together = model.logits(params, x, tasks, slots=slots)
    alone = torch.cat([model.logits(params, x[t : t + 1], t, slots=slots) for t in range(6)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("hidden", [False, True])
def test_folding_and_trimming_change_nothing(hidden: bool) -> None:
    model, params, slots = modular()
    if hidden:
        slots = slots._replace(visible=slots.counted & (torch.arange(6) != 5))
    x = torch.randn(7, 8, generator=torch.Generator().manual_seed(0))
    for task in range(6):
        expected = model.logits(params, x, task, slots=slots)
        less, fewer, _ = model.trim(params, slots, task=task)
        torch.testing.assert_close(model.logits(less, x, task, slots=fewer, fold=True), expected)
    less, fewer, _ = model.trim(params, slots)
    assert len(fewer.place) == 5
    mixed = torch.arange(7) % 6
    torch.testing.assert_close(model.logits(less, x, mixed, slots=fewer), model.logits(params, x, mixed, slots=slots))


def test_an_empty_or_younger_slot_has_no_effect() -> None:
    model, params, slots = modular()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    before = model.logits(params, x, 4, slots=slots)
    params["module.weight"][4:] = 100  # slot 4 is empty, slot 5 is younger than task 4
    params["structure"][4, 4:] = 100
    assert torch.equal(model.logits(params, x, 4, slots=slots), before)
    assert not torch.equal(model.logits(params, x, 5, slots=slots), before)


def test_hiding_renormalises_or_keeps_the_shares_of_the_rest() -> None:
    model, params, slots = modular()
    visible = slots.counted & (torch.arange(6) != 5)
    kept = model.shares(params, slots._replace(visible=visible), 5)
    full = model.shares(params, slots, 5)
    torch.testing.assert_close(kept[:5], full[:5])
    assert (kept.sum(0) < 1).all()
    clean = model.shares(params, slots._replace(counted=visible, visible=visible), 5)
    torch.testing.assert_close(clean.sum(0), torch.ones(3))
    torch.testing.assert_close(clean[:5], full[:5] / full[:5].sum(0))


def test_dropout_spares_the_basis_unless_asked() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    for everywhere in (False, True):
        model, params, slots = modular(everywhere)
        shapes = model.soft_masks(5, 6)
        assert [shape[0] for shape in shapes] == [6 if everywhere else 2] * 3
        masks = [torch.ones(shape) for shape in shapes]
        torch.testing.assert_close(
            model.logits(params, x, 5, slots=slots, masks=masks), model.logits(params, x, 5, slots=slots)
        )
        gone = model.logits(params, x, 5, slots=slots, masks=[torch.zeros(shape) for shape in shapes])
        shares = model.shares(params, slots, 5)
        if not everywhere:
            shares[4:] = 0
        expected = plain(params, shares, 5, x) if not everywhere else params["head.bias"][5].expand(5, 2)
        torch.testing.assert_close(gone, expected)


def test_the_cached_projection_is_the_affine_map_of_every_image() -> None:
    block = Linear(64, 8)
    images = np.random.default_rng(0).integers(0, 17, (3000, 8, 8)).astype(np.uint8)
    rng = key(0, "projection")
    weight = torch.from_numpy(rng.uniform(-1 / 8, 1 / 8, (8, 64)).astype(np.float32))
    bias = torch.from_numpy(rng.uniform(-1 / 8, 1 / 8, 8).astype(np.float32))
    flat = torch.from_numpy(images).reshape(3000, 64).float() / 16
    torch.testing.assert_close(block.encode(images, 16, 0), flat @ weight.T + bias)


def test_three_channels_are_as_good_as_fifty_with_zeros() -> None:
    block = Conv(channels=3, side=16, peak=255, width=10, depth=2)
    weight, bias = block.start(np.random.default_rng(0), 2)
    x = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    h = block.enter(x)
    padded = F.pad(h, (0, 0, 0, 0, 0, 7))
    for module in range(2):
        full = torch.relu(F.max_pool2d(F.conv2d(padded, weight[module], bias[module], padding=1), 2))
        torch.testing.assert_close(block.run(weight, bias, h)[:, module], full)


def test_a_net_too_deep_for_its_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"net\.depth = 4 halves images of 8 x 8 pixels to nothing; use at most 3"):
        Conv(channels=3, side=8, peak=255, width=10, depth=4)


def test_masks_are_zero_or_two_half_each_and_a_lanes_own() -> None:
    rngs = [key(0, lane) for lane in range(3)]
    first, second = dropout.draw(rngs, [(50, 30), (7, 11)], 0.5, torch.device("cpu"))
    assert first.shape == (3, 50, 30)
    assert second.shape == (3, 7, 11)
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert abs(first.mean() - 1) < 0.05
    again = dropout.draw([key(0, 1)], [(50, 30), (7, 11)], 0.5, torch.device("cpu"))
    assert torch.equal(again[0][0], first[1])
    (rare,) = dropout.draw([key(0, 0)], [(200, 200)], 0.2, torch.device("cpu"))
    assert set(rare.unique().tolist()) == {0.0, 1.25}
    assert abs((rare == 0).float().mean() - 0.2) < 0.01


@pytest.mark.parametrize("named", ["module.weight", "head.weight", "head.bias"])
def test_masked_adam_is_adam_on_what_it_touches_and_nothing_elsewhere(named: str) -> None:
    made = fleet("modular-mlp", learner={"rate": 0.01})
    stack = start(made)
    name, part = named, (slice(0, 3),)
    shape = stack.params[name].shape[2:]
    lanes = len(stack.lanes)
    twins = [[torch.nn.Parameter(stack.params[name][lane, unit].clone()) for unit in range(3)] for lane in range(lanes)]
    adams = [[torch.optim.Adam([twin], lr=0.01) for twin in row] for row in twins]
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        gradient = torch.randn(lanes, 3, *shape, generator=generator)
        active = torch.rand(lanes, 3, generator=generator) > 0.4 if step % 3 else None
        before = stack.params[name].clone(), stack.of("mean")[name].clone(), stack.of("var")[name].clone()
        adam(made, stack, {name: part}, {name: gradient}, None if active is None else {name: active})
        for lane in range(lanes):
            for unit in range(3):
                if active is None or active[lane, unit]:
                    twins[lane][unit].grad = gradient[lane, unit]
                    adams[lane][unit].step()
                else:
                    for group, old in zip((stack.params, stack.of("mean"), stack.of("var")), before, strict=True):
                        assert torch.equal(group[name][lane, unit], old[lane, unit])
                torch.testing.assert_close(stack.params[name][lane, unit], twins[lane][unit].data)
                state = adams[lane][unit].state[twins[lane][unit]]
                assert stack.of("steps")[name][lane, unit] == (state["step"] if state else 0)
        assert torch.equal(stack.params[name][:, 3:], before[0][:, 3:])


def test_assimilation_moves_the_candidate_the_structure_and_the_head_alone() -> None:
    made = fleet("modular-mlp")
    stack = start(made)
    stack.task = 4
    begin(made, stack)
    before = {name: tensor.clone() for name, tensor in stack.params.items()}
    learn_epoch([(made, stack)], 0)
    for name, tensor in stack.params.items():
        moved = (tensor != before[name]).flatten(2).any(2)
        assert moved[:, 4].all(), name
        moved[:, 4] = False
        assert not moved.any(), name


def test_adaptation_moves_living_modules_alone() -> None:
    made = fleet("modular-mlp")
    stack = start(made)
    stack.task = 5
    begin(made, stack)  # slot 4 stays empty
    before = {name: tensor.clone() for name, tensor in stack.params.items()}
    learn_epoch([(made, stack)], made.settings.learner.epochs - 1)
    assert torch.equal(stack.params["structure"], before["structure"])
    assert torch.equal(stack.params["head.weight"], before["head.weight"])
    moved = (stack.params["module.weight"] != before["module.weight"]).flatten(2).any(2)
    assert torch.equal(moved, alive(stack))


@pytest.mark.parametrize("adaptation", ["last", 2, "never"])
def test_accuracies_that_are_not_measured_again_have_not_changed(
    adaptation: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"adaptation": adaptation, "accept": 0.0, "epochs": 12}
    saved = simulate(fleet("modular-mlp", learner=rules))

    def again(world: World, stack: Stack, point: int, during: bool) -> None:
        stack.moved[:] = True  # test everything again
        measure(world, stack, point, during)

    monkeypatch.setattr(here, "measure", again)
    monkeypatch.setattr("shoal.fleet.lessons.measure", again)
    fresh = simulate(fleet("modular-mlp", learner=rules))
    torch.testing.assert_close(saved.accuracy, fresh.accuracy, rtol=0, atol=0, equal_nan=True)


def test_replay_memory_holds_distinct_training_images_with_their_labels() -> None:
    made = fleet("mlp")
    stack = simulate(made)
    for lane in range(len(stack.lanes)):
        for task in range(6):
            held = made.inputs[made.train.rows[lane, task]]
            match = (stack.of("memory")["x"][lane, task][:, None] == held).all(-1)
            assert (match.sum(1) == 1).all()
            assert match.any(0).sum() == 8
            labels = made.train.labels[lane, task].expand(8, -1)[match]
            assert torch.equal(labels, stack.of("memory")["y"][lane, task])


def test_the_current_task_counts_by_the_rule() -> None:
    rules = ("with", "without", "max", "validation")
    runs = [simulate(fleet("modular-mlp", learner={"current": rule, "epochs": 22})) for rule in rules]
    by = {rule: run.accuracy[:, 4:, 1:-1].diagonal(4, 1, 3) for rule, run in zip(rules, runs, strict=True)}
    assert torch.equal(by["max"], torch.maximum(by["with"], by["without"]))
    assert ((by["validation"] == by["with"]) | (by["validation"] == by["without"])).all()
    assert not torch.equal(by["with"], by["without"])


def test_a_lane_with_fewer_images_stops_early_and_is_left_alone() -> None:
    made = fleet("mlp")
    stack = start(made)
    whole = pool(made, stack, 0, past=False)
    short = replace(whole, sizes=[16, 40, 40])  # one batch of 16 for lane 0, three for the others
    parts = {name: (slice(0, tensor.shape[1]),) for name, tensor in stack.params.items()}
    after = []
    for batch in batches(short, generators(stack, "test"), 16):
        backend(made, stack).take([Step(batch, parts, 0, {})])
        after.append({name: tensor.clone() for name, tensor in stack.tensors.items()})
    assert len(after) == 3
    for name, tensor in after[0].items():
        assert torch.equal(after[2][name][0].nan_to_num(), tensor[0].nan_to_num()), name
    assert after[2]["steps/module.weight"][:, 0].tolist() == [1, 3, 3]
    assert not torch.equal(after[2]["params/module.weight"][1], after[0]["params/module.weight"][1])


def test_many_modules_still_get_a_place_each() -> None:
    model = Modular(Linear(64, 8), depth=4, tasks=6, classes=2, basis=16, initial=4, dropout_basis=False, rule="onehot")
    assert len(model.choose(np.random.default_rng(0)).unique()) == 16


def test_a_lane_that_diverges_is_named() -> None:
    with pytest.raises(ValueError, match=r"agent 0 of seed 0 diverged in task 4, epoch 1: .* learner\.rate \(1e\+30\)"):
        simulate(fleet("mlp", learner={"rate": 1e30}))


def test_a_stack_of_other_lanes_is_refused() -> None:
    with pytest.raises(ValueError, match="of other lanes"):
        simulate(fleet("mlp"), start(fleet("mlp", seed=5)))


def test_images_that_are_not_square_need_an_mlp() -> None:
    tall = colours()
    with pytest.raises(
        ValueError, match=r"a cnn reads square images, .* the rows of `colours` have shape \[3, 16, 8\]"
    ):
        conv(fleet("cnn").settings.net, replace(tall, images=tall.images[..., :8]))


@pytest.mark.parametrize("side", [4, 5, 7])
def test_pooling_is_the_same_with_and_without_a_gradient(side: int) -> None:
    z = torch.from_numpy(key(0, "pool").standard_normal((3, 2, side, side)))
    learns = z.clone().requires_grad_()
    assert torch.equal(halved(z), F.max_pool2d(z, 2))
    assert torch.equal(halved(learns).detach(), halved(z))
    (want,) = torch.autograd.grad(halved(learns).sum(), learns)
    (found,) = torch.autograd.grad(torch.vmap(halved)(learns[:, None]).sum(), learns)  # without equal numbers
    assert torch.equal(found, want)
