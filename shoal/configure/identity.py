"""What names a run: all settings that can change a result, as they have always been counted."""

import hashlib
import json
from typing import Any

from shoal.configure.former import padded
from shoal.learners.contract import Learner
from shoal.settings.groups import Kind, Settings
from shoal.settings.part import Part


def identity(settings: Settings) -> str:
    """Eight letters that name all that can change a result."""
    return hashlib.sha256(json.dumps(content(settings), sort_keys=True).encode()).hexdigest()[:8]


def content(settings: Settings) -> dict[str, Any]:
    """All that can change a result, so that runs of earlier versions keep their names.

    A setting that was added later (`since`) counts only where it is not at its default, and the learner's name only
    where it is not the usual one.
    """
    idle = set() if settings.sharing else {"network", "sharing"}  # a network that nobody uses
    plain = set() if settings.kinds else {"kinds"}
    found = settings.model_dump(mode="json", exclude={"machine", *idle, *plain})
    prune(settings, found)
    found["learner"] = learner(settings, settings, found["learner"])
    for kind, table in zip(settings.kinds, found.get("kinds", ()), strict=True):
        table["learner"] = learner(kind, settings, table["learner"])
    return found


def prune(part: Part, found: dict[str, Any]) -> None:
    """Take out what was added later and is at its default."""
    for name, field in type(part).model_fields.items():
        value, extra = getattr(part, name), field.json_schema_extra
        if isinstance(extra, dict) and "since" in extra and value == field.get_default(call_default_factory=True):
            found.pop(name, None)
        elif isinstance(value, Part) and name in found:
            prune(value, found[name])
        elif isinstance(value, tuple) and name in found:
            for one, inner in zip(value, found[name], strict=True):
                if isinstance(one, Part):
                    prune(one, inner)


def learner(agents: Settings | Kind, settings: Settings, found: dict[str, Any]) -> dict[str, Any]:
    """How agents learn, without the name of what is usual for their model."""
    from shoal.learners.table import usual

    own: Learner = agents.learner
    if own.door != usual(agents.model):
        return found
    del found["method"]
    return padded(found, agents.model, settings)
