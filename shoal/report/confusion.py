"""What agents said of test rows, where a run keeps it: F1, recall, calibration, and which classes they confuse."""

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import Any

from shoal.report.compare import Entry, Group
from shoal.report.parts import run_name, table
from shoal.report.sentences import number
from shoal.report.style import Style

CLASSES = 30  # with more of them, only what is confused most is shown
PAIRS = 20
COLUMNS = {
    "f1": "F1, %",
    "recall": "recall, %",
    "calibration_error": "calibration error, points",
    "mean_absolute_error": "mean absolute error, in its unit",
}
ABOUT = {
    "f1": "F1 is the mean over classes of the harmonic mean of precision and recall",
    "recall": "recall is the mean over classes of the share of their rows that are found",
    "calibration_error": "the calibration error is how far agents' confidence is from how often they are right",
    "mean_absolute_error": "the mean absolute error is in the unit of what is predicted",
}


def predicted(group: Group, style: Style) -> str:
    """The metrics of what was predicted, and a confusion matrix for each run that has one."""
    kept = [entry for entry in group.complete if any(is_number(entry.run.summary.get(name)) for name in COLUMNS)]
    if not kept:
        return ""
    names = [name for name in COLUMNS if any(is_number(entry.run.summary.get(name)) for entry in kept)]
    body = [[run_name(entry, style), *(plus_minus(entry, name) for name in names)] for entry in kept]
    said = "; ".join(ABOUT[name] for name in names)
    title = "What agents say of test rows"
    first = table(
        title,
        f"At the end, the mean over tasks and agents ± standard error over seeds: {said}.",
        ["run", *(COLUMNS[name] for name in names)],
        body,
    )
    return f'<div class="card"><h3>{title}</h3>{first}{"".join(matrix(entry) for entry in kept)}</div>'


def plus_minus(entry: Entry, name: str) -> str:
    """A metric of the summary."""
    mean, error = entry.run.summary.get(name), entry.run.summary.get(f"{name}_se_seeds")
    return number(mean) + (f" <small>± {number(error)}</small>" if is_number(error) else "")


def matrix(entry: Entry) -> str:
    """Which classes a run takes for which, folded; of many classes, what is confused most."""
    found = matrix_of(entry.run.summary)
    if found is None:
        return ""
    names, rows = found
    met = [at for at, row in enumerate(rows) if row is not None]
    title = f"{entry.label}: which classes are taken for which"
    if len(met) > CLASSES:
        inner = most_confused(title, names, rows)
    else:
        head = ["class", *(escape(names[at]) for at in met)]
        body = [[escape(names[at]), *(cell(row[to], at == to) for to in met)]
                for at, row in enumerate(rows) if row is not None]  # fmt: skip
        about = (
            "Of the rows of the class at the left, the share that is taken for the class at the top, in %; "
            "the diagonal, in bold, is the recall of a class."
        )
        inner = table(title, about, head, body)
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def most_confused(title: str, names: Sequence[str], rows: Sequence[Sequence[float] | None]) -> str:
    """The pairs of classes that are confused most, each with the recall of the first."""
    pairs = sorted(
        ((share, at, to) for at, row in enumerate(rows) if row for to, share in enumerate(row) if at != to and share),
        key=lambda one: (-one[0], one[1:]),
    )[:PAIRS]
    body = [[escape(names[at]), escape(names[to]), number(share), number((rows[at] or ())[at])]
            for share, at, to in pairs]  # fmt: skip
    head = ["class", "taken for", "of its rows, %", "recall of the class, %"]
    return table(title, f"What is confused most, at most {PAIRS} pairs of classes.", head, body)


def cell(share: float, own: bool) -> str:
    """A cell of the matrix: what is right in bold, nothing where nothing is confused."""
    said = number(share) if share or own else ""
    return f'<td class="best">{said}</td>' if own else f"<td>{said}</td>"


def matrix_of(summary: dict[str, Any]) -> tuple[list[str], list[list[float] | None]] | None:
    """The names of classes and the rows of a matrix, None for a class that nobody met; None where the summary holds
    none that can be read."""
    names, rows = summary.get("classes"), summary.get("confusion_matrix")
    if not isinstance(names, list) or not isinstance(rows, list) or len(names) != len(rows):
        return None
    found: list[list[float] | None] = []
    for row in rows:
        if not isinstance(row, list) or len(row) != len(names):
            return None
        there = [float(one) for one in row if is_number(one)]
        found.append(there if len(there) == len(row) else None)
    return [str(one) for one in names], found


def is_number(value: Any) -> bool:
    """Is it a number that can be shown?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
