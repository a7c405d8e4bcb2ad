"""Run directories as arrays and tables. What cannot be read is left out and said, never guessed."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import shoal
from shoal.errors import UserError
from shoal.runs import files, metrics
from shoal.runs.checked import (
    Array,
    Common,
    Lost,
    Numbers,
    Unusable,
    common_of,
    dense,
    json_of,
    known,
    learned,
    material_of,
    settings_of,
    sites_of,
    table_of,
    without_ended,
)
from shoal.runs.files import FORMAT
from shoal.settings.problem import problem

ALONE = "shares nothing"  # the method of agents without a sharing mode


class Note(NamedTuple):
    """What a reader must know about a run directory: what of it is not in the report, and why."""

    folder: str
    why: str
    out: bool  # the whole run is left out


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory that can be shown."""

    folder: Path
    settings: dict[str, Any]
    about: dict[str, Any]
    summary: dict[str, Any]  # empty if it is not there
    accuracy: Array  # [L, T, G, T] as in `metrics`, of the tasks that are in the records
    epochs: Numbers  # [G]: labels of the grid points
    seeds: Numbers  # [L]
    agents: Numbers  # [L]
    done: int  # tasks that all lanes have learned
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)  # growth, ledger, time ...: those that are there
    common: "Common | None" = None  # None: the record does not say, or there is one agent
    numbers: bool = False  # agents predict numbers, and accuracy is R2
    sites: tuple[str, ...] = ()  # what agents are called; none: they have numbers only

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(str(mode["mode"]) for mode in self.settings["sharing"])

    @property
    def method(self) -> str:
        return " + ".join(self.modes) or ALONE

    @property
    def tasks(self) -> int:
        return int(self.settings["tasks"]["count"])

    @property
    def initial(self) -> int:
        return int(self.settings["tasks"]["initial"])

    @property
    def complete(self) -> bool:
        return self.done == self.tasks

    @property
    def model(self) -> str:
        """The model of all agents; of a fleet of several kinds, each kind with its own."""
        own: str = self.settings["model"]
        kinds = self.settings.get("kinds", [])
        named = {agent for kind in kinds for agent in kind["agents"]}
        rest = [f"rest ({own})"] if len(named) < self.settings["agents"] else []
        return ", ".join([*rest, *(f"{kind['name']} ({kind['model']})" for kind in kinds)]) if kinds else own

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.settings["dataset"], self.model, self.settings["protocol"]

    @property
    def digest(self) -> bytes:
        """Of what was asked and what came out: the same run in two folders has one."""
        asked = {name: value for name, value in self.settings.items() if name != "machine"}
        told = json.dumps(asked, sort_keys=True, default=str).encode()
        return hashlib.sha256(told + self.accuracy.tobytes()).digest()

    @property
    def problem(self) -> dict[str, Any]:
        """What its agents have to learn."""
        return problem(self.settings)


def gather(places: Sequence[Path]) -> tuple[list[Run], list[Note]]:
    """The runs in some folders (or in the folders inside them), and what is to be said about those that are damaged."""
    runs: list[Run] = []
    notes: list[Note] = []
    seen: dict[bytes, Path] = {}
    for folder in dict.fromkeys(found for place in places for found in inside(place)):
        try:
            run, lost = read(folder)
        except Unusable as why:
            notes.append(Note(str(folder), str(why), True))
            continue
        same = seen.setdefault(run.digest, folder)
        if same != folder:
            notes.append(Note(str(folder), f"it has the same settings and results as {same}", True))
            continue
        runs.append(run)
        notes += [Note(str(folder), why, False) for why in lost]
    if not runs:
        first = f"{notes[0].folder}: {notes[0].why}" if notes else "no folder was given"
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        raise UserError(f"there is nothing to report: {first}{more}; give run directories that `shoal run` has made")
    return runs, notes


def inside(place: Path) -> list[Path]:
    """A run directory itself; of any other folder, the run directories in it."""
    try:
        if (place / "settings.toml").exists() or not place.is_dir():
            return [place]
        return sorted(path.parent for path in place.glob("*/settings.toml")) or [place]
    except OSError:
        return [place]


def read(folder: Path) -> tuple[Run, list[str]]:
    """A run, and what of it is lost. Raises `Unusable` if there is nothing to show."""
    lost: list[str] = []
    settings = settings_of(folder)
    about, summary = json_of(folder / "about.json", lost), {}
    written = about.get("format")
    if isinstance(written, int) and written > FORMAT:
        raise Unusable(f"it has format {written}, which a newer shoal wrote; this one reads formats up to {FORMAT}")
    if about and (made := about.get("shoal")) != shoal.__version__:
        lost.append(f"made by shoal {made}, this is {shoal.__version__}; numbers are read as they are")
    if fault := files.manifest_fault(folder):
        lost.append(fault)
    if (folder / "summary.json").exists():
        summary = json_of(folder / "summary.json", lost)
    if (said := about.get("identity")) and summary.get("identity", said) != said:
        lost.append(
            f"summary.json is of the run {summary.get('identity')}, about.json of {said}: one of them belongs to "
            "another run; the settings and the records are shown"
        )
    table = table_of(folder, "accuracy", settings)
    accuracy, epochs, seeds, agents = dense(table, settings)
    every = seeds
    try:
        accuracy, seeds, agents, said = without_ended(folder, settings, accuracy, seeds, agents)
        lost += said
    except Lost as why:
        lost.append(f"{why}; agents that diverged, if there are any, are not known")
    done = learned(accuracy, epochs, settings)
    tables: dict[str, pl.DataFrame] = {}
    for name in ("growth", "ledger", "candidates", "time", "links", "drift"):
        if (folder / f"{name}.parquet").exists():
            try:
                tables[name] = known(table_of(folder, name, settings), name, settings, every)
            except Unusable as why:
                lost.append(f"{why}; what it held is not shown")
    if settings["sharing"] and "ledger" not in tables and not (folder / "ledger.parquet").exists():
        lost.append("ledger.parquet is not there, so its traffic is not shown")
    material = material_of(folder, lost)
    sites = sites_of(material, settings["agents"])
    common, numbers = common_of(material, sites, lost), material.get("predicts") is not None
    run = Run(folder, settings, about, summary, accuracy, epochs, seeds, agents, done, tables, common, numbers, sites)
    if not run.complete:
        lost.append(
            f"unfinished, {done} of {run.tasks} tasks are learned: it is shown as far as it is, and has no final "
            f"numbers; `shoal resume {folder}` continues it, if its checkpoint is whole"
        )
    elif not (folder / "summary.json").exists():
        lost.append("summary.json is not there, the run was not finished properly; its numbers come from the records")
    elif summary and (wrong := differs(run)):
        lost.append(wrong)
    return run, lost


def differs(run: Run) -> str:
    """A sentence if the summary does not say what the records say."""
    own = final(run)
    said = run.summary.get("final_accuracy")
    if isinstance(said, int | float) and abs(said - own.mean()) < 1e-6:
        return ""
    return f"summary.json says final accuracy {said}, the records {own.mean():.6f}; the records are shown"


def final(run: Run) -> Array:
    """Final accuracy in %: [L]."""
    return 100 * metrics.final(run.accuracy)


def area(run: Run) -> Array:
    """Area under the learning curve, in % of its maximum: [L]."""
    return 100 * metrics.area(metrics.curve(run.accuracy, run.initial), run.epochs, normalise=True)
