"""What is timed: stacks and the slow twin, both in the middle of the paper's streams, on images made of noise.

Speed does not depend on what the pixels show, so no dataset is needed.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from shoal.agents.memory import remember
from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.configure.reading import EXPERIMENTS, read
from shoal.data import Bank
from shoal.fleet.lessons import learn_epoch
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.settings.groups import Settings
from tests import twin

AGENTS = 8  # of the paper's fleets; more lanes are more seeds
TASK = 7  # the middle of the part of the stream in which a modular net grows: 8 modules, the candidate included

# Does some work once and says how many units (agent-steps, images) it was.
Work = Callable[[], int]


def noise(name: str, shape: tuple[int, ...], classes: int, train: int, test: int) -> Bank:
    """A bank of random images, all classes equally often."""
    rng, count = np.random.default_rng(0), train + test
    return Bank(
        name=name,
        images=rng.integers(0, 256, (count, *shape), np.uint8),
        labels=np.arange(count) % classes,
        source=np.zeros(count, np.int64),
        test=np.arange(count) >= train,
        peak=255,
        classes=tuple(str(c) for c in range(classes)),
        sources=(name,),
    )


def mnist(quick: bool = False) -> Bank:
    """Noise in the shape of MNIST."""
    return noise("mnist", (28, 28), 10, *((4_500, 500) if quick else (60_000, 10_000)))


def cifar(quick: bool = False) -> Bank:
    """Noise in the shape of CIFAR-100, a part of it: its size does not matter to a step."""
    return noise("cifar100", (3, 32, 32), 100, *((2_000, 500) if quick else (10_000, 1_000)))


def row(model: str, lanes: int, *changes: str) -> Settings:
    """The settings of the paper's MNIST row (MLPs) or CIFAR-100 row (CNNs), with as many lanes."""
    file = EXPERIMENTS / ("cifar100.toml" if model.endswith("cnn") else "mnist.toml")
    agents = min(lanes, AGENTS)
    if lanes % agents:
        raise ValueError(f"{lanes} lanes are not whole fleets of {AGENTS} agents; use 1 to {AGENTS} or a multiple")
    return read(file, [f"model={model}", "protocol=paper", f"agents={agents}", f"seeds={lanes // agents}", *changes])


def midway(fleet: World, task: int = TASK) -> Stack:
    """A stack at the start of `task`, untrained, with full memories and every candidate so far kept."""
    stack = start(fleet)
    for past in range(task):
        remember(fleet, stack, past)
    for stack.task in range(fleet.settings.tasks.initial, task + 1):
        fleet.settings.learner.begin(fleet, stack)  # a modular net grows a module
    return stack


def fleet_of(model: str, bank: Bank, lanes: int, *changes: str) -> World:
    """A world of the paper's row."""
    return world(row(model, lanes, *changes), bank)


def with_engine(fleet: World, engine: str) -> World:
    """The same world with another engine."""
    machine = fleet.settings.machine.model_copy(update={"engine": engine})
    return replace(fleet, settings=fleet.settings.model_copy(update={"machine": machine}))


def steps(settings: Settings) -> int:
    """Adam steps that one agent takes in an epoch of TASK: each batch once, or with and without the candidate."""
    tasks, learner = settings.tasks, settings.learner
    assert isinstance(tasks.train, int)
    images = tasks.train * tasks.classes + (0 if family(settings) == GROWTH else TASK * learner.memory)
    return -(-images // learner.batch) * (2 if family(settings) == GROWTH else 1)


def epochs(fleet: World, stack: Stack) -> Work:
    """Whole epochs of a copy of `stack`, with all that belongs to one: plan, gathering, dropout, gradients, Adam."""
    mine = stack.take(range(len(stack.lanes)), stack.lanes)
    count, total = 0, steps(fleet.settings) * len(stack.lanes)

    def work() -> int:
        nonlocal count
        learn_epoch([(fleet, mine)], count)
        count = (count + 1) % (fleet.settings.learner.epochs - 1)  # the last one adapts
        return total

    return work


def twin_of(fleet: World) -> twin.Agent:
    """The twin of a fleet's first lane where `midway` puts it: with as many modules, and with full memories."""
    made = fleet.settings
    agent = twin.Agent(
        twin.Setting(
            kind=made.model,
            tasks=made.tasks.count,
            classes=made.tasks.classes,
            initial=made.tasks.initial,
            basis=getattr(made.net, "basis", 4),
            depth=made.net.depth,
            width=made.net.width,
            inputs=int(np.prod(fleet.bank.images.shape[1:])),
            side=fleet.bank.images.shape[-1],
            batch=made.learner.batch,
            rate=made.learner.rate,
            memory=made.learner.memory,
            dropout=made.net.dropout,
            dropout_basis=getattr(made.net, "dropout_basis", False),
            fresh=made.learner.fresh_adam,
            renormalise=getattr(made.learner, "hidden", "renormalise") == "renormalise",
        )
    )
    for past in range(TASK):
        x, y = samples(fleet, past, "train")
        agent.memory[past] = x[: made.learner.memory], y[: made.learner.memory]
    for later in range(made.tasks.initial, TASK + 1):
        agent.begin(later)
    return agent


def samples(fleet: World, task: int, name: str) -> twin.Samples:
    """The images of a task of a fleet's first lane, as the twin reads them."""
    held = fleet.streams[0][task]
    rows = getattr(held, name)
    x = torch.from_numpy(fleet.bank.images[rows]).float() / fleet.bank.peak
    return x, torch.from_numpy(held.labels(fleet.bank, rows))


def twin_epochs(fleet: World) -> Work:
    """Whole epochs of the twin."""
    agent, train = twin_of(fleet), samples(fleet, TASK, "train")
    return lambda: agent.exercise(TASK, train, 1)
