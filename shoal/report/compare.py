"""Runs beside each other: groups, names, baselines, gains."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shoal.runs import metrics
from shoal.runs.paired import Gain, Scores, paired
from shoal.runs.read import ALONE, Run, area, final
from shoal.settings.part import flatten
from shoal.settings.policies import CONTENTS

Row = dict[str, Any]


# Verdicts on mail that never left its sender.
UNSENT = (
    *("edge at rest", "over budget", "forged", "no edge", "no tensors", "too much", "sent already", "silent"),
    "link down",
    *(f"{what} forbidden" for what in CONTENTS),
    *("contents undeclared", "class forbidden", "class used up", "class unsaid", "not clipped", "privacy spent"),
)


class Score(NamedTuple):
    """A mean over lanes with both standard errors; NaN where there is none."""

    mean: float
    pooled: float
    seeds: float


@dataclass(eq=False)
class Entry:
    """A run in its group: its name there, and the run it is compared with."""

    run: Run
    label: str
    method: str
    base: "Entry | None" = None

    @property
    def paid(self) -> float:
        """The bytes that crossed a link in a task, the mean over directed links and tasks in which mail was posted; NaN
        if nobody knows any more."""
        if not self.run.modes:
            return 0.0
        if "ledger" in self.run.tables:
            ledger = self.run.tables["ledger"]
            uses = ledger.select("seed", "sender", "receiver", "task").n_unique()
            return float(ledger.filter(~pl.col("verdict").is_in(UNSENT))["bytes"].sum()) / uses if uses else 0.0
        said = self.run.summary.get("bytes_per_link_task")
        return float(said) if isinstance(said, int | float) else float("nan")

    def score(self, name: str) -> Score:
        values = SCORES[name](self.run)
        return Score(values.mean(), float(metrics.error(values)), float(metrics.error(values, self.run.seeds)))

    def gain(self, name: str) -> Gain | None:
        """Paired with the baseline; None for a baseline itself."""
        if self.base is None:
            return None
        return paired(by_seed(self.run), by_seed(self.base.run), name)


SCORES = {"final": final, "auc": area}


@dataclass(eq=False)
class Group:
    """Runs of one dataset, model and protocol, whose agents learn the same tasks for as long."""

    dataset: str
    model: str
    protocol: str
    entries: list[Entry]
    apart: tuple[str, ...] = ()  # what tells it from other groups of that dataset, model and protocol

    @property
    def called_dataset(self) -> str:
        """What people call the data: the name of a file, not the path to it and what is read of it."""
        scheme, colon, rest = self.dataset.partition(":")
        path = rest.partition("?")[0].rstrip("/")
        if not colon:
            return self.dataset
        return "data in memory" if scheme == "memory" else path.rpartition("/")[2] or self.dataset

    @property
    def title(self) -> str:
        return ", ".join((self.called_dataset, self.model, self.protocol, *self.apart))

    @property
    def name(self) -> str:
        """For folders."""
        return re.sub(r"[^\w.]+", "-", self.title).strip("-")

    def called(self, agent: str | int) -> str:
        """What an agent is called: its site, or its number where sites have no names."""
        sites = self.entries[0].run.sites
        return sites[int(agent)] if sites else str(agent)

    @property
    def named(self) -> bool:
        """Have agents names?"""
        return bool(self.entries[0].run.sites)

    @property
    def complete(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.run.complete]


def groups(runs: Sequence[Run], names: Mapping[Path, str] | None = None) -> list[Group]:
    """Runs that can be set beside each other, those that share nothing first, each with a name and a baseline. Names of
    methods are those of the folders in `names`, else of their sharing modes."""
    said = {run.folder: (names or {}).get(run.folder, run.method) for run in runs}
    result = []
    for kind in sorted({run.kind for run in runs}):
        problems: list[dict[str, Any]] = []
        for run in runs:
            if run.kind == kind and run.problem not in problems:
                problems.append(run.problem)
        differs = [name for name in problems[0] if any(one[name] != problems[0][name] for one in problems)]
        for problem in problems:
            here = [run for run in runs if (run.kind, run.problem) == (kind, problem)]
            here.sort(key=lambda run: bool(run.modes))
            entries = [Entry(run, label, said[run.folder]) for run, label in zip(here, labels(here, said), strict=True)]
            for entry in entries:
                entry.base = baseline(entry, entries)
            result.append(Group(*kind, entries, tuple(f"{name} {problem[name]}" for name in differs)))
    return result


def labels(runs: Sequence[Run], said: Mapping[Path, str]) -> list[str]:
    """A name for each run: its method, and where that is not enough, as few settings as tell it from the others."""
    names = [said[run.folder] for run in runs]
    for name, count in Counter(names).items():
        if count == 1:
            continue
        here = [at for at, run in enumerate(runs) if said[run.folder] == name]
        flat = [dict(flatten(runs[at].settings)) for at in here]
        for at, words in zip(here, told_apart(flat), strict=True):
            names[at] = ", ".join([name, *words])
    twice = {name for name, count in Counter(names).items() if count > 1}
    names = [f"{name}, {run.folder.name}" if name in twice else name for name, run in zip(names, runs, strict=True)]
    twice = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name} ({at})" if name in twice else name for at, name in enumerate(names)]


def told_apart(flat: Sequence[dict[str, str]]) -> list[list[str]]:
    """Words for each of several settings: of those that differ, the one that tells most apart, then the next."""
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if not key.startswith("machine.")]
    keys = [key for key in keys if len({one.get(key) for one in flat}) > 1]
    keys.sort(key=lambda key: key in ("seed", "seeds"))  # which say least of what a run is
    chosen: list[str] = []

    def kinds(more: Sequence[str]) -> int:
        return len({tuple(one.get(key) for key in more) for one in flat})

    while keys and kinds(chosen) < min(len(flat), kinds(keys)) and len(chosen) < 4:
        chosen.append(max(keys, key=lambda key: kinds([*chosen, key])))
    brief = Counter(key.rpartition(".")[2] for key in chosen)
    short_names = [key.rpartition(".")[2] if brief[key.rpartition(".")[2]] == 1 else key for key in chosen]
    named = list(zip(chosen, short_names, strict=True))
    return [[f"{said} {brief_number(one[key])}" for key, said in named if key in one] for one in flat]


def brief_number(word: str) -> str:
    """A value in a name: of a number with many digits, the first four."""
    try:
        return f"{float(word):.4g}" if len(word) > 6 and "." in word else word
    except ValueError:
        return word


def baseline(entry: Entry, entries: Sequence[Entry]) -> Entry | None:
    """The run without sharing that has some of the same seeds; else the first such run; None for itself.

    Of several without sharing it is the one with the fewest other settings.
    """
    run = entry.run
    if not run.complete:
        return None
    fit = [one for one in entries if one.run.complete and set(one.run.seeds) & set(run.seeds)]
    alone = [one for one in fit if not one.run.modes]
    if not run.modes or not alone:
        first = (alone or fit)[0]
        return None if first is entry else first
    own = set(flatten({**run.settings, "sharing": [], "machine": {}, "network": {}, "record": {}}))

    def distance(one: Entry) -> tuple[int, int]:
        other = set(flatten({**one.run.settings, "sharing": [], "machine": {}, "network": {}, "record": {}}))
        return len(own ^ other), -len(set(one.run.seeds) & set(run.seeds))

    return min(alone, key=distance)


def by_seed(run: Run) -> Scores:
    """Every score's mean over the agents of each seed."""
    found = {name: score(run) for name, score in SCORES.items()}
    return {
        int(seed): {name: float(values[run.seeds == seed].mean()) for name, values in found.items()}
        for seed in np.unique(run.seeds)
    }


def differing(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """Settings in which runs differ, with the value of each; a dash where a run has no such setting."""
    flat = [dict(flatten(entry.run.settings)) for entry in entries]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one) if not key.startswith("machine.")]
    rows = [(key, [one.get(key, "–") for one in flat]) for key in keys]  # noqa: RUF001
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def method_order(groups: Sequence[Group]) -> list[str]:
    """All names of runs on a page, agents alone first: a name has one colour, wherever it stands."""
    entries = [entry for group in groups for entry in group.entries]
    plain = sorted({entry.method for entry in entries}, key=lambda name: (name != ALONE, name))
    return list(dict.fromkeys([*plain, *(entry.label for entry in entries)]))


def called(base: str) -> str:
    """A baseline in a sentence."""
    return "agents that share nothing" if base == ALONE else escape(base)
