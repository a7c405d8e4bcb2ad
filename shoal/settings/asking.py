"""Settings of entries that are functions: what one asks for by name, with a default."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_type_hints

from pydantic import create_model

from shoal.settings.part import Part

P = TypeVar("P", bound=Part)
PLAIN = (bool, int, float, str)  # what a setting can be in a file
KINDS: dict[Any, Any] = {}  # classes that have been made, by the functions and what else they were made of


def asked(make: Any, given: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """The types and defaults of what a function or a class asks for, beside what it is `given`."""
    try:
        every = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # functions of C say nothing of their arguments
        return {}
    found = [one for one in every if isinstance(one.default, PLAIN) and one.name not in given]
    try:
        called = vars(make).get("__init__", make) if isinstance(make, type) else make
        hints = get_type_hints(called, include_extras=True) if found else {}
    except Exception:  # what a stranger says of types may name anything
        hints = {}
    return {one.name: (hints.get(one.name, type(one.default)), one.default) for one in found}


def asking(makes: tuple[Callable[..., Any], ...], base: type[P], *given: str, **more: Any) -> type[P]:
    """The settings `base` with what some functions ask for, beside what they are `given`, and `more` fields."""
    place = makes, base, given, tuple(more)
    if place not in KINDS:
        fields = {name: field for make in makes for name, field in asked(make, (*base.model_fields, *given)).items()}
        fields |= more
        KINDS[place] = base
        if fields:
            said: Any = fields
            KINDS[place] = create_model(base.__name__, __base__=base, **said)
            KINDS[place].__reduce__ = lambda part: (again, (makes, base, given, more, dict(part)))
    kind: type[P] = KINDS[place]
    return kind


def again(makes: Any, base: type[P], given: tuple[str, ...], more: dict[str, Any], values: dict[str, Any]) -> P:
    """Such settings, in another process."""
    kind: Any = asking(makes, base, *given, **more)
    found: P = kind.model_construct(**values)
    return found
