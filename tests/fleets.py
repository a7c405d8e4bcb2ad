"""Small fleets for tests: digits for MLPs, made-up colour images for CNNs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from shoal import data
from shoal.agents.memory import remember
from shoal.agents.stack import MODEL, Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.configure.reading import resolve
from shoal.contracts.fleets import difference
from shoal.contracts.mode_case import made_of, suited
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.fleet.exchange import meet_all
from shoal.fleet.members import crew_of
from shoal.letters.ledger import COLUMNS, Ledger
from shoal.mail.post import Observe, Post
from shoal.models.modular import Modular
from shoal.runs import checkpoints
from shoal.runs.record import Record
from shoal.sharing.modes import MODES

MLP: dict[str, Any] = {
    "dataset": "digits",
    "agents": 3,
    "tasks": {"count": 6, "train": 20, "validation": 10, "common": False},
    "net": {"width": 16, "head": "random"},
    "learner": {"epochs": 4, "batch": 16, "memory": 8, "rate": 3e-3},
}
CNN: dict[str, Any] = {
    **MLP,
    "agents": 2,
    "tasks": {"count": 6, "classes": 3, "train": 8, "validation": 5, "common": False},
    "net": {"width": 6, "depth": 3, "head": "random"},
    "learner": {"epochs": 3, "batch": 16, "memory": 8, "rate": 3e-3},
}


def colours(name: str = "colours") -> Bank:
    """Images [N, 3, 16, 16] of 10 classes: a pattern of the class under noise."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 3, 16, 16))
    labels = np.tile(np.arange(10), 60)
    noisy = 0.5 * patterns[labels] + rng.integers(0, 128, (len(labels), 3, 16, 16))
    return Bank(
        name=name,
        images=noisy.clip(0, 255).astype(np.uint8),
        labels=labels,
        source=np.zeros(len(labels), np.int64),
        test=np.arange(len(labels)) % 3 == 2,
        peak=255,
        classes=tuple(f"{name}/{i}" for i in range(10)),
        sources=(name,),
    )


GROWTH = ("adaptation", "accept", "hidden", "current")  # what modular nets alone have


def plain(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings of a small fleet in which every agent splits the images for itself, and only modular nets have settings
    of growth, so that tests can say the same of all models."""
    model = raw.get("model", "modular-mlp")
    kinds = [grown(kind, model) for kind in raw.get("kinds", ())]
    tasks = {"tasks": {"draw": "agent", **raw["tasks"]}}
    return grown(raw, model) | tasks | ({"kinds": kinds} if kinds else {})


def grown(table: dict[str, Any], model: str) -> dict[str, Any]:
    """A fleet or a kind, without settings of growth if its net does not grow."""
    learner = table.get("learner", {})
    if table.get("model", model).startswith("modular-") or not isinstance(learner, dict) or "method" in learner:
        return table
    return table | {"learner": {name: value for name, value in learner.items() if name not in GROWTH}}


def fleet(model: str, lanes: list[Lane] | None = None, **changes: Any) -> World:
    """A small fleet; `changes` replace single settings, or inside groups; only modular nets take those of growth."""
    raw = {**(CNN if model.endswith("cnn") else MLP), "model": model}
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return world(resolve(plain(raw)), colours() if model.endswith("cnn") else data.load("digits"), lanes)


def last_saved(record: Record) -> tuple[Stack, ...] | None:
    """What a record has saved last, as it lies there."""
    if not record.checkpoint.exists():
        return None
    return checkpoints.opened(record.checkpoint, torch.device("cpu")).stacks(record.settings.learner.epochs)


def exchange(world: World, stack: Stack, ended: bool = False, observe: Observe | None = None) -> None:
    """`meet_all` of a fleet that is one stack."""
    meet_all(crew_of([world], [stack]), ended, observe)


# With four of ten classes in a task, agents have classes in common.
FEW: dict[str, Any] = {"count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4}


PIXELS = {"mlp": 8 * 8, "cnn": 3 * 16 * 16}
MODULE = {"mlp": 16 * 16 + 16, "cnn": 6 * 6 * 3 * 3 + 6}  # weights and biases


def tables_of(modes: str, every: int, **own: Any) -> list[dict[str, Any]]:
    """The [[sharing]] tables of modes joined by "+", with settings of their examples, and so often where they can."""
    examples = {name: dict(MODES[name].example) for name in modes.split("+")}
    # What learns heads alone first needs a further epoch for the rest.
    often = {name: max(every, example.get("head", 0) + 1) for name, example in examples.items()}
    return [
        {"mode": name, **example, **({"every": often[name]} if "every" in example else {}), **own}
        for name, example in examples.items()
    ]


def models_of(modes: str) -> list[str]:
    """The models that modes joined by "+" suit."""
    return suited([made_of(name) for name in modes.split("+")])


def model_of(modes: str) -> str:
    """The first model that they suit."""
    return models_of(modes)[0]


def same(one: Stack, other: Stack, but: Sequence[str] = ()) -> None:
    """Every tensor of two stacks is equal, bit for bit, `but` for those of some owners."""
    assert one.lanes == other.lanes
    name = difference(one, other, lambda name: name.partition("/")[0] in but)
    assert not name, f"`{name}` differs"


def total(stack: Stack) -> int:
    """The floats that all edges have carried."""
    return sum(use.total.floats for use in stack.ledger.uses.values())


def ready(model: str, tables: Sequence[dict[str, Any]], agents: int = 3, **changes: Any) -> tuple[World, Stack]:
    """Agents in task 2, not trained, with memories of the tasks before."""
    groups: dict[str, Any] = {
        "tasks": {**FEW, "count": 4},
        "learner": {"epochs": 6, "memory": 4},
    }
    groups = {name: {**group, **changes.pop(name, {})} for name, group in groups.items()}
    filled = [tables_of(table["mode"], 1)[0] | table for table in tables]
    world = fleet(model, agents=agents, sharing=filled, **groups, **changes)
    stack = start(world)
    for task in range(2):
        remember(world, stack, task)
        if isinstance(world.model, Modular) and task:
            stack.of(MODEL)["alive"][:, world.model.slot(task)] = True  # a module of zeros
    stack.task = 2
    return world, stack


def exchanges(world: World, stack: Stack, tasks: int = 1, observe: Observe | None = None) -> None:
    """All exchanges of some tasks, and no training."""
    epochs = world.settings.learner.epochs
    for _ in range(tasks):
        for epoch in range(epochs + 1):
            stack.epoch = epoch
            exchange(world, stack, epoch == epochs, observe)
        stack.task, stack.epoch = stack.task + 1, 0


def entries(ledger: Ledger) -> list[dict[str, Any]]:
    columns = [ledger.column(name).tolist() for name in COLUMNS]
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def singly(patch: pytest.MonkeyPatch) -> None:
    """All speak each for itself, and letters go one by one, each judged alone."""
    send, receive = Post.send, Post.receive
    patch.setattr(Post, "batched", False)
    patch.setattr(Post, "send", lambda self, mails: send(self, list(mails)))
    patch.setattr(Post, "receive", lambda self, mails: [said for mail in mails for said in receive(self, [mail])])
