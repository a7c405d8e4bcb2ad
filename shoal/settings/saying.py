"""What the user says in short, written out: one place for words on the command line, settings files and Python."""

from typing import Any

# What a group that is one word means.
SHORT = {"learner": "method", "network": "graph", "tasks": "scenario", "machine": "device", "clock": "pace"}


def widen(raw: dict[str, Any]) -> dict[str, Any]:
    """What is said, with every group that is one word as a table; those of kinds too."""
    wide = {name: written(name, value) for name, value in raw.items()}
    if isinstance(kinds := raw.get("kinds"), list):
        wide["kinds"] = [widen(kind) if isinstance(kind, dict) else kind for kind in kinds]
    return wide


def written(name: str, value: Any) -> Any:
    """What is said of a group, as a table if it is one word."""
    return {SHORT[name]: value} if name in SHORT and isinstance(value, str) else value
