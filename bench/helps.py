"""What liars do to agents that share images or modules, and what it brings to accept only what helps: `python -m
bench.helps`.

Eight agents on the digits that come with shoal, a complete graph, with none and two liars of eight: recv with
label-flipped images, on nets in one piece, and modmod with poisoned modules. Every fleet accepts all that comes, or
only what helps on the receiver's own validation data. What counts is the final test accuracy of the agents that are
honest in all of these runs, the first six. Every run is a row of docs/results/helps.csv, so that what is there already
is not measured again; the table of docs/guides/liars.md is printed at the end.
"""

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shoal
from bench import results
from shoal.letters.mail import ACCEPTED

FILE = results.ROOT / "docs" / "results" / "helps.csv"
AGENTS, HONEST, SEEDS = 8, 6, 8
LIES = {"recv": ("mlp", "label-flip"), "modmod": ("modular-mlp", "poison")}
NAMES = ("mode", "accept", "liars")


class Trial(NamedTuple):
    """A run: what is shared, what is accepted, and how many lie."""

    mode: str
    accept: str
    liars: int

    def settings(self, quick: bool = False) -> shoal.Settings:
        model, lie = LIES[self.mode]
        raw: dict[str, Any] = {"dataset": "digits", "model": model, "agents": AGENTS, "seeds": 1 if quick else SEEDS}
        raw |= {"tasks": {"count": 6 if self.mode == "recv" else 9, **({"train": 8, "validation": 8} if quick else {})}}
        raw |= {"learner": {"epochs": 4 if quick else 20 if self.mode == "recv" else 10}}
        if self.accept:
            own = {"every": 2 if quick else 5} if self.mode == "recv" else {"tryout": 2 if quick else 5}
            raw["sharing"] = [{"mode": self.mode, "accept": self.accept, **own}]
        if self.liars:
            raw["faulty"] = {"agents": list(range(AGENTS - self.liars, AGENTS)), "does": lie}
        return shoal.Settings(**raw)


TRIALS = [
    Trial(mode, accept, liars)
    for mode in LIES
    for accept in ("", "all", "helps")
    for liars in ((0, 2) if accept else (0,))
]


def measured(trial: Trial, quick: bool = False) -> dict[str, object]:
    """The final accuracy of the honest agents in %, of each seed, and how much of what honest agents and liars sent
    them was accepted by the post."""
    started = time.perf_counter()
    (world,) = shoal.prepare(trial.settings(quick))
    stack = shoal.simulate(world)
    final = stack.accuracy[:, -1, -1].double().mean(1).numpy() * 100
    agents, seeds = (np.array([getattr(lane, name) for lane in stack.lanes]) for name in ("agent", "seed"))
    each = [float(np.nanmean(final[(agents < HONEST) & (seeds == seed)])) for seed in np.unique(seeds)]
    ledger = stack.ledger
    sent = (ledger.column("receiver") < HONEST) & ~ledger.among("kind", ["question"])
    liar, taken = ledger.column("sender") >= AGENTS - trial.liars, ledger.among("verdict", [ACCEPTED])
    shares = [float(taken[sent & who].mean()) if (sent & who).any() else float("nan") for who in (~liar, liar)]
    return {
        **trial._asdict(),
        "accuracy": float(np.mean(each)),
        "seeds": " ".join(f"{one:.2f}" for one in each),
        "taken_honest": round(shares[0], 3),
        "taken_liars": round(shares[1], 3),
        "seconds": round(time.perf_counter() - started, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy of the honest agents, without and with liars, of each way of accepting, and what that is more than
    without sharing, paired over seeds."""
    found = {Trial(str(row["mode"]), str(row["accept"]), int(row["liars"])): row for row in rows}
    lines = []
    for mode in LIES:
        alone = found.get(Trial(mode, "", 0))
        for accept in ("", "all", "helps"):
            own = [found.get(Trial(mode, accept, liars)) for liars in (0, 2)]
            cells = ["" if row is None else f"{float(row['accuracy']):.2f}{more(row, alone)}" for row in own]
            lines.append([mode, accept or "nothing is shared", *cells])
    return results.markdown(["mode", "accept", "nobody lies", "2 liars of 8"], lines)


def more(row: dict[str, Any], alone: dict[str, Any] | None) -> str:
    """What a run has more than agents alone, with its standard error over seeds; nothing of these themselves."""
    if alone is None or row is alone:
        return ""
    ours, theirs = ([float(one) for one in str(run["seeds"]).split()] for run in (row, alone))
    gaps = np.subtract(ours, theirs)
    return f" ({gaps.mean():+.2f} ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.helps", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny fleets, to see that it works")
    parser.add_argument("--table", action="store_true", help="print the table, measure nothing")
    parser.add_argument("--out", type=Path, default=FILE, help="the CSV file (docs/results/helps.csv)")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = [{**row} for row in results.read(given.out)]
    done = {tuple(str(row[name]) for name in NAMES) for row in rows}
    for trial in () if given.table else TRIALS:
        if tuple(map(str, trial)) in done:
            continue
        rows.append(measured(trial, given.quick) | results.stamp())
        results.write(given.out, rows)
        print(*trial, f"{rows[-1]['accuracy']:.2f}", f"({rows[-1]['seconds']} s)", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
