"""Kinds of agents: what the user says of them, completed and checked."""

from typing import Any

from shoal.configure.checks import known, made
from shoal.configure.entries import net_of
from shoal.configure.learners import Said, class_of, learner_of, told
from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.models.families import block_of, family
from shoal.models.table import GROWTH
from shoal.settings.groups import REST, Kind, Settings
from shoal.settings.part import spoken
from shoal.settings.protocols import completed
from shoal.sharing.contract import Sharing, serves

DRAWN = 10**6  # edges that are drawn to see who is connected with whom; where there are more, somebody is


def table_of(kind: dict[str, Any] | Kind) -> dict[str, Any]:
    """What is said of a kind."""
    table = spoken(kind)
    return {name: value if isinstance(value, Learner) else spoken(value) for name, value in table.items()}


def models_of(tables: Any) -> list[str]:
    """The models that kinds name."""
    listed = tables if isinstance(tables, (list, tuple)) else ()
    named = [table_of(one).get("model") for one in listed if isinstance(one, (dict, Kind))]
    return [one for one in named if isinstance(one, str)]


def learners_of(tables: Any, fleet: Said, model: str) -> list[type[Learner]]:
    """The learners of all kinds, as far as they are described."""
    listed = tables if isinstance(tables, (list, tuple)) else ()
    found = []
    for at, table in enumerate(table_of(one) for one in listed if isinstance(one, (dict, Kind))):
        said = told(table.get("learner", {}), f"kinds[{at}].")
        found.append(class_of(said, fleet, str(table.get("model", model)), f"kinds[{at}]."))
    return found


def kinds_of(
    tables: Any, raw: dict[str, Any], said: Settings, modes: tuple[str, ...], learner: Said, epochs: int
) -> tuple[Kind, ...]:
    """The kinds that the user describes, with the fleet's settings where they are silent and the protocol's where the
    fleet is silent too, which depends on the kind's model. `learner` is what is said of learners for all of them; all
    have as many `epochs`."""
    if not isinstance(tables, (list, tuple)) or not all(isinstance(one, (dict, Kind)) for one in tables):
        raise SettingsError(f"`kinds` cannot be {tables!r}; write a [[kinds]] table with name and agents for each kind")
    found: list[Kind] = []
    owner: dict[int, str] = {}
    for at, one in enumerate(tables):
        path = f"kinds[{at}]."
        table = table_of(one)
        own = told(table.pop("learner", {}), path)
        known(table, Kind, path)
        for name in ("name", "agents"):
            if name not in table:
                raise SettingsError(f"`{path}{name}` is missing; every [[kinds]] table needs a name and agents")
        said_net = spoken(table.pop("net", {}))
        model = made(Kind, {"model": said.model, **table}, path).model
        fleet = completed(raw, said, model, modes)
        parts = {
            "net": net_of(said_net, model, fleet["net"], fleet=raw.get("net", {}), path=path),
            "learner": learner_of(own, model, fleet["learner"], learner, path),
        }
        kind = made(Kind, {**table, "model": model, **parts}, path)
        if kind.name in (REST, *(other.name for other in found)):
            taken = "what agents of no kind are called" if kind.name == REST else "another kind's name"
            raise SettingsError(f"`{path}name` cannot be {kind.name!r}, which is {taken}; choose another word")
        if kind.learner.epochs != epochs:
            raise SettingsError(
                f"`{path}learner.epochs` cannot be {kind.learner.epochs}, because learner.epochs = "
                f"{epochs} and all agents have one clock; leave it out, or change learner.epochs"
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
    from shoal.network.edges import count, edges

    kinds = {name: settings.of(name) for name in settings.names}
    if not any(serves(mode, kind) for kind in kinds.values()):
        mode.suits(next(iter(kinds.values())))
    if not settings.kinds or count(settings.network, settings.agents) * settings.seeds > DRAWN:
        return
    kind_of = {agent: kinds[kind.name] for kind in settings.kinds for agent in kind.agents}
    drawn = False
    for seed in range(settings.seed, settings.seed + settings.seeds):
        for edge in edges(settings.network, settings.agents, seed):
            drawn = True
            if mode.fits(*(kind_of[end] if end in kind_of else kinds[REST] for end in edge[:2])):
                return
    if drawn:
        raise SettingsError(
            f"no two agents that could exchange by `{mode.mode}` are connected: it goes between {mode.between}; "
            "connect such agents, change their kinds, or share by another mode"
        )


def possible(settings: Settings, path: str) -> None:
    """Raise if agents of such a kind cannot be."""
    settings.learner.suits(settings)
    tasks = settings.tasks
    held = None if isinstance(tasks.train, str) else tasks.train * tasks.classes
    if held is not None and settings.learner.memory > held:
        raise SettingsError(
            f"{path}learner.memory = {settings.learner.memory} is more than the {held} training rows of a task "
            f"(tasks.train x tasks.classes); lower {path}learner.memory or raise tasks.train"
        )
    learner: Learner = settings.learner
    net: Any = settings.net
    if learner.iterations is not None and learner.iterations < learner.epochs:
        raise SettingsError(
            f"{path}learner.iterations = {learner.iterations} steps cannot be dealt to {path}learner.epochs = "
            f"{learner.epochs}; raise {path}learner.iterations or lower {path}learner.epochs"
        )
    if tasks.outputs == "all" and tasks.heads != "grow":
        raise SettingsError(
            f'tasks.outputs = "all" is for a head that grows, got tasks.heads = "{tasks.heads}"; use tasks.heads = '
            '"grow", or leave it out'
        )
    if family(settings) == GROWTH and tasks.heads != "task":
        raise SettingsError(
            f'tasks.heads = "{tasks.heads}" leaves open which task a row is of, and {path}model = "{settings.model}"'
            f' composes its modules by the task; use {path}model = "{block_of(settings)}", or tasks.heads = "task"'
        )
    if family(settings) == GROWTH and net.initial_structure == "own" and net.basis < tasks.initial:
        raise SettingsError(
            f'{path}net.initial_structure = "own" needs a basis module for each initial task, got {path}net.basis = '
            f"{net.basis} and tasks.initial = {tasks.initial}"
        )


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
