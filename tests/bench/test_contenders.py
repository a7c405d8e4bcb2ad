"""All contenders of the bench learn the same: same weights, batches and masks first, the same weights at the end."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bench import by_hand, cases, in_jax, tight
from bench.problem import Learns, Masks, Problem, problem
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.fleet.lessons import learn_epoch
from shoal.learners.batches import generators
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
