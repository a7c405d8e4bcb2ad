"""The problem of a run: what must be the same in two of them for a seed to mean the same in both."""

from collections.abc import Mapping
from typing import Any

from shoal.settings.groups import Tasks

PROBLEM = ("dataset", "agents", *(f"tasks.{name}" for name in Tasks.model_fields), "learner.epochs")


def problem(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the agents of a run have to learn, and for how long; None where settings do not say. Of tasks, an earlier
    version had what is the default now."""
    tasks = {name: field.default for name, field in Tasks.model_fields.items()}
    settings = {**settings, "tasks": {**tasks, **settings["tasks"]}}
    found: dict[str, Any] = {}
    for name in PROBLEM:
        value: Any = settings
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        found[name] = value
    return found
