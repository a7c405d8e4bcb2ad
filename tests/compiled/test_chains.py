"""Nets of one's own that are chains of linear layers: they go to the kernel, and learn there what `loop` learns."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shoal
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.compiled.library import kernel as built
from shoal.fleet.lessons import learn_piece
from shoal.models.chains import chain_of
from shoal.models.foreign import masked

pytestmark = pytest.mark.skipif(built().library is None, reason=built().about)


class Written(nn.Module):
    """A chain that is written as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 33), nn.Linear(33, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(F.relu(self.first(x.view(x.size(0), -1))))
        return found


class Around(Written):
    """One that goes around its second layer."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x.flatten(1)))
        found: Tensor = self.second(h) + h[:, :10]
        return found


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 16), nn.ReLU())


def drops() -> nn.Module:
    first = (nn.Flatten(), nn.Linear(64, 21), nn.ReLU(), nn.Dropout(0.3))
    return nn.Sequential(*first, nn.Linear(21, 18), nn.Dropout(0.5), nn.ReLU(), nn.Linear(18, 13))


def worlds(make: Any, net: dict[str, Any], method: str, **machine: str) -> World:
    fleet = shoal.Fleet(
        "digits", model=make, net=net, agents=3, machine=machine,
        learner={"method": method, "epochs": 4, "batch": 12, "memory": 6},
        tasks={"count": 3, "classes": 2, "initial": 2, "train": 9, "validation": 4},
    )  # fmt: skip
    (world,) = shoal.prepare(fleet.settings)
    return world


@pytest.mark.parametrize("method", ["none", "replay", "ewc", "si", "derpp"])
@pytest.mark.parametrize(
    ("make", "net"),
    [
        (plain, {"dropout": 0.0}),
        (plain, {"dropout": 0.5}),
        (plain, {"dropout": 0.2}),
        (drops, {"dropout": 0.5}),
        (drops, {"dropout": 0.0}),
        (Written, {"dropout": 0.0}),
        (Written, {"dropout": 0.3, "replace_last": True}),
    ],
)
def test_chains_learn_by_the_kernel_what_they_learn_one_after_the_other(make: Any, net: Any, method: str) -> None:
    ours = worlds(make, net, method)
    assert ours.compiled
    looped = worlds(make, net, method, kernel="torch", engine="loop")
    assert not looped.compiled
    ends: list[Stack] = [shoal.simulate(world) for world in (ours, looped)]
    assert set(ours.model.body) < set(ends[0].params)
    for name, tensor in ends[0].params.items():
        torch.testing.assert_close(tensor, ends[1].params[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_chain_learns_the_same_bits_however_lanes_are_cut(rate: float) -> None:
    world = worlds(plain, {"dropout": rate}, "replay")
    whole = start(world)
    begun = whole.take(range(3), whole.lanes)
    learn_piece(world, whole, 0)
    assert not torch.equal(whole.params["net.1.weight"], begun.params["net.1.weight"])
    for rows in ([1], [2, 0]):
        some = begun.take(rows, [begun.lanes[row] for row in rows])
        learn_piece(world.piece(rows), some, 0)
        for name, tensor in some.tensors.items():
            assert torch.equal(tensor.nan_to_num(), whole.tensors[name][rows].nan_to_num()), name


def test_what_is_a_chain_and_what_is_not() -> None:
    def seen(module: nn.Module) -> list[tuple[str, bool, tuple[int, ...]]]:
        masked(module)
        return [tuple(layer) for layer in chain_of(module, torch.rand(23, 8, 8))]  # type: ignore[misc]

    assert seen(plain()) == [("1", True, ()), ("3", True, ())]
    assert seen(drops()) == [("1", True, (0,)), ("4", True, (1,)), ("7", False, ())]
    assert seen(Written()) == [("first", True, ()), ("second", False, ())]
    assert seen(Around()) == []
    assert seen(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh())) == []
    assert seen(nn.Sequential(nn.Flatten(), nn.Linear(64, 5, bias=False), nn.ReLU())) == []
    assert seen(nn.Sequential(nn.Linear(8, 5), nn.ReLU())) == []  # along the last axis of a row
    assert seen(nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 5))) == []
    assert seen(nn.Sequential(nn.Flatten(), nn.Linear(64, 5).requires_grad_(False), nn.ReLU())) == []
    again = nn.Linear(64, 64)
    assert seen(nn.Sequential(nn.Flatten(), again, nn.ReLU(), again)) == []
    assert seen(nn.Sequential(nn.Flatten())) == []


def test_a_chain_of_more_layers_than_the_kernel_knows_goes_through_torch() -> None:
    def deep() -> nn.Module:
        return nn.Sequential(nn.Flatten(), *(one for _ in range(9) for one in (nn.Linear(64, 64), nn.ReLU())))

    world = worlds(deep, {"dropout": 0.0}, "none")
    assert not world.compiled
    assert "chains" in world.about
