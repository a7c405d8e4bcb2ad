"""Nets of one's own and the paper's CNNs, beside what somebody would write by hand, or torch would do.

Own nets: whole runs of eight agents, batches of 32, beside a plain loop on one core that trains one agent after the
other with the same net, batches and fused Adam, and beside JAX on all cores, where it is installed and the net is
written in it (`bench/nets_in_jax.py`). What shoal spends beside steps (starting, testing, recording) counts against it;
the others only train, and JAX has compiled before. The steps of the chain and of ResNet-18 are timed alone, once more;
a whole run of ResNet-18 takes minutes. The paper's CNNs: epochs in the middle of the CIFAR-100 row, by the compiled
kernel beside the same by torch; GFLOP/s are of the convolutions as they are written, what the kernel leaves out
included.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shoal
from bench import cases, in_jax, nets_in_jax, results
from bench.problem import Weights
from bench.race import CLOCKS, Contender, race
from bench.speed import pool
from shoal.agents.engine import keep_memory
from shoal.agents.stack import start
from shoal.fleet.lessons import learn_epoch
from shoal.fleet.run import one_thread
from shoal.models.base import Stacked
from shoal.models.modular import Modular

AGENTS, TASKS, CLASSES, BATCH, RATE = 8, 2, 5, 32, 1e-3
PAPER = ("paper cnn", "paper modular-cnn")


class Recurrent(nn.Module):
    """A GRU over the rows of an image; its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(28, 48, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.gru(x.flatten(1, 2))[1][0]
        return last


class Block(nn.Module):
    """Two convolutions with BatchNorm, and a way around them."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        short = [nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)]
        self.around = nn.Sequential(*short) if stride > 1 or inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.way(x) + self.around(x))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())


def cnn() -> nn.Module:
    layers = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten())


def normed() -> nn.Module:
    first = (nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*first, *second)


def resnet() -> nn.Module:
    """ResNet-18 for small images."""
    wide = (64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(a, b, 1 + (b > a)) for a, b in zip((64, *wide), wide, strict=False)]
    first = (nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Case(NamedTuple):
    """A net, and the run that it is timed in."""

    make: Callable[[], nn.Module]
    colour: bool = False  # does it read images of three colours?
    epochs: int = 20
    train: int = 64  # images of a class
    whole: bool = True  # are runs timed, or only the epochs of a task?

    @property
    def steps(self) -> int:
        """Of one agent in what is timed."""
        return (TASKS if self.whole else 1) * self.epochs * -(-self.train * CLASSES // BATCH)


NETS = {
    "mlp": Case(mlp, epochs=60),
    "mlp, steps alone": Case(mlp, epochs=60, whole=False),
    "cnn": Case(cnn),
    "cnn with BatchNorm": Case(normed),
    "gru": Case(Recurrent),
    "resnet-18": Case(resnet, colour=True, epochs=4),
    "resnet-18, steps alone": Case(resnet, colour=True, epochs=1, train=12, whole=False),
}


def rows(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Images of noise, and their labels."""
    bank = cases.noise("noise", (3, 32, 32) if case.colour else (28, 28), TASKS * CLASSES, 10_000, 100)
    return bank.images, bank.labels


def fleet_of(case: Case) -> shoal.Fleet:
    """Agents with a net each."""
    x, y = rows(case)
    data = shoal.Data.from_arrays(x, y, agent=np.arange(len(x)) // (TASKS * CLASSES) % AGENTS)
    tasks = {"scenario": "split", "count": TASKS, "classes": CLASSES, "train": case.train, "validation": 4}
    learner = {"method": "none", "epochs": case.epochs, "batch": BATCH, "rate": RATE}
    return shoal.Fleet(
        data, model=case.make, learner=learner, tasks={**tasks, "replacement": False}, net={"dropout": 0.0}
    )


def ours(case: Case) -> cases.Work:
    """Whole runs of all agents, or epochs of their first task."""
    fleet = fleet_of(case)

    def run() -> int:
        fleet.run(progress=False)
        return AGENTS * case.steps

    if case.whole:
        return run
    (world,) = shoal.prepare(fleet.settings)
    stack = start(world)

    def learn() -> int:
        with one_thread():
            for epoch in range(case.epochs):
                learn_epoch([(world, stack)], epoch)
        return AGENTS * case.steps

    return learn


def read(case: Case) -> tuple[Tensor, Tensor]:
    """Images as nets read them, and their labels."""
    images, labels = rows(case)
    x = torch.from_numpy(images).float() / 255
    return x if case.colour else x[:, None], torch.from_numpy(labels)


def loop(case: Case) -> cases.Work:
    """One agent after the other, each with its net, a head for each task and a fused Adam; one of them at a time."""
    x, y = read(case)
    first = case.make()

    def work() -> int:
        net = case.make() if case.whole else first
        width = net(x[:2]).shape[1]
        for task in range(TASKS if case.whole else 1):
            head = nn.Linear(width, CLASSES)
            adam = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=RATE, fused=True)
            mine = (y // CLASSES == task).nonzero().squeeze(1)[: case.train * CLASSES]
            for _ in range(case.epochs):
                for at in mine[torch.randperm(len(mine))].split(BATCH):
                    adam.zero_grad()
                    F.cross_entropy(head(net(x[at])), y[at] % CLASSES).backward()
                    adam.step()
        return case.steps

    return work


def in_jax_of(net: str, case: Case, way: str, pieces: int) -> Callable[[], cases.Work]:
    """All agents in JAX, in so many pieces side by side: fresh nets at the start, for each task a head and an Adam."""
    x, y = read(case)
    count, each = case.train * CLASSES, AGENTS // pieces
    learned = range(TASKS if case.whole else 1)
    ours = [(y // CLASSES == task).nonzero().squeeze(1)[: AGENTS * count].view(AGENTS, count) for task in learned]
    tasks = [[(x[at], y[at] % CLASSES) for at in mine.split(each)] for mine in ours]
    parts = [nets_in_jax.Mapped(net, *data, BATCH, RATE, way) for data in tasks[0]]
    width = case.make()(x[:2]).shape[1]

    def learn(part: nets_in_jax.Mapped) -> None:
        for _ in range(case.epochs):
            part.epoch()

    def work() -> int:
        fresh = [stacked([case.make() for _ in range(each)]) for _ in parts]
        for data in tasks:
            for part, body, own in zip(parts, fresh, data, strict=True):
                head = stacked([nn.Linear(width, CLASSES) for _ in range(each)])
                part.begin(body | {f"head.{one}": tensor for one, tensor in head.items()}, own)
            list(pool(pieces).map(learn, parts))
            fresh = [part.weights() for part in parts]
        return AGENTS * case.steps

    return lambda: work


def stacked(modules: Sequence[nn.Module]) -> Weights:
    """The weights of modules that are alike, [L, ...]."""
    each = [dict(one.named_parameters()) for one in modules]
    return {name: torch.stack([one[name].detach() for one in each]) for name in each[0]}


def papers(model: str, kernel: str) -> tuple[Callable[[], cases.Work], float]:
    """Epochs of two agents of the paper's row, and the operations of the convolutions of a step."""
    bank = cases.noise("cifar100", (3, 32, 32), 100, 50_000, 1_000)
    fleet = cases.fleet_of(model, bank, 2, f"machine.kernel={kernel}")
    stack, net = cases.midway(fleet), fleet.model
    assert isinstance(net, Stacked)
    slots = net.slot(cases.TASK) + 1 if isinstance(net, Modular) else 1
    first, all_ = net.block.work(1), net.block.work(net.depth)
    modules = [1] if model == "cnn" else [slots, slots - 1]
    trained = [1, 0][: len(modules)]
    done = [many * (2 * all_ - first) + own * all_ for many, own in zip(modules, trained, strict=True)]
    return partial(cases.epochs, fleet, stack), 2 * fleet.settings.learner.batch * statistics.mean(done)


def contenders(name: str, clock: str) -> tuple[list[Contender], float]:
    """Ours first, then what it is measured by; and the operations of a step, if they are counted. Of the ways of JAX,
    which is compiled here, the one whose first run is the fastest."""
    cores = len(os.sched_getaffinity(0))
    if name in PAPER:
        made = {kernel: papers(name.removeprefix("paper "), kernel) for kernel in ("auto", "torch")}
        return [Contender(kernel, one, cores) for kernel, (one, _) in made.items()], made["auto"][1]
    case = NETS[name]
    found = [Contender("shoal", partial(ours, case), cores), Contender("loop", partial(loop, case), 1)]
    net = name.partition(",")[0]
    if net in nets_in_jax.NETS and in_jax.there():
        ways = [(way, pieces) for way in nets_in_jax.WAYS for pieces in sorted({1, min(cores, 2)})]
        all_ = [Contender(f"JAX {way}/{pieces}", in_jax_of(net, case, way, pieces), 1) for way, pieces in ways]
        first = race(all_, 0.0, 1, lambda: None, clock)
        found.append(max(all_, key=lambda one: first[one.name]))
    return found, 0.0


def measure(name: str, turns: int, seconds: float, clock: str) -> list[dict[str, Any]]:
    """Agent-steps per second of all in turn, and how many times as fast ours is."""
    racing, operations = contenders(name, clock)
    rates = race(racing, seconds, turns, lambda: None, clock)
    mine = rates[racing[0].name]
    return [beside(name, other.name, mine, rates[other.name], operations, clock) for other in racing[1:]]


def beside(
    name: str, other: str, mine: Sequence[float], theirs: Sequence[float], operations: float, clock: str
) -> dict[str, Any]:
    """A row of docs/results/nets.csv."""
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    counted = [round(statistics.median(some) * operations / 1e9, 1) if operations else "" for some in (mine, theirs)]
    return {
        "net": name, "cores": len(os.sched_getaffinity(0)), "clock": clock, "by_hand": other,
        "rate": statistics.median(mine), "by_hand_rate": statistics.median(theirs), "ratio": statistics.median(ratios),
        "ratio_low": min(ratios), "ratio_high": max(ratios), "gflops": counted[0], "by_hand_gflops": counted[1],
        "turns": len(ratios),
    }  # fmt: skip


def table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/nets.csv as a markdown table."""
    lines = [
        [
            row["net"], row["cores"], number(row["rate"]), f"{row['by_hand']}: {number(row['by_hand_rate'])}",
            f"{float(row['ratio']):.2f} ({float(row['ratio_low']):.2f} to {float(row['ratio_high']):.2f})",
            f"{float(row['gflops']):.0f}, {float(row['by_hand_gflops']):.0f}" if row["gflops"] else "",
        ]
        for row in rows
    ]  # fmt: skip
    return results.markdown(["net", "cores", "shoal", "beside", "times as fast", "GFLOP/s"], lines)


def number(said: str) -> str:
    """A rate, whole where it is large."""
    return f"{float(said):,.0f}" if float(said) >= 100 else f"{float(said):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", default=[*NETS, *PAPER], help=f"of {', '.join([*NETS, *PAPER])}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="where others work too: busiest")
    parser.add_argument("--csv", type=Path, help="also write the rows there, in the place of others of the same net")
    given = parser.parse_args()
    keep_memory()
    for name in given.nets:
        made = measure(name, given.turns, given.seconds, given.clock)
        for row in made:
            print(json.dumps(row), flush=True)
        if given.csv:
            cores = made[0]["cores"]
            kept = [one for one in results.read(given.csv) if (one["net"], int(one["cores"])) != (name, cores)]
            results.write(given.csv, [*kept, *(row | results.stamp() for row in made)])


if __name__ == "__main__":
    main()
