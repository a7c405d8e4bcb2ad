"""Advice: what data of one's own says of a fleet, so that it can be run with nothing else said."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from shoal.data.bank import Bank
from shoal.data.by_rows import DEALT
from shoal.data.draws import Scenario
from shoal.data.scenarios import SCENARIOS, fits, kind_of
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.settings.groups import Settings
from shoal.settings.part import Part

# Nets for tables, whatever their size; agents alone know most of validation rows so (`python -m bench.defaults`).
TABLE: dict[str, Any] = {"depth": 2, "dropout": 0.0}
AGENTS = 4  # where the data has one source
MOST = 10  # tasks that are advised, at most, where their number is free
ROWS = 25  # that a task should have, where their number is free
PARTS, MANY = 4, 50  # tasks of data whose classes are all in each, at most, and rows that each should have
PLENTY = 40  # training rows of every class, from which agents can draw theirs at random
CAREFUL = 400  # training rows of every class, from which a fixed number can be drawn to validate on
NATURAL = ("given", "time")
BY_CLASS = tuple(one for one in DEALT if one not in NATURAL)  # scenarios whose tasks are made of classes


def says(bank: Bank, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a bank says of agents, tasks and, if it is a table, nets, as in a settings file, around what the user has
    said."""
    nets = {"net": dict(TABLE)} if bank.images.ndim == 2 and bank.scale == "standard" else {}
    return dealt(bank, said) | nets


def dealt(bank: Bank, said: Mapping[str, Any]) -> dict[str, Any]:
    """What it says of agents and tasks.

    Data with tasks or times has the tasks that it names or those that time cuts; agents with rows of their own learn
    their classes in groups or, where there are but two, their rows in parts; otherwise agents draw classes, or share
    the rows where there are few.
    """
    tasks = said.get("tasks", {})
    scenario = tasks.get("scenario") or usual(bank)
    entry = SCENARIOS.find(scenario)
    first = {"scenario": scenario, "common": False, "initial": 1}
    if getattr(entry, "even", False):
        return by_classes(bank, said, first)
    first |= {"train": "all", "validation": "all"}
    bounds = {"count": most_tasks(bank), "classes": classes_of(bank, scenario, tasks)}
    tries = [first | bounds | {"count": count} | tasks for count in counts(bank, scenario, tasks)]
    for agents in [said["agents"]] if "agents" in said else agents_of(bank):
        for draft in tries:
            found = tried(bank, entry, {**said, "agents": agents, "tasks": draft})
            if found:
                return {"agents": agents, "tasks": draft | found | tasks}
    return {"agents": agents_of(bank)[-1], "tasks": tries[-1]}  # what is wrong is said when streams are made


def usual(bank: Bank) -> str:
    """The scenario of data that nobody describes."""
    if bank.task is not None:
        return "given"
    if bank.time is not None:
        return "time"
    if len(bank.sources) > 1 or bank.targets is not None:
        return "own"
    tested = np.isin(np.arange(len(bank.classes)), bank.labels[bank.test]).all()
    return "drawn" if tested and smallest(bank) >= PLENTY else "own"


def smallest(bank: Bank) -> int:
    """The training rows of the class of a source that has the fewest."""
    pairs = np.stack([bank.source, bank.labels], 1)
    there, at = np.unique(pairs, axis=0, return_inverse=True)
    return int(np.bincount(at.ravel()[~bank.test], minlength=len(there)).min())


def agents_of(bank: Bank) -> list[int]:
    """How many agents there could be, the best number first."""
    return [len(bank.sources)] if len(bank.sources) > 1 else list(range(AGENTS, 0, -1))


def most_tasks(bank: Bank) -> int:
    """More tasks than this no agent can have."""
    return max(int(bank.task.max()) + 1 if bank.task is not None else 1, len(bank.classes), MOST)


def classes_of(bank: Bank, scenario: str, tasks: Mapping[str, Any]) -> int:
    """How many classes a task may have: as many as there are where the data says what a task is, else few."""
    if bank.targets is not None:
        return 1
    if scenario in NATURAL and tasks.get("cut") != "label":
        return len(bank.classes)
    return max(2, -(-len(bank.classes) // MOST))


def counts(bank: Bank, scenario: str, tasks: Mapping[str, Any]) -> Iterable[int]:
    """How many tasks there could be, the best number first."""
    if "count" in tasks:
        return [tasks["count"]]
    free = (scenario == "time" and tasks.get("cut", "count") == "count") or bank.targets is not None
    room = tasks.get("classes", classes_of(bank, scenario, tasks))
    free |= scenario in BY_CLASS and isinstance(room, int) and room >= len(bank.classes)
    if not free or scenario == "given":
        return [len(bank) if scenario == "time" else most_tasks(bank)]
    rows = int(np.bincount(bank.source).min()) // (AGENTS if len(bank.sources) == 1 else 1)
    most = min(MOST, rows // ROWS) if bank.targets is not None or scenario == "time" else min(PARTS, rows // MANY)
    return range(max(2, most), 0, -1)


def tried(bank: Bank, entry: Scenario, raw: dict[str, Any]) -> dict[str, int]:
    """How many tasks there are and how many classes a task has, if the streams can be made; else nothing."""
    said = {name: raw[name] for name in ("agents", "seed", "seeds") if name in raw}
    settings = Settings.__new__(Settings)  # nobody completes it, and what cannot be is said when somebody does
    try:
        Part.__init__(settings, **said | {"tasks": kind_of(raw["tasks"]["scenario"])(**raw["tasks"])})
    except ValidationError:
        return {}
    seeds = range(settings.seed, settings.seed + settings.seeds)
    lanes = [Lane(seed, agent) for seed in seeds for agent in range(settings.agents)]
    try:
        streams = entry(bank, settings, lanes)
        for lane, stream in zip(lanes, streams, strict=True):
            fits(bank, settings.tasks, lane, stream)
    except SettingsError:
        return {}
    least = 1 if bank.targets is not None else 2
    return {
        "count": max(len(stream) for stream in streams),
        "classes": max(least, *(len(task.classes) for stream in streams for task in stream)),
    }


def by_classes(bank: Bank, said: Mapping[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """Advice for scenarios that choose the classes of every task, on rows that agents draw at random."""
    tasks = said.get("tasks", {})
    ids = min(len(np.unique(bank.labels[bank.source == one])) for one in range(len(bank.sources)))
    agents = len(bank.sources) if len(bank.sources) > 1 else AGENTS
    rows = smallest(bank)
    looks = hasattr(SCENARIOS.find(first["scenario"]), "view")
    each = tasks.get("classes") or (1 if bank.targets is not None else min(MOST, ids) if looks else 2)
    once = ids // each >= 2 and not looks and first["scenario"] != "overlap"
    if first["scenario"] == "overlap":
        agents = max(1, min(agents, len(bank.classes) // each))
    advice = first | {
        "classes": each,
        "replacement": not once,
        "count": min(MOST, ids // each) if once else AGENTS,
        "train": min(64, rows // 2) if rows >= PLENTY else "all",
        "validation": 50 if rows >= CAREFUL else "all",
    }
    return {"agents": agents, "tasks": advice}
