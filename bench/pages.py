"""Tables of the site that are made from the bench's CSVs. A page has a line `[bench speed](results/speed.csv)`, and the
site shows the table in its place; `python -m bench.pages` prints all of them."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench import attacks, clocks, helps, liars, nets, results, speed
from bench.peers import __main__ as peers

DOCS = results.ROOT / "docs"
SHOWN = re.compile(r"^\[bench ([\w-]+)\]\((?:\.\./)*([\w/-]+)\.csv\)$", re.M)


class Table(NamedTuple):
    """The CSV of a table in docs, and how the table is made of its rows."""

    file: str
    make: Callable[[Sequence[results.Row]], str]


def findings(rows: Sequence[results.Row]) -> str:
    """What attacks have found, and the tests that hold it."""
    lines = [[row["finding"], ", ".join(f"`{name}`" for name in row["tests"].split())] for row in rows]
    return results.markdown(["finding", "tests"], lines)


def lies(rows: Sequence[results.Row], protocol: str) -> str:
    return liars.table(liars.found_in(rows), protocol)


TABLES = {
    "attacks": Table("results/attacks", attacks.table),
    "findings": Table("findings", findings),
    "helps": Table("results/helps", lambda rows: helps.table([dict(row) for row in rows])),
    "liars-alike": Table("results/liars", partial(lies, protocol="alike")),
    "liars-long": Table("results/liars", partial(lies, protocol="long")),
    "nets": Table("results/nets", nets.table),
    "peers": Table("results/peers", lambda rows: peers.table([dict(row) for row in rows])),
    "robots": Table("results/robots", clocks.robots_table),
    "speed": Table("results/speed", speed.table),
    "staggered": Table("results/staggered", clocks.staggered_table),
}


def made(name: str) -> str:
    """A table, as the CSV has it now."""
    return TABLES[name].make(results.read(DOCS / f"{TABLES[name].file}.csv"))


def shown(text: str) -> str:
    """A page with its tables in the place of the links to their CSVs."""
    return SHOWN.sub(lambda found: made(found[1]), text)


if __name__ == "__main__":
    for name in TABLES:
        print(f"{name}\n\n{made(name)}")
