"""Prototypes: means over agents, and the pull towards them."""

import numpy as np
import pytest
import torch

from shoal.agents.evaluate import nets
from shoal.configure.reading import resolve
from shoal.doors import line
from shoal.errors import SettingsError
from shoal.learners.batches import Batch
from shoal.learners.step import Frame
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Mail
from shoal.sharing.images import held
from shoal.sharing.mode import agent_of
from shoal.sharing.plan import plan
from shoal.sharing.prototypes import Prototypes, own_prototypes
from tests.fleets import exchange
from tests.sharing.test_formulas import ready


def test_a_prototype_is_the_mean_of_what_heads_read() -> None:
    world, stack, post = ready({"mode": "prototypes"})
    classes, means = own_prototypes(agent_of(post, world.lanes[0]))
    assert set(classes[:4].tolist()) == set(world.streams[0][2].classes)  # those of the current task come first
    own, net = held(world, stack, 0), nets(world, stack)[0]
    one = int(classes[0])
    rows = np.flatnonzero(own.labels == one)
    each = torch.cat([net.features(own.x[at : at + 1], int(own.task[at])) for at in rows])
    assert torch.allclose(means[0], each.mean(0), atol=1e-6)


def test_everybody_keeps_the_mean_over_itself_and_those_that_told() -> None:
    world, stack, post = ready({"mode": "prototypes", "when": "before"})
    mine = [own_prototypes(agent_of(post, lane)) for lane in world.lanes]
    exchange(world, stack)
    state = stack.of("prototypes")
    for known in range(10):
        told = [dict(zip(classes.tolist(), means, strict=True)) for classes, means in mine]
        others = [one[known] for one in told[1:] if known in one]
        assert bool(state["on"][0, known]) == bool(others)
        if others:
            every = [*others, *([told[0][known]] if known in told[0] else [])]
            assert torch.allclose(state["mean"][0, known], torch.stack(every).mean(0), atol=1e-6)


def test_the_price_is_that_of_every_exchange_and_its_line_promises_no_less() -> None:
    prices = []
    for every in (1, 2, 5):
        world, _, _ = ready({"mode": "prototypes", "every": every})
        (one,) = plan([world])
        prices.append(one.total_bytes / one.exchanges)
    assert prices == [prices[0]] * 3
    assert "one for each class and exchange" in line(Prototypes)
    assert "cheapest" not in line(Prototypes)


def test_the_pull_is_the_mean_squared_distance_of_classes_that_somebody_told_of() -> None:
    world, stack, _ = ready({"mode": "prototypes", "strength": 3.0})
    mode = world.settings.sharing[0]
    assert isinstance(mode, Prototypes)
    state = stack.of("prototypes")
    task = world.streams[0][1]
    state["on"][0, task.classes[0]] = 1
    state["mean"][0, task.classes[0]] = 0.5
    params = {name: tensor[0] for name, tensor in stack.params.items()}
    x = world.inputs[world.train.rows[0, 1, :3]]
    batch = Batch(x, torch.tensor([0, 1, 0]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1, 1, 1]))
    frame = Frame(world.model, params, params, {}, batch, {name: one[0] for name, one in state.items()})
    want = 3.0 * (world.model.features(params, x[:1], 1) - 0.5).square().mean() / 2
    assert torch.allclose(mode.penalty(frame), want)


def test_a_class_twice_or_huge_features_are_refused() -> None:
    world, _, post = ready({"mode": "prototypes"})
    mode, width = world.settings.sharing[0], world.model.read
    assert isinstance(mode, Prototypes)

    def verdict(classes: list[int], value: float) -> str:
        payload = {
            "classes": torch.tensor(classes, dtype=torch.int32),
            "mean": torch.full((len(classes), width), value),
        }
        return mode.objects(post, Mail(world.lanes[1], world.lanes[0], "prototypes", "prototypes", payload, 1))

    assert verdict([1, 2], 0.1) == ACCEPTED
    assert verdict([1, 1], 0.1) == OUT_OF_RANGE
    assert verdict([], 0.1) == OUT_OF_RANGE
    assert verdict([1, 2], 1e4) == TOO_LARGE


def test_modular_and_plain_nets_of_one_width_understand_each_other() -> None:
    kinds = [{"name": "flat", "agents": [1], "model": "mlp"}, {"name": "wide", "agents": [2], "net": {"width": 32}}]
    settings = resolve({"sharing": "prototypes", "agents": 4, "kinds": kinds})
    mode = settings.sharing[0]
    rest, flat, wide = (settings.of(name) for name in ("rest", "flat", "wide"))
    assert mode.fits(rest, flat)
    assert not mode.fits(rest, wide)


def test_numbers_have_no_prototypes() -> None:
    with pytest.raises(
        SettingsError, match=r"mode `prototypes` shares prototypes of classes, and with tasks\.classes = 1"
    ):
        resolve({"sharing": "prototypes", "tasks": {"classes": 1}})
