"""What cannot be a setting, said in one sentence: keys that do not exist, values that are not allowed."""

import difflib
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.settings.groups import Net, Network, Settings, Tasks
from shoal.settings.part import Part
from shoal.settings.safety import Fault

M = TypeVar("M", bound=Part)

# What others call our settings: words that look like none of them, or like the wrong one.
SYNONYMS = {
    "lr": "learner.rate",
    "learning_rate": "learner.rate",
    "batch_size": "learner.batch",
    "buffer_size": "learner.memory",
    "n_epochs": "learner.epochs",
    "num_epochs": "learner.epochs",
    "hidden_size": "net.width",
    "layers": "net.depth",
    "num_layers": "net.depth",
    "num_tasks": "tasks.count",
    "n_tasks": "tasks.count",
    "num_agents": "agents",
    "n_agents": "agents",
    "clients": "agents",
    "num_clients": "agents",
    "device": "machine.device",
    "topology": "network.graph",
}


def made(model: type[M], raw: dict[str, Any], path: str = "") -> M:
    """The settings in `raw`, or one sentence about the first that cannot be."""
    try:
        return model(**raw)
    except ValidationError as error:
        raise SettingsError(sentence(error, model, path)) from None


def known(raw: dict[str, Any], model: type[Part] = Settings, path: str = "") -> None:
    """Raise for a key that does not exist, with the nearest one that does."""
    for name, value in raw.items():
        field = model.model_fields.get(name)
        if field is None:
            raise SettingsError(f"unknown setting `{path}{name}`{suggest(path, name, model)}")
        inner = field.annotation
        if (
            isinstance(inner, type) and issubclass(inner, Part) and inner is not Part
        ):  # a learner's are looked up by name
            if not isinstance(value, dict):
                raise SettingsError(f"`{path}{name}` is a group of settings, got {value!r}; say {path}{name}.KEY=VALUE")
            if inner not in (Tasks, Net, Network):  # of which scenario, model and graph have a say
                known(value, inner, f"{path}{name}.")


def suggest(path: str, name: str, model: type[Part]) -> str:
    if (path, name) == ("", "live"):
        return "; it says where agents are, for `shoal live init`: keep it in a file of its own"
    if name.lower() in SYNONYMS:
        return f"; did you mean `{SYNONYMS[name.lower()]}`?"
    here = {f"{path}{field}": field for field in model.model_fields}
    everywhere = {full: full.rpartition(".")[2] for full, _ in fields()}
    for table in (here, everywhere):
        close = difflib.get_close_matches(name, list(table.values()), n=1, cutoff=0.6)
        if close:
            full = next(full for full, last in table.items() if last == close[0])
            return f"; did you mean `{full}`?"
    return f"; allowed here: {', '.join(here)}"


def sentence(error: ValidationError, model: type[Part] = Settings, path: str = "") -> str:
    """Pydantic's first complaint, as what, which value, what is allowed."""
    first = error.errors()[0]
    where = [str(step) for step in first["loc"]]
    table = dict(fields(model))
    while (name := ".".join(where)) not in table:
        where.pop()  # the rest names a branch of a union, or an entry of a list, not a setting
    if first["type"] == "value_error":  # a validator of ours has said why
        return f"`{path}{name}` {first['ctx']['error']}"
    field = table[name]
    said = field.annotation is str or get_origin(field.annotation) is tuple
    words = field.description if said else allowed(field.annotation, field.metadata)
    inside = ".".join(str(step) for step in first["loc"][len(where) :]) if get_origin(field.annotation) is tuple else ""
    return f"`{path}{name}{inside and '.'}{inside}` cannot be {first['input']!r}; allowed: {words}"


def allowed(kind: Any, limits: Iterable[Any] = ()) -> str:
    """What a type with limits accepts, in words."""
    if get_origin(kind) is Annotated:
        kind, *limits = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(allowed(one) for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is Literal:
        return ", ".join(repr(one) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list, each {allowed(get_args(kind)[0])}"
    if kind is bool:
        return "true or false"
    if kind is str:
        return "a word"
    bounds = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    said = [
        f"{word} {getattr(limit, name)}" for limit in limits for name, word in bounds.items() if hasattr(limit, name)
    ]
    return " ".join(["a whole number" if kind is int else "a finite number", *([" and ".join(said)] if said else [])])


def fields(model: type[Part] = Settings, path: str = "") -> Iterable[tuple[str, Any]]:
    """All settings by their whole names; of learners, those of the ones that need nothing heavy (`shoal list learners
    NAME` has those of any)."""
    from shoal.learners.table import LEARNERS

    for name, field in model.model_fields.items():
        inner = field.annotation
        if inner is Part:  # a learner's
            every: list[type[Part]] = [*(one for one in LEARNERS.entries.values() if not isinstance(one, str)), Learner]
            every_field = (part.model_fields.items() for part in every)
            yield from {f"{path}{name}.{own}": one for listed in every_field for own, one in listed}.items()
        elif isinstance(inner, type) and issubclass(inner, Part):
            yield from fields(inner, f"{path}{name}.")
            yield from of_entries(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", field


def of_entries(group: type[Part], path: str) -> Iterable[tuple[str, Any]]:
    """The settings that scenarios, models and graphs have beside those of all tasks, nets and networks."""
    from shoal.data.scenarios import SCENARIOS
    from shoal.data.scenarios import kind_of as tasks_by
    from shoal.models.table import MODELS, OWN
    from shoal.network.graphs import GRAPHS
    from shoal.network.graphs import kind_of as network_by

    kinds: dict[type[Part], list[type[Part]]] = {
        Tasks: [tasks_by(one) for one in SCENARIOS.entries if one in SCENARIOS.built_in],
        Net: [*(MODELS[one].settings for one in MODELS.entries if one in MODELS.built_in), *OWN.values()],
        Network: [network_by(one) for one in GRAPHS.entries if one in GRAPHS.built_in],
    }
    found = {name: field for kind in kinds.get(group, ()) for name, field in kind.model_fields.items()}
    yield from ((f"{path}{name}", field) for name, field in found.items() if name not in group.model_fields)


def honest(faulty: Sequence[Fault], agents: int) -> None:
    """Raise if liars are none of the agents, or lie in several ways."""
    from shoal.mail.lies import LIES

    for at, fault in enumerate(faulty):
        for agent in fault.agents:
            if agent >= agents:
                raise SettingsError(
                    f"`faulty[{at}]` names agent {agent}, but there are {agents}, counted from 0; name others"
                )
        LIES.find(fault.does)
    liars = [agent for one in faulty for agent in one.agents]
    for agent in liars:
        if liars.count(agent) > 1:
            raise SettingsError(f"agent {agent} is in `faulty` {liars.count(agent)} times; an agent lies in one way")
