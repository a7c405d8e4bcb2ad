"""The page of runs that still train: written again and again, with the time that is left, until all are finished."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.errors import UserError
from shoal.report import compare, page
from shoal.runs import read
from shoal.runs.read import Run
from shoal.units import plural

EVERY = 10  # seconds between two looks; records grow when a task ends


class Look(NamedTuple):
    """How much of some runs was learned at a moment."""

    at: float  # seconds
    share: float  # of all their tasks


def watch(
    folders: Sequence[Path],
    out: Path,
    say: Callable[[str], None],
    every: float = EVERY,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write the page again whenever records have grown; the browser loads it again by itself. Ends with the last run.

    Folders without records yet are waited for, and runs that begin later are taken up.
    """
    first: Look | None = None
    told = ""
    while True:
        try:
            runs, notes = read.gather(folders)
        except UserError as error:
            if not any((place / "settings.toml").exists() for folder in folders for place in read.inside(folder)):
                raise
            first, sentence = None, f"waiting for the first task to end ({error})"
        else:
            now = Look(clock(), learned(runs))
            first = first or now
            sentence = progress(runs, first, now)
            going = any(not run.complete for run in runs)
            page.save(out, page.page(compare.groups(runs), notes, sentence if going else "", every))
            if not going:
                say(f"{plural(len(runs), 'run')} in {out}")
                return
        if sentence != told:
            say(sentence)
            told = sentence
        sleep(every)


def learned(runs: Sequence[Run]) -> float:
    """How much of all tasks of some runs is learned; those that are learned together are one."""
    units = [(max(0, run.done - run.initial + 1), max(1, run.tasks - run.initial + 1)) for run in runs]
    return sum(done for done, _ in units) / sum(total for _, total in units)


def progress(runs: Sequence[Run], first: Look, now: Look) -> str:
    """How far runs are, and how long they will take at the pace since the first look."""
    finished = sum(run.complete for run in runs)
    said = f"{finished} of {plural(len(runs), 'run')} finished, {100 * now.share:.0f} % of all tasks learned"
    if now.share <= first.share:
        return said
    left = (now.at - first.at) * (1 - now.share) / (now.share - first.share)
    return f"{said}, about {spoken(left)} left"


def spoken(seconds: float) -> str:
    """A time in a few words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
