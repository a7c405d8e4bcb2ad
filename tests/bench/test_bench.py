"""The bench runs; what it measures is never asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import MISSING

TABLES = {
    "speed": "MNIST row at task 7, the same step by others",
    "exchanges": "Exchanges and memory of large fleets",
    "modular-mlp": "Modular MLP",
    "mlp": "Monolithic MLP",
    "cnn": "CNNs",
    "evaluation": "Evaluation",
    "sharing": "Sharing on a complete graph",
    "growth": "Growth with lanes",
    "page": "The report in chromium",
}


@pytest.mark.slow
def test_the_bench_prints_all_its_tables_and_writes_their_numbers(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--out", str(out)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for name, title in TABLES.items():
        assert title in done.stdout
        assert found[name]["rows"] or (name == "page" and MISSING in " ".join(done.stdout.split()))
    assert found["machine"]["cores"]
