"""A cluster of several nodes on this machine, from which nodes are removed: run as a program of its own, with a folder
and the names of fleets.

It says, a line each, what came of runs whose node is replaced, and of one whose node never comes back.
"""

import json
import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from shoal.agents.worlds import worlds
from shoal.contracts.fleets import difference
from shoal.data import load
from shoal.errors import UserError
from shoal.fleet.around_ray import with_token
from shoal.fleet.cluster import imported, session, working_folder
from shoal.fleet.run import Moment, train
from shoal.runs.execute import carry_out
from shoal.runs.record import create
from tests.fleet.test_actors import OWN, ray_of
from tests.fleet.test_lost import fleet_of, on, process_of
from tests.fleet.test_members import alive
from tests.fleets import last_saved

TRIES = 5
PATIENCE = 120.0  # seconds


def main(folder: Path, *names: str) -> None:
    imported()
    from ray.cluster_utils import Cluster

    files = working_folder()
    os.environ["RAY_TMPDIR"] = str(files)
    with_token(secrets.token_hex(32))
    cluster, nodes = Cluster(), list[Any]()
    try:
        another(cluster, num_cpus=0, include_dashboard=False)
        for _ in range(2):
            nodes.append(another(cluster))
        machine = {"address": cluster.address, "cpus": 1.0, "patience": 240.0}
        with session(ray_of(2, machine).machine):
            for name in names:
                said(replaced(folder / name, name, machine, cluster, nodes))
            said(gone(folder / "gone", {**machine, "patience": 5.0}, cluster, nodes))
    finally:
        cluster.shutdown()
        shutil.rmtree(files, ignore_errors=True)


def said(found: dict[str, Any]) -> None:
    """A line that is told from those that Ray may print."""
    print(">", json.dumps(found), flush=True)


def another(cluster: Any, num_cpus: int = 1, **options: Any) -> Any:
    """A new node; a busy machine may be too slow for Ray's patience."""
    for left in reversed(range(TRIES)):
        try:
            return cluster.add_node(num_cpus=num_cpus, **options)
        except Exception:
            if not left:
                raise
    raise AssertionError


def remove(cluster: Any, node: Any, moment: Moment) -> None:
    """Take a node away without grace, and wait until a worker has ended with it: Ray lets it work on for a while."""
    workers = [process_of(member) for member in moment.crew.members]
    cluster.remove_node(node, allow_graceful=False)
    limit = time.monotonic() + PATIENCE
    while all(alive(worker) for worker in workers):
        if time.monotonic() > limit:
            raise TimeoutError(f"none of the processes {workers} has ended with its node")
        time.sleep(0.1)


def replaced(folder: Path, name: str, machine: dict[str, Any], cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """In the middle of a task a node is gone; another comes, and the run ends as it does here."""
    settings, bank = fleet_of(name)
    want, there, told = train(worlds(settings, bank)), on(settings, **machine), list[str]()
    record = create(folder, there)
    record.tell = told.append

    def show(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (settings.tasks.count - 1, 1) and not told:
            remove(cluster, nodes.pop(), moment)
            nodes.append(another(cluster))

    carry_out(worlds(there, bank), record, show)
    found = last_saved(record)
    assert found is not None
    rows = (found[0].ledger.rows == want[0].ledger.rows).all() and found[0].ledger.words == want[0].ledger.words
    return {
        "fleet": name,
        "differs": [one for one in map(difference, found, want) if one],
        "ledger": bool(rows),
        "told": told,
    }


def gone(folder: Path, machine: dict[str, Any], cluster: Any, nodes: list[Any]) -> dict[str, Any]:
    """In the middle of a task a node is gone, and none comes."""
    settings = ray_of(2, machine, **OWN, seed=1)
    record, why = create(folder, settings), ""

    def show(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (3, 1) and len(nodes) > 1:
            remove(cluster, nodes.pop(), moment)

    try:
        carry_out(worlds(settings, load("digits")), record, show)
    except UserError as error:
        why = str(error)
    stacks = last_saved(record)
    return {"error": why, "saved": stacks and (stacks[0].task, stacks[0].epoch)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
