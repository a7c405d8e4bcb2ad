"""Fed-A-GEM: no step against what the neighbourhood remembers."""

import pytest
import torch

from shoal.learners.fisher import snapshot
from shoal.learners.slopes import memories, slope_on
from shoal.letters.mail import Mail
from shoal.sharing.fedagem import FedAGEM, projected
from tests.fleets import exchange
from tests.sharing.test_formulas import ready


def test_what_points_against_it_is_taken_out_of_a_gradient() -> None:
    found = {"w": torch.tensor([[[1.0, -2.0]], [[1.0, 2.0]], [[-1.0, 0.0]]])}
    wanted = {"w": torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 0.0]]])}
    assert projected(found, wanted)["w"].tolist() == [[[1.0, 0.0]], [[1.0, 2.0]], [[-1.0, 0.0]]]


def test_units_that_are_an_agents_own_stay() -> None:
    found, wanted = {"w": torch.tensor([[[-1.0], [5.0]]])}, {"w": torch.tensor([[[1.0]]])}
    assert projected(found, wanted)["w"].tolist() == [[[0.0], [5.0]]]


def test_the_sum_is_of_ones_own_and_those_that_came_one_exchange_later() -> None:
    world, stack, _ = ready({"mode": "fedagem", "samples": 8})
    posted: list[Mail] = []
    exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    state = stack.of("fedagem")
    assert {mail.kind for mail in posted} == {"model"}  # there is no gradient yet
    assert not any(state[f"sum.{name}"].any() for name in world.model.body)
    own = [slope_on(world, stack, row, *mine) for row, mine in enumerate(memories(world, stack, 8))]
    first = {name: torch.stack([one[name] for one in own]) for name in world.model.body}
    for name in world.model.body:
        assert torch.equal(state[f"own.{name}"], first[name])
    stack.epoch = 1
    exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    assert sum(mail.kind == "slope" for mail in posted) == 6
    for name in world.model.body:
        assert torch.allclose(state[f"sum.{name}"][0], first[name].sum(0), atol=1e-6)


def test_averaging_is_that_of_fedavg() -> None:
    ends = []
    for mode in ("fedavg", "fedagem"):
        world, stack, _ = ready({"mode": mode})
        exchange(world, stack)
        ends.append(snapshot(world, stack))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("on", [False, True])
def test_a_step_is_bent_only_against_what_is_remembered(on: bool) -> None:
    world, stack, _ = ready({"mode": "fedagem"})
    (mode,) = world.settings.sharing
    assert isinstance(mode, FedAGEM)
    found = {name: torch.ones_like(one) for name, one in snapshot(world, stack).items()}
    for name in found:
        stack.of("fedagem")[f"sum.{name}"].fill_(-1.0 if on else 1.0)
    parts = {name: (slice(0, one.shape[1]),) for name, one in found.items()}
    bent = mode.bends(world, stack, parts, found)
    for name, one in bent.items():
        assert torch.allclose(one, torch.zeros_like(one) if on else found[name], atol=1e-6)
