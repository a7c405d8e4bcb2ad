"""How far our Table 1 agrees with the paper's: what a method gains, in which order methods come, and how near single
numbers are, each beside what a guess would reach that knows nothing of methods."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from shoal.study.cells import Row
from shoal_paper.claims import METRICS
from shoal_paper.overview import CLOSE

Place = tuple[str, str, str]  # model, method, metric


class Agreement(NamedTuple):
    """Agreement of two tables of the same cells."""

    gains: int  # how many gains over agents alone were compared
    correlation: float  # of our gains and the paper's
    distance: float  # the mean distance of the two
    guessed: float  # the same if no method gained anything
    elsewhere: float  # the same if each method gained what the paper's does on the other datasets, on the mean
    order: float  # Spearman's correlation of the order of methods, the mean over datasets, models and metrics


def agreement(rows: Iterable[Row]) -> Agreement | None:
    """Of our rows with the paper's numbers in them; None if no method but vanilla is there."""
    gains: list[np.ndarray] = []
    places: list[tuple[str, Place]] = []  # of each gain
    for _, some in groupby(sorted(rows, key=cell), key=cell):
        same = list(some)
        base = next((row for row in same if row["method"] == "vanilla"), None)
        others = [row for row in same if row["method"] != "vanilla" and row["paper_auc"] is not None]
        if base is None or len(others) < 2:
            continue
        for name in METRICS:
            both = [(row[name] - base[name], row[f"paper_{name}"] - base[f"paper_{name}"]) for row in others]
            gains.append(np.array(both).T)
            places += [(row["dataset"], (row["model"], row["method"], name)) for row in others]
    if not gains:
        return None
    ours, theirs = np.concatenate(gains, axis=1)
    return Agreement(
        len(ours),
        float(np.corrcoef(ours, theirs)[0, 1]),
        float(np.abs(ours - theirs).mean()),
        float(np.abs(theirs).mean()),
        float(np.abs(theirs - elsewhere(places, theirs)).mean()),
        fmean(float(np.corrcoef(ranks(pair[0]), ranks(pair[1]))[0, 1]) for pair in gains),
    )


def elsewhere(places: Sequence[tuple[str, Place]], gains: np.ndarray) -> np.ndarray:
    """Of each gain the mean of the same method's on the other datasets; nothing, where there is no other."""
    found = np.zeros(len(gains))
    for at, (dataset, place) in enumerate(places):
        others = [gain for (name, one), gain in zip(places, gains, strict=True) if one == place and name != dataset]
        found[at] = fmean(others) if others else 0.0
    return found


def cell(row: Row) -> tuple[Any, ...]:
    return row["dataset"], row["model"]


def ranks(values: np.ndarray) -> np.ndarray:
    """The place of each value among all; equal values have the mean of their places."""
    return np.array([(values < one).sum() + ((values == one).sum() - 1) / 2 for one in values])


def guessed(rows: Iterable[Row]) -> int:
    """How many of the paper's numbers the mean of its dataset, model and metric is close to, whatever the method."""
    found = 0
    for _, some in groupby(sorted(rows, key=cell), key=cell):
        same = [row for row in some if row["paper_auc"] is not None]
        for name in METRICS:
            theirs = [row[f"paper_{name}"] for row in same]
            found += sum(abs(one - fmean(theirs)) <= CLOSE for one in theirs)
    return found


def brief(rows: Iterable[Row]) -> str:
    """The same in a line."""
    found = agreement(rows)
    return (
        ""
        if found is None
        else (
            f"what methods gain over agents alone correlates with the paper's gains with r = {found.correlation:.2f} "
            f"({found.distance:.2f} points apart on the mean, {found.guessed:.2f} if none gained anything)"
        )
    )


def sentence(rows: Iterable[Row]) -> str:
    """What agrees, strongest first; nothing, if there is nothing to compare."""
    rows = list(rows)
    found = agreement(rows)
    if found is None:
        return ""
    return (
        f"What methods gain over agents alone agrees with the paper: of {found.gains} gains, ours and the paper's "
        f"correlate with r = {found.correlation:.2f} and are {found.distance:.2f} points apart on the mean "
        f"({found.elsewhere:.2f} if each gained what the paper's does elsewhere, "
        f"{found.guessed:.2f} if none gained anything); the order of methods correlates with {found.order:.2f} "
        f"(Spearman). {lopsided(rows)}"
    )


def lopsided(rows: Iterable[Row]) -> str:
    """Datasets and models all of whose numbers are on one side of the paper's, and how far agents alone are there: rows
    of a dataset share tasks, seeds and what agents alone are, so that they are one observation, not many."""
    above, alone, count = [], list[tuple[float, float]](), 0
    for key, some in groupby(sorted(rows, key=cell), key=cell):
        same = [row for row in some if row["paper_auc"] is not None]
        gaps = [row[name] - row[f"paper_{name}"] for row in same for name in METRICS]
        if gaps and min(gaps) > 0:
            above.append(" ".join(reversed(key)))
            count += len(gaps)
            base = next((row for row in same if row["method"] == "vanilla" and row["final_accuracy_se_seeds"]), None)
            if base is not None:
                gap = base["final_accuracy"] - base["paper_final_accuracy"]
                alone.append((gap, base["final_accuracy_se_seeds"]))
    if not above:
        return ""
    said = (
        f"All {count} numbers of {', '.join(above)} are above the paper's; with shared tasks and seeds "
        f"these are {len(above)} observations. "
    )
    if not alone:
        return said
    apart = max(abs(gap) / error for gap, error in alone)
    luck = "perhaps luck" if apart < 2 else "and no cause was found"
    each = ", ".join(f"{gap:+.2f} ± {error:.2f}" for gap, error in alone)
    return f"{said}Agents alone end {each} from the paper's there, at most {apart:.1f} standard errors, {luck}. "
