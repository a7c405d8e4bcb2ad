"""What agents with one frozen net should train and share: all of it, low-rank parts of it (LoRA), or its heads alone.

`python -m bench.adapters [--data DIR] [--seeds N]` teaches a small convolutional net and a small transformer the ten
classes of Fashion-MNIST, gives them to six agents in a ring that learn five pairs of MNIST's digits each, and writes
docs/results/adapters.csv: final accuracy, and the bytes that a link carries per task. The rate of each case is the one
with which validation rows of seed 0 are answered better; the other seeds are measured.
"""

import argparse
import os
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shoal
from bench.results import read, stamp, write
from shoal import data
from shoal.agents.evaluate import accuracy

FILE = Path(__file__).parents[1] / "docs" / "results" / "adapters.csv"
AGENTS, COUNT, TAUGHT, PASSES, BATCH = 6, 5, 12_000, 3, 64
TESTED = 50  # test rows of each class
RATES = 1e-3, 1e-2
TASKS: dict[str, Any] = {"count": COUNT, "classes": 2, "train": 64, "validation": 20, "initial": 1, "common": False}
LEARNER: dict[str, Any] = {"epochs": 20}
FOLDER: list[Path | None] = [None]  # where data is looked for first


class Transformer(nn.Module):
    """Two layers of attention over the rows of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.place = nn.Linear(28, 32), nn.Parameter(torch.randn(28, 32) / 5)
        layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(self.enter(x.squeeze(1)) + self.place).mean(1)
        return found


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 36, 64), nn.ReLU(),
    )  # fmt: skip


@cache
def taught(name: str) -> tuple[dict[str, Tensor], float]:
    """The weights of a net that has learned Fashion-MNIST, and its test accuracy there in %."""
    bank = data.load("fashionmnist", FOLDER[0])
    net = {"cnn": convolutions, "transformer": Transformer}[name]
    rng = np.random.default_rng(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body, head = net(), nn.Linear(64 if name == "cnn" else 32, 10)

    def rows(at: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(bank.take(at))[:, None].float() / bank.peak, torch.from_numpy(bank.labels[at])

    steps = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3)
    known = rng.permutation(np.flatnonzero(~bank.test))[:TAUGHT]
    for _ in range(PASSES):
        for at in np.array_split(rng.permutation(known), TAUGHT // BATCH):
            x, y = rows(at)
            loss = F.cross_entropy(head(body(x)), y)
            steps.zero_grad()
            loss.backward()
            steps.step()
    with torch.no_grad():
        x, y = rows(np.flatnonzero(bank.test)[:2000])
        right = float((head(body(x)).argmax(1) == y).float().mean())
    return {key: one.detach().clone() for key, one in body.state_dict().items()}, 100 * right


def cnn() -> nn.Module:
    """The convolutional net as it was taught."""
    made = convolutions()
    made.load_state_dict(taught("cnn")[0])
    return made


def transformer() -> nn.Module:
    """The transformer as it was taught."""
    made = Transformer()
    made.load_state_dict(taught("transformer")[0])
    return made


def still_cnn() -> nn.Module:
    return cnn().requires_grad_(False)


def still_transformer() -> nn.Module:
    return transformer().requires_grad_(False)


class Case(NamedTuple):
    """What trains (`whole`, `heads` alone, or low-rank parts of an agent, a task, or as modules), and what is sent."""

    trains: str
    sharing: tuple[dict[str, Any], ...] = ()
    factors: str = "both"


MEANS = ({"mode": "fedavg", "every": 5},)
CASES = {
    "heads alone": Case("heads"),
    "whole net, alone": Case("whole"),
    "whole net, averaged": Case("whole", MEANS),
    "low-rank, alone": Case("agent"),
    "low-rank, both factors averaged": Case("agent", MEANS),
    "low-rank, one factor frozen, alone": Case("agent", (), "second"),
    "low-rank, one factor frozen, averaged": Case("agent", MEANS, "second"),
    "low-rank for each task, alone": Case("task"),
    "low-rank modules, alone": Case("module"),
    "low-rank modules, by modmod": Case("module", ({"mode": "modmod"},)),
}
NETS = {"cnn": (cnn, still_cnn), "transformer": (transformer, still_transformer)}


@cache
def digits() -> shoal.Data:
    """MNIST with fewer test rows."""
    bank = data.load("mnist", FOLDER[0])
    test = [np.flatnonzero(bank.test & (bank.labels == one))[:TESTED] for one in range(10)]
    at = np.concatenate([np.flatnonzero(~bank.test), *test])
    kept = {name: getattr(bank, name)[at] for name in ("images", "labels", "source", "test")}
    return shoal.Data(replace(bank, **kept))


def fleet(net: str, case: Case, seed: int, rate: float) -> shoal.Fleet:
    whole, still = NETS[net]
    model: Any = {"whole": whole, "heads": still}.get(case.trains)
    return shoal.Fleet(
        digits(), model=model or shoal.adapted(whole, case.trains),  # type: ignore[arg-type]
        agents=AGENTS, tasks=TASKS, learner={**LEARNER, "rate": rate}, net={"dropout": 0.0, "factors": case.factors},
        sharing=[dict(one) for one in case.sharing], network="ring", seed=seed,
    )  # fmt: skip


def validated(net: str, case: Case, rate: float) -> float:
    """How well validation rows of all tasks are answered at the end of seed 0."""
    (world,) = shoal.prepare(fleet(net, case, 0, rate).settings, yes=True)
    return float(accuracy(world, shoal.simulate(world), "validation", range(COUNT)).mean())


def measured(net: str, name: str, seeds: int) -> dict[str, Any]:
    """One line of the table; the error is over seeds."""
    finals, sent, trained = [], [], 0
    rate = max(RATES, key=lambda one: validated(net, CASES[name], one))
    for seed in range(1, seeds + 1):
        (world,) = shoal.prepare(fleet(net, CASES[name], seed, rate).settings, yes=True)
        stack = shoal.simulate(world)
        finals.append(100 * float(stack.accuracy[:, -1, -1].nanmean()))
        edges = max(1, len(world.edges)) * COUNT
        sent.append(float(stack.ledger.column("bytes").sum()) / edges if len(stack.ledger) else 0.0)
        trained = world.model.numbers
    error = float(np.std(finals, ddof=1) / seeds**0.5) if seeds > 1 else 0.0
    row = {
        "net": net,
        "case": name,
        "seeds": seeds,
        "rate": rate,
        "numbers": trained,
        "final": f"{np.mean(finals):.2f}",
    }
    row |= {"final_se": f"{error:.2f}", "bytes_per_link_task": round(float(np.mean(sent)))}
    print(*row.values(), sep=",", flush=True)
    return row | stamp()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", type=Path, default=os.environ.get("SHOAL_DATA"), help="where the MNISTs are")
    words.add_argument("--seeds", type=int, default=2)
    words.add_argument("--nets", nargs="*", default=[*NETS], help="the nets; rows of others are kept")
    said = words.parse_args()
    FOLDER[0] = Path(said.data) if said.data else None
    for net in said.nets:
        print(f"{net}: {taught(net)[1]:.1f} % of Fashion-MNIST's test images", flush=True)
    for net in said.nets:
        for name in CASES:
            row = measured(net, name, said.seeds)
            kept = {(one["net"], one["case"]): one for one in read(FILE)} | {(net, name): row}
            write(FILE, [kept[key] for key in product(NETS, CASES) if key in kept])


if __name__ == "__main__":
    main()
