"""Dictionaries: single fits, sparse codes, ELLA alone, and agreement by CoLLA."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import shoal
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.contracts.fleets import settings_of
from shoal.errors import SettingsError
from shoal.learners.closed import linear, logistic, sparse
from shoal.learners.ella import Ella, alike
from shoal.learners.table import LEARNERS
from shoal.letters.mail import Mail
from shoal.models.table import MODELS

AGENTS, TASKS, INPUTS, ATOMS, ROWS = 4, 25, 12, 6, 100


def made_up(classes: bool = False) -> shoal.Data:
    """Tasks of four agents whose predictors are sums of three of the same six atoms: numbers, or their signs
    as classes."""
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(ATOMS, INPUTS))
    count = AGENTS * TASKS
    codes = rng.normal(size=(count, ATOMS))
    codes[np.argsort(rng.random((count, ATOMS)), 1) < ATOMS // 2] = 0
    theta = codes @ atoms
    x = rng.normal(size=(count, ROWS, INPUTS))
    y = np.einsum("tni,ti->tn", x, theta) + 0.1 * rng.normal(size=(count, ROWS))
    y = (y > 0).astype(int) if classes else y
    of = np.repeat(np.arange(count), ROWS)
    return shoal.Data.from_arrays(x.reshape(-1, INPUTS), y.ravel(), agent=of // TASKS, task=of % TASKS)


def ran(
    graph: Any, epochs: int = 100, sent: list[Mail] | None = None, classes: bool = False, **more: Any
) -> tuple[World, Stack]:
    fleet = shoal.Fleet(
        made_up(classes), model="factor", sharing=["colla"], network=graph, learner={"epochs": epochs, "memory": 0},
        net={"basis": ATOMS} | more.pop("net", {}), tasks={"initial": TASKS - 1, "common": False}, **more,
    )  # fmt: skip
    (world,) = shoal.prepare(fleet.settings)
    return world, shoal.simulate(world, observe=lambda mail, _: sent.append(mail) if sent is not None else None)


def central(stack: Stack, decay: float) -> Tensor:
    """The dictionary that fits the tasks of all agents, [k D], from the statistics that none of them sends."""
    state = stack.of("ella")
    count = state["count"].double()
    gram = (state["gram"] / count[:, None, None]).sum(0) + len(count) * decay * torch.eye(state["gram"].shape[1])
    found: Tensor = torch.linalg.solve(gram, (state["target"] / count[:, None]).sum(0))
    return found


def gap(world: World, stack: Stack) -> float:
    """How far the farthest agent is from the central dictionary, relative to its length."""
    learner = world.settings.learner
    assert isinstance(learner, Ella)
    want = central(stack, learner.decay)
    return float((stack.params["dictionary"].flatten(1) - want).norm(dim=1).max() / want.norm())


@pytest.mark.parametrize(("graph", "classes"), [("ring", False), ("ring", True), ("server", False), ("complete", True)])
def test_agents_reach_the_dictionary_of_all(graph: str, classes: bool) -> None:
    assert gap(*ran(graph, classes=classes)) < 0.02


def test_lost_mail_leaves_agents_near_the_dictionary_of_all_and_not_at_it() -> None:
    whole, broken = (gap(*ran({"graph": "ring", "loss": loss}, epochs=20)) for loss in (0.0, 0.2))
    assert whole < 0.02 < broken < 0.5


def test_codes_are_found_in_common_atoms_until_those_of_the_agent_differ() -> None:
    atoms = torch.eye(3, 5, dtype=torch.float64)
    assert not alike(atoms)
    atoms[2] = atoms[0] + 2 * atoms[1]
    assert alike(atoms)
    assert alike(torch.zeros_like(atoms)[:1]) is False  # one atom has no other to be like


def test_a_message_is_the_shared_atoms_and_a_number() -> None:
    sent: list[Mail] = []
    _, stack = ran("ring", epochs=3, net={"private": 1}, sent=sent)
    wide = INPUTS + 1
    assert {tuple(mail.payload["dictionary"].shape) for mail in sent} == {(ATOMS, wide)}
    assert {mail.floats for mail in sent} == {ATOMS * wide + 1}
    own = stack.params["dictionary"][:, ATOMS:]
    assert own.shape == (AGENTS, 1, wide)
    assert not torch.allclose(own[0], own[1])


def test_alone_the_dictionary_solves_the_normal_equations_of_its_codes() -> None:
    world, stack = ran("disconnected", epochs=1)
    learner, state = world.settings.learner, stack.of("ella")
    assert isinstance(learner, Ella)
    count = float(state["count"][0])
    matrix = state["gram"][0] / count + learner.decay * torch.eye(state["gram"].shape[1])
    want = torch.linalg.solve(matrix, state["target"][0] / count)
    assert torch.allclose(stack.params["dictionary"][0].flatten(), want, rtol=1e-6, atol=1e-9)
    assert stack.params["dictionary"].dtype == torch.float64


def test_single_fits_are_where_the_loss_is_flat() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(40, 3, generator=rng, dtype=torch.float64), torch.ones(40, 1, dtype=torch.float64)], 1)
    held = torch.tensor([0.5, 0.5, 0.5, 0.0], dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0, 0.0, 0.3], dtype=torch.float64)
    theta, weight = linear(x, y, 0.5)
    assert torch.allclose(x.T @ (x @ theta - y) + held * theta, torch.zeros(4, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(weight, (x.T @ x + held.diag()) / 40)
    theta, weight = logistic(x, (y > 0).double(), 0.5)
    likely = torch.sigmoid(x @ theta)
    slope = x.T @ (likely - (y > 0).double()) + held * theta
    assert float(slope.abs().max()) < 1e-4
    assert torch.allclose(weight, (x.T @ torch.diag(likely * (1 - likely)) @ x + held.diag()) / 80)


def test_codes_are_where_no_atom_pulls_harder_than_it_costs() -> None:
    rng = torch.Generator().manual_seed(1)
    root = torch.randn(5, 4, 4, generator=rng, dtype=torch.float64)
    gram, target = root @ root.mT + 0.1 * torch.eye(4), torch.randn(5, 4, generator=rng, dtype=torch.float64)
    code = sparse(gram, target, 0.8)
    pull = 2 * (target - (gram @ code[..., None])[..., 0])
    on = code != 0
    assert on.any()
    assert not on.all()
    assert torch.allclose(pull[on], 0.8 * code[on].sign(), atol=1e-6)
    assert float(pull[~on].abs().max()) <= 0.8 + 1e-6
    dear = sparse(gram, target, 1e6)  # nothing would be left: least squares
    assert torch.allclose((gram @ dear[..., None])[..., 0], target, atol=1e-8)


def test_what_does_not_go_together_is_said_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"`ella` fits predictors in a dictionary, and `mlp` has none; use model ="):
        settings_of("mlp", learner={"method": "ella"})
    with pytest.raises(SettingsError, match="mode `colla` agrees on a dictionary, and `mlp` has none"):
        settings_of("mlp", sharing="colla")
    with pytest.raises(SettingsError, match="fits a task once, in closed form, and has no use for what mode `recv`"):
        settings_of("factor", sharing=[{"mode": "recv", "every": 2}])
    with pytest.raises(SettingsError, match=r'with a head for each task .*, got tasks.heads = "grow"'):
        settings_of("factor", tasks={"heads": "grow"})
    for method in LEARNERS:
        if method != MODELS["factor"].learner:
            with pytest.raises(SettingsError):
                settings_of("factor", learner={"method": method})
