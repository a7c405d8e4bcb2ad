"""Frozen nets with low-rank parts: for an agent, for each of its tasks, or as modules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import shoal
from shoal import data, testing
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError, UserError
from shoal.letters.mail import ACCEPTED, Mail
from shoal.models.adapted import Adapted
from shoal.models.contract import body_shapes
from tests.fleets import colours

TASKS: dict[str, Any] = {"count": 4, "classes": 2, "train": 12, "validation": 6, "initial": 1}
LEARNER = {"epochs": 4, "memory": 4, "accept": -1.0}
CLOSE = 1e-5


class Seen(nn.Module):
    """A small convolutional net with a norm and a convolution of single channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.apart, self.last = nn.Conv2d(8, 8, 3, groups=8), nn.Linear(32, 16)
        with torch.no_grad():
            self.norm.register_buffer("running_mean", torch.full((8,), 0.1))  # it was learned somewhere

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.first(x)))
        h = nn.functional.max_pool2d(torch.relu(self.apart(h)), 2)
        return torch.relu(self.last(h.flatten(1)))


class Read(nn.Module):
    """A small transformer that reads the rows of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(self.enter(x.squeeze(1))).mean(1)
        return found


def seen() -> nn.Module:
    torch.manual_seed(3)
    return Seen()


def read() -> nn.Module:
    torch.manual_seed(3)
    return Read()


def fleet(base: Any = seen, per: Any = "agent", **changes: Any) -> shoal.Fleet:
    said: dict[str, Any] = {"agents": 3, "tasks": TASKS, "learner": {"epochs": 4, "memory": 4}}
    return shoal.Fleet("digits", model=shoal.adapted(base, per), **{**said, **changes})


def ran(made: shoal.Fleet, sent: list[Mail] | None = None) -> tuple[World, Stack]:
    (world,) = shoal.prepare(made.settings)
    return world, shoal.simulate(world, observe=lambda mail, _: sent.append(mail) if sent is not None else None)


@pytest.mark.parametrize("net", [seen, read])
@pytest.mark.parametrize("per", ["agent", "task", "module"])
def test_it_keeps_the_laws_of_models(net: Any, per: Any) -> None:
    testing.check(shoal.adapted(net, per))


@pytest.mark.parametrize("net", [seen, read])
@pytest.mark.parametrize("per", ["agent", "task"])
def test_it_begins_as_the_frozen_net(net: Any, per: Any) -> None:
    (world,) = shoal.prepare(fleet(net, per).settings)
    model = world.model
    x = world.inputs[:9]
    own = model.start(np.random.default_rng(1))
    with torch.no_grad():
        wanted = net().eval()(x.float() / world.bank.peak)
        found = model.features(own, x, 0, training=True, **model.usage(model.keeps(np.random.default_rng(1)), 0))
    assert torch.allclose(found, wanted, atol=CLOSE)
    least = 0.05 if net is seen else 0.03
    assert isinstance(model, Adapted)
    assert sum(one.numel() for one in own.values()) == model.numbers
    assert least < model.numbers / sum(one.numel() for one in net().parameters())


def test_what_was_learned_elsewhere_stays_and_what_is_added_learns() -> None:
    world, stack = ran(fleet())
    model = world.model
    frozen = {name: one for name, one in model.keeps(np.random.default_rng(0)).items() if name.endswith("original")}
    assert len(frozen) == 3
    for name, one in stack.of("model").items():
        assert name not in frozen or torch.equal(one, frozen[name].expand_as(one))
    seconds = [one for name, one in stack.params.items() if name.endswith("second")]
    assert len(seconds) == 3
    assert all(bool((one != 0).any()) for one in seconds)


def test_a_mean_sends_low_rank_parts_alone_and_fewer_with_one_factor_frozen() -> None:
    bytes_of = {}
    for factors in ("both", "second"):
        sent: list[Mail] = []
        world, stack = ran(fleet(sharing=[{"mode": "fedavg", "every": 2}], net={"factors": factors}), sent)
        assert {str(one) for one in stack.ledger.column("verdict")} == {ACCEPTED}
        names = {name for mail in sent for name in mail.payload} - {"modules"}
        assert names == set(world.model.body)
        assert all(name.endswith(("first", "second")[factors == "second" :]) for name in names)
        bytes_of[factors] = sum(mail.bytes for mail in sent)
    whole: list[Mail] = []
    ran(shoal.Fleet("digits", model=seen, agents=3, tasks=TASKS, learner={"epochs": 4, "memory": 4},
                    sharing=[{"mode": "fedavg", "every": 2}]), whole)  # fmt: skip
    assert bytes_of["second"] < 0.7 * bytes_of["both"]
    assert bytes_of["both"] < sum(mail.bytes for mail in whole)


def test_with_one_factor_frozen_the_mean_of_parts_is_the_mean_of_what_they_add() -> None:
    (world,) = shoal.prepare(fleet(net={"factors": "second"}).settings)
    layer = world.model.first.last.parametrizations.weight[0]  # type: ignore[attr-defined]
    rng = torch.Generator().manual_seed(0)
    shape = body_shapes(world.model)["net.last.parametrizations.weight.0.second"]
    seconds = torch.randn(3, *shape, generator=rng)
    nothing = torch.zeros(16, 32)

    def added(second: Tensor, first: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layer, {"second": second, "first": first}, (nothing,))
        return found

    fixed = layer.first.detach()
    mean = torch.stack([added(one, fixed) for one in seconds]).mean(0)
    assert torch.allclose(added(seconds.mean(0), fixed), mean, atol=CLOSE)
    firsts = torch.randn(3, *fixed.shape, generator=rng)  # with both, it is not
    both = torch.stack([added(one, other) for one, other in zip(seconds, firsts, strict=True)]).mean(0)
    assert not torch.allclose(added(seconds.mean(0), firsts.mean(0)), both, atol=0.1)


def test_with_parts_for_each_task_nothing_is_forgotten() -> None:
    (world,) = shoal.prepare(fleet(per="task").settings)
    after: list[dict[str, Tensor]] = []
    stack = shoal.simulate(
        world, watch=lambda now: after.append({name: one.clone() for name, one in now.params.items()})
    )
    name = "net.last.parametrizations.weight.0.second"
    assert bool((stack.params[name] != 0).flatten(2).any(2).all())  # every task has learned
    early = next(one for one in after if bool((one[name][:, 1] != 0).any()) and bool((one[name][:, 2] == 0).all()))
    assert torch.equal(early[name][:, 0], stack.params[name][:, 0])


def test_modules_of_low_rank_are_sent_by_modmod_with_heads() -> None:
    sent: list[Mail] = []
    made = fleet(
        per="module",
        sharing=[{"mode": "modmod", "min_similarity": -1.0}],
        tasks={**TASKS, "common": True},
        learner=LEARNER,
    )
    world, stack = ran(made, sent)
    modules = [mail for mail in sent if mail.kind == "modules"]
    assert modules
    assert {str(one) for one in stack.ledger.column("verdict")} == {ACCEPTED}
    assert world.model.body.keys() < set(modules[0].payload)
    assert "head.weight" in modules[0].payload
    numbers = sum(one[0].numel() for name, one in modules[0].payload.items() if name in world.model.body)
    assert numbers < sum(one.numel() for one in seen().parameters())


@pytest.mark.parametrize("per", ["agent", "task", "module"])
def test_an_agent_with_low_rank_parts_is_kept_and_says_the_same(per: Any, tmp_path: Path) -> None:
    bank = data.load("digits")
    agent = fleet(per=per).run().agents[0]
    rows = bank.images[np.isin(bank.labels, [bank.classes.index(one) for one in agent.classes()])][:20]
    before = agent.logits(rows)
    agent.save(tmp_path / "agent.safetensors")
    # What a file names is imported where its user allows it; here it is this test.
    again = shoal.Agent.load(tmp_path / "agent.safetensors", trust=True)
    assert torch.equal(again.logits(rows), before)


def test_what_cannot_be_adapted_is_said_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match="has no linear or convolution layer, and nothing that low-rank parts"):
        shoal.prepare(fleet(nn.Flatten).settings)
    with pytest.raises(
        SettingsError, match=r"what is adapted is an nn\.Module class, or a function that makes one, got 3"
    ):
        shoal.adapted(3)
    with pytest.raises(SettingsError, match=r"averages weights, and those of .* are frozen"):
        fleet(per="task", sharing=["fedavg"])
    with pytest.raises(SettingsError, match="drops out by itself, which modules that several tasks use cannot"):
        shoal.prepare(fleet(dropping, "module").settings)
    three = shoal.Data(colours())
    with pytest.raises(UserError, match=r"cannot read the rows of"):
        shoal.prepare(
            shoal.Fleet(
                three, model=shoal.adapted(seen), learner={"memory": 4}, tasks={**TASKS, "common": False}
            ).settings
        )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5))
