"""The first screen of an advice: the answer, its cost, how sure it is, one chart; and its runs as people see them."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import vl_convert

from shoal.report.advice import STYLE, chart
from shoal.report.export import VERSION
from shoal.report.sentences import coded, number
from shoal.report.style import finish
from shoal.runs import files
from shoal.runs.paired import chance
from shoal.runs.read import Run
from shoal.units import shown

FILE = "advise.json"


def advice_of(places: Sequence[Path]) -> dict[str, Any] | None:
    """The advice that a folder holds, if it is one of an advice and the only one."""
    if len(places) != 1:
        return None
    try:
        found = json.loads(files.read_bytes(places[0] / FILE, files.TEXT))
    except files.UNREADABLE:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("sentence"), str) else None


def first(advice: dict[str, Any]) -> str:
    """The answer, the cost, how sure, and one chart, as a section of the page; what cannot be read is left out."""
    sentences = advice["sentence"].partition(" (Chosen as")
    facts = "".join(f"<li><strong>{name}:</strong> {value}</li>" for name, value in told(advice).items())
    return (
        '<section class="answer" aria-labelledby="answer"><h2 id="answer">The answer</h2>'
        f"<ul>{facts}</ul><p>{coded(sentences[0])}</p><p class='soft'>{coded(''.join(sentences[1:]).strip())}</p>"
        f"{picture(advice)}</section>"
    )


def told(advice: dict[str, Any]) -> dict[str, str]:
    """What to share, what it brings, what it costs, how sure that is."""
    try:
        pick = advice["pick"]
        rows = {row["candidate"]: row for row in advice["candidates"]}
        if pick is None:
            best = next((row for row in rows.values() if row["price"] and row["test_gain"] is not None), None)
            doubt = (
                {} if best is None else {"How sure": f"the best, {escape(best['candidate'])}, brings {brought(best)}"}
            )
            return {"Share": "nothing", "Cost": "nothing", **doubt}
        row = rows[pick]
        sure = escape(chance(row["test_p"]))
        sure = f"p {sure}" if sure.startswith("&lt;") else f"p = {sure}" if sure else ""
        return {
            "Share": escape(str(pick)),
            "Gain": brought(row),
            "Cost": f"{shown(row['sent'])} per link and task",
            "How sure": f"{sure}, over {row['test_seeds']} seeds that did not choose it"
            if sure
            else "there is one seed",
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def brought(row: dict[str, Any]) -> str:
    """What a candidate brings on test rows, and how sure that is."""
    gain, low, high = (row[name] for name in ("test_gain", "test_low", "test_high"))
    ends = "" if low is None or low == high else f"{number(low, True)} and {number(high, True)} with 95 % confidence"
    return f"{number(gain, True)} points of accuracy over sharing nothing{', between ' * bool(ends)}{ends}"


def picture(advice: dict[str, Any]) -> str:
    """The chart of the advice, as an image."""
    try:
        spec = finish(chart(advice["candidates"]), STYLE)
        svg = vl_convert.vegalite_to_svg(spec, vl_version=VERSION)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    packed = base64.b64encode(svg.encode()).decode()
    what = "Accuracy on validation rows of every candidate, with the bytes that it sends per link and task"
    return f'<img alt="{what}" src="data:image/svg+xml;base64,{packed}">'


def joined(runs: Sequence[Run]) -> list[Run]:
    """The rounds of a race as people see them: runs that differ in their seeds alone are one."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        asked = {name: value for name, value in run.settings.items() if name not in ("machine", "seed", "seeds")}
        key = json.dumps(asked, sort_keys=True, default=str)
        met = {(seed, agent) for one in found.get(key, ()) for seed, agent in lanes(one)}
        if not run.complete or met & set(lanes(run)):  # it stands for itself
            key += str(run.folder)
        found.setdefault(key, []).append(run)
    return [one[0] if len(one) == 1 else whole(one) for one in found.values()]


def lanes(run: Run) -> list[tuple[int, int]]:
    return list(zip(run.seeds.tolist(), run.agents.tolist(), strict=True))


def whole(rounds: Sequence[Run]) -> Run:
    """Several runs of the same settings with different seeds as one; its numbers are those of the records."""
    one = rounds[0]
    names = set.intersection(*(set(run.tables) for run in rounds))
    tables = {name: pl.concat([run.tables[name] for run in rounds], how="diagonal_relaxed") for name in names}
    first = min(int(run.settings["seed"]) for run in rounds)
    settings = {**one.settings, "seed": first, "seeds": sum(int(run.settings["seeds"]) for run in rounds)}
    return replace(
        one,
        settings=settings,
        summary={},
        tables=tables,
        accuracy=np.concatenate([run.accuracy for run in rounds]),
        seeds=np.concatenate([run.seeds for run in rounds]),
        agents=np.concatenate([run.agents for run in rounds]),
    )
