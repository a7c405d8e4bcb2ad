"""What a run was said to need is what it needs, within a factor of two: ten cases, run small, each in a process of its
own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resource", reason="only POSIX tells how much memory a process has had")

PROGRAM = """
import json, resource, sys

import numpy as np

import shoal
from shoal import data
from shoal.fleet.size import size

case = json.loads(sys.argv[1])
rows, sites, columns = (case.pop(name, one) for name, one in {"rows": 0, "sites": 1, "columns": 8}.items())
numbers, named = case.pop("numbers", False), case.pop("named", False)
source = "digits"
if rows:
    drawn = np.random.default_rng(0)
    x, at = drawn.normal(size=(rows, columns)).astype(np.float32), np.arange(rows)
    y = x[:, 0] * 2 + 1.5 if numbers else (x[:, 0] > 0) + 2 * (x[:, 1] > 0)
    more = {"task": at * 4 // rows} if named else {}
    source = shoal.Data.from_arrays(x, y, agent=at % sites, **more)
fleet = shoal.Fleet(source, **case)
wanted = size(fleet.settings, data.load(fleet.settings.dataset))
fleet.run(out=sys.argv[2], yes=True)
print(json.dumps([wanted.parts, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""
SHORT = {"epochs": 1, "batch": 512}
CASES: dict[str, dict[str, Any]] = {
    "digits": {"agents": 8, "tasks": {"count": 3, "initial": 1}, "learner": {"epochs": 2}},
    "many agents": {"agents": 600, "model": "mlp", "tasks": {"count": 3, "initial": 1}, "learner": {"epochs": 1}},
    "wide nets": {
        "agents": 8, "model": "mlp", "net": {"width": 1000}, "tasks": {"count": 2, "initial": 1},
        "learner": {"epochs": 1},
    },
    "models are sent": {
        "agents": 100, "model": "mlp", "network": "ring", "sharing": "fedavg", "tasks": {"count": 3, "initial": 1},
        "learner": {"epochs": 5},
    },
    "a table": {"rows": 400_000, "sites": 10, "model": "mlp", "learner": SHORT},
    "a table with tasks": {"rows": 400_000, "sites": 10, "named": True, "model": "mlp", "learner": SHORT},
    "a million rows": {"rows": 1_000_000, "sites": 20, "named": True, "model": "mlp", "learner": SHORT},
    "wide rows": {"rows": 60_000, "sites": 6, "columns": 400, "named": True, "model": "mlp", "learner": SHORT},
    "numbers to predict": {"rows": 300_000, "sites": 5, "numbers": True, "model": "mlp", "learner": SHORT},
    "one site": {"rows": 300_000, "sites": 1, "named": True, "model": "mlp", "learner": SHORT},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_memory_of_a_run_is_told_within_a_factor_of_two(case: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, json.dumps(CASES[case]), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts, there = json.loads(done.stdout.splitlines()[-1])
    told = sum(parts.values())
    assert there / 2 <= told <= 2 * there, (told, there, parts)
