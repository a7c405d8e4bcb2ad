"""Models and graphs with settings of their own."""

import pickle
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shoal
from shoal.configure.reading import override
from shoal.errors import SettingsError
from shoal.models.nets import ModularNet
from shoal.settings.groups import Settings
from shoal.settings.writing import toml


class Layers(nn.Sequential):
    """A net of one's own with settings of its own."""

    def __init__(self, shape: tuple[int, ...], units: int = 6, slope: float = 0.1, kind: str = "plain") -> None:
        super().__init__(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], units), nn.LeakyReLU(slope))


class Gate(nn.Module):
    """A block of one's own."""

    def __init__(self, width: int, groups: int = 1) -> None:
        super().__init__()
        self.norm, self.value = nn.GroupNorm(groups, width), nn.Linear(width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.value(h)))


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("mine")
    module.Layers, module.Gate = Layers, Gate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", module)
    return "mine"


FEW: dict[str, Any] = {
    "dataset": "digits", "agents": 2, "seeds": 1, "tasks": {"count": 2, "initial": 1, "train": 8, "validation": 4},
    "learner": {"epochs": 1, "batch": 8, "memory": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"model": "mlp", "net": {"basis": 6}},
            'net.basis = 6 is for model = "factor", "modular-mlp", "modular-cnn" or ',
        ),
        ({"model": "mlp", "net": {"projections": 9}}, 'net.projections = 9 is for model = "ridge", got "mlp"; leave'),
        ({"model": "cnn", "net": {"rank": 2}}, 'net.rank = 2 is for model = "adapted-package.module:Net", "task-adap'),
        ({"model": "mlp", "net": {"basis": "x"}}, "`net.basis` cannot be 'x'; allowed: a whole number above 0"),
        ({"kinds": [{"name": "a", "agents": [1], "model": "mlp", "net": {"basis": 6}}]}, "kinds[0].net.basis = 6 is"),
        ({"network": {"graph": "tree", "p": 0.3}}, 'network.p = 0.3 is for network.graph = "random" or "connected", '),
        ({"network": {"graph": "random", "radius": 0.1}}, 'network.radius = 0.1 is for network.graph = "geometric", '),
    ],
)
def test_what_means_nothing_for_an_entry_is_refused_with_those_that_have_it(
    said: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**said)
    assert str(caught.value).startswith(sentence)


def test_what_is_at_its_default_says_nothing() -> None:
    for said in ({"model": "mlp", "net": {"basis": 4, "rank": 4}}, {"network": {"graph": "ring", "p": 0.5}}):
        names = {name: one for name, one in said.items() if name == "model"}
        assert Settings(**said, sharing="uniform") == Settings(**names, network="ring" if not names else "complete",
                                                               sharing="uniform")  # fmt: skip


NAMES: list[tuple[str, dict[str, Any]]] = [  # as they were when all nets and networks had all settings
    ("0e5ac127", {"model": "mlp", "dataset": "mnist"}),
    ("009717d6", {"model": "cnn", "dataset": "cifar100", "sharing": "recv"}),
    ("c501689a", {"model": "mlp", "dataset": "mnist", "protocol": "paper", "sharing": "recv"}),
    ("c83bf41d", {"model": "cnn", "dataset": "cifar100", "protocol": "paper"}),
    ("57c53888", {"model": "modular-cnn", "dataset": "mnist", "sharing": "modmod"}),
    ("2c0fc203", {"net": {"basis": 6, "dropout_basis": True, "initial_structure": "own"}}),
    ("2e47132d", {"model": "factor", "net": {"private": 2, "basis": 3}}),
    ("9eeb4199", {"model": "ridge", "net": {"projections": 50}}),
    ("9a35ac38", {"model": "mlp", "sharing": "uniform", "kinds": [
        {"name": "a", "agents": [1], "model": "cnn"},
        {"name": "b", "agents": [2], "model": "modular-cnn", "net": {"width": 9}},
        {"name": "c", "agents": [3], "model": "mlp"},
    ]}),
    ("63a8d6d7", {"sharing": "fedavg", "network": {"graph": "geometric", "radius": 0.4, "speed": 0.01}}),
    ("c5f544de", {"sharing": "fedavg", "network": {"graph": "ring", "p": 0.3, "changes": [
        {"task": 2, "graph": "connected"},
    ]}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), NAMES, ids=[name for name, _ in NAMES])
def test_runs_keep_the_names_that_they_had(name: str, said: dict[str, Any]) -> None:
    assert Settings(**said).identity() == name


def test_settings_files_of_then_are_read() -> None:
    now = Settings(model="cnn", sharing="fedavg", kinds=[{"name": "a", "agents": [1], "model": "modular-cnn"}])
    then = toml(now).replace("[net]\n", '[net]\nbasis = 4\ndropout_basis = true\ninitial_structure = "own"\nrank = 4\n')
    assert then != toml(now)
    found = Settings(**tomllib.loads(then))
    assert found == now
    assert found.identity() == now.identity()


def test_kinds_take_of_the_fleet_what_their_nets_have() -> None:
    kinds = [{"name": "a", "agents": [1], "model": "modular-mlp"}, {"name": "b", "agents": [2], "model": "cnn"}]
    settings = Settings(model="mlp", net={"width": 9, "basis": 6}, kinds=kinds)
    assert [one.net.width for one in settings.kinds] == [9, 9]
    assert isinstance(settings.kinds[0].net, ModularNet)
    assert settings.kinds[0].net.basis == 6
    assert [hasattr(one, "basis") for one in (settings.net, settings.kinds[1].net)] == [False, False]


def test_another_entry_leaves_the_settings_of_the_one_before(tmp_path: Path) -> None:
    raw: dict[str, Any] = {
        "model": "modular-mlp",
        "net": {"width": 8, "basis": 6},
        "network": {"graph": "random", "p": 0.3},
    }
    words = override(raw, ["model=mlp", "network=ring"])
    assert words["net"] == {"width": 8}
    assert words["network"] == {"graph": "ring"}
    assert override(raw, ["model=modular-cnn", "network=connected"])["net"] == {"width": 8, "basis": 6}
    kinds: dict[str, Any] = {"kinds": [{"name": "a", "agents": [1], "model": "modular-cnn"}]}
    assert override(raw | kinds, ["model=mlp"])["net"] == {"width": 8, "basis": 6}
    later = {"changes": [{"task": 2, "graph": "connected"}]}
    assert override({"network": raw["network"] | later}, ["network=ring"])["network"]["p"] == 0.3


@pytest.mark.parametrize("model", ["{}:Layers", "adapted-{}:Layers", "modular-adapted-{}:Layers"])
def test_what_a_net_asks_for_by_name_is_a_setting_of_it(mine: str, model: str) -> None:
    model = model.format(mine)
    usual, wide = (Settings(**FEW, model=model, sharing="none", net=net) for net in ({}, {"units": 9}))
    assert usual == Settings(**FEW, model=model, net={"units": 6, "slope": 0.1})
    assert usual.identity() != wide.identity()
    assert Settings(**tomllib.loads(toml(wide))) == wide
    assert pickle.loads(pickle.dumps(wide)) == wide
    assert wide.net.shape["units"] == 9
    with pytest.raises(SettingsError, match=r"`net.units` cannot be 'many'; allowed: a whole number"):
        Settings(**FEW, model=model, net={"units": "many"})
    with pytest.raises(SettingsError, match=r"unknown setting `net.unist`; did you mean `net.units`\?"):
        Settings(**FEW, model=model, net={"unist": 3})
    (world,) = shoal.prepare(wide)
    assert 9 in {size for one in world.model.start(np.random.default_rng(0)).values() for size in one.shape}


def test_a_block_has_settings_too(mine: str) -> None:
    kept = shoal.Fleet("digits", model=shoal.modular(Gate), net={"width": 8, "groups": 4, "depth": 2}, agents=2)
    assert kept.settings.net.shape == {"width": 8, "depth": 2, "basis": 4, "groups": 4}
    (world,) = shoal.prepare(kept.settings)
    assert world.settings.net.shape["groups"] == 4
