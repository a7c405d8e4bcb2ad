"""The stacked learners against the slow obvious twin: same data, weights and batches, dropout off: same weights."""

import numpy as np
import pytest
import torch

from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.fleet.run import simulate
from shoal.learners import adam
from shoal.learners.candidates import alive as living
from shoal.learners.modular import Growth
from shoal.models.families import family
from shoal.models.mlp import Linear
from shoal.models.modular import Modular
from shoal.models.monolithic import Monolithic
from shoal.models.table import GROWTH
from shoal.rng import key
from tests import twin
from tests.fleets import fleet


def twin_of(made: World, lane: int) -> tuple[twin.Agent, list[twin.Data]]:
    """The twin of a lane, with the same first weights, orders and choices, and its data."""
    settings, who, model = made.settings, made.lanes[lane], made.model
    assert isinstance(model, Modular | Monolithic)
    first = start(made)
    weights = {name: tensor[lane] for name, tensor in first.params.items() if name != "structure"}
    if isinstance(model, Modular):
        weights |= {name: tensor[: model.basis] for name, tensor in weights.items() if name.startswith("module.")}
    if isinstance(model.block, Linear):
        rng, bound = key(who.seed, "projection"), model.block.pixels**-0.5
        for name, shape in (("weight", (model.block.width, model.block.pixels)), ("bias", model.block.width)):
            weights[f"projection.{name}"] = torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))

    def order(kind: str, task: int, epoch: int, n: int) -> torch.Tensor:
        return torch.from_numpy(key(*who, "batches", kind, task, epoch).permutation(n))

    def keep(task: int, n: int) -> torch.Tensor:
        return torch.from_numpy(key(*who, "memory", task).permutation(n)[: settings.learner.memory])

    def candidate(task: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight, bias = model.block.start(key(*who, "candidate", task), 1)
        return weight[0], bias[0]

    growth = settings.learner if isinstance(settings.learner, Growth) else Growth()  # which a flat net does not read
    agent = twin.Agent(
        twin.Setting(
            kind=settings.model,
            tasks=settings.tasks.count,
            classes=settings.tasks.classes,
            initial=settings.tasks.initial,
            basis=getattr(settings.net, "basis", 4),
            threshold=growth.accept,
            depth=settings.net.depth,
            width=settings.net.width,
            inputs=64,
            side=16,
            epochs=settings.learner.epochs,
            batch=settings.learner.batch,
            rate=settings.learner.rate,
            memory=settings.learner.memory,
            dropout=0.0,
            fresh=settings.learner.fresh_adam,
            adaptation=growth.adaptation == "last",
            renormalise=growth.hidden == "renormalise",
        ),
        weights=weights,
        choice=first.of("model")["choice"][lane] if family(settings) == GROWTH else None,
        candidate=candidate,
        order=order,
        keep=keep,
    )

    def samples(task: int, name: str) -> twin.Samples:
        rows = getattr(made.streams[lane][task], name)
        x = torch.from_numpy(made.bank.images[rows]).float() / made.bank.peak
        return x, torch.from_numpy(made.streams[lane][task].labels(made.bank, rows))

    stream = [
        twin.Data(*(samples(task, name) for name in ("train", "validation", "test")))
        for task in range(settings.tasks.count)
    ]
    return agent, stream


def weights_of(stack: Stack, lane: int) -> dict[str, torch.Tensor]:
    """A lane's weights in the twin's layout: only the modules it has."""
    found = {name: tensor[lane] for name, tensor in stack.params.items()}
    if "structure" not in found:
        return found
    alive = living(stack)[lane].nonzero().squeeze(1)
    return found | {name: tensor[alive] for name, tensor in found.items() if name.startswith("module.")}


@pytest.mark.parametrize(
    ("model", "learner"),
    [
        ("mlp", {}),
        ("mlp", {"fresh_adam": True}),
        ("modular-mlp", {}),
        ("modular-mlp", {"accept": 0.1, "epochs": 12}),
        ("modular-mlp", {"hidden": "keep", "fresh_adam": True}),
        ("modular-mlp", {"adaptation": "never", "accept": 0.0}),
        ("cnn", {}),
        ("modular-cnn", {"accept": 0.0}),
        ("modular-cnn", {"hidden": "keep"}),
    ],
)
def test_a_lane_ends_with_the_weights_of_its_twin(model: str, learner: dict[str, object]) -> None:
    made = fleet(model, net={"dropout": 0.0}, learner=learner, tasks={"validation": "all"})
    stack, before = simulate(made), start(made)
    for lane in range(len(made.lanes)):
        agent, stream = twin_of(made, lane)
        table, _ = twin.run(agent, stream)
        mine, theirs = weights_of(stack, lane), agent.net.export()
        if isinstance(made.model, Modular):
            assert {task: bool(living(stack)[lane, made.model.slot(task)]) for task in agent.kept} == agent.kept
        for name in ("module.weight", "module.bias", "head.weight", "head.bias"):
            torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=2e-4)
            moved = (mine[name] - before.params[name][lane][: len(mine[name])]).abs().max()
            assert moved > 0.01, "too little was learned for a comparison to mean anything"
        torch.testing.assert_close(stack.accuracy[lane, :, -1], table[:, -1], rtol=0, atol=0.02, equal_nan=True)


def test_a_torch_without_its_fused_adam_learns_the_same_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """That name is private: a later torch may not have it, or take other arguments."""

    def otherwise(*_: object) -> None:
        raise TypeError("unexpected arguments")

    made = fleet("mlp", machine={"kernel": "torch"}, net={"dropout": 0.0}, tasks={"count": 3, "initial": 1})
    wanted = simulate(made).params
    for fused in (None, otherwise, lambda *_, **__: None):
        monkeypatch.setattr(adam, "FUSED", fused)
        adam.has_fused.cache_clear()
        assert not adam.has_fused()
        for name, tensor in simulate(made).params.items():
            torch.testing.assert_close(tensor, wanted[name], rtol=1e-3, atol=1e-4)
    monkeypatch.undo()
    adam.has_fused.cache_clear()
    assert adam.has_fused()
