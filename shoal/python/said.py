"""What a program says of a fleet, as a settings file would say it."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.configure.checks import suggest
from shoal.configure.reading import said, without
from shoal.data.sources import Data, bring, is_source, read
from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.learners.table import LEARNERS
from shoal.models.table import MODELS
from shoal.python.networks import Graph, drawn, link, listed
from shoal.python.own import settled
from shoal.settings.groups import Settings, Tasks
from shoal.settings.part import Part, spoken
from shoal.settings.saying import SHORT, widen, written
from shoal.sharing.contract import Sharing

Said = dict[str, Any]
# All settings but those that are said in another way: the data first, the seeds when it runs.
KEYWORDS = tuple(name for name in Settings.model_fields if name not in ("dataset", "seeds"))


def begun(data: Any, trust: bool = False) -> Said:
    """What the data says by itself: its name, or all that a settings file says."""
    if isinstance(data, (str, Path)) and str(data).endswith(".toml"):
        return widen(said(Path(data).expanduser(), trust=trust))
    if isinstance(data, str):
        return {"dataset": data}
    if isinstance(data, tuple) and len(data) == 2:
        data = Data.from_arrays(*data)
    if not isinstance(data, Data):
        raise SettingsError(
            f'a fleet cannot learn from {brief(data)}; give a name such as "digits", a pair (x, y) of arrays, '
            "shoal.Data.from_arrays(x, y, agent=...), or a settings file that ends in .toml"
        )
    return {"dataset": bring(data)}


def joined(raw: Said, name: str, value: Any) -> Said:
    """What was said, and a keyword on top: a mapping wins where it speaks, anything else replaces what was there."""
    if name == "model":
        return {**raw, name: MODELS.named(value)}
    if name == "backbone":
        from shoal.backbones import named as held

        return {**raw, name: held(value)}
    if name == "sharing":
        return {**raw, name: modes(value)}
    if name == "kinds":
        several = value if isinstance(value, (list, tuple)) else [value]
        return {**raw, name: [kind(one) for one in several]}
    if name == "network":
        return connected(raw, value)
    if name in ("policy", "faulty"):
        several = value if isinstance(value, (list, tuple)) else [value]
        return {**raw, name: [plain(spoken(one)) for one in several]}
    if name == "learner":
        value = learner(value)
        if isinstance(value, Learner):
            return {**raw, name: value}
    if name in ("agents", "protocol", "seed"):
        return {**raw, name: plain(value)}
    if name == "tasks":
        from shoal.data.scenarios import SCENARIOS, kind_of, own_settings

        if callable(value):
            value = {"scenario": value}
        elif own_settings(type(value)) and type(value) is not Tasks:
            named = next((word for word in SCENARIOS.built_in if kind_of(word) is type(value)), type(value))
            value = {"scenario": named, **spoken(value)}
    value = table(name, value)
    if name == "tasks" and "scenario" in value:
        value["scenario"] = SCENARIOS.named(value["scenario"])
    before = raw.get(name, {})
    return {**raw, name: {**(before.model_dump() if isinstance(before, Part) else before), **value}}


def table(name: str, value: Any) -> Said:
    """A group of settings, from a mapping, a word or a group made in Python."""
    value = plain(spoken(value))
    value = written(name, value)
    if not isinstance(value, dict):
        word = f"a word ({SHORT[name]}) or " if name in SHORT else ""
        raise SettingsError(f"`{name}` cannot be {brief(value)}; it is {word}a mapping of settings: {name}={{...}}")
    return value


def modes(value: Any) -> Any:
    """What agents share, as words, tables and modes."""
    if value is None or isinstance(value, str):
        return value or ()
    several = value if isinstance(value, (list, tuple)) else [value]
    return [mode(one) for one in several]


def mode(one: Any) -> Any:
    """A sharing mode, from a word, a table, a mode or its class."""
    from shoal.sharing.modes import MODES

    if isinstance(one, type) and issubclass(one, Sharing):
        return {"mode": MODES.door(default(one, "mode"), settled(MODES, one, default(one, "mode")))}
    if isinstance(one, Sharing):
        settled(MODES, type(one), one.mode)
        return one
    return plain(one)


def learner(value: Any) -> Any:
    """How agents learn, from a word, a mapping, a learner or its class."""
    if isinstance(value, type) and issubclass(value, Learner):
        return {"method": LEARNERS.door(default(value, "method"), settled(LEARNERS, value, default(value, "method")))}
    if isinstance(value, Learner):
        settled(LEARNERS, type(value), value.method)
        return value
    return table("learner", value)


def default(part: type[Part], name: str) -> str:
    """What a class of modes or learners calls itself."""
    field = part.model_fields[name]
    return part.__name__.lower() if field.is_required() else str(field.default)


def kind(value: Any) -> Any:
    """A kind of agents; its model and learner may be objects."""
    value = spoken(value)
    if not isinstance(value, Mapping):
        return value  # settings say what is wrong with it
    ways = {"model": MODELS.named, "learner": learner}
    return {name: ways.get(name, plain)(one) for name, one in value.items()}


def connected(raw: Said, value: Any) -> Said:
    """What was said, and a network on top; its agents are the fleet's, where nobody else says how many there are."""
    graph = network(value)
    whole = "graph" in graph.table  # another graph: edges that were listed are not its own
    raw = without(raw, "network.graph", graph.table["graph"]) if whole else raw
    before = {name: one for name, one in raw.get("network", {}).items() if not (whole and name == "edges")}
    raw = {**raw, "network": {**before, **graph.table}}
    here = raw.get("agents")
    if here is None and is_source(raw.get("dataset", "")):
        here = read(raw["dataset"]).says().get("agents")
    if graph.agents is None or graph.agents == here:
        ends = [end for edge in graph.table.get("edges", ()) for end in ends_of(edge)]
        return {**raw, "agents": 1 + max(ends)} if ends and here is None and "graph" in graph.table else raw
    if here is not None:
        raise SettingsError(
            f"the network connects {graph.agents} agents, but there are {here}; give both the same number of agents"
        )
    return {**raw, "agents": graph.agents}


def ends_of(edge: Any) -> list[int]:
    """The agents at the ends of an edge, as far as it says them."""
    said = edge if isinstance(edge, dict) else {}
    return [end for end in (said.get("sender"), said.get("receiver")) if isinstance(end, int)]


def network(value: Any) -> Graph:
    """A network, from a word, a mapping, a list of edges, a graph of networkx, a function that makes one, or what
    `shoal.ring` and its like return."""
    if isinstance(value, Graph):
        return value
    if hasattr(value, "is_directed") and hasattr(value, "number_of_nodes"):
        graph = drawn(value)
        return Graph(graph.agents, plain(graph.table))
    if isinstance(value, (list, tuple)):
        return Graph(None, plain(listed(value).table))
    if callable(value):
        from shoal.network.graphs import GRAPHS

        return Graph(None, {"graph": GRAPHS.named(value)})
    said = spoken(value)
    if not isinstance(said, Mapping):
        return Graph(None, table("network", said))
    inner = Graph(None, {})
    if "graph" in said and not isinstance(said["graph"], (str, Path)):
        inner = network(said["graph"])
    elif "edges" in said:
        inner = Graph(None, {"edges": [plain(spoken(link(edge))) for edge in said["edges"]]})
    rest = {name: one for name, one in said.items() if name not in inner.table}
    return Graph(inner.agents, {**plain(rest), **inner.table})


def plain(value: Any) -> Any:
    """A value as TOML could hold it: numbers of numpy and paths become plain ones."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def unknown(name: str) -> SettingsError:
    """The sentence about a keyword that a fleet does not have."""
    elsewhere = {
        "seeds": "the number of seeds is said when it runs: fleet.run(seeds=4)",
        "out": 'a folder is said when it runs: fleet.run(out="runs/mine")',
        "dataset": 'the data comes first: Fleet("digits", ...)',
        "data": 'the data comes first: Fleet("digits", ...)',
    }
    if name in elsewhere:
        return SettingsError(f"Fleet has no keyword `{name}`; {elsewhere[name]}")
    close = difflib.get_close_matches(name, KEYWORDS, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else suggest("", name, Settings)
    return SettingsError(f"Fleet has no keyword `{name}`{hint}")


def brief(value: Any) -> str:
    """A value in a few letters."""
    said = repr(value)
    return said if len(said) <= 60 else f"a {type(value).__name__}"
