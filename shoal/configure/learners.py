"""Learners: the one that the user names, or else the model's usual one, with what the user and the protocol say."""

from collections.abc import Iterable
from typing import Any

from shoal.configure.checks import made, suggest
from shoal.errors import SettingsError
from shoal.learners.contract import Learner

Said = dict[str, Any] | Learner  # a table, or a learner that was made in Python


def told(value: Any, path: str = "") -> Said:
    """What is said of a learner; a word is short for its method."""
    if isinstance(value, str):
        return {"method": value}
    if not isinstance(value, (dict, Learner)):
        raise SettingsError(f"`{path}learner` is a group of settings, got {value!r}; say {path}learner.KEY=VALUE")
    return value


def class_of(said: Said, fleet: Said, model: str, path: str = "") -> type[Learner]:
    """The learner that is named here or for the fleet, or else the usual one."""
    from shoal.learners.table import LEARNERS, usual

    for one in (said, fleet):
        if isinstance(one, Learner):
            return type(one)
        if "method" in one:
            if not isinstance(one["method"], str):
                raise SettingsError(
                    f"`{path}learner.method` cannot be {one['method']!r}; allowed: {', '.join(LEARNERS)}"
                )
            return LEARNERS.find(one["method"])
    return LEARNERS[usual(model)]


def general(fleet: Said, model: str) -> Said:
    """What is said of the fleet's learner for all kinds: not its name, if that is the usual one of its model."""
    from shoal.learners.table import usual

    if isinstance(fleet, Learner):
        whole = {name: getattr(fleet, name) for name in type(fleet).model_fields if name != "method"}
        return whole if fleet.door == usual(model) else fleet
    return {name: value for name, value in fleet.items() if (name, value) != ("method", usual(model))}


def learner_of(
    said: Said,
    model: str,
    filled: dict[str, Any],
    fleet: Said | None = None,
    path: str = "",
    others: Iterable[type[Learner]] = (),
) -> Learner:
    """The learner of agents of a model, of whom `said` is said.

    Where it is silent, what is said of the `fleet` holds and then what the protocol has `filled` in, as far as this
    learner has such settings. What belongs to one of `others` is for other agents.
    """
    fleet = {} if fleet is None else fleet
    if isinstance(said, Learner):
        return said
    if isinstance(fleet, Learner) and not said:
        return fleet
    kind = class_of(said, fleet, model, path)
    for name in said:
        if name not in kind.model_fields and not any(name in other.model_fields for other in others):
            raise foreign(name, kind, path)
    rest = fleet.model_dump() if isinstance(fleet, Learner) else fleet
    values = {name: value for name, value in {**filled, **rest, **said}.items() if name in kind.model_fields}
    method = kind.model_fields["method"]
    if not method.is_required():
        values["method"] = method.default
    return made(kind, values, f"{path}learner.")


def foreign(name: str, kind: type[Learner], path: str) -> SettingsError:
    """A setting that a learner does not have: another one's, or none at all."""
    from shoal.learners.table import LEARNERS

    full = f"{path}learner.{name}"
    here = next((method for method, other in LEARNERS.items() if other is kind), kind.__name__)
    for method, other in LEARNERS.items():
        if name in other.model_fields:
            return SettingsError(
                f"`{full}` is a setting of the learner `{method}`, and these agents learn by `{here}`; leave it out, "
                f'or say {path}learner.method = "{method}"'
            )
    return SettingsError(f"unknown setting `{full}`{suggest(f'{path}learner.', name, kind)}")
