"""The problem of a run: what must be the same in two of them for a seed to mean the same in both."""

from collections.abc import Mapping
from typing import Any

from shoal.settings.groups import Tasks


def problem(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the agents of a run have to learn, and for how long; None where settings do not say. Of tasks, an earlier
    version had what is the default now."""
    tasks = {name: field.default for name, field in Tasks.model_fields.items()} | dict(settings["tasks"])
    found = {name: settings.get(name) for name in ("dataset", "agents")}
    return {
        **found,
        **{f"tasks.{name}": value for name, value in sorted(tasks.items())},
        "learner.epochs": settings.get("learner", {}).get("epochs"),
    }
