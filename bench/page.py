"""How fast the report of the paper's 15 methods opens, in a real browser."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.report import compare, page
from shoal.runs import read
from tests import browser

METHODS, AGENTS, TASKS = 15, 8, 10


def rows(lanes: int, turns: int, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """Seconds to the first chart: the first page of a browser that has just started, and the same page again. Nothing
    where there is no browser."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        browser.many(file.parent / "runs", METHODS, AGENTS, lanes // AGENTS, TASKS)
        began = time.perf_counter()
        page.save(file, page.page(compare.groups(read.gather([file.parent / "runs"])[0]), []))
        written = time.perf_counter() - began
        first, again = [], []
        for _ in range(turns):
            if window := browser.start():
                try:
                    first.append(opened(window, file))
                    again.append(opened(window, file))
                finally:
                    window.quit()
            tick()
        if not first:
            return []
        row = {"methods": METHODS, "lanes": lanes, "megabytes": file.stat().st_size / 1e6, "written": written}
        return [{**row, "first": statistics.median(first), "again": statistics.median(again)}]


def opened(window: Any, file: Path) -> float:
    """Seconds until the page shows its first chart."""
    began = time.perf_counter()
    window.get(file.as_uri())
    browser.drawn(window, "g0-learning-curves")
    return time.perf_counter() - began
