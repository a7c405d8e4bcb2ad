"""Tasks are luck: cells of Table 1 with the authors' own draws, and the same with those of shoal 0.1."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from shoal.reproduce.claims import METRICS, Key
from shoal.reproduce.overview import CLOSE, far, off
from shoal.reproduce.table1 import former
from shoal.runs.cells import Row

# Predicted before the run from how hard pairs of classes are: final accuracy and AUC with the authors' draws.
PREDICTED = {("kmnist", "monolithic", "vanilla"): (78.20, 79.36)}


def key_of(row: Row) -> Key:
    return row["protocol"], row["dataset"], row["model"], row["method"]


def twice(rows: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Cells of protocol `paper` that were trained with both draws, and which the paper has: then, and now."""
    kept = [row for row in rows if row["protocol"] == "paper" and row["paper_final_accuracy"] is not None]
    now = {(*key_of(row), row["seeds"]): row for row in kept if not former(row)}
    then = {(*key_of(row), row["seeds"]): row for row in kept if former(row)}
    return [(then[key], now[key]) for key in now if key in then]


def gaps(rows: Iterable[Row]) -> list[float]:
    """Ours minus the paper's, of all numbers that it has."""
    return [gap for row in rows for gap in (off(row, name) for name in METRICS) if gap is not None]


def near(rows: Sequence[Row]) -> str:
    found = gaps(rows)
    return f"{sum(abs(gap) <= CLOSE for gap in found)} of {len(found)}"


def close(rows: Iterable[Row]) -> str:
    """How many numbers of the best rows are near the paper's, apart for each draw."""
    rows = list(rows)
    now, old = [row for row in rows if not former(row)], [row for row in rows if former(row)]
    if not now:
        return f"{near(rows)} numbers are within {CLOSE} of the paper's."
    said = f"With the authors' own draws of tasks {near(now)} numbers are within {CLOSE} of the paper's."
    if old:
        said += f" The others are still of the draws of shoal 0.1: {near(old)} are within {CLOSE}."
    return said


def effect(rows: Iterable[Row]) -> str:
    """What the draws change, in a sentence; nothing, if no cell was trained with both."""
    pairs = twice(rows)
    if not pairs:
        return ""
    then, now = ([pair[at] for pair in pairs] for at in (0, 1))
    before, after = gaps(then), gaps(now)
    return (
        f"{len(pairs)} cell{'s were' if len(pairs) > 1 else ' was'} trained with both draws: with those of shoal 0.1 "
        f"{near(then)} numbers are within {CLOSE} of the paper's, with the authors' {near(now)}; the mean difference "
        f"from the paper goes from {fmean(before):+.2f} to {fmean(after):+.2f}, the mean distance from "
        f"{fmean(map(abs, before)):.2f} to {fmean(map(abs, after)):.2f}."
    )


def section(rows: Iterable[Row]) -> list[str]:
    """The cells that were trained with both draws, side by side."""
    rows = list(rows)
    pairs = twice(rows)
    if not pairs:
        return []
    lines = [
        "### What the draws change",
        "",
        f"{effect(rows)} *Final accuracy / AUC*, bold where they are more than {CLOSE} from the paper's:",
        "",
        "| dataset | model | method | the paper | as shoal 0.1 drew | the authors' draws | predicted |",
        "| --- " * 7 + "|",
    ]
    for then, now in pairs:
        _, *words = key_of(now)
        theirs = " / ".join(f"{now[f'paper_{name}']:.2f}" for name in METRICS)
        expected = PREDICTED.get((words[0], words[1], words[2]))
        foreseen = " / ".join(f"{one:.2f}" for one in expected) if expected else ""
        lines.append(f"| {' | '.join(words)} | {theirs} | {numbers(then)} | {numbers(now)} | {foreseen} |")
    return [*lines, ""]


def numbers(row: Row) -> str:
    """Final accuracy / AUC with errors over seeds, bold where far from the paper's."""
    said = []
    for name in METRICS:
        error = row[f"{name}_se_seeds"]
        one = f"{row[name]:.2f}" + ("" if error is None else f" ± {error:.2f}")
        said.append(f"**{one}**" if far(row, name) else one)
    return " / ".join(said)
