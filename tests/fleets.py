"""Small fleets for tests: digits for MLPs, made-up colour images for CNNs."""

from typing import Any

import numpy as np

from shoal import data
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.fleet.stack import Stack
from shoal.fleet.world import World, world
from shoal.mail.post import Observe
from shoal.settings.former import upgraded
from shoal.settings.reading import resolve
from shoal.sharing.exchange import meet

MLP: dict[str, Any] = {
    "dataset": "digits",
    "agents": 3,
    "tasks": {"count": 6, "train": 20, "validation": 10, "common": False},
    "net": {"width": 16},
    "learner": {"epochs": 4, "batch": 16, "memory": 8, "rate": 3e-3},
}
CNN: dict[str, Any] = {
    **MLP,
    "agents": 2,
    "tasks": {"count": 6, "classes": 3, "train": 8, "validation": 5, "common": False},
    "net": {"width": 6, "depth": 3},
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


def fleet(model: str, lanes: list[Lane] | None = None, **changes: Any) -> World:
    """A small fleet; `changes` replace single settings, or inside groups; only modular nets take those of growth."""
    raw = {**(CNN if model.endswith("cnn") else MLP), "model": model}
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return world(resolve(upgraded(raw)), colours() if model.endswith("cnn") else data.load("digits"), lanes)


def exchange(world: World, stack: Stack, ended: bool = False, observe: Observe | None = None) -> None:
    """`meet` of a fleet that is one stack."""
    meet([(world, stack)], ended, observe)
