"""Runs side by side, and what each has more than the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.configure.reading import read
from shoal.data.sources import is_source
from shoal.errors import SettingsError, UserError
from shoal.network.graphs import is_file
from shoal.runs.checked import Unusable, settings_of
from shoal.runs.files import FORMAT, content
from shoal.runs.paired import Scores, paired
from shoal.runs.read import inside
from shoal.runs.record import reopen
from shoal.settings.groups import REST, Settings
from shoal.settings.problem import problem
from shoal.study.cells import COSTS, SCORED, Row, checked, place_of, scores, summary_of
from shoal.trust import loads

NAMES = ("final_accuracy", "auc", "auc_normalised")


@dataclass(frozen=True)
class Entry:
    """A run to compare: settings that are to be carried out, or a run directory that is finished."""

    label: str  # as short as it can be
    name: str
    said: Mapping[str, Any]  # all settings, as words: nothing that they name is loaded
    asked: Settings | None = None  # to be carried out
    done: Path | None = None

    @property
    def settings(self) -> Settings:
        """What is to be carried out."""
        if self.asked is None:
            raise UserError(f"{self.label} is finished, and is not carried out again")
        return self.asked

    def place(self, folder: Path) -> Path:
        """Its run directory."""
        return self.done or place_of(self, folder)

    def kinds(self) -> dict[str, tuple[int, ...]]:
        """The agents of each kind; those of none come first, as `rest`."""
        named = {str(kind["name"]): tuple(kind["agents"]) for kind in self.said.get("kinds", ())}
        taken = {agent for agents in named.values() for agent in agents}
        rest = tuple(agent for agent in range(self.said["agents"]) if agent not in taken)
        return ({REST: rest} if rest else {}) | named

    def model(self, kind: str) -> str:
        """The model of a kind of agents, by its name."""
        own = {str(one["name"]): one["model"] for one in self.said.get("kinds", ())}
        return str(own.get(kind, self.said["model"]))


def entries(said: Sequence[Path], words: Sequence[str] = ()) -> list[Entry]:
    """What the user names: settings files (with `words` on top), run directories that are finished, and folders that
    hold such."""
    found = []
    for path in [one for place in said for one in (inside(place) if place.is_dir() else [place])]:
        if path.is_dir():
            found.append(Entry(str(path), path.resolve().name, finished(path), done=path))
        else:
            settings = read(path, words)
            found.append(Entry(str(path), path.stem, settings.model_dump(), settings))
    names = [one.name for one in found]
    short = len(set(names)) == len(names)
    found = [replace(one, label=one.name if short else one.label) for one in found]
    labels = [one.label for one in found]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label} is named {labels.count(label)} times; name each run once")
    alike([(one.label, one.said) for one in found])
    return found


def finished(path: Path) -> Mapping[str, Any]:
    """The settings of a finished run as words. Those of an earlier format, and those that name code, data or a cluster,
    are not made into settings, which would load it; then about.json says whose they are."""
    try:
        said = settings_of(path)
    except Unusable as why:
        reopen(path)  # says more
        raise UserError(f"cannot use {path}: {why}; restore it, or leave the folder out") from None
    made = content(path / "about.json")
    own = made.get("identity")
    graph = said["network"].get("graph")
    held = not isinstance(graph, str) or not is_file(graph)  # a run directory names no graph file, which is said
    current = made.get("format") == FORMAT
    if current and (not held or not (loads(said, path) or is_source(said["dataset"]))):
        settings = reopen(path).settings
        said, own = settings.model_dump(), settings.identity()
    if not (path / "summary.json").exists():
        raise UserError(f"{path} is not finished; `shoal resume {path}` goes on with it")
    if (told := summary_of(path)["identity"]) != own and current:
        raise UserError(
            f"{path / 'summary.json'} is of the run {told}, settings.toml of {own}: one of them belongs to another "
            "run; restore it, or leave the folder out"
        )
    return said


def alike(named: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise if runs, each a name and its settings, do not meet the same tasks."""
    label, settings = named[0]
    first = problem(settings)
    for other, settings in named:
        own = problem(settings)
        for name in {**first, **own}:
            if own.get(name) != first.get(name):
                raise SettingsError(
                    f"{label} has {name} = {first.get(name)}, {other} {own.get(name)}: their seeds do not meet the "
                    "same tasks, or not for as long, and cannot be paired; compare runs that do"
                )


def base_of(found: Sequence[Entry], baseline: Path | None) -> Entry:
    """The run that the others are compared with."""
    if baseline is None:
        return found[0]
    labels = [one.label for one in found]
    names = [one for one in found if baseline.name in (one.name, f"{one.name}.toml")]
    if str(baseline) in labels:
        return found[labels.index(str(baseline))]
    if len(names) == 1:
        return names[0]
    many = f"several runs are called {baseline}" if names else f"no run {baseline} to compare with"
    raise UserError(f"{many}; --baseline is one of {', '.join(labels)}")


def compared(found: Sequence[Entry], base: Entry, folder: Path) -> list[Row]:
    """A row per run: its numbers, what it has more than the base, and what it cost; and one per kind of agents, where
    all fleets have the same."""
    kinds = base.kinds()
    if len(kinds) == 1 or any(one.kinds() != kinds for one in found):
        kinds = {}
    there = {kind: scores(base.place(folder), agents) for kind, agents in [(None, None), *kinds.items()]}
    rows, own_scores = [], {one.label: scores(one.place(folder)) for one in found}
    names = (*NAMES, *own_of(*own_scores.values()))
    for one in found:
        place = one.place(folder)
        summary = summary_of(place)
        row: Row = {"run": one.label, "kind": None, "baseline": base.label}
        row |= {name: summary[name] for name in ("dataset", "model", "protocol", "agents", "seeds")}
        row["sharing"] = "+".join(summary.get("sharing", ())) or "none"
        end = {"identity": summary["identity"], "commit": summary["commit"], "out": str(place)}
        costs = {name: summary.get(name) for name in COSTS}
        rows.append(row | difference(summary, own_scores[one.label], there[None], one is base, names) | costs | end)
        for kind, agents in kinds.items():
            own = {"kind": kind, "model": one.model(kind), "agents": len(agents)}
            # Of a kind whose agents have all diverged there are no numbers.
            part = checked(summary.get("kinds", {}).get(kind), dict.fromkeys(SCORED, int | float | None), place)
            numbers = difference(part, scores(place, agents), there[kind], one is base, names)
            rows.append(row | own | numbers | dict.fromkeys(COSTS) | end)
    return rows


def own_of(*some: Scores) -> list[str]:
    """The metrics of packages and programs that all seeds of some runs have."""
    every = [values for one in some for values in one.values()]
    return [name for name in every[0] if name not in NAMES and all(name in one for one in every)] if every else []


def difference(summary: Row, here: Scores, there: Scores, itself: bool, names: Sequence[str] = NAMES) -> Row:
    """The numbers of a run, or of one kind in it, and what they have more than the base's."""
    row: Row = {}
    for name in names:
        row |= {f"{name}{end}": summary.get(f"{name}{end}") for end in ("", "_se", "_se_seeds")}
        gap = None if itself else paired(here, there, name)
        row |= {
            f"{name}_difference": gap and gap.mean,
            f"{name}_difference_se": gap and gap.error,
            f"{name}_difference_p": gap and gap.p,
        }
    return row | {"paired_seeds": len(here.keys() & there.keys())}
