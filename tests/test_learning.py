"""The stacked learners against the slow obvious twin: same data, weights and batches, dropout off: same weights."""

import numpy as np
import pytest
import torch

from shoal import data
from shoal.config import Settings, resolve
from shoal.models import Linear
from shoal.rng import key
from shoal.run import simulate
from shoal.stack import Stack, start
from shoal.tasks import Lane
from shoal.world import World, world
from tests import twin

SMALL = {
    "dataset": "digits",
    "agents": 3,
    "tasks": {"count": 6, "train": 20, "validation": 10, "common": False},
    "net": {"width": 16, "dropout": 0.0},
    "learner": {"epochs": 4, "batch": 16, "memory": 8, "rate": 3e-3},
}


def settings(model: str, **changes: dict[str, object]) -> Settings:
    raw = {**SMALL, "model": model}
    if model.endswith("cnn"):
        raw["net"] = {"width": 6, "depth": 3, "dropout": 0.0}
    return resolve({**raw, **{name: {**raw.get(name, {}), **group} for name, group in changes.items()}})


def fleet_of(model: str, **changes: dict[str, object]) -> World:
    return world(settings(model, **changes), data.load("digits"))


def twin_of(fleet: World, lane: int) -> tuple[twin.Agent, list[twin.Data]]:
    """The twin of a lane, with the same first weights, orders and choices, and its data."""
    made, who, model = fleet.settings, fleet.lanes[lane], fleet.model
    first = start(fleet)
    weights = {name: tensor[lane] for name, tensor in first.params.items() if name != "structure"}
    if made.modular:
        weights |= {name: tensor[: model.basis] for name, tensor in weights.items() if name.startswith("module.")}
    if isinstance(model.block, Linear):
        rng, bound = key(who.seed, "projection"), model.block.pixels**-0.5
        for name, shape in (("weight", (model.block.width, model.block.pixels)), ("bias", model.block.width)):
            weights[f"projection.{name}"] = torch.from_numpy(rng.uniform(-bound, bound, shape).astype(np.float32))

    def order(kind: str, task: int, epoch: int, n: int) -> torch.Tensor:
        return torch.from_numpy(key(*who, "batches", kind, task, epoch).permutation(n))

    def keep(task: int, n: int) -> torch.Tensor:
        return torch.from_numpy(key(*who, "memory", task).permutation(n)[: made.learner.memory])

    def candidate(task: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight, bias = model.block.start(key(*who, "candidate", task), 1)
        return weight[0], bias[0]

    agent = twin.Agent(
        twin.Setting(
            kind=made.model,
            tasks=made.tasks.count,
            classes=made.tasks.classes,
            depth=made.net.depth,
            width=made.net.width,
            inputs=64,
            side=8,
            epochs=made.learner.epochs,
            batch=made.learner.batch,
            rate=made.learner.rate,
            memory=made.learner.memory,
            dropout=0.0,
            fresh=made.learner.fresh_adam,
            adaptation=made.learner.adaptation == "last",
            renormalise=made.learner.hidden == "renormalise",
        ),
        weights=weights,
        choice=first.choice[lane] if made.modular else None,
        candidate=candidate,
        order=order,
        keep=keep,
    )

    def samples(task: int, name: str) -> twin.Samples:
        rows = getattr(fleet.streams[lane][task], name)
        x = torch.from_numpy(fleet.bank.images[rows]).float() / fleet.bank.peak
        return x, torch.from_numpy(fleet.streams[lane][task].labels(fleet.bank, rows))

    stream = [
        twin.Data(*(samples(task, name) for name in ("train", "validation", "test")))
        for task in range(made.tasks.count)
    ]
    return agent, stream


def weights_of(fleet: World, stack: Stack, lane: int) -> dict[str, torch.Tensor]:
    """A lane's weights in the twin's layout: only the modules it has."""
    found = {name: tensor[lane] for name, tensor in stack.params.items()}
    alive = stack.alive[lane].nonzero().squeeze(1)
    return found | {name: tensor[alive] for name, tensor in found.items() if name.startswith("module.")}


@pytest.mark.parametrize(
    ("model", "learner"),
    [
        ("mlp", {}),
        ("mlp", {"fresh_adam": True}),
        ("modular-mlp", {}),
        ("modular-mlp", {"hidden": "keep", "fresh_adam": True}),
        ("modular-mlp", {"adaptation": "never", "accept": 0.0}),
    ],
)
def test_a_lane_ends_with_the_weights_of_its_twin(model: str, learner: dict[str, object]) -> None:
    fleet = fleet_of(model, learner=learner)
    stack = simulate(fleet)
    for lane in range(len(fleet.lanes)):
        agent, stream = twin_of(fleet, lane)
        table, _ = twin.run(agent, stream)
        mine, theirs = weights_of(fleet, stack, lane), agent.net.export()
        if fleet.settings.modular:
            kept = {task: bool(stack.alive[lane, fleet.model.slot(task)]) for task in agent.kept}
            assert kept == agent.kept
        for name in ("module.weight", "module.bias", "head.weight", "head.bias"):
            torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=2e-4)
        ends = stack.accuracy[lane, :, -1]
        torch.testing.assert_close(ends, table[:, -1].float(), rtol=0, atol=0.02, equal_nan=True)
