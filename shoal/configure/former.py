"""Settings of earlier versions: shoal 0.1 (run directories of format 3) gave every agent the settings of growth, also
those whose nets do not grow."""

from typing import Any

from shoal.settings.groups import Settings
from shoal.settings.protocols import switches

GROWTH: dict[str, Any] = {"adaptation": "last", "accept": 0.05, "hidden": "renormalise", "current": "validation"}


def upgraded(raw: dict[str, Any]) -> dict[str, Any]:
    """The settings.toml of a run of 0.1, made readable; what is newer stays as it is."""
    kinds = [trimmed(kind, raw) for kind in raw.get("kinds", ())]
    tasks = raw.get("tasks", {})
    # Before there was a choice, every agent split the images for itself.
    drawn = {"tasks": {"draw": "agent", **tasks}} if isinstance(tasks, dict) else {}
    return trimmed(raw, raw) | drawn | ({"kinds": kinds} if kinds else {})


def trimmed(table: dict[str, Any], fleet: dict[str, Any]) -> dict[str, Any]:
    """A fleet or a kind, without settings of growth if its net does not grow."""
    learner = table.get("learner", {})
    grows = str(table.get("model", fleet.get("model", "modular-"))).startswith("modular-")
    if grows or not isinstance(learner, dict) or "method" in learner:
        return table
    return table | {"learner": {name: value for name, value in learner.items() if name not in GROWTH}}


def padded(learner: dict[str, Any], model: str, settings: Settings) -> dict[str, Any]:
    """A usual learner as 0.1 counted it: with what the protocol said of growth, also if the net does not grow."""
    modes = tuple(mode.door for mode in settings.sharing)
    filled = switches(settings.protocol, model, settings.dataset, modes, settings.tasks.initial)["learner"]
    return {name: filled.get(name, value) for name, value in GROWTH.items()} | learner
