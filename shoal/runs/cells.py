"""Cells: runs that belong together, each in a directory that is found by its settings. What is finished is never run
again, what was interrupted goes on."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from shoal.data.sources import is_source, read
from shoal.errors import Stopped, UserError
from shoal.files import columns, save
from shoal.fleet.run import Watch
from shoal.report.read import Unusable, dense, learned, settings_of, table_of
from shoal.runs.execute import carry_out, prepare, units
from shoal.runs.material import unchanged
from shoal.runs.record import Record, content, create, reopen
from shoal.settings.groups import Settings
from shoal.study import metrics
from shoal.study.paired import Scores

Row = dict[str, Any]
# What is used of every summary, and its type; there is no AUC where all tasks are initial ones.
SCORED: dict[str, Any] = {"final_accuracy": int | float, "auc": int | float | None}
SUMMED: dict[str, Any] = {
    **dict.fromkeys(("dataset", "model", "protocol", "identity"), str),
    **dict.fromkeys(("agents", "seeds"), int),
    "seconds": int | float,
    **SCORED,
}
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # how one begins
WORDS = ("identity", "commit")  # columns that are no numbers even if they look like one


class Cell(Protocol):
    """A run with a name."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Settings: ...


C = TypeVar("C", bound=Cell)


def place_of(cell: Cell, folder: Path) -> Path:
    """The cell's run directory: one with its identity, under whatever name, or else the one to make."""
    identity = cell.settings.identity()
    there = sorted(folder.glob(f"*-{identity}"), key=lambda place: not (place / "summary.json").exists())
    return there[0] if there else folder / f"{cell.name}-{identity}"


def finished(cell: Cell, folder: Path) -> bool:
    """Was the cell finished earlier? If its data has changed since, that is an error."""
    place = place_of(cell, folder)
    if not (place / "summary.json").exists():
        return False
    if is_source(cell.settings.dataset):
        unchanged(place, read(cell.settings.dataset).bank)
    return True


def missing(cells: Iterable[C], folder: Path) -> list[C]:
    """The cells that are still to do, each once."""
    distinct = {cell.settings.identity(): cell for cell in cells}
    return [cell for cell in distinct.values() if not finished(cell, folder)]


def open_cell(cell: Cell, folder: Path) -> Record:
    """The cell's run directory, new or as it was left."""
    place = place_of(cell, folder)
    return reopen(place) if (place / "settings.toml").exists() else create(place, cell.settings)


def finish(cell: Cell, folder: Path, data: Path | None, show: Watch = lambda moment: None, yes: bool = False) -> None:
    """Train a cell to its end, also (`yes`) if it is large. Cells with the same common start train it once: it is kept
    in `folder`/starts."""
    fleet = prepare(cell.settings, data, yes=yes)  # before anything is written
    try:
        carry_out(fleet, open_cell(cell, folder), show, folder / "starts")
    except Stopped as stop:
        raise Stopped(f"{stop}; the same command again goes on with all that is left") from None


def effort(cell: Cell) -> int:
    """How long a cell takes, in epochs of lanes."""
    settings = cell.settings
    return units(settings) * settings.agents * settings.seeds


def summary_of(place: Path) -> Row:
    """The summary of a finished run, and the commits that made it: where it was begun, and where it was resumed."""
    found = content(place / "summary.json")
    checked(found, SUMMED, place)
    about = content(place / "about.json")
    resumed = about.get("resumed", [])
    commits = [one.get("commit") for one in [about, *(one for one in resumed if isinstance(one, dict))]]
    return {**found, "commit": " ".join(dict.fromkeys(str(one) for one in commits if one)) or None}


def checked(summary: Any, wanted: Mapping[str, Any], place: Path) -> Row:
    """A summary, or a part of it, that has what is used of it."""
    for name, kind in wanted.items():
        if not isinstance(summary, dict) or not isinstance(summary.get(name, ""), kind):
            why = f"{place / 'summary.json'} has no `{name}`"
            raise UserError(f"{why}; restore it, or remove {place} and run it again")
    return dict(summary)


class Measured(NamedTuple):
    """What a finished run measured."""

    seeds: np.ndarray  # [L], of each lane
    agents: np.ndarray  # [L]
    accuracy: np.ndarray  # [L, T, G, T] as in `Stack.accuracy`
    epochs: np.ndarray  # [G]
    initial: int  # tasks


def measured(place: Path) -> Measured:
    """The measurements of a finished run, every one of them."""
    try:
        settings = settings_of(place)
        accuracy, epochs, seeds, agents = dense(table_of(place, "accuracy"), settings)
        if learned(accuracy, epochs, settings) < settings["tasks"]["count"]:
            raise Unusable("accuracy.parquet has gaps")
        said = summary_of(place)["final_accuracy"]
        if not abs(said - 100 * metrics.final(accuracy).mean()) < 1e-6:  # the end of a stream may be lost
            raise Unusable(f"accuracy.parquet does not come to final accuracy {said}, as summary.json says")
    except Unusable as why:
        raise UserError(f"cannot use {place}: {why}; restore it, or remove it and run it again") from None
    return Measured(seeds, agents, accuracy, epochs, settings["tasks"]["initial"])


def scores(place: Path, agents: Collection[int] | None = None) -> Scores:
    """Final accuracy (%) and AUC (in the paper's unit, and in % of its maximum) of every seed of a finished run, the
    mean over its agents, or over some of them."""
    run = measured(place)
    final, area = 100 * metrics.final(run.accuracy), metrics.area(metrics.curve(run.accuracy, run.initial), run.epochs)
    values = {"final_accuracy": final, "auc": area, "auc_normalised": 100 * area / run.epochs[-1]}
    counted = np.full(len(run.agents), True) if agents is None else np.isin(run.agents, list(agents))
    return {
        int(seed): {name: float(metrics.mean(value[here])) for name, value in values.items()}
        for seed in np.unique(run.seeds)
        if (here := counted & (run.seeds == seed)).any()
    }


def read_csv(file: Path) -> list[Row]:
    """The rows of a CSV, numbers as numbers and nothing as None; none, if there is no such file."""
    if not file.exists():
        return []
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return [{name: value(name, word) for name, word in row.items() if name} for row in csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot read {file}: {error}; move it away, or restore it") from None


def value(name: str, word: str | None) -> Any:
    """What a word in a column means."""
    if not word:
        return None
    if word.startswith("'") and word[1:].startswith(FORMULA):
        return word[1:]
    if name in WORDS:
        return word
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as CSV, whole or not at all, in the place of none but a table like it; the first row has the columns."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(rows[0]), restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({name: inert(short(one)) for name, one in row.items()} for row in rows)
    return save(file, lines.getvalue(), "what was trained is kept, make room there", columns(*rows[0]))


def inert(value: Any) -> Any:
    """A word that no program takes for a formula: OWASP's apostrophe before what begins like one and is no number."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def short(value: Any) -> Any:
    """A number with the digits that mean something."""
    if not isinstance(value, float):
        return value
    return round(value, 3) if abs(value) >= 0.1 else float(f"{value:.3g}")
