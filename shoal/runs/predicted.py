"""Metrics of what was predicted, row by row, at the end of a run that keeps it (`record.predictions = true`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.runs.metrics import Array, Measure, Metric, Run, mean

BINS = 15  # of confidence
Scored = Callable[[npt.NDArray[Any], npt.NDArray[Any]], float]


class Predictions(NamedTuple):
    """What lanes said of each test row at the end of a run that keeps it."""

    lane: npt.NDArray[np.int64]  # [N]: its place in the run
    task: npt.NDArray[np.int64]  # [N]: that the row is of
    output: npt.NDArray[np.int64]  # [N]: which of several numbers; 0 for classes
    label: npt.NDArray[Any]  # [N]: a number, or the place of a class in `classes`
    prediction: npt.NDArray[Any]  # [N]
    confidence: npt.NDArray[Any]  # [N]: how likely the lane finds what it says; NaN for numbers
    classes: tuple[str, ...]  # none where numbers are predicted

    def tasks(self) -> dict[int, list[npt.NDArray[np.int64]]]:
        """By lane, the places of the rows of each of its tasks, and of each number to predict."""
        found: dict[int, list[npt.NDArray[np.int64]]] = {}
        if not len(self.lane):
            return found
        names, at = np.unique(np.stack([self.lane, self.task, self.output], 1), axis=0, return_inverse=True)
        rows = np.split(np.argsort(at.ravel(), kind="stable"), np.cumsum(np.bincount(at.ravel()))[:-1])
        for (lane, _, _), own in zip(names.tolist(), rows, strict=True):
            found.setdefault(lane, []).append(own)
        return found


def of_predictions(score: Scored, numbers: bool | None = None) -> Metric:
    """A metric made of a function of labels[N] and predictions[N] of one task of an agent: the mean over its tasks (and
    over outputs, where several numbers are predicted). Not given where predictions are not kept, or, if `numbers` is
    said, where classes are predicted instead of numbers, or the other way round.

    >>> import numpy as np
    >>> from shoal.runs.metrics import METRICS
    >>> METRICS.add("worst_miss", of_predictions(lambda labels, said: np.abs(labels - said).max(), numbers=True))
    >>> METRICS.remove("worst_miss")
    """

    def work(run: Run) -> Array | None:
        kept = run.predictions
        if kept is None or (numbers is not None and numbers == bool(kept.classes)):
            return None
        tasks = kept.tasks()
        found = np.full((len(run.accuracy), max((len(own) for own in tasks.values()), default=0)), np.nan)
        for lane, own in tasks.items():
            for at, rows in enumerate(own):
                found[lane, at] = score(kept.label[rows], kept.prediction[rows])
        return mean(found.T)

    return work


def f1(labels: npt.NDArray[Any], said: npt.NDArray[Any]) -> float:
    """The mean over classes of the harmonic mean of precision and recall; a class counts if it is there or is said."""
    found = [2 * ((labels == one) & (said == one)).sum() / ((labels == one).sum() + (said == one).sum())
             for one in np.union1d(labels, said)]  # fmt: skip
    return float(np.mean(found))


def recall(labels: npt.NDArray[Any], said: npt.NDArray[Any]) -> float:
    """The mean over classes of the share of their rows that are found."""
    return float(np.mean([(said[labels == one] == one).mean() for one in np.unique(labels)]))


def calibration(run: Run) -> Array | None:
    """The mean distance of confidence and accuracy in bins of confidence, over all test rows of a lane: [L]."""
    kept = run.predictions
    if kept is None or not kept.classes:
        return None
    found = np.full(len(run.accuracy), np.nan)
    for lane in np.unique(kept.lane):
        own = kept.lane == lane
        right, sure = (kept.label == kept.prediction)[own].astype(np.float64), kept.confidence[own].astype(np.float64)
        place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
        found[lane] = np.abs(np.bincount(place, right - sure, BINS)).sum() / len(sure)
    return found


def confusion(run: Run) -> Array | None:
    """The share of the rows of each class that are taken for each class, [L, C, C]: NaN where a lane never met it."""
    kept = run.predictions
    if kept is None or not kept.classes:
        return None
    many = len(kept.classes)
    count = np.zeros((len(run.accuracy), many, many))
    np.add.at(count, (kept.lane, kept.label, kept.prediction), 1)
    total = count.sum(2, keepdims=True)
    return np.where(total > 0, count / np.maximum(total, 1), np.nan)


def percent(metric: Metric) -> Metric:
    """The same times 100."""

    def work(run: Run) -> Array | None:
        found = metric(run)
        return None if found is None else 100 * found

    return work


F1 = Measure(
    "macro F1 at the end: mean over classes and tasks of the harmonic mean of precision and recall, in %",
    r"\frac{1}{T} \sum_{u=1}^{T} \frac{1}{C_u} \sum_{c} \frac{2 \, TP_c}{2 \, TP_c + FP_c + FN_c}",
    "needs `record.predictions = true`",
    percent(of_predictions(f1, numbers=False)),
)
RECALL = Measure(
    "macro recall at the end: mean over classes and tasks of the share of their rows that are found, in %",
    r"\frac{1}{T} \sum_{u=1}^{T} \frac{1}{C_u} \sum_{c} \frac{TP_c}{TP_c + FN_c}",
    "needs `record.predictions = true`",
    percent(of_predictions(recall, numbers=False)),
)
CALIBRATION = Measure(
    "calibration error at the end: how far confidence is from accuracy, in 15 bins of confidence, in %",
    r"\sum_{b=1}^{15} \frac{n_b}{n} \left| accuracy_b - confidence_b \right|",
    "Guo et al. 2017, arXiv:1706.04599; needs `record.predictions = true`",
    percent(calibration),
)
ABSOLUTE = Measure(
    "mean absolute error at the end, over tasks and outputs, in the units of what is predicted",
    r"\frac{1}{T} \sum_{u=1}^{T} \frac{1}{n_u} \sum_{i} | y_i - \hat{y}_i |",
    "needs `record.predictions = true`",
    of_predictions(lambda labels, said: float(np.abs(labels - said).mean()), numbers=True),
)
CONFUSION = Measure(
    "a table, not a number: of the rows of each class, the share that is taken for each class at the end, in %",
    r"\frac{n(\text{class } c \text{ taken for } d)}{n(\text{class } c)}",
    "needs `record.predictions = true`",
    percent(confusion),
)


__all__ = ["ABSOLUTE", "CALIBRATION", "CONFUSION", "F1", "RECALL", "Predictions", "of_predictions"]
