"""What a run is worth: accuracies in, the field's numbers out.

Everything starts from one dense array `accuracy[L, T, G, T]`: lane l (one agent of one seed), while learning task t, at
grid point g, tested on task u <= t. NaN means "not measured". The labels of the grid points are `epochs[G]`: 0 is
before any training on the task, the last is after all of it; 100 epochs measured every 10 give 0, 1, 11, ..., 91, 101.

The first `initial` tasks are learned together, at the end of task `initial - 1` (the paper: 4 tasks). Before that
nothing is trained, so no number here reads "just after learning task 1" from the end of task 1. With `initial` = 1 (or
0, no such phase) the definitions are the textbook ones.

Functions return one number per lane, as a fraction. Only `gain` and `summary` speak percent. A missing measurement
makes the lane's number NaN, never a mean over what happens to be there: to look at a run that is not finished, cut the
array to the tasks that are.

Lopez-Paz & Ranzato 2017: Gradient Episodic Memory for Continual Learning, NeurIPS, arXiv:1706.08840.
Chaudhry et al. 2018: Riemannian Walk for Incremental Learning, ECCV, arXiv:1801.10112.
Rebuffi et al. 2017: iCaRL: Incremental Classifier and Representation Learning, CVPR, arXiv:1611.07725.
The paper: Le, Hussing & Eaton 2024, Distributed Continual Learning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.doors import Table
from shoal.own_code import running

if TYPE_CHECKING:
    from shoal.runs.predicted import Predictions

Array = npt.NDArray[np.float64]


def lengths(accuracy: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """How many tasks each lane has: up to the last one that was tested at its end, [L]. Where streams have different
    lengths, there is nothing behind the end of a short one."""
    ends = np.diagonal(_dense(accuracy)[:, :, -1, :], axis1=1, axis2=2)
    found: npt.NDArray[np.int64] = (~np.isnan(ends) * np.arange(1, ends.shape[1] + 1)).max(1)
    return found


def each_length(metric: "Callable[..., Array]") -> "Callable[..., Array]":
    """A metric of lanes whose streams have different lengths, each as if the others had the same."""

    @wraps(metric)
    def work(accuracy: npt.ArrayLike, *arguments: Any) -> Array:
        dense = _dense(accuracy)
        long = lengths(dense)
        if (long == dense.shape[1]).all() or long.max(initial=0) < dense.shape[1]:  # all whole, or none finished
            return metric(dense, *arguments)
        found = {int(n): metric(dense[long == n, :n, :, :n], *(cut(one, long == n, n) for one in arguments))
                 for n in np.unique(long) if n}  # fmt: skip
        shape = next(iter(found.values())).shape[1:]
        whole = np.full((len(dense), *shape), np.nan)
        for n, values in found.items():
            whole[long == n] = values
        return whole

    return work


def cut(argument: Any, lanes: npt.NDArray[np.bool_], tasks: int) -> Any:
    """An argument of a metric for some lanes and their tasks, if it has a number for each."""
    return argument[lanes, :tasks] if isinstance(argument, np.ndarray) and argument.ndim == 2 else argument


def seen(accuracy: npt.ArrayLike) -> Array:
    """Mean accuracy over the tasks seen so far, the paper's "avg": [L, T, G].

    seen[l, t, g] = 1 / (t + 1) * sum of accuracy[l, t, g, u] over u = 0..t
    """
    dense = _dense(accuracy)
    tasks = dense.shape[1]
    past = np.tril(np.ones((tasks, tasks), dtype=bool))[:, None, :]
    total: Array = np.where(past, dense, 0.0).sum(axis=-1)
    return total / np.arange(1, tasks + 1)[:, None]


@each_length
def final(accuracy: npt.ArrayLike) -> Array:
    """Mean accuracy over all tasks, initial ones included, when the last task is done: [L]."""
    return seen(accuracy)[:, -1, -1]


@each_length
def average(accuracy: npt.ArrayLike, initial: int) -> Array:
    """Mean over task ends of the mean accuracy over the tasks seen by then: [L].

    1 / (T - s) * sum of seen[l, t, last] over t = s..T-1, with s = initial - 1, the first end at which anything was
    learned (Rebuffi et al. 2017, average incremental accuracy).
    """
    return _mean(seen(accuracy)[:, max(initial - 1, 0) :, -1])


@each_length
def curve(accuracy: npt.ArrayLike, initial: int) -> Array:
    """The paper's learning curve: "avg" at each label, averaged over the tasks after the initial ones: [L, G]."""
    return _mean(seen(accuracy)[:, initial:, :])


def area(curves: npt.ArrayLike, epochs: npt.ArrayLike, normalise: bool = False) -> Array:
    """Area under `curves[..., G]` by the trapezoid rule over the labels `epochs[G]`: [...].

    sum over g of (epochs[g + 1] - epochs[g]) * (curve[g] + curve[g + 1]) / 2

    In the paper's unit a constant accuracy of 1 has as area the last label, 101 for 100 epochs; normalised, 1.
    """
    heights = np.asarray(curves, dtype=np.float64)
    labels = np.asarray(epochs, dtype=np.float64)
    if labels.ndim != 1 or labels.size < 2 or labels[0] != 0 or (np.diff(labels) <= 0).any():
        raise ValueError(f"epochs must rise from 0 and hold two labels or more; got {labels.tolist()}")
    if heights.shape[-1:] != labels.shape:
        raise ValueError(f"curves must have one point per label: {labels.size} labels, but curves is {heights.shape}")
    total: Array = ((heights[..., 1:] + heights[..., :-1]) / 2 * np.diff(labels)).sum(axis=-1)
    return total / labels[-1] if normalise else total


@each_length
def zero_shot(accuracy: npt.ArrayLike, initial: int) -> Array:
    """Accuracy on a task before it is trained (label 0), averaged over the tasks after the initial ones: [L].

    Task 0 never counts: nothing was learned before it that could transfer.
    """
    return _mean(_firsts(accuracy)[:, max(initial, 1) :])


@each_length
def forward(accuracy: npt.ArrayLike, initial: int, classes: int | Sequence[int] | npt.NDArray[np.integer]) -> Array:
    """Forward transfer: zero-shot accuracy minus that of a guess: [L].

    1 / (T - s) * sum of (accuracy[l, t, 0, t] - 1 / classes[t]) over t = s..T-1, with s = max(initial, 1).
    Lopez-Paz & Ranzato 2017 subtract the accuracy of an untrained network; with balanced classes that is chance, on
    average. `classes` is one number, or one per task.
    """
    chances = 1.0 / np.asarray(classes, dtype=np.float64)
    return _mean((_firsts(accuracy) - chances)[:, max(initial, 1) :])


@each_length
def backward(accuracy: npt.ArrayLike, initial: int) -> Array:
    """Backward transfer: what later learning did to earlier tasks, negative if it harmed them: [L].

    1 / n * sum of (R[T-1, u] - R[l(u), u]) over the n tasks u with l(u) < T-1, where R[t, u] is the accuracy on u at
    the end of t, and l(u) = max(u, initial - 1) the task at whose end u was first learned (Lopez-Paz & Ranzato 2017:
    l(u) = u and n = T-1). NaN if nothing came after.
    """
    ends = _dense(accuracy)[:, :, -1, :]
    last = ends.shape[1] - 1
    return _mean(_columns([ends[:, last, u] - ends[:, at, u] for u, at in _learned(last, initial)], len(ends)))


@each_length
def forgetting(accuracy: npt.ArrayLike, initial: int) -> Array:
    """How far below their best the earlier tasks end: [L].

    1 / n * sum of (max over t = l(u)..T-2 of R[t, u] - R[T-1, u]) over the n tasks u with l(u) < T-1; R and l as in
    `backward` (Chaudhry et al. 2018). The last task is not counted: it had no time to be forgotten and would dilute the
    mean. The last end is not in the maximum, so a task that is at its best at the end forgets a negative amount.
    """
    ends = _dense(accuracy)[:, :, -1, :]
    last = ends.shape[1] - 1
    drops = [ends[:, at:last, u].max(axis=1) - ends[:, last, u] for u, at in _learned(last, initial)]
    return _mean(_columns(drops, len(ends)))


def unseen(others: npt.ArrayLike) -> Array:
    """Mean accuracy on tasks that only other lanes have seen, from `others[L, n]`: [L].

    Here NaN is padding, where a lane has fewer such tasks than another; a lane with none gets NaN.
    """
    table = np.asarray(others, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"others must be [lanes, n], padded with NaN; got shape {table.shape}")
    return mean(table.T)


def mean(values: npt.ArrayLike) -> Array:
    """Mean of `values[L, ...]` over the lanes that have a number: [...], NaN where none has."""
    table = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(table)
    count = there.sum(axis=0)
    total: Array = np.where(there, table, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def error(values: npt.ArrayLike, seeds: npt.ArrayLike | None = None) -> Array:
    """Standard error of the mean of `values[L, ...]`: sample deviation (n - 1) / sqrt(n): [...].

    Without `seeds`, n counts all lanes, as the paper does. Agents of one seed share starts and mail, so this is too
    small. With `seeds[L]`, values are first averaged within each seed and n counts seeds: the error one should report.
    Lanes without a number are left out; NaN if fewer than two numbers remain.
    """
    table = np.asarray(values, dtype=np.float64)
    if seeds is not None:
        owners = np.asarray(seeds)
        if owners.shape != table.shape[:1]:
            raise ValueError(f"seeds must name one seed per lane: {len(table)} lanes, but seeds is {owners.shape}")
        table = np.stack([mean(table[owners == seed]) for seed in np.unique(owners)])
    there = ~np.isnan(table)
    count = there.sum(axis=0)
    squares: Array = np.where(there, (table - mean(table)) ** 2, 0.0).sum(axis=0)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.where(count > 1, deviation / np.sqrt(np.maximum(count, 1)), np.nan)


def gain(value: float, base: float) -> float:
    """Relative gain in percent, 100 (value - base) / base, over agents of the same kind that share nothing; NaN for
    base 0."""
    return 100.0 * (value - base) / base if base else float("nan")


class Run(NamedTuple):
    """What a metric reads of a run; None: not given."""

    accuracy: Array  # [L, T, G, T]
    epochs: Array  # [G]
    initial: int
    classes: npt.NDArray[np.integer] | None
    others: Array | None  # [L, n]
    predictions: "Predictions | None" = None  # of test rows, where they are kept

    @property
    def curves(self) -> Array:
        """The learning curve of every lane, [L, G]."""
        return curve(self.accuracy, self.initial)


# One number per lane of a run, [L], in percent but for `auc`, or a table per lane, [L, n, m]; None where what it needs
# is not given. One's own is a function and a line here, or an entry point: it is in every summary from then on.
Metric = Callable[[Run], Array | None]


@dataclass(frozen=True)
class Measure:
    """A metric that says what it is: a line, a formula in TeX (its letters: docs/generate.py), a source."""

    about: str
    formula: str
    source: str
    work: Metric

    def __call__(self, run: Run) -> Array | None:
        return self.work(run)


PAPER = "Le, Hussing & Eaton 2024"
GEM = "Lopez-Paz & Ranzato 2017"
BUILT_IN: dict[str, Metric | str] = {
    "final_accuracy": Measure(
        "mean accuracy over all tasks at the end, in %",
        r"\frac{1}{T} \sum_{u=1}^{T} a(T, E, u)",
        PAPER,
        lambda run: 100 * final(run.accuracy),
    ),
    "auc": Measure(
        "area under the learning curve, in the paper's unit: at most the last epoch's label",
        r"\sum_{g} (e_{g+1} - e_g) \frac{c(e_g) + c(e_{g+1})}{2}",
        PAPER,
        lambda run: area(run.curves, run.epochs),
    ),
    "auc_normalised": Measure(
        "area under the learning curve, in % of what it can be",
        r"\frac{1}{E} \sum_{g} (e_{g+1} - e_g) \frac{c(e_g) + c(e_{g+1})}{2}",
        "the same as a share of its maximum",
        lambda run: 100 * area(run.curves, run.epochs, normalise=True),
    ),
    "average_accuracy": Measure(
        "mean over task ends of the mean accuracy over the tasks seen by then, in %",
        r"\frac{1}{T - s + 1} \sum_{t=s}^{T} m(t, E)",
        "Rebuffi et al. 2017 (average incremental accuracy)",
        lambda run: 100 * average(run.accuracy, run.initial),
    ),
    "forward_transfer": Measure(
        "accuracy on a task before it is trained, in %",
        r"\frac{1}{T - s} \sum_{t=s+1}^{T} a(t, 0, t)",
        f"{GEM}, without a baseline",
        lambda run: 100 * zero_shot(run.accuracy, run.initial),
    ),
    "forward_transfer_over_chance": Measure(
        "the same minus that of a guess, in %",
        r"\frac{1}{T - s} \sum_{t=s+1}^{T} \left( a(t, 0, t) - \frac{1}{C_t} \right)",
        f"{GEM}, with chance in the place of an untrained net",
        lambda run: None if run.classes is None else 100 * forward(run.accuracy, run.initial, run.classes),
    ),
    "backward_transfer": Measure(
        "what later learning did to earlier tasks, negative if it harmed them, in %",
        r"\frac{1}{T - 1} \sum_{u=1}^{T-1} \left( a(T, E, u) - a(l_u, E, u) \right)",
        GEM,
        lambda run: 100 * backward(run.accuracy, run.initial),
    ),
    "forgetting": Measure(
        "how far below their best earlier tasks end, in %",
        r"\frac{1}{T - 1} \sum_{u=1}^{T-1} \left( \max_{l_u \leq t < T} a(t, E, u) - a(T, E, u) \right)",
        "Chaudhry et al. 2018",
        lambda run: 100 * forgetting(run.accuracy, run.initial),
    ),
    "zero_shot_others": Measure(
        "mean accuracy on tasks that only other agents have met, in %",
        r"\frac{1}{|O|} \sum_{u \in O} a(T, E, u)",
        "shoal",
        lambda run: None if run.others is None else 100 * unseen(run.others),
    ),
    "f1": "shoal.runs.predicted:F1",
    "recall": "shoal.runs.predicted:RECALL",
    "calibration_error": "shoal.runs.predicted:CALIBRATION",
    "mean_absolute_error": "shoal.runs.predicted:ABSOLUTE",
    "confusion_matrix": "shoal.runs.predicted:CONFUSION",
}
METRICS: Table[Metric] = Table("metric", BUILT_IN, "shoal.metrics", callable)


def summary(
    accuracy: npt.ArrayLike,
    epochs: npt.ArrayLike,
    seeds: npt.ArrayLike,
    initial: int,
    classes: int | Sequence[int] | npt.NDArray[np.integer] | None = None,
    others: npt.ArrayLike | None = None,
    predictions: "Predictions | None" = None,
) -> dict[str, Any]:
    """All metrics of a run: mean over lanes, its pooled error `_se` and its error over seeds `_se_seeds`.

    In percent, except `auc` and its errors, which are in the paper's unit (at most the last label, 101 for 100 epochs).
    `forward_transfer` is the zero-shot accuracy; `forward_transfer_over_chance` needs `classes`, and `zero_shot_others`
    needs `others`; what is said of single rows needs `predictions`. The keys are always the same; what is undefined or
    not given is None, and so are the errors of a table.
    """
    dense = _dense(accuracy).copy()
    dense.flags.writeable = False  # one metric cannot change what another reads
    run = Run(
        dense,
        np.asarray(epochs, dtype=np.float64),
        initial,
        None if classes is None else np.asarray(classes),
        None if others is None else np.asarray(others, dtype=np.float64),
        predictions,
    )
    table: dict[str, Any] = {}
    for name in METRICS:
        values = values_of(name, run)
        table[name] = _number(mean(values))
        table[f"{name}_se"] = _number(error(values)) if values.ndim == 1 else None
        table[f"{name}_se_seeds"] = _number(error(values, seeds)) if values.ndim == 1 else None
    return table


def values_of(name: str, run: Run) -> Array:
    """What a metric makes of a run: a number for every lane, or a table; what needs more than is given is NaN."""
    metric, lanes = METRICS[name], len(run.accuracy)
    with running(metric, f"the metric `{name}`"):
        values = metric(run)
        found = np.full(lanes, np.nan) if values is None else np.asarray(values, dtype=np.float64)
        if found.ndim not in (1, 3) or len(found) != lanes:
            raise TypeError(f"it returns shape {list(found.shape)}, and a number for each of {lanes} lanes is needed")
    return found


def _dense(accuracy: npt.ArrayLike) -> Array:
    """`accuracy` as float64 [L, T, G, T]; raises if it is anything else."""
    dense = np.asarray(accuracy, dtype=np.float64)
    if dense.ndim != 4 or dense.shape[1] != dense.shape[3] or 0 in dense.shape:
        raise ValueError(f"accuracy must be [lanes, tasks, grid points, tasks], none of them zero; got {dense.shape}")
    return dense


def _firsts(accuracy: npt.ArrayLike) -> Array:
    """Accuracy on each task before any training on it: [L, T]."""
    return np.diagonal(_dense(accuracy)[:, :, 0, :], axis1=1, axis2=2)


def _mean(values: Array) -> Array:
    """Mean of `values[L, T, ...]` over tasks: [L, ...]. NaN stays NaN; of no tasks it is NaN, without a warning."""
    total: Array = values.sum(axis=1)
    return total / values.shape[1] if values.shape[1] else np.full_like(total, np.nan)


def _learned(last: int, initial: int) -> list[tuple[int, int]]:
    """The tasks learned before the last one, each with the task at whose end it was first learned."""
    return [(u, max(u, initial - 1)) for u in range(last) if max(u, initial - 1) < last]


def _columns(columns: list[Array], lanes: int) -> Array:
    """Columns of [L] side by side: [L, n], also when there are none."""
    return np.stack(columns, axis=1) if columns else np.empty((lanes, 0))


def _number(value: Array) -> Any:
    """A float for JSON, or a table of them; None for NaN."""
    if np.ndim(value):
        return [_number(one) for one in value]
    return None if np.isnan(value) else float(value)
