"""What the scores of modules cost, and what they gain: classes in common, anchors, LEEP, beside agents alone.

`python -m bench.anchors [--seeds N]` teaches eight agents in a ring pairs of the digits that come with shoal, with
`modmod` by each score, and times exchanges of 64 agents with eight neighbours each in CPU time, on this machine. It
writes docs/results/anchors.csv.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bench import exchanges, results
from shoal.agents.worlds import world
from shoal.configure.reading import EXPERIMENTS, read
from shoal.data import load
from shoal.fleet.run import one_thread, simulate

FILE = Path(__file__).parents[1] / "docs" / "results" / "anchors.csv"
SCORES = "iou", "anchors", "leep"
WORDS = "model=modular-mlp", "network=ring", "tasks.count=8", "learner.epochs=40"
AGENTS, TURNS = 64, 5


def taught(score: str, seeds: int) -> tuple[np.ndarray, float]:
    """The final accuracy of every seed in %, and what a link carries per task in bytes; no score: agents alone."""
    share = ("sharing=modmod", f"sharing.modmod.metric={score}") if score else ("sharing=none",)
    fleet = world(read(EXPERIMENTS / "digits.toml", [*WORDS, *share, f"seeds={seeds}"]), load("digits"))
    stack = simulate(fleet)
    final = 100 * stack.accuracy[:, -1, -1].nanmean(1).numpy()
    whose = np.array([lane.seed for lane in fleet.lanes])
    edges = max(1, len(fleet.edges)) * fleet.settings.tasks.count
    sent = float(stack.ledger.column("bytes").sum()) / edges if len(stack.ledger) else 0.0
    return np.array([final[whose == seed].mean() for seed in range(seeds)]), sent


def timed(score: str) -> float:
    """What an exchange costs per edge, in microseconds."""
    case = exchanges.Case("modmod", "modular-mlp", "eight", (AGENTS,), (f"sharing.modmod.metric={score}",))
    with one_thread():
        return float(exchanges.measure(case, AGENTS, TURNS, False, 0, "cpu")["us_per_edge"])


def rows(seeds: int) -> list[dict[str, Any]]:
    """A row for agents alone, and one for each score."""
    found: list[dict[str, Any]] = []
    alone = np.zeros(seeds)
    for score in ("", *SCORES):
        final, sent = taught(score, seeds)
        alone = alone if found else final
        row = {"score": score or "alone", "seeds": seeds, **spread("final", final), **spread("gain", final - alone)}
        row |= {"bytes_per_link_task": round(sent), "us_per_edge": round(timed(score)) if score else ""}
        print(*row.values(), sep=",", flush=True)
        found.append(row | results.stamp())
    return found


def spread(name: str, values: np.ndarray) -> dict[str, str]:
    """The mean over seeds, and its standard error."""
    error = f"{values.std(ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
    return {name: f"{values.mean():.2f}", f"{name}_se": error}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=4)
    results.write(FILE, rows(words.parse_args().seeds))


if __name__ == "__main__":
    main()
