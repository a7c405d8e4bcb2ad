"""What generated pages are made of: tables, docstrings and settings in Markdown."""

import inspect
import json
from collections.abc import Iterable, Iterator
from typing import Any


def cell(text: object) -> str:
    """Text that stays in its cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def said(thing: Any) -> str:
    """A docstring in Markdown: what is indented in it, and examples, become blocks of code."""
    return marked(inspect.getdoc(thing) or "")


def marked(text: str) -> str:
    """The text of a docstring in Markdown."""
    out: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith(">>>"):
            block = f"```pycon\n{block}\n```"
        elif block.startswith("    "):
            block = f"```text\n{inspect.cleandoc(block)}\n```"
        out.append(block)
    return "\n\n".join(out)


def value(default: Any) -> str:
    """A default as it is written in a settings file."""
    return f"`{json.dumps(default)}`"


def rows_of(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Settings as rows: name, default, meaning."""
    from shoal.cli.choices import meaning

    for name, field in fields:
        default = "" if field.is_required() or field.default_factory else value(field.default)
        yield f"`{name}`", default, meaning(field)


SETTING = ("setting", "default", "meaning")


def issubclass_(thing: Any, base: type) -> bool:
    """Is something a class below another?"""
    return isinstance(thing, type) and issubclass(thing, base)
