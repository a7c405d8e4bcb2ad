"""What agents with one backbone should share, on CIFAR-100: sums, models, images or prototypes; accuracy against bytes.

`python -m bench.closed [--data DIR] [--seeds N] [--only WORD]` trains eight agents on features of the backbone
efficientnet-lite0: 100 classes in ten tasks of ten, each agent in its own order and with its own training rows (an
eighth of all), one head, and 40 test rows of every class to test on. It writes docs/results/closed.csv, where it keeps
rows of cases that it has not run, and docs/figures/closed.svg. Ridges, and a net's rate and epochs, are chosen by
validation rows, with the first seed.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

import shoal
from bench.results import STAMP, read, stamp, write
from shoal.agents.evaluate import accuracy
from shoal.backbones import bank_of
from shoal.data import Bank
from shoal.learners.gram import solved, squared, summed, total

T = TypeVar("T", int, float)

ROOT = Path(__file__).parents[1]
FILE, FIGURE = ROOT / "docs" / "results" / "closed.csv", ROOT / "docs" / "figures" / "closed.svg"
AGENTS, TASKS, TESTED = 8, 10, 40
COLUMNS = ("case", "family", "chosen", "epochs", "seeds", "final", "final_se", "worst", "bytes_per_link", "gap", *STAMP)
NET: dict[str, Any] = {"depth": 1, "width": 256, "dropout": 0.0}
STEPS: dict[str, Any] = {"batch": 64, "memory": 100}
RIDGES, RATES, EPOCHS = (1e-3, 1e-2, 1e-1, 1.0), (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (2, 5, 10, 20)
RATE, TIMES = 3e-4, 10  # with which nets begin


class Case(NamedTuple):
    """What agents share, and by which learner and net they learn."""

    family: str
    model: str
    sharing: tuple[Mapping[str, Any], ...] = ()
    network: Any = "ring"
    learner: str = "analytic"
    net: Mapping[str, Any] = {}
    epochs: int = 6


def sums(**said: Any) -> tuple[Mapping[str, Any], ...]:
    return ({"mode": "statistics", **said},)


GNP = {"graph": "connected", "p": 0.4}
LATE = TASKS - 1  # the last task: all that went before goes once
CASES: dict[str, Case] = {
    "alone, closed form": Case("alone", "ridge"),
    "statistics, ring": Case("statistics", "ridge", sums(start=LATE)),
    "statistics, tree": Case("statistics", "ridge", sums(start=LATE), "tree"),
    "statistics, G(8, 0.4)": Case("statistics", "ridge", sums(start=LATE), GNP),
    "statistics, ring, a fifth lost": Case(
        "statistics", "ridge", sums(start=LATE), {"graph": "ring", "loss": 0.2}, epochs=16
    ),
    "statistics, ring, single": Case("statistics", "ridge", sums(start=LATE, precision="single")),
    **{
        f"statistics, ring, {rank} eigenvectors": Case(
            "eigenvectors", "ridge", sums(start=LATE, precision="single", eigenvectors=rank)
        )
        for rank in (16, 128)
    },
    **{
        f"statistics, ring, {count} projections": Case(
            "projections", "ridge", sums(start=LATE, precision="single"), net={"projections": count}
        )
        for count in (250,)
    },
    "replay, alone": Case("alone", "plain-mlp", learner="replay", net=NET),
    "DER++, alone": Case("alone", "plain-mlp", learner="derpp", net=NET),
    "replay, fedavg": Case("fedavg", "plain-mlp", ({"mode": "fedavg", "every": 5},), learner="replay", net=NET),
    "DER++, fedavg": Case("fedavg", "plain-mlp", ({"mode": "fedavg", "every": 5},), learner="derpp", net=NET),
    "replay, prototypes": Case(
        "prototypes", "plain-mlp", ({"mode": "prototypes", "every": 5},), learner="replay", net=NET
    ),
}


def dealt(bank: Bank, seed: int) -> shoal.Data:
    """Rows of eight agents: training rows dealt evenly, the ten tasks of each in an order of its own; everybody is
    tested on the same test rows."""
    rng = np.random.default_rng([seed, 100])
    train = rng.permutation(np.flatnonzero(~bank.test))
    test = np.concatenate([np.flatnonzero(bank.test & (bank.labels == one))[:TESTED] for one in range(100)])
    rows, agents, tasks = [], [], []
    for agent, share in enumerate(np.array_split(train, AGENTS)):
        place = np.argsort(rng.permutation(100)) // (100 // TASKS)  # the task of each class
        rows.append(np.concatenate([share, test]))
        agents.append(np.full(len(rows[-1]), agent))
        tasks.append(place[bank.labels[rows[-1]]])
    at = np.concatenate(rows)
    found = shoal.Data.from_arrays(
        bank.images[at], bank.labels[at], agent=np.concatenate(agents), task=np.concatenate(tasks), test=bank.test[at]
    )
    return shoal.Data(replace(found.bank, scale="none", peak=1))


def fleet(case: Case, data: shoal.Data, choice: float, seed: int) -> shoal.Fleet:
    """Eight agents; the `choice` is of a ridge, or of a net's rate."""
    own = {"ridge": choice} if case.learner == "analytic" else {**STEPS, "rate": choice}
    said: dict[str, Any] = {"method": case.learner, "epochs": case.epochs, **own}
    tasks = {"heads": "one", "initial": 1, "common": False}
    return shoal.Fleet(
        data, model=case.model, net=dict(case.net), learner=said, sharing=[dict(one) for one in case.sharing],
        network=case.network, tasks=tasks, seed=seed,
    )  # fmt: skip


def ran(made: shoal.Fleet, split: str = "test") -> tuple[np.ndarray, float]:
    """Final accuracy of every agent on rows of a split in %, over all its tasks, and bytes per directed link."""
    (world,) = shoal.prepare(made.settings, yes=True)
    stack = shoal.simulate(world)
    found = accuracy(world, stack, split, range(TASKS)).mean(1)
    sent = float(stack.ledger.column("bytes").sum()) if len(stack.ledger) else 0.0
    return 100 * found.double().numpy(), sent / max(1, len(world.edges))


def tuned(case: Case, data: shoal.Data, seed: int) -> tuple[Case, float]:
    """A net's case with its number of epochs, and its rate, by validation rows alone."""

    @cache
    def ends(rate: float, epochs: int) -> float:
        found, _ = ran(fleet(case._replace(epochs=epochs), data, rate, seed), "validation")
        print(f"  rate {rate} in {epochs} epochs: {found.mean():.2f} of validation rows", flush=True)
        return float(found.mean())

    rate = climbed(RATES, RATE, lambda one: ends(one, TIMES))
    return case._replace(epochs=climbed(EPOCHS, TIMES, lambda one: ends(rate, one))), rate


def climbed(values: Sequence[T], first: T, score: Callable[[T], float]) -> T:
    """The best of some values in order, as far as it is reached from the `first` without going down."""
    at = values.index(first)
    for step in (-1, 1):
        while 0 <= at + step < len(values) and score(values[at + step]) > score(values[at]):
            at += step
    return values[at]


class Solved(NamedTuple):
    """What rows of all agents together come to without a fleet: ridges that validation rows choose for those that have
    all sums and for those that have their own, and the test accuracy in % of the first."""

    pooled: float
    alone: float
    best: float


def solutions(data: shoal.Data, net: Mapping[str, Any], seed: int, ridge: float | None = None) -> Solved:
    (world,) = shoal.prepare(fleet(CASES["alone, closed form"]._replace(net=net), data, 0.01, seed).settings, yes=True)
    bank = world.bank

    def rows(split: str, agent: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = np.concatenate([getattr(task, split) for task in world.streams[agent]])
        return world.model.encode(bank.take(at), bank.peak, seed), torch.from_numpy(bank.labels[at])

    def right(weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> float:
        said = x @ weights[:-1].float() + weights[-1].float()
        return 100 * float((said.argmax(1) == y).double().mean())

    parts, held = [], [rows("validation", agent) for agent in range(AGENTS)]
    for agent in range(AGENTS):
        x, y = rows("train", agent)
        gram, cross = summed(x, torch.nn.functional.one_hot(y, len(bank.classes)))
        parts.append((squared(gram, len(cross)), cross))
    every = total(parts)

    def judged(several: list[tuple[torch.Tensor, torch.Tensor]], ridge: float) -> float:
        found = [solved(gram, cross, ridge, False) for gram, cross in several]
        return float(np.mean([right(one, *held[agent]) for agent, one in enumerate(found)]))

    pooled = max(RIDGES, key=lambda one: judged([every] * AGENTS, one)) if ridge is None else ridge
    alone = max(RIDGES, key=lambda one: judged(parts, one)) if ridge is None else ridge
    return Solved(pooled, alone, right(solved(every[0], every[1], pooled, False), *rows("test", 0)))


def measured(names: list[str], bank: Bank, seeds: int) -> Iterator[dict[str, Any]]:
    every = [dealt(bank, seed) for seed in range(seeds)]
    known: dict[str, list[Solved]] = {}
    for name in names:
        case, gap = CASES[name], ""
        if case.learner != "analytic":
            case, choice = tuned(case, every[0], 0)
        else:
            key = str(case.net)
            if key not in known:
                first = solutions(every[0], case.net, 0)
                more = [solutions(data, case.net, at + 1, first.pooled) for at, data in enumerate(every[1:])]
                known[key] = [first, *more]
            choice = known[key][0].pooled if case.sharing else known[key][0].alone
        found = [ran(fleet(case, data, choice, seed)) for seed, data in enumerate(every)]
        means = np.array([one.mean() for one, _ in found])
        if case.learner == "analytic":
            gap = f"{(means - np.array([one.best for one in known[key]])).mean():.3f}"
        row = [name, case.family, choice, case.epochs, seeds, f"{means.mean():.3f}", f"{error(means):.3f}"]
        row += [f"{min(one.min() for one, _ in found):.3f}", round(np.mean([sent for _, sent in found])), gap]
        print(*row, sep=",", flush=True)
        yield dict(zip(COLUMNS, [*map(str, row), *stamp().values()], strict=True))


def error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def draw(file: Path, rows: list[dict[str, Any]]) -> None:
    """Final accuracy against bytes per link, a mark for each case."""
    import altair as alt
    import polars as pl

    shared = pl.DataFrame([{**row, "final": float(row["final"])} for row in rows if int(row["bytes_per_link"])])
    shared = shared.with_columns(MB=pl.col("bytes_per_link").cast(pl.Float64) / 1e6)
    alone = pl.DataFrame([{**row, "final": float(row["final"])} for row in rows if not int(row["bytes_per_link"])])
    marks = (
        alt.Chart(shared)
        .mark_point(filled=True, size=70)
        .encode(
            x=alt.X("MB:Q", scale=alt.Scale(type="log"), title="MB per directed link, whole run"),
            y=alt.Y("final:Q", scale=alt.Scale(zero=False), title="final accuracy, % (100 classes, one head)"),
            color=alt.Color("family:N", title="shared"),
            shape=alt.Shape("family:N"),
        )
    )
    lines = alt.Chart(alone).mark_rule(strokeDash=[4, 3], color="#888").encode(y="final:Q")
    words = alt.Chart(alone).mark_text(align="left", dx=4, dy=-5, color="#666", fontSize=9)
    told = words.encode(y="final:Q", x=alt.value(0), text="case:N")
    (lines + told + marks).properties(width=520, height=320).save(file)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", type=Path, default=os.environ.get("SHOAL_DATA"), help="where CIFAR-100 is")
    words.add_argument("--seeds", type=int, default=1)
    words.add_argument("--only", default="", help="only cases whose name has one of these, with commas")
    words.add_argument("--draw", action="store_true", help="draw the figure anew from the file")
    said = words.parse_args()
    if said.draw:
        draw(FIGURE, kept_rows())
        return
    data = Path(said.data) if said.data else None
    bank = bank_of(shoal.Settings(dataset="cifar100", backbone="efficientnet-lite0", model="ridge"), data)
    names = [name for name in CASES if any(word in name for word in said.only.split(","))]
    for row in measured(names, bank, said.seeds):
        kept = {one["case"]: one for one in kept_rows()} | {row["case"]: row}
        write(FILE, [kept[name] for name in CASES if name in kept])
    draw(FIGURE, kept_rows())


def kept_rows() -> list[dict[str, str]]:
    """What the file has."""
    return read(FILE)


if __name__ == "__main__":
    main()
