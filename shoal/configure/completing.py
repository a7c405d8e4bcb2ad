"""Settings made whole: what the user says, completed by the protocol, and checked against each other."""

from typing import Any

from pydantic import ValidationError

from shoal.configure.checks import honest, known, made, sentence
from shoal.configure.entries import net_kind, net_of, network_of, tasks_of
from shoal.configure.identity import identity as identity
from shoal.configure.kinds import kinds_of, learners_of, models_of, possible, suitable
from shoal.configure.learners import general, learner_of, told
from shoal.configure.sites import numbered
from shoal.errors import SettingsError
from shoal.learners.table import LEARNERS, usual
from shoal.models.table import MODELS
from shoal.settings import policies
from shoal.settings.conditions import Absence
from shoal.settings.groups import MODEL, REST, Change, Link, Network, Settings, Tasks
from shoal.settings.part import Part, spoken
from shoal.settings.policies import Policy
from shoal.settings.protocols import completed
from shoal.settings.safety import Fault, tables
from shoal.settings.saying import widen
from shoal.settings.times import timely
from shoal.sharing.contract import Sharing, serves


def complete(raw: dict[str, Any]) -> dict[str, Any]:
    """All settings, from what the user said; the protocol fills its switches where the user said nothing."""
    from shoal.data.draws import chosen
    from shoal.network.edges import at, links, settle

    listed, kinds = raw.get("sharing", ()), raw.get("kinds", ())
    fleet = told(raw.get("learner", {}))
    raw = {name: spoken(value) for name, value in raw.items() if name not in ("sharing", "kinds", "learner")}
    raw, kinds = numbered(advised(widen(raw)), kinds)
    known(raw)
    network = raw.get("network", {})
    several: tuple[tuple[str, type[Part], Any], ...] = (
        ("network.edges", Link, network.get("edges", ())),
        ("network.changes", Change, network.get("changes", ())),
        ("faulty", Fault, tables(raw.get("faulty", ()))),
        ("policy", Policy, tables(raw.get("policy", ()))),
    )
    for name, group, groups in several:  # what is no list is refused below
        for place, table in enumerate(groups if isinstance(groups, list | tuple) else ()):
            if isinstance(table, dict):
                known(table, group, f"{name}[{place}].")
                made(group, table, f"{name}[{place}].")
    raw["tasks"], kind = tasks_of(raw.get("tasks", {}))
    said = alone(raw)
    MODELS.find(said.model)
    chosen(said.tasks.draw)
    modes = listing(listed)
    names = tuple(name_of(mode) for mode in modes)
    for mode in modes:
        if isinstance(mode, dict):
            owned(mode, said)
    whole: dict[str, Any] = completed(raw, said, said.model, names)
    filled = whole.pop("sharing")
    shared = general(fleet, said.model)
    learner = learner_of(fleet, said.model, whole["learner"], others=learners_of(kinds, shared, said.model))
    whole = {
        **raw,
        **whole,
        "tasks": made(kind, whole["tasks"], "tasks."),
        "net": net_of(raw.get("net", {}), said.model, whole["net"], models_of(kinds)),
        "learner": learner,
        "network": dated(settle(said.network), learner.epochs),
        "sharing": tuple(mode if isinstance(mode, Sharing) else mode_of(mode, filled) for mode in modes),
        "kinds": kinds_of(kinds, raw, said, names, shared, learner.epochs),
    }
    links(said.network, said.agents)  # says what is wrong with them before anything is written
    for change in whole["network"].changes:
        links(at(whole["network"], change.epoch), said.agents)
    return whole


def dated(network: Network, epochs: int) -> Network:
    """A network whose changes have an epoch, in their order, and need no file any more."""
    from shoal.network.edges import settle

    found = []
    for at, one in enumerate(network.changes):
        where = f"network.changes[{at}]"
        if (one.task is None) == (one.epoch is None):
            raise SettingsError(f"{where} needs a `task` or an `epoch` from which on it holds: say one of the two")
        graph = settle(network.model_copy(update={"graph": one.graph, "edges": one.edges}))
        epoch = one.epoch if one.task is None else one.task * epochs
        found.append(one.model_copy(update={"task": None, "epoch": epoch, "graph": graph.graph, "edges": graph.edges}))
    times = [one.epoch for one in found]
    if twice := [time for time in times if times.count(time) > 1]:
        raise SettingsError(f"network.changes has two graphs from epoch {twice[0]} on; keep one of the two")
    return network.model_copy(update={"changes": tuple(sorted(found, key=lambda one: one.epoch or 0))})


def advised(raw: dict[str, Any]) -> dict[str, Any]:
    """What the user says, and where the user is silent what the data says of agents, tasks and nets."""
    from shoal.data import DATASETS
    from shoal.data.sources import Data, bring, is_source, placed, read
    from shoal.data.sources.advice import TABLE

    name = raw.get("dataset", Settings.model_fields["dataset"].default)
    tasks, net = raw.get("tasks", {}), raw.get("net", {})
    if isinstance(name, Data):
        name = bring(name)
    if not isinstance(name, str) or not isinstance(tasks, dict) or not isinstance(net, dict):
        return raw
    if is_source(name):
        name = placed(name)
        raw = {**raw, "dataset": name}
        spoken_of = {key for key, field in Tasks.model_fields.items() if field.default is not None}  # as files say it
        # Where nothing is left to say the data need not be there.
        if "agents" in raw and spoken_of <= tasks.keys() and TABLE.keys() <= net.keys():
            return raw
        says = read(name).says({**raw, "tasks": tasks}) | ({"net": {}} if raw.get("backbone") else {})
    else:
        says = dict(DATASETS[name].says) if name in DATASETS else {}
    groups = {"tasks": {**says.get("tasks", {}), **tasks}, "net": {**says.get("net", {}), **net}}
    return {**says, **raw, **groups}


def alone(raw: dict[str, Any]) -> Settings:
    """Settings of which each has been checked for itself, and that nobody has completed."""
    settings = Settings.__new__(Settings)
    table, kind = tasks_of(raw.get("tasks", {}))
    parts: dict[str, Part] = {"tasks": made(kind, table, "tasks."), "network": network_of(raw.get("network", {}))}
    net, kind_of_net = raw.get("net", {}), net_kind(raw.get("model", MODEL))
    parts["net"] = made(kind_of_net, {key: net[key] for key in net if key in kind_of_net.model_fields}, "net.")
    parts["learner"] = LEARNERS[usual(MODEL)].model_validate({})  # until what is said of learners is made whole
    try:
        Part.__init__(settings, **{**raw, **parts})
    except ValidationError as error:
        raise SettingsError(sentence(error)) from None
    return settings


def check(settings: Settings) -> None:
    """Raise if settings contradict each other."""
    if settings.faulty:
        honest(settings.faulty, settings.agents)
    policies.check(settings.policy, settings.agents)
    modes = settings.sharing
    names = [mode.mode for mode in modes]
    for mode in modes:
        if names.count(mode.mode) > 1:
            raise SettingsError(
                f"mode `{mode.mode}` is listed {names.count(mode.mode)} times in `sharing`; list it once"
            )
    for mode in modes:
        suitable(mode, settings)
        if mode.every != "task" and mode.every > settings.learner.epochs:
            raise SettingsError(
                f"sharing.{mode.mode}.every = {mode.every} is more than learner.epochs = {settings.learner.epochs}, so "
                f"nothing would ever be exchanged; lower sharing.{mode.mode}.every"
            )
        first = mode.first(settings.tasks.initial)
        if first >= settings.tasks.count:
            raise SettingsError(
                f"mode `{mode.mode}` would begin with task {first}, counted from 0, but tasks.count = "
                f"{settings.tasks.count}: nothing would ever be exchanged; raise tasks.count or lower "
                f"sharing.{mode.mode}.start"
            )
    keepers = [mode.mode for mode in modes if mode.room]
    if len(keepers) > 1:
        raise SettingsError(
            f"`{keepers[0]}` and `{keepers[1]}` would keep what they receive in the same buffers; share by one of them"
        )
    if settings.tasks.initial > settings.tasks.count:
        raise SettingsError(
            f"tasks.initial = {settings.tasks.initial} is more than tasks.count = {settings.tasks.count}; "
            "lower tasks.initial or raise tasks.count"
        )
    if settings.tasks.blur and settings.tasks.heads == "task":
        raise SettingsError(
            f"tasks.blur = {settings.tasks.blur:g} gives a task rows of others, and with a head for each task they "
            'have no label there; use tasks.heads = "grow"'
        )
    there(settings)
    timely(settings)
    for name in settings.names:
        possible(settings.of(name), "" if name == REST else f"kinds.{name}.")


def there(settings: Settings) -> None:
    """Raise for agents that are said to be absent, to join or to leave, and cannot."""
    epochs, presence = settings.learner.epochs, settings.presence
    for where, one in presence.named:
        if (last := max(one.agents)) >= settings.agents:
            raise SettingsError(
                f"{where} names agent {last}, but with agents = {settings.agents} the last agent is "
                f"{settings.agents - 1}; take it out, or raise agents"
            )
        tasks = one.tasks if isinstance(one, Absence) else () if one.task is None else (one.task,)
        if tasks and max(tasks) >= settings.tasks.count:
            raise SettingsError(
                f"{where} names task {max(tasks)}, counted from 0, but tasks.count = {settings.tasks.count}; name an "
                "earlier one"
            )
    for name, turns in (("joins", presence.joins), ("leaves", presence.leaves)):
        named = [agent for turn in turns for agent in turn.agents]
        if twice := [agent for agent in named if named.count(agent) > 1]:
            raise SettingsError(f"presence.{name} names agent {twice[0]} twice; say once when it {name}")
    joins = {agent: turn.at(epochs) for turn in presence.joins for agent in turn.agents}
    for turn in presence.leaves:
        for agent in turn.agents:
            if turn.at(epochs) <= joins.get(agent, 0):
                when = f"it joins at {joins[agent]}" if agent in joins else "the run begins then"
                raise SettingsError(
                    f"presence.leaves lets agent {agent} leave at epoch {turn.at(epochs)}, and {when}: it would never "
                    "be there; let it leave later"
                )


def listing(said: Any) -> list[dict[str, Any] | Sharing]:
    """What the user shares, as a table per mode, from "recv", "recv,fedavg", "none", ["recv"] or [{mode = "recv"}]; a
    mode that was made in Python stays as it is."""
    if isinstance(said, str):
        said = [] if said in ("none", "") else [{"mode": name.strip()} for name in said.split(",")]
    if isinstance(said, (dict, Sharing)):
        said = [said]
    if not isinstance(said, (list, tuple)):
        raise SettingsError(f'`sharing` cannot be {said!r}; say sharing = "recv", or a [[sharing]] table for each mode')
    modes: list[dict[str, Any] | Sharing] = []
    for one in said:
        mode = {"mode": one} if isinstance(one, str) else one
        if not isinstance(mode, Sharing) and (not isinstance(mode, dict) or not isinstance(mode.get("mode"), str)):
            raise SettingsError(f'every [[sharing]] table needs a mode, e.g. mode = "recv"; got {one!r}')
        modes.append(mode if isinstance(mode, Sharing) else meant(mode))
    return modes


def meant(mode: dict[str, Any]) -> dict[str, Any]:
    """A table in which `rows` are what the mode calls `images`: those of a table are no images, and mean the same."""
    from shoal.sharing.modes import MODES

    fields = MODES.find(mode["mode"]).model_fields if "rows" in mode else {}
    if "images" not in fields or "rows" in fields:
        return mode
    if "images" in mode:
        raise SettingsError(f"sharing.{mode['mode']} has rows and images, which are the same; say one of them")
    return {"images" if name == "rows" else name: value for name, value in mode.items()}


def name_of(mode: dict[str, Any] | Sharing) -> str:
    """What a listed mode is found by."""
    return mode.door if isinstance(mode, Sharing) else str(mode["mode"])


def mode_of(table: dict[str, Any], filled: dict[str, dict[str, Any]]) -> Sharing:
    """The sharing mode that a table describes; the protocol has `filled` in what the table does not say."""
    from shoal.sharing.modes import MODES

    name = table["mode"]
    mode, path = MODES.find(name), f"sharing.{name}."
    known(table, mode, path)
    named = {} if mode.model_fields["mode"].is_required() else {"mode": mode.model_fields["mode"].default}
    return made(mode, {**filled.get(name, {}), **table, **named}, path)


def owned(table: dict[str, Any], settings: Settings) -> None:
    """Raise for a setting that the mode of a table does not have and others do, with those that take its value and
    serve such a fleet."""
    from shoal.sharing.modes import MODES

    def takes(mode: str, name: str, value: Any) -> bool:
        try:
            return serves(mode_of({"mode": mode, name: value}, {}), settings)
        except SettingsError:
            return False

    here = MODES.find(table["mode"])
    for name, value in table.items():
        owners = () if name in here.model_fields else [mode for mode in MODES if name in MODES[mode].model_fields]
        if owners:
            able = [mode for mode in owners if takes(mode, name, value)]
            which = f"these take here: {', '.join(able)}" if able else f"none of them takes here: {', '.join(owners)}"
            raise SettingsError(
                f"`sharing.{table['mode']}.{name}` is a setting of other modes, got {value!r}, which {which}; leave it "
                f"out{', or share by one of them' * bool(able)}"
            )
