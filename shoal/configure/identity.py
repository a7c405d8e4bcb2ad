"""What names a run: all that can change a result and is not at its default."""

import hashlib
import json
from typing import Any

from shoal.settings.groups import Settings
from shoal.settings.part import Part

NAMES = ("mode", "method", "scenario", "graph")  # which entry of a table has the other settings: it always counts


def identity(settings: Settings) -> str:
    """Eight letters that name all that can change a result. A setting that a later version has does not rename a run
    that leaves it at its default."""
    idle = set() if settings.sharing else {"network", "sharing"}  # a network that nobody uses
    found = settings.model_dump(mode="json", exclude={"machine", *idle})
    prune(settings, found)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:8]


def prune(part: Part, found: dict[str, Any]) -> None:
    """Take out what is at its default."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name in found and name not in NAMES:
            if value == field.get_default(call_default_factory=True):
                del found[name]
            elif isinstance(value, Part):
                prune(value, found[name])
            elif isinstance(value, tuple):
                for one, inner in zip(value, found[name], strict=True):
                    if isinstance(one, Part):
                        prune(one, inner)
