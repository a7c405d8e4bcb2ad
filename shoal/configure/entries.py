"""Groups of settings whose entry has settings of its own: a scenario's tasks, a model's nets, a graph's network."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal.configure.checks import known, made
from shoal.data.scenarios import SCENARIOS
from shoal.data.scenarios import kind_of as tasks_by
from shoal.doors import Table
from shoal.errors import SettingsError
from shoal.models.table import MODELS, OWN
from shoal.network.graphs import GRAPHS
from shoal.network.graphs import kind_of as network_by
from shoal.settings.groups import Net, Network, Tasks
from shoal.settings.part import Part

Said = dict[str, Any]
Owners = Mapping[str, type[Part]]


def tasks_of(table: Said) -> tuple[Said, type[Tasks]]:
    """What is said of tasks, and the class that checks it: the scenario's."""
    name = table.get("scenario", Tasks.model_fields["scenario"].default)
    kind = tasks_by(name) if isinstance(name, str) else Tasks

    def foreign(key: str, value: Any, others: list[str]) -> str:
        return (
            f"`tasks.{key}` is a setting of the scenario `{others[0]}`, got {value!r}, and these tasks are "
            f'`{name}`; leave it out, or say tasks.scenario = "{others[0]}"'
        )

    return kept(table, kind, "tasks.", lambda key: owners(SCENARIOS, tasks_by, key), foreign), kind


def network_of(table: Said) -> Network:
    """A network, checked by the classes of its graphs."""
    kind = network_kind(table)

    def foreign(key: str, value: Any, others: list[str]) -> str:
        graph = table.get("graph", Network.model_fields["graph"].default)
        said = which(f"network.{key}", value, "network.graph", others)
        return f'{said}, got "{graph}"; leave it out, or change the graph'

    said = kept(table, kind, "network.", lambda key: owners(GRAPHS, network_by, key), foreign)
    return made(kind, said, "network.")


def network_kind(table: Said) -> type[Network]:
    """The class of a network: it has what its graph asks for, and what graphs ask for that it changes to."""
    later = table.get("changes", ())
    later = [dict(one) for one in later if isinstance(one, Mapping | Part)] if isinstance(later, list | tuple) else []
    names = [one["graph"] for one in (table, *later) if isinstance(one.get("graph"), str)]
    return network_by(*names)


def net_kind(model: Any) -> type[Net]:
    """The class that checks what is said of the nets of a model."""
    return MODELS.find(model).settings if isinstance(model, str) else Net


def net_of(
    table: Said, model: str, filled: Said, others: Iterable[str] = (), fleet: Said | None = None, path: str = ""
) -> Net:
    """The nets of a model, of which the table says this; where it is silent, what is said of the `fleet` holds and then
    what the protocol has `filled` in, as far as these nets have such settings. What only the nets of `others` have,
    models of the same fleet, is for those."""
    kind, fleet = net_kind(model), fleet or {}
    theirs = {name for other in others for name in net_kind(other).model_fields}

    def foreign(key: str, value: Any, others: list[str]) -> str:
        said = which(f"{path}net.{key}", value, f"{path}model", others)
        return f'{said}, got "{model}"; leave it out, or change the model'

    mine = {key: value for key, value in table.items() if key in kind.model_fields or key not in theirs}
    said = kept(mine, kind, f"{path}net.", lambda key: owners(MODELS, net_kind, key, OWN), foreign, (filled, fleet))
    values = {name: value for name, value in {**filled, **fleet}.items() if name in kind.model_fields}
    return made(kind, values | said, f"{path}net.")


def kept(
    table: Said, kind: type[Part], path: str, owned: Callable[[str], Owners], foreign: Any, unsaid: Iterable[Said] = ()
) -> Said:
    """What is said of a group, as the class of its entry has it. What other entries have is an error, or left out where
    it says nothing: at its default, as in settings.toml of earlier versions, or as one of the `unsaid` tables says."""
    found = {}
    for key, value in table.items():
        others = {} if key in kind.model_fields else owned(key)
        if not others:
            known({key: value}, kind, path)
            found[key] = value
            continue
        owner = next(iter(others.values()))
        made(owner, {key: value}, path)
        if value != owner.model_fields[key].default and not any(key in one and one[key] == value for one in unsaid):
            raise SettingsError(foreign(key, value, [*others]))
    return found


def owners(table: Table[Any], kind_of: Callable[[str], type[Part]], key: str, more: Owners | None = None) -> Owners:
    """The entries that have a setting: of those that are built in, or else of those that packages bring."""
    built_in = {name: kind_of(name) for name in table.entries if name in table.built_in} | dict(more or {})
    found = {name: kind for name, kind in built_in.items() if key in kind.model_fields}
    return found or {name: kind_of(name) for name in table if key in kind_of(name).model_fields}


def which(name: str, value: Any, choice: str, owners: list[str]) -> str:
    """A setting with its value, and for which entries it is."""
    said = [f'"{one}"' for one in owners]
    many = f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else said[0]
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return f"{name} = {shown} is for {choice} = {many}"
