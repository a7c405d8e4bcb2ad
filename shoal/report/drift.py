"""Where detectors have cut agents' streams, beside where these really change, as far as that is known."""

from html import escape

import numpy as np
import polars as pl

from shoal.report.compare import Group
from shoal.report.parts import table
from shoal.report.sentences import DASH, number
from shoal.units import plural

TRUE, FALSE = "true", "false alarm"  # what a row of drift.parquet is; any other was detected
MANY = 60  # streams that are shown one by one


def boundaries(group: Group) -> str:
    """The boundaries of the streams of a group, whose runs have the same ones; nothing, where tasks end by other
    rules."""
    entry = next((entry for entry in group.entries if "drift" in entry.run.tables), None)
    if entry is None:
        return ""
    rows = entry.run.tables["drift"]
    true, alarms = rows.filter(pl.col("what") == TRUE), rows.filter(pl.col("what") == FALSE)
    found = rows.filter(pl.col("what") != TRUE)
    said = f"A detector cut the streams of agents at {plural(len(found), 'place')}."
    if len(true):
        late = np.array(true["delay"].drop_nulls().to_list(), float)
        how = f", {number(float(late.mean()))} rows late on the mean" if len(late) else ""
        said += f" Of {plural(len(true), 'true change')} it found {len(late)}{how}; "
        said += f"{plural(len(alarms), 'cut')} found none."
    title, sites = "Where tasks end", entry.run.sites
    head = ["seed", "agent", "rows", "detected at row", "true change at row"]
    body = []
    for (seed, agent), part in sorted(rows.group_by("seed", "agent"), key=lambda one: one[0]):
        who = sites[int(agent)] if int(agent) < len(sites) else str(agent)
        places = [places_of(part, of_true) for of_true in (False, True)]
        body.append(
            [str(seed), escape(who), str(part["rows"][0]), *(", ".join(map(str, one)) or DASH for one in places)]
        )
    shown = table(title, said + " Rows for testing are not counted.", head, body[:MANY])
    return f'<div class="card"><h3>{title}</h3>{shown}</div>'


def places_of(part: pl.DataFrame, true: bool) -> list[int]:
    """The rows at which a stream was cut, or really changes."""
    found: list[int] = part.filter((pl.col("what") == TRUE) == true)["row"].sort().to_list()
    return found
