"""The laws of metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from shoal.contracts.fleets import listed
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.runs.metrics import METRICS, Array, Metric, Run, summary
from shoal.runs.predicted import Predictions

LANES, TASKS, POINTS = 4, 5, 3


@contextmanager
def laws(metric: str | Metric) -> Iterator[list[Law]]:
    """The laws of a metric."""
    with listed(METRICS, metric) as name, finishes(f"`{name}`"):
        yield laws_of(LAWS, name, METRICS.find(name))


def run_of(lanes: slice = slice(None), ragged: bool = False, full: bool = True) -> Run:
    """A made-up run: tasks are tested from when they are met. The last lane's stream may be shorter."""
    rng = np.random.default_rng(4)
    met = np.tri(TASKS, dtype=bool)[None, :, None, :]
    accuracy = np.where(met, rng.random((LANES, TASKS, POINTS, TASKS)), np.nan)
    if ragged:
        accuracy[-1, TASKS - 2 :] = np.nan
        accuracy[-1, :, :, TASKS - 2 :] = np.nan
    classes = np.full((LANES, TASKS), 2) if full else None
    others = rng.random((LANES, 3)) if full else None
    at = np.arange(LANES * TASKS * 6)
    lane, task = at // (TASKS * 6), at // 6 % TASKS
    own = (np.arange(LANES)[lanes][:, None] == lane).any(0) & ~(ragged & (lane == LANES - 1) & (task >= TASKS - 2))
    label, said, sure = rng.integers(0, 3, len(at))[own], rng.integers(0, 3, len(at))[own], rng.random(len(at))[own]
    first = np.arange(LANES)[lanes][0]
    kept = Predictions((lane - first)[own], task[own], 0 * at[own], label, said, sure, ("a", "b", "c"))
    return Run(
        accuracy[lanes], np.array([0.0, 1, 11]), 2, classes if classes is None else classes[lanes],
        others if others is None else others[lanes], kept if full else None,
    )  # fmt: skip


def values(name: str, metric: Metric, run: Run) -> Array | None:
    found = metric(run)
    if found is None:
        return None
    array = np.asarray(found, dtype=np.float64)
    want = (len(run.accuracy),)
    shapes = array.shape[:1] == want and array.ndim in (1, 3)
    law(shapes, f"`{name}` is one number per lane, {want}, or a table per lane, got shape {array.shape}")
    law(not np.isinf(array).any(), f"`{name}` is finite, or NaN where it is not defined, got {array}")
    return array


def it_is_one_number_per_lane(name: str, metric: Metric) -> None:
    """Or None, where what it needs is not given."""
    for full in (True, False):
        values(name, metric, run_of(full=full))


def it_does_not_change_what_it_reads(name: str, metric: Metric) -> None:
    run, before = run_of(), run_of()
    first = values(name, metric, run)
    every = ((*one[:5], *one.predictions[:6]) for one in (run, before) if one.predictions is not None)
    kept = all(np.array_equal(one, two, equal_nan=True) for one, two in zip(*every, strict=True))
    law(kept, f"`{name}` changes what it reads")
    again = values(name, metric, run)
    law((first is None) == (again is None), f"`{name}` is another number for the same run")
    if first is not None and again is not None:
        law(np.array_equal(first, again, equal_nan=True), f"`{name}` is another number for the same run")


def a_lane_does_not_depend_on_the_others(name: str, metric: Metric) -> None:
    whole, part = values(name, metric, run_of()), values(name, metric, run_of(slice(1, 2)))
    if whole is None or part is None:
        return
    law(np.allclose(whole[1:2], part, equal_nan=True), f"`{name}` of a lane depends on the other lanes of the run")


def streams_may_have_different_lengths(name: str, metric: Metric) -> None:
    whole, ragged = values(name, metric, run_of()), values(name, metric, run_of(ragged=True))
    if whole is None or ragged is None:
        return
    law(
        np.allclose(whole[:-1], ragged[:-1], equal_nan=True),
        f"`{name}` of lanes whose stream is whole changes where another's ends earlier",
    )


def it_is_in_the_summary(name: str, metric: Metric) -> None:
    run = run_of()
    found = summary(run.accuracy, run.epochs, np.arange(LANES) // 2, run.initial)
    law(name in found and f"{name}_se" in found, f"`{name}` is in the summary of a run")


LAWS: tuple[Callable[[str, Metric], None], ...] = (
    it_is_one_number_per_lane,
    it_does_not_change_what_it_reads,
    a_lane_does_not_depend_on_the_others,
    streams_may_have_different_lengths,
    it_is_in_the_summary,
)
