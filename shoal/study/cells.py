"""Cells: runs that belong together, each in a directory that is found by its settings. What is finished is never run
again, what was interrupted goes on."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl

from shoal.data.sources import is_source, read
from shoal.errors import Stopped, UserError
from shoal.files import columns, save
from shoal.fleet.run import Watch
from shoal.letters.mail import UNSENT
from shoal.runs import metrics
from shoal.runs.about import sessions_of
from shoal.runs.checked import Unusable, dense, learned, settings_of, table_of, usable, without_ended
from shoal.runs.execute import carry_out, prepare, units
from shoal.runs.files import FORMAT, content, format_of
from shoal.runs.material import unchanged
from shoal.runs.paired import Scores
from shoal.runs.record import Record, create, reopen
from shoal.settings.groups import Machine, Settings

Row = dict[str, Any]
# What is used of every summary, and its type; there is no AUC where all tasks are initial ones.
SCORED: dict[str, Any] = {"final_accuracy": int | float, "auc": int | float | None}
SUMMED: dict[str, Any] = {
    **dict.fromkeys(("dataset", "model", "protocol", "identity"), str),
    **dict.fromkeys(("agents", "seeds"), int),
    "seconds": int | float,
    **SCORED,
}
COSTS = (
    "messages", "refused", "floats_per_edge_task", "paper_floats_per_edge_task", "bytes_per_link_task", "bytes_total",
    "seconds",
)  # fmt: skip
ERRORS = ("_se", "_se_seeds")
# What may be there, and its type: runs of earlier versions have less.
OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(COSTS, int | float | None),
    **{f"{name}{end}": int | float | None for name in (*SCORED, "auc_normalised") for end in ("", *ERRORS)},
    "sharing": list,
    "kinds": dict,
}
# What a summary is shown by.
SHOWN: dict[str, Any] = {"tasks": int, "out": str, "modules": int | float | None, "sharing": list}
KIND: dict[str, Any] = {
    "model": str,
    "agents": list,
    "modules": int | float | None,
    **{name: kind for name, kind in OPTIONAL.items() if name.startswith(("final_accuracy", "auc"))},
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
    there = there or [place for place in sorted(folder.glob(f"{cell.name}-*")) if formerly(cell, place)]
    return there[0] if there else folder / f"{cell.name}-{identity}"


def formerly(cell: Cell, place: Path) -> bool:
    """Is this a finished run of the cell whose format named it otherwise?"""
    try:
        found = reopen(place, own=cell.settings)
        old = found.finished and format_of(place) != FORMAT
        return old and found.settings.identity() == cell.settings.identity()
    except UserError:
        return False


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
    return reopen(place, own=cell.settings) if (place / "settings.toml").exists() else create(place, cell.settings)


def finish(
    cell: Cell,
    folder: Path,
    data: Path | None,
    show: Watch = lambda moment: None,
    yes: bool = False,
    machine: Machine | None = None,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Train a cell to its end, also (`yes`) if it is large, on its own machine or another, until it is to `stop`. Cells
    with the same common start train it once: it is kept in `folder`/starts."""
    settings = cell.settings.model_copy(update={"machine": machine}) if machine else cell.settings
    fleet = prepare(settings, data, yes=yes)  # before anything is written
    record = open_cell(cell, folder)
    record.tell = tell
    try:
        carry_out(fleet, record, show, folder / "starts", stop)
    except Stopped as stop:
        raise Stopped(f"{stop}; the same command again goes on with all that is left") from None


def effort(cell: Cell) -> int:
    """How long a cell takes, in epochs of lanes."""
    settings = cell.settings
    return units(settings) * settings.agents * settings.seeds


def summary_of(place: Path) -> Row:
    """The summary of a finished run, and the commits that made it: where it was begun, and where it was resumed."""
    found = checked(content(place / "summary.json"), SUMMED, place)
    about = content(place / "about.json")
    commits = [one.get("commit") for one in sessions_of(about)]
    return {**found, "commit": " ".join(dict.fromkeys(str(one) for one in commits if one)) or None}


def shown_summary(place: Path) -> Row:
    """The summary of a finished run, if it has all that is shown of it."""
    found = checked(content(place / "summary.json"), SUMMED | SHOWN, place)
    if found["sharing"]:
        checked(found, dict.fromkeys(COSTS, int | float), place)
    for kind in found.get("kinds", {}).values():
        checked(kind, KIND, place)
    return found


def checked(summary: Any, wanted: Mapping[str, Any], place: Path) -> Row:
    """A summary, or a part of it, that has what is used of it."""
    there = summary if isinstance(summary, dict) else {}
    more = {name: kind for name, kind in OPTIONAL.items() if name in there}
    for name, kind in {**more, **wanted}.items():
        words = not isinstance(there.get(name), list) or all(isinstance(one, str | int) for one in there[name])
        if name not in there or not isinstance(there[name], kind) or not words:
            why = f"{place / 'summary.json'} has no `{name}`"
            raise UserError(f"{why}; restore it, or remove {place} and run it again")
    return dict(there)


class Measured(NamedTuple):
    """What a finished run measured."""

    seeds: np.ndarray  # [L], of each lane
    agents: np.ndarray  # [L]
    accuracy: np.ndarray  # [L, T, G, T] as in `Stack.accuracy`
    epochs: np.ndarray  # [G]
    initial: int  # tasks


def measured(place: Path) -> Measured:
    """The measurements of a finished run, every one of them but for those of agents that diverged."""
    with usable(place):
        settings = settings_of(place)
        accuracy, epochs, seeds, agents = dense(table_of(place, "accuracy"), settings)
        accuracy, seeds, agents, _ = without_ended(place, settings, accuracy, seeds, agents)
        if learned(accuracy, epochs, settings) < settings["tasks"]["count"]:
            raise Unusable("accuracy.parquet has gaps")
        found = Measured(seeds, agents, accuracy, epochs, settings["tasks"]["initial"])
        verify(place, summary_of(place), found)
    return found


def verify(place: Path, summary: Row, run: Measured) -> None:
    """Raise if a summary does not say what the records say: a bit may be lost, or the end of a stream."""
    for name, value in values_of(run).items():
        found = [metrics.mean(value), metrics.error(value), metrics.error(value, run.seeds)]
        for end, number in zip(("", *ERRORS), found, strict=True):
            said = summary.get(f"{name}{end}")
            if name in SCORED and not end:
                agrees = same(said, float(number))
            else:
                agrees = said is None or same(said, float(number))
            if not agrees:
                raise Unusable(f"accuracy.parquet comes to {name}{end} {number:.6f}, summary.json says {said}")
    if summary.get("sharing") and summary.get("messages") is not None and (place / "ledger.parquet").exists():
        ledger = table_of(place, "ledger").filter(~pl.col("verdict").is_in(UNSENT))
        messages = int(ledger["messages"].sum()) if "messages" in ledger.columns else len(ledger)
        for name, total in {"messages": messages, "bytes_total": int(ledger["bytes"].sum())}.items():
            if (said := summary.get(name)) is not None and said != total:
                raise Unusable(f"ledger.parquet comes to {name} {total}, summary.json says {said}")


def same(said: float | None, number: float) -> bool:
    """Are two numbers the same but for rounding? None says that there is none."""
    if said is None or np.isnan(number):
        return said is None and bool(np.isnan(number))
    return abs(said - number) < 1e-6


def values_of(run: Measured) -> dict[str, np.ndarray]:
    """Final accuracy (%) and AUC (in the paper's unit, and in % of its maximum) of every lane."""
    final, area = 100 * metrics.final(run.accuracy), metrics.area(metrics.curve(run.accuracy, run.initial), run.epochs)
    return {"final_accuracy": final, "auc": area, "auc_normalised": 100 * area / run.epochs[-1]}


def brought(run: Measured) -> dict[str, np.ndarray]:
    """What metrics that packages and programs bring make of accuracies, where that is a number for every lane."""
    known = metrics.Run(run.accuracy, run.epochs, run.initial, None, None)
    found = {name: metrics.values_of(name, known) for name in metrics.METRICS if name not in metrics.METRICS.built_in}
    return {name: value for name, value in found.items() if value.ndim == 1 and not np.isnan(value).all()}


def scores(place: Path, agents: Collection[int] | None = None) -> Scores:
    """Final accuracy (%) and AUC (in the paper's unit, and in % of its maximum) of every seed of a finished run, and
    what metrics of one's own come to: the mean over its agents, or over some of them."""
    run = measured(place)
    values = values_of(run) | brought(run)
    counted = np.full(len(run.agents), True) if agents is None else np.isin(run.agents, list(agents))
    return {
        int(seed): {name: float(metrics.mean(value[here])) for name, value in values.items()}
        for seed in np.unique(run.seeds)
        if (here := counted & (run.seeds == seed)).any()
    }


def validations(place: Path, agents: Collection[int] | None = None) -> dict[int, float]:
    """The accuracy (%) on validation rows at the end of a finished run, of every seed: the mean over the tasks of an
    agent, and over its agents, or some of them. Settings are chosen by it, because test rows choose nothing."""
    if not (place / "validation.parquet").exists():
        raise UserError(
            f"{place} does not say how agents did on validation rows, because an earlier version made it; remove it, "
            "and run it again"
        )
    table = table_of(place, "validation")
    if agents is not None:
        table = table.filter(pl.col("agent").is_in(list(agents)))
    lanes = table.group_by("seed", "agent").agg(pl.col("accuracy").mean())
    means = lanes.group_by("seed").agg(pl.col("accuracy").mean()).sort("seed")
    return {int(seed): 100 * float(one) for seed, one in means.rows()}


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
