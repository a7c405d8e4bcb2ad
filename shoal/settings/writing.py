"""Settings as the text of a file."""

import json
from typing import Any

from shoal.settings.groups import Settings


def toml(settings: Settings) -> str:
    """Settings as TOML: single values first, then a table per group."""
    content = settings.model_dump(mode="json", exclude_none=True)
    tables = content.pop("sharing")
    kinds = content.pop("kinds")
    for kind in kinds:
        del kind["learner"]["epochs"]  # is the fleet's
    single = {name: value for name, value in content.items() if not isinstance(value, dict)}
    lines = [f"{name} = {literal(value)}" for name, value in single.items()]
    named = [(f"[{name}]", group) for name, group in content.items() if isinstance(group, dict)]
    named += [("[[sharing]]", table) for table in tables] + [("[[kinds]]", kind) for kind in kinds]
    for title, group in named:
        lines += ["", title, *(f"{inner} = {literal(value)}" for inner, value in group.items())]
    return "\n".join(lines) + "\n"


def literal(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    # Not as JSON has them: TOML knows no pairs of surrogates, and wants a deletion escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
