"""All contenders of the bench learn the same: same weights, batches and masks first, the same weights at the end."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import shoal
from bench import by_hand, cases, in_jax, nets, nets_in_jax, tight
from bench.problem import Learns, Masks, Problem, problem
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.fleet.lessons import learn_epoch
from shoal.learners.batches import generators, pool
from shoal.models import dropout

TASK, LANES, EPOCHS = cases.TASK, 3, 2
SMALL = ("net.width=8", "learner.batch=24", "learner.memory=4", "tasks.train=16", "machine.threads=1")
CONTENDERS: dict[str, Callable[[Problem], Learns]] = {
    "tight": tight.Loop,
    "by hand": by_hand.Stacked,
    "jax": in_jax.Mapped,
}


def made(model: str, *changes: str) -> tuple[World, Stack, Problem]:
    fleet = cases.fleet_of(model, cases.mnist(quick=True), LANES, *SMALL, *changes)
    stack = cases.midway(fleet)
    return fleet, stack, problem(fleet, stack)


def order_of(stack: Stack, what: Problem, epoch: int) -> Tensor:
    """The order in which shoal takes the images of an epoch."""
    kind = "assimilate" if what.modules else "replay"
    drawn = generators(stack, "batches", kind, TASK, epoch)
    return torch.stack([torch.from_numpy(rng.permutation(what.images)) for rng in drawn])


def masks_of(stack: Stack, what: Problem, epoch: int) -> Masks:
    """The masks that shoal draws in an epoch."""
    rngs, width, modules = generators(stack, "dropout", TASK, epoch), what.x.shape[2], [1]
    if what.modules:
        dropped = what.weights["module.weight"].shape[1] - what.modules.basis
        modules = [dropped, dropped - 1]
    shapes = [[(count, width, what.batch)] * what.depth for _ in range(what.batches) for count in modules]
    return [dropout.draw(rngs, one, what.dropout, torch.device("cpu")) for one in shapes]


@pytest.mark.parametrize("dropped", [0.0, 0.5])
@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_a_contender_learns_what_shoal_learns(name: str, model: str, dropped: float) -> None:
    if name == "jax" and not in_jax.there():
        pytest.skip("jax is not installed")
    fleet, stack, what = made(model, f"net.dropout={dropped}")
    contender = CONTENDERS[name](what)
    for epoch in range(EPOCHS):
        masks = masks_of(stack, what, epoch) if dropped else None
        contender.epoch(order_of(stack, what, epoch), masks)
        learn_epoch([(fleet, stack)], epoch)
    wanted, found = problem(fleet, stack).weights, contender.weights()
    assert wanted.keys() == found.keys()
    for key, tensor in wanted.items():
        assert not torch.equal(tensor, what.weights[key]), f"{key} has not been trained"
        torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", CONTENDERS)
def test_a_contender_drops_about_half_and_learns_as_fast(name: str) -> None:
    """With masks of its own it cannot come to the same weights; but to about as large changes."""
    if name == "jax" and not in_jax.there():
        pytest.skip("jax is not installed")
    torch.manual_seed(0)  # contenders draw the order of images from torch's own state
    fleet, stack, what = made("mlp")
    contender: Any = CONTENDERS[name](what)
    for epoch in range(4):
        contender.epoch()
        learn_epoch([(fleet, stack)], epoch)
    wanted, found = problem(fleet, stack).weights, contender.weights()
    for key in ("module.weight", "head.weight"):
        ours, theirs = ((one[key] - what.weights[key]).square().mean().sqrt() for one in (wanted, found))
        assert 0.8 < float(theirs / ours) < 1.25


@pytest.mark.parametrize("way", nets_in_jax.WAYS)
@pytest.mark.parametrize("name", nets_in_jax.NETS)
def test_jax_learns_what_shoal_learns_with_nets_of_ones_own(name: str, way: str) -> None:
    if not in_jax.there():
        pytest.skip("jax is not installed")
    (world,) = shoal.prepare(nets.fleet_of(nets.NETS[name]._replace(train=32, epochs=EPOCHS)).settings)
    stack = start(world)
    held = pool(world, stack, 0, past=False)

    def weights() -> dict[str, Tensor]:
        """As torch names them; of the heads, that of the task."""
        named = {key.removeprefix("net."): tensor.squeeze(1) for key, tensor in stack.params.items()}
        return {key: (one[:, 0] if key.startswith("head.") else one).clone() for key, one in named.items()}

    before, (lanes, images) = weights(), held.y.shape
    contender = nets_in_jax.Mapped(name, held.x.float() / 255, held.y, nets.BATCH, nets.RATE, way)
    contender.begin(before)
    for epoch in range(EPOCHS):
        drawn = generators(stack, "batches", "initial", 0, epoch)
        contender.epoch(torch.stack([torch.from_numpy(rng.permutation(images)) for rng in drawn]))
        learn_epoch([(world, stack)], epoch)
    wanted, found = weights(), contender.weights()
    assert wanted.keys() == found.keys()
    for key, tensor in wanted.items():
        assert not torch.equal(tensor, before[key]), f"{key} has not been trained"
        assert found[key].shape == tensor.shape == (lanes, *tensor.shape[1:])
        # Adam makes a whole step of the rounding of a gradient near zero: torch comes as far from itself in double.
        assert (found[key] - tensor).norm() < 5e-3 * (tensor - before[key]).norm(), key
