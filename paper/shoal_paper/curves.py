"""Learning curves: mean accuracy over the tasks so far at each epoch of a task."""

from pathlib import Path

from shoal.runs import metrics
from shoal.study.cells import Row, measured, place_of, summary_of
from shoal_paper.table1 import Cell


def records(cell: Cell, folder: Path) -> dict[str, list[Row]]:
    """A row per epoch that was measured: the mean over tasks after the initial ones, agents and seeds, in %.

    Differs: the paper's band is the error over seeds of each seed's deviation; ours are errors of the mean.
    """
    place = place_of(cell, folder)
    run = measured(place)
    curves = 100 * metrics.curve(run.accuracy, run.initial)
    columns = {
        "accuracy": metrics.mean(curves),
        "se": metrics.error(curves),
        "se_seeds": metrics.error(curves, run.seeds),
    }
    summary = summary_of(place)
    head = {"dataset": cell.dataset, "model": cell.model, "method": cell.method}
    head |= {"protocol": summary["protocol"], "draw": cell.settings.tasks.draw, "seeds": summary["seeds"]}
    return {
        "curves": [
            {**head, "epoch": epoch, **{name: number(values[at]) for name, values in columns.items()}}
            for at, epoch in enumerate(run.epochs.tolist())
        ]
    }


def number(value: float) -> float | None:
    return None if value != value else float(value)
