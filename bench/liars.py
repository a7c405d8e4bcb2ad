"""What liars do to the others of a fleet that averages models, and what each rule makes of it: `python -m bench.liars`.

Eight agents on MNIST, a complete graph, fedavg with every rule against every lie about weights, with no, one and two
liars of eight. What counts is the final test accuracy of the agents that are honest in all of these runs, the first
six. Every run is a row of docs/liars.csv, so that what is there already is not measured again; `--table` prints the
tables of docs/guides/liars.md of what is there.

The gain of sharing is what the same six agents have over learning alone; the harm of a lie is what they lose under the
plain mean. A rule undoes so much of the harm: (accuracy under the lie - mean under the lie) / (mean without liars -
mean under the lie).
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shoal
from bench import results
from shoal.sharing.combine import BUILT_IN

FILE = results.ROOT / "docs" / "liars.csv"
AGENTS, HONEST, SEEDS = 8, 6, 2
RULE_NAMES = tuple(BUILT_IN)
ABOUT_WEIGHTS = ("sign-flip", "scaled", "random", "constant", "stale")
SHORT = {"tasks": {"count": 6}, "learner": {"epochs": 10}}


class Trial(NamedTuple):
    """A run: what is shared and how what comes is dealt with, how many lie, and how."""

    model: str
    mode: str
    defence: str
    lie: str
    liars: int

    def settings(self, quick: bool = False) -> shoal.Settings:
        raw: dict[str, Any] = {"dataset": "digits" if quick else "mnist", "model": self.model, "agents": AGENTS}
        raw |= {"seeds": 1 if quick else SEEDS, **SHORT}
        if quick:
            raw |= {
                "tasks": {"count": 6, "train": 8, "validation": 8},
                "learner": {"epochs": 6, "memory": 4},
                "net": {"width": 8},
            }
        if self.mode == "fedavg":
            raw["sharing"] = [{"mode": "fedavg", "every": 2, "combine": self.defence, "tolerates": 2}]
        if self.liars:
            raw["faulty"] = {"agents": list(range(AGENTS - self.liars, AGENTS)), "does": self.lie}
        return shoal.Settings(**raw)


def trials() -> Iterator[Trial]:
    """All runs, those that others are compared with first."""
    yield Trial("mlp", "alone", "", "", 0)
    for rule in RULE_NAMES:
        yield Trial("mlp", "fedavg", rule, "", 0)
    for liars in (1, 2):
        for lie in ABOUT_WEIGHTS:
            for rule in RULE_NAMES:
                yield Trial("mlp", "fedavg", rule, lie, liars)


def measured(trial: Trial, quick: bool, data: Path | None) -> dict[str, object]:
    """The final accuracy of the honest agents in %, of each seed, and how many of them diverged."""
    started = time.perf_counter()
    (world,) = shoal.prepare(trial.settings(quick), data)
    stack = shoal.simulate(world)
    final = stack.accuracy[:, -1, -1].double().mean(1).numpy() * 100
    agents = np.array([lane.agent for lane in stack.lanes])
    seeds = np.array([lane.seed for lane in stack.lanes])
    honest = agents < HONEST
    gone = int(np.isnan(final[honest]).sum())
    each = [float(np.nanmean(final[honest & (seeds == seed)])) for seed in np.unique(seeds)]
    refused = len(stack.ledger) - int(stack.ledger.among("verdict", ["accepted"]).sum())
    return {
        **trial._asdict(),
        "accuracy": float(np.mean(each)),
        "seeds": " ".join(f"{one:.2f}" for one in each),
        "diverged": gone,
        "refused": refused,
        "mails": len(stack.ledger),
        "seconds": round(time.perf_counter() - started, 1),
    }


Found = dict[Trial, float]


def found_in(rows: Sequence[results.Row]) -> Found:
    """What each run came to."""
    names = ("model", "mode", "defence", "lie")
    found: Found = {}
    for row in rows:
        model, mode, defence, lie = (str(row[name]) for name in names)
        found[Trial(model, mode, defence, lie, int(row["liars"]))] = float(row["accuracy"])
    return found


def table(found: Found) -> str:
    """Accuracy under every lie about weights (rows) with every rule (columns), and what the best rule undoes."""
    best = found[Trial("mlp", "fedavg", "mean", "", 0)]
    lines = []
    for liars, lie in [(0, ""), *((liars, lie) for lie in ABOUT_WEIGHTS for liars in (1, 2))]:
        cells = {rule: found.get(Trial("mlp", "fedavg", rule, lie, liars)) for rule in RULE_NAMES}
        known = {rule: one for rule, one in cells.items() if one is not None}
        if not known:
            continue
        top = max(known, key=lambda rule: known[rule])
        harm = best - known.get("mean", best)
        undone = f"{(known[top] - known['mean']) / harm:.0%}" if harm > 0 and len(known) > 1 else ""
        top = top if len(known) > 1 else ""
        who = f"{liars}: {lie}" if liars else "nobody lies"
        lines.append([who, *("" if one is None else f"{one:.1f}" for one in cells.values()), top, undone])
    return results.markdown(["liars of 8", *RULE_NAMES, "best", "harm undone"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.liars", description=__doc__)
    parser.add_argument("--data", type=Path, help="where MNIST is")
    parser.add_argument("--quick", action="store_true", help="tiny fleets on digits, to see that it works")
    parser.add_argument("--only", metavar="WORD", help="runs with this word as their mode, rule or lie")
    parser.add_argument("--table", action="store_true", help="print the tables, measure nothing")
    parser.add_argument("--out", type=Path, default=FILE, help="the CSV file (docs/liars.csv)")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = [{**row} for row in results.read(given.out)]
    done = found_in(rows)
    for trial in () if given.table else trials():
        if trial in done or (given.only and given.only not in trial):
            continue
        stamp = {name: one for name, one in results.stamp().items() if name != "commit"}
        rows.append(measured(trial, given.quick, given.data) | stamp)
        results.write(given.out, rows)
        print(*trial, f"{rows[-1]['accuracy']:.2f}", f"({rows[-1]['seconds']} s)", flush=True)
    found = found_in(results.read(given.out))
    print(f"alone: {found[Trial('mlp', 'alone', '', '', 0)]:.1f}\n\n{table(found)}")


if __name__ == "__main__":
    main()
