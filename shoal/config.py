"""Settings: what a run is. Frozen, strict, from TOML and `key=value`, with two protocols that bundle the switches."""

import copy
import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
)

from shoal.errors import SettingsError
from shoal.mode import Sharing, serves
from shoal.part import Budget, Part

Model = Literal["mlp", "cnn", "modular-mlp", "modular-cnn"]
MODELS: tuple[str, ...] = get_args(Model)
Protocol = Literal["fair", "paper"]
REST = "rest"  # the kind of agents that are of none


class Tasks(Part):
    """What every agent meets: how many tasks, of how many classes, with how many images."""

    count: PositiveInt = Field(10, description="tasks per agent")
    classes: int = Field(2, ge=2, description="classes per task")
    train: PositiveInt = Field(64, description="training images per class (nominal: the draw is not stratified)")
    validation: PositiveInt | Literal["all"] = Field(50, description='validation images per class, or "all"')
    replacement: bool = Field(True, description="may a class come back in a later task of the same agent?")
    initial: PositiveInt = Field(4, description="tasks learned jointly at the start")
    common: bool = Field(True, description="do all agents of a seed share the initial tasks and what is learned there?")


class Net(Part):
    """The network of every agent."""

    width: PositiveInt = Field(64, description="units (mlp) or channels (cnn) of a layer or module")
    depth: PositiveInt = Field(4, description="layers")
    basis: PositiveInt = Field(4, description="modules at the start (modular nets)")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout after every layer or module")
    dropout_basis: bool = Field(False, description="does dropout also act on the basis modules (modular nets)?")
    initial_structure: Literal["onehot", "own"] = Field(
        "onehot",
        description="initial tasks use a random module at each depth, or task i module i at all depths (modular nets)",
    )


class Learner(Part):
    """How an agent learns its tasks."""

    epochs: PositiveInt = Field(100, description="epochs per task")
    batch: PositiveInt = Field(64, description="images per step")
    rate: PositiveFloat = Field(1e-3, description="Adam's learning rate")
    memory: NonNegativeInt = Field(32, description="replay images kept per finished task")
    fresh_adam: bool = Field(False, description="forget Adam's moments at the start of every task?")
    adaptation: PositiveInt | Literal["last", "never"] = Field(
        "last", description="epochs that adapt all modules on replay: the last of a task, every n-th, or none (modular)"
    )
    accept: float = Field(
        0.05,
        ge=-1,
        description="relative gain on validation data above which a new module is kept; -1: always (modular)",
    )
    hidden: Literal["renormalise", "keep"] = Field(
        "renormalise", description="softmax over the visible slots, or over all with the hidden one left out (modular)"
    )
    current: Literal["validation", "max", "with", "without"] = Field(
        "validation",
        description="the current task's accuracy while a candidate is on trial: which net counts (modular)",
    )


def as_tuple(value: Any) -> Any:
    """TOML and JSON have lists only."""
    return tuple(value) if isinstance(value, list) else value


class Link(Part):
    """A directed edge that the user names: of the whole graph, or with limits of its own in a named one."""

    sender: NonNegativeInt = Field(description="the agent that sends")
    receiver: NonNegativeInt = Field(description="the agent that receives")
    budget: Budget | None = Field(None, description="floats per exchange on this edge (else network.budget)")
    every: PositiveInt | None = Field(None, description="epochs between exchanges on this edge (else network.every)")


class Network(Part):
    """Who can send to whom, how much and how often."""

    graph: str = Field(
        "complete",
        description="complete, ring, server, tree, random, connected, disconnected, edges, or a graph file",
    )
    p: float = Field(0.5, ge=0, le=1, description="chance of an edge (random, connected)")
    budget: Budget = Field("unlimited", description="floats that an edge carries per exchange, in one direction")
    every: PositiveInt = Field(1, description="epochs between two exchanges on an edge, at least")
    edges: Annotated[tuple[Link, ...], BeforeValidator(as_tuple)] = Field(
        (), description="the graph's edges, or limits of single edges of a named graph"
    )


class Machine(Part):
    """Where it runs. Threads change nothing; engines and devices agree up to rounding."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    engine: Literal["auto", "loop", "vmap"] = Field("auto", description="auto: loop for cnn on a cpu, else vmap")
    threads: NonNegativeInt = Field(0, description="threads for pieces of the stack; 0: one for each core")
    data: str = Field("", description="folder to look for data first; --data sets it")
    checkpoint: PositiveFloat = Field(30.0, description="seconds between checkpoints inside a task")


class Kind(Part):
    """Agents that differ from the rest of the fleet in what is said here. Resolved, it says all of it."""

    name: str = Field(pattern=r"^[A-Za-z][\w-]*$", description="a word, another for each kind, and not `rest`")
    agents: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, description="a list of agents, counted from 0"
    )
    model: Model = Field("modular-mlp", description="else the fleet's model")
    net: Net = Net()
    learner: Learner = Learner()


class Settings(Part):
    """One run: a fleet of `agents`, repeated for `seeds`."""

    dataset: str = Field("digits", description="digits, mnist, kmnist, fashionmnist, cifar100 or combined")
    model: Model = Field("modular-mlp", description=", ".join(MODELS))
    protocol: Protocol = Field("fair", description="fair: one uniform setting; paper: what each row of Table 1 did")
    agents: PositiveInt = Field(8, description="agents in the fleet")
    seeds: PositiveInt = Field(1, description="repetitions of the whole fleet")
    seed: int = Field(0, ge=0, lt=2**32, description="the first seed")
    tasks: Tasks = Tasks()
    net: Net = Net()
    learner: Learner = Learner()
    network: Network = Network()
    sharing: tuple[SerializeAsAny[Sharing], ...] = Field(
        (), description="what agents share, in the order of acting: modes with their settings; see `shoal list sharing`"
    )
    machine: Machine = Machine()
    kinds: tuple[Kind, ...] = Field(
        (), description="agents with a model, net or learner of their own: name, agents, and only what differs"
    )

    def members(self) -> dict[str, tuple[int, ...]]:
        """The agents of each kind; those of none come first, as `rest`."""
        named = {kind.name: kind.agents for kind in self.kinds}
        taken = {agent for agents in named.values() for agent in agents}
        rest = tuple(agent for agent in range(self.agents) if agent not in taken)
        return ({REST: rest} if rest else {}) | named

    def of(self, name: str) -> "Settings":
        """The settings of the agents of one kind, as if all were of it."""
        kinds: dict[str, Kind | Settings] = {REST: self, **{kind.name: kind for kind in self.kinds}}
        own = kinds[name]
        return self.model_copy(update={"model": own.model, "net": own.net, "learner": own.learner, "kinds": ()})

    @property
    def modular(self) -> bool:
        return self.model.startswith("modular-")

    @property
    def block(self) -> str:
        """`mlp` or `cnn`."""
        return self.model.removeprefix("modular-")

    def identity(self) -> str:
        """Eight letters that name all that can change a result."""
        idle = set() if self.sharing else {"network", "sharing"}  # a network that nobody uses
        plain = set() if self.kinds else {"kinds"}
        content = self.model_dump(mode="json", exclude={"machine", *idle, *plain})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def switches(protocol: str, model: str, dataset: str, modes: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """What a protocol sets where the user is silent, for agents that share by `modes`.

    `fair` is one setting for every row: common start, persistent Adam, clean softmax, test data never chooses. `paper`
    is what the runs behind Table 1 really did (protocol 7), which differs from row to row and dataset to dataset.
    """
    cnn, modular = model.endswith("cnn"), model.startswith("modular-")
    # The CNN always had dropout on its basis, and since March 2024 one module per initial task (protocol 2).
    net = {"dropout_basis": cnn, "initial_structure": "own" if cnn else "onehot"}
    if protocol == "fair":
        return {
            "tasks": {"common": True},
            "net": net,
            "learner": {"fresh_adam": False, "hidden": "renormalise", "current": "validation"},
        }
    mixed = dataset in ("combined", "cifar100")
    common, fresh = mixed, modular and not mixed  # agents alone
    if modes == ("recv",):
        common = mixed or not modular
        net["dropout_basis"] = True
    elif modes == ("simp",):
        common, fresh = False, False
    elif modes:
        common, fresh = True, fresh and modes in (("fedavg",), ("modmod",))
    learner = {"fresh_adam": fresh, "hidden": "keep", "current": "max"}
    if dataset == "cifar100" and "modmod" in modes:  # these two rows alone
        learner["adaptation"] = "never"
    return {"tasks": {"common": common}, "net": net, "learner": learner}


def resolve(raw: dict[str, Any]) -> Settings:
    """Settings from what the user said; the protocol fills its switches where the user said nothing."""
    from shoal.network.edges import edges, settle

    raw = dict(raw)
    listed, kinds = raw.pop("sharing", ()), raw.pop("kinds", ())
    if isinstance(raw.get("network"), str):
        raw["network"] = {"graph": raw["network"]}
    known(raw)
    for at, link in enumerate(raw.get("network", {}).get("edges", ())):
        if isinstance(link, dict):
            known(link, Link, f"network.edges[{at}].")
            made(Link, link, f"network.edges[{at}].")
    said = made(Settings, raw)
    tables = listing(listed)
    names = tuple(table["mode"] for table in tables)
    modes = tuple(mode_of(one, said, names) for one in tables)
    merged = {**raw, **completed(raw, said, said.model, names)}
    settings = Settings(
        **{**merged, "network": settle(said.network), "sharing": modes, "kinds": kinds_of(kinds, raw, said, names)}
    )
    edges(said.network, said.agents, said.seed)  # says what is wrong with them before anything is written
    for mode in modes:
        suitable(mode, settings)
        if mode.every != "task" and mode.every > settings.learner.epochs:
            raise SettingsError(
                f"sharing.{mode.mode}.every = {mode.every} is more than learner.epochs = {settings.learner.epochs}, so "
                "nothing would ever be exchanged; lower sharing.every"
            )
        first = mode.first(settings.tasks.initial)
        if first >= settings.tasks.count:
            raise SettingsError(
                f"mode `{mode.mode}` would begin with task {first}, counted from 0, but tasks.count = "
                f"{settings.tasks.count}: nothing would ever be exchanged; raise tasks.count or lower sharing.start"
            )
    keepers = [mode.mode for mode in modes if hasattr(mode, "memory")]
    if len(keepers) > 1:
        raise SettingsError(
            f"`{keepers[0]}` and `{keepers[1]}` would keep what they receive in the same buffers; share by one of them"
        )
    if settings.tasks.initial > settings.tasks.count:
        raise SettingsError(
            f"tasks.initial = {settings.tasks.initial} is more than tasks.count = {settings.tasks.count}; "
            "lower tasks.initial or raise tasks.count"
        )
    for name in settings.members():
        possible(settings.of(name), "" if name == REST else f"kinds.{name}.")
    return settings


def completed(raw: dict[str, Any], said: Settings, model: str, modes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The groups of settings that the protocol has a say in, for a model: the user's words win."""
    found = switches(said.protocol, model, said.dataset, modes)
    return {part: {**values, **raw.get(part, {})} for part, values in found.items()}


def kinds_of(tables: Any, raw: dict[str, Any], said: Settings, modes: tuple[str, ...]) -> tuple[Kind, ...]:
    """The kinds that the user describes, with the fleet's settings where they are silent and the protocol's where the
    fleet is silent too, which depends on the kind's model."""
    if not isinstance(tables, (list, tuple)) or not all(isinstance(one, (dict, Kind)) for one in tables):
        raise SettingsError(f"`kinds` cannot be {tables!r}; write a [[kinds]] table with name and agents for each kind")
    found: list[Kind] = []
    owner: dict[int, str] = {}
    for at, one in enumerate(tables):
        path = f"kinds[{at}]."
        table = one.model_dump() if isinstance(one, Kind) else one
        known(table, Kind, path)
        for name in ("name", "agents"):
            if name not in table:
                raise SettingsError(f"`{path}{name}` is missing; every [[kinds]] table needs a name and agents")
        model = made(Kind, {"model": said.model, **table}, path).model
        fleet = completed(raw, said, model, modes)
        parts = {part: {**fleet[part], **table.get(part, {})} for part in ("net", "learner")}
        kind = made(Kind, {**table, "model": model, **parts}, path)
        if kind.name in (REST, *(other.name for other in found)):
            taken = "what agents of no kind are called" if kind.name == REST else "another kind's name"
            raise SettingsError(f"`{path}name` cannot be {kind.name!r}, which is {taken}; choose another word")
        if kind.learner.epochs != said.learner.epochs:
            raise SettingsError(
                f"`{path}learner.epochs` cannot be {kind.learner.epochs}, because learner.epochs = "
                f"{said.learner.epochs} and all agents have one clock; leave it out, or change learner.epochs"
            )
        for agent in kind.agents:
            if agent >= said.agents:
                raise SettingsError(
                    f"`{path}agents` has agent {agent}, but with agents = {said.agents} the last agent is "
                    f"{said.agents - 1}; raise agents, or take it out"
                )
            if agent in owner:
                where = "listed twice" if owner[agent] == kind.name else f"of kind `{owner[agent]}` already"
                raise SettingsError(f"`{path}agents` has agent {agent}, which is {where}; list every agent once")
            owner[agent] = kind.name
        found.append(kind.model_copy(update={"agents": tuple(sorted(kind.agents))}))
    return tuple(found)


def suitable(mode: Sharing, settings: Settings) -> None:
    """Raise if a mode can serve no kind of agents, or none that are connected."""
    from shoal.network.edges import edges

    groups = settings.members()
    kinds = {name: settings.of(name) for name in groups}
    if not any(serves(mode, kind) for kind in kinds.values()):
        mode.suits(next(iter(kinds.values())))
    if not settings.kinds:
        return
    kind_of = {agent: kinds[name] for name, agents in groups.items() for agent in agents}
    seeds = range(settings.seed, settings.seed + settings.seeds)
    drawn = [edge for seed in seeds for edge in edges(settings.network, settings.agents, seed)]
    if drawn and not any(mode.fits(kind_of[edge.sender], kind_of[edge.receiver]) for edge in drawn):
        raise SettingsError(
            f"no two agents that could exchange by `{mode.mode}` are connected: it goes between {mode.between}; "
            "connect such agents, change their kinds, or share by another mode"
        )


def possible(settings: Settings, path: str) -> None:
    """Raise if agents of such a kind cannot be."""
    held = settings.tasks.train * settings.tasks.classes
    if settings.learner.memory > held:
        raise SettingsError(
            f"{path}learner.memory = {settings.learner.memory} is more than the {held} training images of a task "
            f"(tasks.train x tasks.classes); lower {path}learner.memory or raise tasks.train"
        )
    if settings.modular and settings.net.initial_structure == "own" and settings.net.basis < settings.tasks.initial:
        raise SettingsError(
            f'{path}net.initial_structure = "own" needs a basis module for each initial task, got {path}net.basis = '
            f"{settings.net.basis} and tasks.initial = {settings.tasks.initial}"
        )


M = TypeVar("M", bound=Part)


def made(model: type[M], raw: dict[str, Any], path: str = "") -> M:
    """The settings in `raw`, or one sentence about the first that cannot be."""
    try:
        return model(**raw)
    except ValidationError as error:
        raise SettingsError(sentence(error, model, path)) from None


def listing(said: Any) -> list[dict[str, Any]]:
    """What the user shares, as a table per mode, from "recv", "recv,fedavg", "none", ["recv"] or [{mode = "recv"}]."""
    if isinstance(said, str):
        said = [] if said in ("none", "") else [{"mode": name.strip()} for name in said.split(",")]
    if isinstance(said, dict):
        said = [said]
    if not isinstance(said, (list, tuple)):
        raise SettingsError(f'`sharing` cannot be {said!r}; say sharing = "recv", or a [[sharing]] table for each mode')
    tables = []
    for one in said:
        if isinstance(one, Sharing):
            one = one.model_dump()
        table = {"mode": one} if isinstance(one, str) else one
        if not isinstance(table, dict) or not isinstance(table.get("mode"), str):
            raise SettingsError(f'every [[sharing]] table needs a mode, e.g. mode = "recv"; got {one!r}')
        tables.append(table)
    names = [table["mode"] for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"mode `{name}` is listed {names.count(name)} times in `sharing`; list it once")
    return tables


def mode_of(table: dict[str, Any], said: Settings, modes: tuple[str, ...]) -> Sharing:
    """The sharing mode that a table describes, one of `modes`; the protocol fills what the table does not say."""
    from shoal.sharing import MODES

    name = table["mode"]
    if name not in MODES:
        close = difflib.get_close_matches(name, MODES, n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        raise SettingsError(f"there is no sharing mode `{name}`; {hint}allowed: {', '.join(MODES)}, none")
    mode, path = MODES[name], f"sharing.{name}."
    known(table, mode, path)
    filled = mode.paper(said, modes) if said.protocol == "paper" else {}
    return made(mode, {**filled, **table}, path)


def known(raw: dict[str, Any], model: type[Part] = Settings, path: str = "") -> None:
    """Raise for a key that does not exist, with the nearest one that does."""
    for name, value in raw.items():
        field = model.model_fields.get(name)
        if field is None:
            raise SettingsError(f"unknown setting `{path}{name}`{suggest(path, name, model)}")
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Part):
            if not isinstance(value, dict):
                raise SettingsError(f"`{path}{name}` is a group of settings, got {value!r}; say {path}{name}.KEY=VALUE")
            known(value, inner, f"{path}{name}.")


def suggest(path: str, name: str, model: type[Part]) -> str:
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
        return " or ".join(allowed(one) for one in get_args(kind))
    if get_origin(kind) is Literal:
        return ", ".join(repr(one) for one in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is str:
        return "a word"
    bounds = {"gt": "above", "ge": "at least", "lt": "below"}
    said = [
        f"{word} {getattr(limit, name)}" for limit in limits for name, word in bounds.items() if hasattr(limit, name)
    ]
    return " ".join(["a whole number" if kind is int else "a finite number", *([" and ".join(said)] if said else [])])


def fields(model: type[Part] = Settings, path: str = "") -> Iterable[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Part):
            yield from fields(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", field


def read(file: Path, overrides: Iterable[str] = ()) -> Settings:
    """Settings from a TOML file and `key=value` words; what is said later wins."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"no settings file {file}; the ones that come with shoal are in experiments/") from None
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}; give a settings file in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file} as TOML: {error}; experiments/ has files that can be read") from None
    network = raw.get("network", {})
    said = {"graph": network} if isinstance(network, str) else network
    from shoal.network.graphs import is_file

    # A graph file is named from where the settings are.
    if isinstance(said, dict) and is_file(str(said.get("graph", ""))) and (file.parent / said["graph"]).is_file():
        raw["network"] = said | {"graph": str(file.parent / said["graph"])}
    return resolve(override(raw, overrides))


def override(raw: dict[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """A copy of `raw` with `a.b=c` words applied. A value is read as TOML, or taken as a plain string."""
    result: dict[str, Any] = copy.deepcopy(raw)
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SettingsError(f"cannot read `{word}`; settings on the command line look like learner.epochs=50")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        *groups, last = name.split(".")
        if isinstance(result.get("network"), str):
            result["network"] = {"graph": result["network"]}
        if name == "network":  # short for its graph
            groups, last = ["network"], "graph"
        if [*groups, last] == ["network", "graph"] and isinstance(result.get("network"), dict):
            result["network"].pop("edges", None)  # they are another graph's
        at = result
        if groups[:1] == ["sharing"]:
            at, groups = shared(result, groups[1:], word), []
        elif groups[:1] == ["kinds"]:
            at, groups = described(result, groups[1:], word), groups[2:]
        for group in groups:
            at = at.setdefault(group, {})
            if not isinstance(at, dict):
                raise SettingsError(f"`{group}` in `{word}` is a single setting, not a group")
        at[last] = value
    return result


def shared(raw: dict[str, Any], groups: list[str], word: str) -> dict[str, Any]:
    """The [[sharing]] table that `sharing.KEY=VALUE` (if there is one) or `sharing.MODE.KEY=VALUE` means."""
    tables: list[dict[str, Any]] = [dict(table) for table in listing(raw.get("sharing", ()))]
    raw["sharing"] = tables
    names = [table["mode"] for table in tables]
    if groups and groups[0] in names:
        return tables[names.index(groups[0])]
    if groups:
        raise SettingsError(
            f"`{word}` is for the mode `{groups[0]}`, which is not shared; say sharing={groups[0]} first"
        )
    if len(tables) != 1:
        which = f"say which: sharing.{names[0]}.KEY=VALUE" if tables else "say sharing=MODE first"
        raise SettingsError(f"`{word}` is for one of {len(tables)} sharing modes; {which}")
    return tables[0]


def described(raw: dict[str, Any], groups: list[str], word: str) -> dict[str, Any]:
    """The [[kinds]] table that `kinds.NAME.KEY=VALUE` means."""
    kinds = raw.get("kinds", ())
    if not isinstance(kinds, (list, tuple)) or not all(isinstance(one, dict) for one in kinds):
        raise SettingsError(f"`kinds` cannot be {kinds!r}; write a [[kinds]] table with name and agents for each kind")
    tables: dict[str, dict[str, Any]] = {str(one.get("name")): one for one in kinds}
    if not groups or groups[0] not in tables:
        known = f"the kinds are {', '.join(tables)}" if tables else "no kinds are described"
        raise SettingsError(f"`{word}` is for one kind of agents; say kinds.NAME.KEY=VALUE, {known}")
    return tables[groups[0]]
