"""Nets of a stranger: any `nn.Module` learns, shares and is averaged like ours."""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shoal
from shoal import data
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.compiled.library import kernel
from shoal.compiled.recurrent import InKernel
from shoal.configure.reading import resolve
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.models.recurrent import Steps, gated
from shoal.models.table import MODELS, wrapped
from tests.fleets import colours, exchange


class Convolutions(nn.Module):
    """A small convolutional net with group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.second(nn.functional.max_pool2d(h, 2)))


class Attention(nn.Module):
    """A tiny transformer over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.place = nn.Linear(8, 16), nn.Parameter(torch.randn(8, 16) / 4)
        self.read, self.leave = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.wide, self.narrow = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x.squeeze(1)) + self.place
        q, k, v = self.read(self.norm(h)).chunk(3, -1)
        h = h + self.leave((q @ k.mT / 4).softmax(-1) @ v)
        h = h + self.narrow(torch.relu(self.wide(self.norm(h))))
        out: Tensor = self.last(h.mean(1))
        return out


class Frozen(nn.Module):
    """A layer that was learned elsewhere, and one that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(64, 32), nn.Linear(32, 16)
        with torch.no_grad():
            self.before.weight.copy_(torch.eye(32, 64) + torch.eye(32, 64).flip(1))
            self.before.bias.zero_()
        self.before.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.after(self.before(x.flatten(1))))


class Normalised(nn.Module):
    """A net that keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(64, 16), nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.layer(x.flatten(1))))


class Dropping(nn.Module):
    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(64, 16), nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.drop(self.layer(x.flatten(1)))
        return found


NETS = {
    "convolutions": wrapped(Convolutions),
    "attention": wrapped(Attention, own=True),
    "normalised": wrapped(Normalised),
    "dropping": wrapped(Dropping),
    "frozen": wrapped(Frozen),
}


@pytest.fixture(autouse=True)
def nets() -> Iterator[None]:
    """The nets of this file, in the table while its tests run."""
    for name, entry in NETS.items():
        MODELS.add(name, entry)
    yield
    for name in NETS:
        MODELS.remove(name)


def small(model: str, **changes: Any) -> World:
    raw: dict[str, Any] = {
        "model": model,
        "agents": 3,
        "tasks": {"count": 4, "classes": 2, "initial": 2, "train": 16, "validation": 5},
        "learner": {"epochs": 8, "batch": 8, "memory": 8, "rate": 5e-3},
        **changes,
    }
    return world(resolve(raw), colours() if model == "convolutions" else data.load("digits"))


@pytest.mark.parametrize("mode", [None, "recv", "fedavg"])
@pytest.mark.parametrize("model", ["convolutions", "attention"])
def test_a_net_of_ones_own_learns_alone_and_with_others(model: str, mode: str | None) -> None:
    made = small(model, sharing=[{"mode": mode, "every": 4}] if mode else [])
    stack = simulate(made)
    assert stack.accuracy[:, -1, -1].mean() > 0.7  # of two classes
    assert bool(len(stack.ledger)) == bool(mode)
    if mode == "fedavg":  # once averaged, all have trained on from the same weights
        bodies = [stack.params[name] for name in made.model.body]
        assert (stack.ledger.column("items") == 1).all()
        assert stack.ledger.column("floats")[0] == 1 + sum(tensor[0].numel() for tensor in bodies)


@pytest.mark.parametrize("model", ["convolutions", "attention"])
def test_loop_and_vmap_agree(model: str) -> None:
    """For an epoch: over many steps rounding grows."""
    few = {"epochs": 1, "batch": 8, "memory": 8, "rate": 5e-3}
    one, two = (simulate(small(model, learner=few, machine={"engine": engine})) for engine in ("loop", "vmap"))
    # The bias of attention's keys changes nothing: its gradient is rounding, which Adam makes steps of.
    gaps = torch.cat([(tensor - two.params[name]).abs().flatten() for name, tensor in one.params.items()])
    assert (gaps > 1e-4).float().mean() < 0.03


def test_the_modules_own_last_layer_becomes_the_heads() -> None:
    made = small("attention")
    assert made.model.read == 16
    assert not any("last" in name for name in made.model.body)


@pytest.mark.parametrize("threads", [1, 3])
def test_running_statistics_are_every_lanes_own(threads: int) -> None:
    stack = simulate(small("normalised", machine={"threads": threads}))
    kept = stack.of("model")
    assert (kept["norm.num_batches_tracked"] > 0).all()
    means = kept["norm.running_mean"]
    assert not torch.equal(means[0], means[1])
    if threads == 1:
        return
    one = simulate(small("normalised", machine={"threads": 1}))
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(tensor, stack.tensors[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("mode", ["fedavg", "fedprox", "fedcurv"])
def test_running_statistics_are_still_ones_own_after_an_exchange(mode: str) -> None:
    """What is learned is averaged; what a net has seen of its own rows is neither sent nor overwritten."""
    made = small("normalised", sharing=[{"mode": mode, "every": 1}])
    stack = start(made)
    stack.task = made.settings.tasks.initial
    for row in range(3):
        for name in ("norm.running_mean", "norm.running_var"):
            stack.of("model")[name][row] = row + 1
        stack.params["net.norm.weight"][row] = row
    exchange(made, stack)
    assert set(stack.params["net.norm.weight"].flatten().tolist()) == {1.0}, "nothing was averaged"
    for row in range(3):
        assert (stack.of("model")["norm.running_mean"][row] == row + 1).all()
        assert (stack.of("model")["norm.running_var"][row] == row + 1).all()


def test_a_net_with_running_statistics_is_not_for_vmap() -> None:
    with pytest.raises(
        SettingsError, match=r"not for machine\.engine = \"vmap\", because it writes `norm.running_mean`"
    ):
        small("normalised", machine={"engine": "vmap"})


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_what_is_frozen_stays_as_it_is_and_is_not_sent(engine: str) -> None:
    made = small("frozen", sharing=[{"mode": "fedavg", "every": 4}], machine={"engine": engine})
    assert list(made.model.body) == ["net.after.weight", "net.after.bias"]
    stack = simulate(made)
    first = Frozen()
    assert stack.accuracy[:, -1, -1].mean() > 0.7  # of two classes
    for name, kept in stack.of("model").items():
        assert (kept == first.state_dict()[name]).all()
    assert set(stack.of("model")) == {"before.weight", "before.bias"}
    assert stack.ledger.column("floats")[0] == 1 + sum(one.numel() for one in first.after.parameters())


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_dropout_of_its_own_is_drawn_from_named_paths(rate: float) -> None:
    """The same run again has the same bits, agents do not depend on each other, and other masks give other weights."""
    made = small("dropping", net={"dropout": rate})
    one = simulate(made)
    torch.manual_seed(7)
    two = simulate(small("dropping", net={"dropout": rate}))
    alone = simulate(world(made.settings, made.bank, list(made.lanes[:1])))
    name = "net.layer.weight"
    assert torch.equal(one.params[name], two.params[name])
    assert torch.allclose(one.params[name][:1], alone.params[name], atol=1e-5)
    MODELS.add("still", wrapped(partial(Dropping, 0.0)))
    try:
        still = simulate(small("still", net={"dropout": rate}))
    finally:
        MODELS.remove("still")
    assert not torch.allclose(one.params[name], still.params[name], atol=1e-4)


class Free(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(self.layer(x.flatten(1)), 0.5, self.training)


def test_dropout_that_no_mask_can_reach_is_refused() -> None:
    MODELS.add("free", wrapped(Free))
    try:
        with pytest.raises(SettingsError, match="draws random numbers from torch"):
            small("free")
    finally:
        MODELS.remove("free")


def taken_by(steps: type[torch.autograd.Function]) -> None:
    if steps is InKernel and kernel().library is None:
        pytest.skip(kernel().about)


@pytest.mark.parametrize("steps", [Steps, InKernel])
@pytest.mark.parametrize(("layers", "batch", "wide"), [(1, 11, 7), (2, 11, 7), (1, 1, 1), (1, 33, 32)])
def test_a_gru_is_mapped_and_comes_to_what_torch_comes_to(
    layers: int, batch: int, wide: int, steps: type[torch.autograd.Function]
) -> None:
    taken_by(steps)
    rng = torch.Generator().manual_seed(0)
    plain = nn.GRU(5, wide, layers, batch_first=True)
    ours = deepcopy(plain)
    for part in gated(ours):
        part.steps = steps
    assert type(plain) is nn.GRU
    x = torch.randn(batch, 6, 5, generator=rng)
    pulls = torch.randn(batch, 6, wide, generator=rng), torch.randn(layers, batch, wide, generator=rng)
    found = []
    for module in (plain, ours):
        rows = x.clone().requires_grad_()
        given = module(rows)
        sum((pull * one).sum() for pull, one in zip(pulls, given, strict=True)).backward()
        found.append([*given, rows.grad, *(one.grad for one in module.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [Steps, InKernel])
def test_states_of_a_gru_that_are_no_numbers_stay_none(steps: type[torch.autograd.Function]) -> None:
    taken_by(steps)
    weights = [torch.ones(one) for one in ((1, 6, 3), (1, 6), (1, 6, 2), (1, 6))]
    weights[0][0, 0, 0] = torch.nan
    states, *_ = steps.apply(torch.ones(1, 4, 5, 3), *weights)
    assert states[..., 0].isnan().all()


def test_a_gru_in_the_kernel_has_the_same_bits_whoever_else_is_there() -> None:
    taken_by(InKernel)
    rng = torch.Generator().manual_seed(0)
    sizes = ((4, 5, 9, 3), (4, 6, 3), (4, 6), (4, 6, 2), (4, 6))
    all_ = [torch.randn(one, generator=rng).requires_grad_() for one in sizes]
    found = []
    for rows in (slice(4), slice(2, 3)):
        given = [one[rows] for one in all_]
        states, _ = InKernel.apply(*given)  # type: ignore[no-untyped-call]
        found.append([states, *torch.autograd.grad(states.square().sum(), given)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one[2:3], other)


@pytest.mark.parametrize("odd", [{"bias": False}, {"bidirectional": True}, {"dtype": torch.float64}], ids=str)
def test_a_gru_of_another_kind_is_left_to_torch(odd: dict[str, Any]) -> None:
    module = nn.GRU(5, 7, batch_first=True, **odd)
    assert gated(module) == []
    assert module(torch.ones(2, 3, 5, dtype=odd.get("dtype", torch.float32)))[0].shape[:2] == (2, 3)


class Recurrent(nn.Module):
    """The last state of a GRU over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 9, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.gru(x.flatten(1, 2))[1][0]
        return last


def test_a_gru_learns_mapped_what_it_learns_one_after_the_other() -> None:
    def ended(engine: str, kernel: str = "auto") -> tuple[str, Stack]:
        tasks = {"count": 3, "classes": 2, "initial": 1, "train": 16, "validation": 4}
        machine = {"engine": engine, "kernel": kernel}
        fleet = shoal.Fleet("digits", model=Recurrent, agents=3, tasks=tasks, machine=machine)
        (world,) = shoal.prepare(fleet.settings)
        return world.engine, shoal.simulate(world)

    (chosen, ours), (_, looped) = ended("auto"), ended("loop")
    assert chosen == "vmap"
    (_, torch_s) = ended("auto", "torch")
    assert "net.gru.weight_hh_l0" in ours.params
    for name, tensor in ours.params.items():
        torch.testing.assert_close(tensor, looped.params[name], rtol=0, atol=1e-3, msg=name)
        torch.testing.assert_close(tensor, torch_s.params[name], rtol=0, atol=1e-3, msg=name)
    taken_by(InKernel)
    assert not torch.equal(ours.params["net.gru.weight_hh_l0"], torch_s.params["net.gru.weight_hh_l0"])  # it took them
