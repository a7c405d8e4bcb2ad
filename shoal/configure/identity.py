"""What names a run: all that can change a result and is not at its default."""

import hashlib
import json
from typing import Any

from shoal.models.nets import ModularNet
from shoal.settings.groups import Kind, Net, Settings
from shoal.settings.part import Part
from shoal.settings.protocols import switches

NAMES = ("mode", "method", "scenario", "graph")  # which entry of a table has the other settings: it always counts


def identity(settings: Settings) -> str:
    """Eight letters that name all that can change a result. A setting that a later version has does not rename a run
    that leaves it at its default."""
    idle = set() if settings.sharing else {"network", "sharing"}  # a network that nobody uses
    found = settings.model_dump(mode="json", exclude={"machine", *idle})
    prune(settings, found)
    formerly(settings, found)
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


def formerly(settings: Settings, found: dict[str, Any]) -> None:
    """Put in what a protocol says of modules for nets that have none: once all nets had such settings, and runs are
    named by them. A group of nets with nothing to say is left out."""
    modes = tuple(mode.door for mode in settings.sharing)
    of_modules = {
        name: field.default for name, field in ModularNet.model_fields.items() if name not in Net.model_fields
    }
    parts: list[tuple[Settings | Kind, Any]] = [(settings, found)]
    for part, said in [*parts, *zip(settings.kinds, found.get("kinds", ()), strict=False)]:
        filled = switches(settings.protocol, part.model, settings.dataset, modes, settings.tasks.initial)["net"]
        net, own = said.pop("net", {}), type(part.net).model_fields
        for name, usual in of_modules.items():
            if name in filled and name not in own and filled[name] != usual:
                net[name] = filled[name]
        if net:
            said["net"] = net
