"""Numbers that are kept: CSV files that say where, when and by which commit they were measured, and tables of them."""

import csv
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from shoal.runs.about import commit

ROOT = Path(__file__).parents[1]
STAMP = ("machine", "torch", "date", "commit")

Row = Mapping[str, Any]


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def stamp() -> dict[str, str]:
    """Where, on what, when and by which commit something is measured."""
    return {
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit() or "none",
    }


def read(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; none if there is no such file."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def write(file: Path, rows: Sequence[Row]) -> None:
    """Write rows as a CSV file, which appears whole or not at all. Floats have six digits that count."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    part = file.with_name(file.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, columns, lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({name: f"{one:.6g}" if isinstance(one, float) else one for name, one in row.items()})
    part.replace(file)


def markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table as README has it."""
    head = ["| " + " | ".join(columns) + " |", "| " + " | ".join(["---"] * len(columns)) + " |"]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def whole(value: str) -> str:
    """A rate as people read it: 3,813 or 4.2."""
    number = float(value)
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
