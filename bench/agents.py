"""Many light agents on a sparse graph, from settings to summary: `python -m bench.agents 1000 10000`.

Every agent learns three tasks of two digits (10 epochs each) with a net of 16 hidden units, and shares with its two
neighbours on a ring. Each run is measured in a process of its own, on one thread, in seconds of its CPU, so that what
else a machine does counts little: making the world, an epoch (the median) and all of the run; bytes of memory per agent
beyond a fleet of two; bytes of the ledger, in memory and as a file. With --workers, agents learn in so many processes,
and all numbers are those of the process that drives the run: what it does for every agent and message.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.scale import peak
from shoal.configure.reading import resolve
from shoal.fleet.run import Moment
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create
from shoal.settings.groups import Settings
from shoal.settings.staff import staffed

EPOCHS = 10
SHARING: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "fedavg": [{"mode": "fedavg", "every": 2}],
    "recv": [{"mode": "recv", "every": 5, "queries": 4}],
}


def settings_of(agents: int, sharing: str, ledger: str, workers: int) -> Settings:
    """A fleet of light agents."""
    raw = {
        "dataset": "digits", "model": "mlp", "agents": agents, "net": {"width": 16, "depth": 1},
        "tasks": {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1, "common": False},
        "learner": {"epochs": EPOCHS, "batch": 16, "memory": 4}, "sharing": SHARING[sharing],
        "network": {"graph": "ring"}, "machine": {"checkpoint": 1e9, "threads": 1, "ledger": ledger},
    }  # fmt: skip
    return staffed(resolve(raw), workers or None)


def measure(agents: int, sharing: str, ledger: str, workers: int = 0) -> dict[str, Any]:
    """One run, from settings to summary."""
    prepare(settings_of(2, sharing, ledger, 0))  # what is loaded once, however many agents there are
    empty, started = peak(), time.process_time()
    settings = settings_of(agents, sharing, ledger, workers)
    fleet = prepare(settings, yes=True)
    made = time.process_time()
    marks: list[tuple[int, int, float]] = []
    held = 0

    def watch(moment: Moment) -> None:
        nonlocal held
        marks.append((moment.task, moment.epoch, time.process_time()))
        book = moment.crew.ledger
        held = max(held, book.rows.nbytes + (0 if book.totals is None else book.totals.nbytes))

    with tempfile.TemporaryDirectory() as folder:
        record = create(Path(folder) / "run", settings)
        summary = carry_out(fleet, record, watch)
        ended = time.process_time()
        files = {file.name: file.stat().st_size for file in record.folder.iterdir() if file.is_file()}
    epochs = [after[2] - before[2] for before, after in pairwise(marks) if after[1] > 1 and after[0] == before[0]]
    return {
        "agents": agents, "sharing": sharing, "ledger": ledger, "workers": workers,
        "world_seconds": made - started, "epoch_seconds": statistics.median(epochs), "run_seconds": ended - started,
        "peak_mb": peak(), "bytes_per_agent": (peak() - empty) * 1e6 / agents,
        "messages": summary.get("messages", 0),
        "bytes_per_link_task": summary.get("bytes_per_link_task", 0.0), "ledger_mb": held / 1e6,
        "ledger_file_mb": files.get("ledger.parquet", 0) / 1e6, "files_mb": sum(files.values()) / 1e6,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", type=int, nargs="+")
    parser.add_argument("--sharing", choices=SHARING, default="fedavg")
    parser.add_argument("--ledger", choices=("messages", "totals"), default="messages")
    parser.add_argument("--workers", type=int, default=0, help="processes beside this one (0)")
    given = parser.parse_args()
    if len(given.agents) == 1:
        found = measure(given.agents[0], given.sharing, given.ledger, given.workers)
        print(json.dumps({name: round(one, 4) if isinstance(one, float) else one for name, one in found.items()}))
        return
    for agents in given.agents:
        words = ["bench.agents", str(agents), "--sharing", given.sharing, "--ledger", given.ledger]
        words += ["--workers", str(given.workers)]
        subprocess.run([sys.executable, "-m", *words], check=True, cwd=Path(__file__).parents[1])


if __name__ == "__main__":
    main()
