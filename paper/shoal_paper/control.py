"""A run beside its control: what the one thing that differs between the two changes."""

from pathlib import Path

from shoal.study.cells import Row, finished, place_of, scores, summary_of
from shoal.study.compare import difference
from shoal_paper.table1 import Cell

SHOWN = ("final_accuracy", "final_accuracy_se_seeds", "auc", "auc_se_seeds")


def beside(one: Cell, control: Cell, folder: Path) -> Row:
    """A finished cell, and what it has more than its control, paired over seeds; nothing, if it is the control, or that
    is not finished."""
    place = place_of(one, folder)
    summary = summary_of(place)
    itself = one.settings.identity() == control.settings.identity()
    there = scores(place_of(control, folder)) if finished(control, folder) else {}
    more = difference(summary, scores(place), there, itself)
    gains = {
        f"{name}_difference{end}": more[f"{name}_difference{end}"] for name in SHOWN[::2] for end in ("", "_se", "_p")
    }
    head = {"dataset": one.dataset, "model": one.model, "method": one.method, **one.varied, "seeds": summary["seeds"]}
    end = {"seconds": summary["seconds"], "identity": one.settings.identity(), "commit": summary["commit"]}
    return head | {name: summary[name] for name in SHOWN} | gains | end


def beside_both(one: Cell, control: Cell, vanilla: Cell, folder: Path) -> Row:
    """A finished cell beside its control, and what it has more than the usual agents alone (`_vanilla`)."""
    own, usual = (beside(one, other, folder) for other in (control, vanilla))
    return own | {f"{name}_vanilla": value for name, value in usual.items() if "_difference" in name}
