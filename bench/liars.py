"""What liars do to the others of a fleet that averages models, and what each rule makes of it: `python -m bench.liars`.

Eight agents on MNIST, a complete graph, fedavg with every rule against every lie about weights, with no, one and two
liars of eight. What counts is the final test accuracy of the agents that are honest in all of these runs, the first
six. Every run is a row of docs/results/liars.csv, so that what is there already is not measured again; `--table` prints
the tables of docs/guides/liars.md of what is there.

There are three protocols (PROTOCOLS). `alike`: all agents learn the same classes at the same time from few images, so
that averaging has a gain to keep. `long`: every agent has classes of its own, and averaging gains little. `short`: the
same in fewer epochs, and averaging gains nothing. Protocols were chosen by agents alone and by averaging without liars,
on other seeds than the table's, and by nothing else.

The gain of sharing is what the same six agents have over learning alone. The harm of a lie is what they lose under the
plain mean; a rule undoes so much of it: (accuracy under the lie - mean under the lie) / (mean without liars - mean
under the lie). It keeps so much of the gain: (accuracy under the lie - alone) / (mean without liars - alone). What no
rule can be expected to beat is the mean where the liars are absent: the row `absent`.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shoal
from bench import results
from shoal.fleet.health import DivergedError
from shoal.sharing.combine import BUILT_IN

FILE = results.ROOT / "docs" / "results" / "liars.csv"
AGENTS, HONEST = 8, 6
RULE_NAMES = tuple(BUILT_IN)
ABOUT_WEIGHTS = ("sign-flip", "scaled", "random", "constant", "stale", "a-little", "inner-product", "dissensus")
ABSENT = "absent"  # liars that are not there: they send nothing


class Protocol(NamedTuple):
    """How many seeds, tasks and epochs of each there are, how many epochs are between two exchanges, and what else is
    said in the settings."""

    seeds: int
    tasks: dict[str, Any]
    epochs: int
    every: int
    more: dict[str, Any]


SAME = {"scenario": "overlap", "overlap": 1.0, "initial": 1, "count": 6, "train": 16}
PROTOCOLS = {
    "alike": Protocol(4, SAME, 40, 5, {"net": {"dropout": 0.0}}),
    "long": Protocol(2, {"count": 10}, 40, 10, {}),
    "short": Protocol(2, {"count": 6}, 10, 2, {}),
}


class Trial(NamedTuple):
    """A run: what is shared and how what comes is dealt with, how many lie, and how."""

    protocol: str
    model: str
    mode: str
    defence: str
    lie: str
    liars: int

    def settings(self, quick: bool = False) -> shoal.Settings:
        seeds, tasks, epochs, every, more = PROTOCOLS[self.protocol]
        raw: dict[str, Any] = {"dataset": "mnist", "model": self.model, "agents": AGENTS, "seeds": seeds, **more}
        raw |= {"tasks": tasks, "learner": {"epochs": epochs}}
        if quick:
            raw |= {
                "dataset": "digits",
                "seeds": 1,
                "tasks": {**tasks, "count": 6, "train": 8, "validation": 8},
                "learner": {"epochs": every, "memory": 4},
                "net": {**more.get("net", {}), "width": 8},
            }
        if self.mode == "fedavg":
            raw["sharing"] = [{"mode": "fedavg", "every": every, "combine": self.defence, "tolerates": 2}]
        liars = list(range(AGENTS - self.liars, AGENTS))
        if self.lie == ABSENT:
            raw["presence"] = {"absent": [{"agents": liars, "tasks": list(range(raw["tasks"]["count"]))}]}
        elif liars:
            raw["faulty"] = {"agents": liars, "does": self.lie}
        return shoal.Settings(**raw)


def trials(protocol: str) -> Iterator[Trial]:
    """All runs, those that others are compared with first."""
    yield Trial(protocol, "mlp", "alone", "", "", 0)
    for liars in (1, 2):
        yield Trial(protocol, "mlp", "fedavg", "mean", ABSENT, liars)
    for lie, liars in [("", 0), *((lie, liars) for lie in ABOUT_WEIGHTS for liars in (1, 2))]:
        for rule in RULE_NAMES:
            yield Trial(protocol, "mlp", "fedavg", rule, lie, liars)


def measured(trial: Trial, quick: bool, data: Path | None) -> dict[str, object]:
    """The final accuracy of the honest agents in %, of each seed, and how many of them diverged; no number, where all
    agents diverge."""
    started = time.perf_counter()
    (world,) = shoal.prepare(trial.settings(quick), data)
    try:
        stack = shoal.simulate(world)
    except DivergedError:
        ended = {"accuracy": float("nan"), "seeds": "", "diverged": sum(lane.agent < HONEST for lane in world.lanes)}
        return trial._asdict() | ended | {"seconds": round(time.perf_counter() - started, 1)}
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
    names = ("protocol", "model", "mode", "defence", "lie")
    found: Found = {}
    for row in rows:
        protocol, model, mode, defence, lie = (str(row[name]) for name in names)
        found[Trial(protocol, model, mode, defence, lie, int(row["liars"]))] = float(row["accuracy"])
    return found


def table(found: Found, protocol: str) -> str:
    """Accuracy under every lie about weights (rows) with every rule (columns), and what the best rule undoes of the
    harm and keeps of the gain, where there is one."""
    alone = found[Trial(protocol, "mlp", "alone", "", "", 0)]
    best = found[Trial(protocol, "mlp", "fedavg", "mean", "", 0)]
    gains = best > alone
    lines = []
    for liars, lie in [(0, ""), *((liars, lie) for lie in (ABSENT, *ABOUT_WEIGHTS) for liars in (1, 2))]:
        cells = {rule: found.get(Trial(protocol, "mlp", "fedavg", rule, lie, liars)) for rule in RULE_NAMES}
        known = {rule: one for rule, one in cells.items() if one is not None and not isnan(one)}
        if not known:
            continue
        top = max(known, key=lambda rule: known[rule])
        harm = best - known.get("mean", best)
        undone = f"{(known[top] - known['mean']) / harm:.0%}" if harm > 0 and len(known) > 1 else ""
        kept = f"{(known[top] - alone) / (best - alone):.0%}" if gains and (len(known) > 1 or lie == ABSENT) else ""
        top = top if len(known) > 1 else ""
        who = f"{liars}: {lie}" if liars else "nobody lies"
        told = ["" if one is None else "all diverge" if isnan(one) else f"{one:.1f}" for one in cells.values()]
        lines.append([who, *told, top, undone, *([kept] if gains else [])])
    head = ["liars of 8", *RULE_NAMES, "best", "harm undone", *(["gain kept"] if gains else [])]
    return results.markdown(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.liars", description=__doc__)
    parser.add_argument("--data", type=Path, help="where MNIST is")
    parser.add_argument("--quick", action="store_true", help="tiny fleets on digits, to see that it works")
    parser.add_argument("--protocol", choices=tuple(PROTOCOLS), default="alike", help="which (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="runs with one of these as mode, rule or lie")
    parser.add_argument("--liars", type=int, help="runs with so many liars alone")
    parser.add_argument("--table", action="store_true", help="print the tables, measure nothing")
    parser.add_argument("--out", type=Path, default=FILE, help="the CSV file (docs/results/liars.csv)")
    parser.add_argument("--more", type=Path, nargs="+", default=[], help="take over what other such files have")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = [{**row} for row in results.read(given.out)]
    for file in given.more:
        rows += [{**row} for row in results.read(file) if not found_in([row]).keys() & found_in(rows).keys()]
        results.write(given.out, rows)
    done = found_in(rows)
    for trial in () if given.table else trials(given.protocol):
        if trial in done or (given.only and not set(given.only) & set(trial)):
            continue
        if given.liars not in (None, trial.liars):
            continue
        rows.append(measured(trial, given.quick, given.data) | results.stamp())
        results.write(given.out, rows)
        print(*trial, f"{rows[-1]['accuracy']:.2f}", f"({rows[-1]['seconds']} s)", flush=True)
    found = found_in(results.read(given.out))
    for protocol in PROTOCOLS:
        alone = Trial(protocol, "mlp", "alone", "", "", 0)
        if {alone, Trial(protocol, "mlp", "fedavg", "mean", "", 0)} <= found.keys():
            print(f"{protocol}, alone: {found[alone]:.1f}\n\n{table(found, protocol)}")


if __name__ == "__main__":
    main()
