"""Nets and blocks of one's own: by name, of any shape of rows, and under the engine that suits them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shoal import data
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.configure.reading import resolve
from shoal.contracts.fleets import difference, saved
from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED
from shoal.models.contract import Model
from shoal.models.families import block_of, family
from shoal.models.table import GROWTH, MODELS, modular, named, wrapped
from shoal.settings.groups import Settings
from shoal.settings.writing import toml

HERE = __name__


class Tiny(nn.Module):
    """A layer behind rows of any shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x.flatten(1)))


def fixed() -> nn.Module:
    """A net for digits that gives classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


class Pixels(nn.Module):
    """A net that needs images with channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x)).flatten(1)


class Steps(nn.Module):
    """A net that needs series."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x)).flatten(1)


class Recurrent(nn.Module):
    """A net that vmap cannot map."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(7, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0][:, -1]
        return found


class Choosy(nn.Module):
    """A net whose way depends on what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x.flatten(1))
        return h if h.sum() > 0 else 2 * h


class Gate(nn.Module):
    """A gated layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(self.value(h)) * torch.sigmoid(self.gate(h))


class Patch(nn.Module):
    """A convolution that keeps the shape of images, which enter with as many channels as it has."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(self.layer(h))

    def enter(self, width: int) -> Tensor:  # `self` is the rows: a plain function is enough
        return nn.functional.avg_pool2d(self, 2).expand(-1, width, -1, -1)  # type: ignore[arg-type]


class Narrow(Gate):
    """Its output is narrower than its input."""

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h)[:, 1:]


class Normal(nn.Module):
    """A block with running statistics."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, h: Tensor) -> Tensor:
        found: Tensor = self.norm(h)
        return found


def rows(shape: tuple[int, ...], byte: bool) -> Bank:
    """Made-up rows of some shape, of three classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(180) % 3
    patterns = rng.normal(size=(3, *shape))
    values = patterns[labels] + 0.3 * rng.normal(size=(180, *shape))
    images = (127 + 40 * values).clip(0, 255).astype(np.uint8) if byte else values.astype(np.float32)
    return Bank(
        "rows", images, labels, np.zeros(180, np.int64), np.arange(180) // 3 % 4 == 3, 255 if byte else 1,
        ("a", "b", "c"), ("rows",), scale="peak" if byte else "standard",
    )  # fmt: skip


def small(model: Any, **changes: Any) -> Settings:
    raw: dict[str, Any] = {
        "model": named(model),
        "agents": 2,
        "tasks": {"count": 2, "classes": 2, "initial": 1, "train": 16, "validation": 4, "common": False},
        "net": {"width": 8, "depth": 2, "dropout": 0.2},
        "learner": {"epochs": 6, "batch": 8, "memory": 4, "rate": 0.01},
    }
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return resolve(raw)


def made(model: Any, bank: Bank | None = None, **changes: Any) -> World:
    return world(small(model, **changes), bank or data.load("digits"))


@pytest.fixture
def clean() -> Iterator[None]:
    """A table of models that is as it was."""
    before = set(MODELS.entries)
    yield
    for name in set(MODELS.entries) - before:
        MODELS.remove(name)


# Names


def test_a_class_is_named_by_where_it_is_imported_from() -> None:
    assert named(Tiny) == f"{HERE}:Tiny"
    assert named(fixed) == f"{HERE}:fixed"
    assert named(modular(Gate)) == f"modular-{HERE}:Gate"
    assert named("mlp") == "mlp"
    settings = small(modular(Gate))
    assert family(settings) == GROWTH
    assert block_of(settings) == f"{HERE}:Gate"
    assert resolve({"model": settings.model}).model in toml(settings)


@pytest.mark.usefixtures("clean")
def test_what_cannot_be_imported_is_named_in_this_program() -> None:
    class Tiny(nn.Identity):
        """Another one."""

    first = named(Tiny)
    assert first == named(Tiny) == "Tiny"
    assert MODELS.origin(first) == "added by this program"

    def again() -> type:
        class Tiny(nn.Identity):
            """A third one."""

        return Tiny

    assert named(again()) == "Tiny-2"
    assert named(lambda: nn.Flatten()) == "model"
    assert named(modular(Tiny)) == "modular-Tiny"


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (3, "`int` is no model, but 3"),
        (nn.Flatten(), "the model is one Flatten that exists already"),
        (lambda width: None, "is no model, but <function"),
    ],
)
def test_what_is_no_net_gets_a_sentence(thing: Any, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        named(thing)


def test_a_door_to_something_else_is_no_model() -> None:
    with pytest.raises(SettingsError, match="`fractions:Fraction` is no model"):
        resolve({"model": "fractions:Fraction"})
    with pytest.raises(SettingsError, match=r"a block of a modular net is an nn\.Module class"):
        resolve({"model": "modular-fractions:Fraction"})
    with pytest.raises(SettingsError, match="there is no model `modular-gate`"):
        resolve({"model": "modular-gate"})


# Shapes


@pytest.mark.parametrize(
    ("net", "shape", "byte"),
    [
        (Tiny, (5,), False), (Tiny, (3, 7), False), (Tiny, (6, 6), True), (Tiny, (2, 6, 6), True),
        (Pixels, (6, 6), True), (Pixels, (6, 6), False), (Pixels, (1, 6, 6), True), (Steps, (3, 7), False),
        (Recurrent, (3, 7), False), ("mlp", (3, 7), False), ("mlp", (5,), False), (modular(Gate), (3, 7), False),
        (modular(Patch), (1, 6, 6), True), (modular(Patch), (6, 6), True),
    ],
)  # fmt: skip
def test_nets_read_rows_of_any_shape_and_learn(net: Any, shape: tuple[int, ...], byte: bool) -> None:
    stack = simulate(made(net, rows(shape, byte), learner={"epochs": 12}))
    assert stack.accuracy[:, -1, -1].mean() > 0.7  # of two classes


def test_a_net_that_cannot_read_the_rows_says_why() -> None:
    with pytest.raises(SettingsError, match=r"cannot read the rows of `rows`, which have shape \[5\]: RuntimeError"):
        made(Pixels, rows((5,), False))
    with pytest.raises(SettingsError, match=r"a cnn reads square images, .* `rows` have shape \[5\]; use an mlp"):
        made("cnn", rows((5,), False))


def test_a_net_that_needs_what_nobody_gives_says_what() -> None:
    with pytest.raises(SettingsError, match="cannot be made without `width`; give it a default, or name a function"):
        made(Gate)


def test_heads_take_the_place_of_the_last_layer_by_a_setting() -> None:
    assert made(fixed).model.read == 10
    other = made(fixed, net={"replace_last": True})
    assert other.model.read == 12
    assert small(fixed).identity() != small(fixed, net={"replace_last": True}).identity()
    with pytest.raises(SettingsError, match=r"no linear layer .* say net\.replace_last=false"):
        made(Pixels, rows((6, 6), True), net={"replace_last": True})


# Engines


@pytest.mark.parametrize(
    ("net", "shape", "engine", "why"),
    [
        (Tiny, (8, 8), "vmap", "all agents pay off in one kernel"),
        (Pixels, (8, 8), "loop", "convolutions are faster one agent after the other"),
        (Choosy, (8, 8), "loop", "vmap cannot map it"),
        (modular(Gate), (8, 8), "vmap", "all agents pay off in one kernel"),
        (modular(Patch), (8, 8), "loop", "convolutions are faster one agent after the other"),
    ],
)
def test_a_net_says_which_engine_runs_it_and_why(net: Any, shape: tuple[int, ...], engine: str, why: str) -> None:
    there = made(net, rows(shape, True))
    assert there.engine == engine
    assert f"it runs under {engine}, because " in there.about
    assert why in there.about


def test_a_net_that_vmap_cannot_map_refuses_it() -> None:
    with pytest.raises(SettingsError, match=r'is not for machine.engine = "vmap", because vmap cannot map it'):
        made(Choosy, machine={"engine": "vmap"})


# Blocks


def test_blocks_of_ones_own_are_shared_by_modmod_and_averaged() -> None:
    tasks = {"count": 3, "classes": 4, "train": 8}
    mode = {"mode": "modmod", "min_similarity": -1e9}
    there = made(modular(Gate), sharing=[mode], learner={"accept": -1.0}, tasks=tasks)
    stack = simulate(there)
    sent = stack.ledger.among("kind", ["modules"]) & stack.ledger.among("verdict", [ACCEPTED])
    assert sent.any()
    assert stack.params["module.gate.weight"].shape[2:] == (8, 8)
    averaged = simulate(made(modular(Gate), sharing=[{"mode": "fedavg", "every": 2}]))
    assert averaged.ledger.among("verdict", [ACCEPTED]).all()


def test_a_fleet_of_own_blocks_is_resumed_where_it_was() -> None:
    there = made(modular(Patch), tasks={"count": 3}, net={"width": 2})
    states: list[Any] = []
    end = simulate(there, watch=lambda stack: states.append(stack.take(range(2), there.lanes)))
    (again,) = saved([there], [states[len(states) // 2]])
    assert not difference(simulate(there, again), end)


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (Narrow, r"makes \['B', 7\] of \['B', 8\], and its output must have the shape of its input"),
        (Normal, "writes `norm.running_mean` while it learns, which modules that several tasks use cannot have"),
        (nn.Identity, "has no weights, and so nothing to learn or share"),
        (Pixels, r"cannot read \['B', 8\]: RuntimeError"),
    ],
)
def test_a_block_that_cannot_be_one_says_why(block: Any, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        made(modular(block))


def test_the_frozen_projection_in_front_of_a_block_is_that_of_the_mlp() -> None:
    models: list[Model] = [made(net).model for net in (modular(Gate), "modular-mlp")]
    images = data.load("digits").images[:3]
    one, two = (model.encode(images, 16, 7) for model in models)
    assert torch.equal(one, two)


def test_an_entry_of_the_table_is_as_good_as_a_class() -> None:
    entry = wrapped(fixed, own=True)
    MODELS.add("entered", entry)
    try:
        assert named(entry) == "entered"
        assert made("entered").model.read == 12
    finally:
        MODELS.remove("entered")
    assert replace(entry, about="x").about == "x"
