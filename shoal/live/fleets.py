"""The folder of a live fleet, and that of each agent: made on one host, each agent's then carried to its own.

fleet.toml, live.json     the settings of the fleet, and the run's name, addresses and who has left
authority/                the fleet's own certificate authority; it stays where it was made
agent-3/                  all that agent 3 needs: settings.toml, agent.json, key, certificate, the authority's
                          certificate, zenoh.json; later its letters, its journal and its run directory
"""

import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shoal.agents.world import World
from shoal.backbones import bank_of
from shoal.configure.reading import override, parsed, resolve
from shoal.data.bank import Bank
from shoal.data.rows import Source
from shoal.data.sites import called
from shoal.data.sources import is_source
from shoal.data.tasks import NAMED
from shoal.errors import SettingsError, UserError
from shoal.files import put, save, settle
from shoal.live import authority, over_zenoh
from shoal.live.beginning import begun, trained_in
from shoal.live.crew import world_of
from shoal.live.places import Said, host_of, joined, said_by, split
from shoal.live.wire import Terms
from shoal.settings.conditions import Presence
from shoal.settings.groups import Clock, Settings
from shoal.settings.writing import toml
from shoal.trust import allow, remember

FORMAT = 1
HOME, FLEET, PLAN = "agent.json", "fleet.toml", "live.json"
CONDITIONS = {"loss": 0.0, "delay": 0, "down": (), "bandwidth": None, "latency": 0.0}


@dataclass(frozen=True)
class Plan:
    """What is known of a fleet where it was made: the run's name, each agent's address, and what agents read."""

    run: str
    identity: str
    addresses: tuple[str, ...]
    names: tuple[str, ...]
    dropped: tuple[int, ...] = ()
    data: str = ""  # what each reads on its own host, if that is not what the fleet was made with
    watch: float | None = None  # for how many seconds nothing must change there until what has come is learned
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        said = content(folder / PLAN, "it is no folder of a live fleet; `shoal live init` makes one")
        made: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in said.items()}
        return cls(**made)


@dataclass(frozen=True)
class Home:
    """An agent's folder: who it is, and whom it is linked with."""

    folder: Path
    run: str
    identity: str  # of the settings
    agent: int
    name: str
    address: str
    senders: tuple[int, ...]  # neighbours who send to it,
    receivers: tuple[int, ...]  # and to whom it sends
    addresses: Mapping[int, str]  # of all of them
    data: str = ""  # what it reads, and
    watch: float | None = None  # whether more comes: see `Plan`

    @property
    def source(self) -> Path:
        """What the rows of the fleet are like, by which names its classes and sites go."""
        return self.folder / "source.json"

    @property
    def begin(self) -> Path:
        """The trained agent that it begins from, if there is one."""
        return self.folder / "begin.safetensors"

    @property
    def base(self) -> Path:
        """The checkpoint from which it can be replayed, once its journal is pruned."""
        return self.folder / "base.safetensors"

    @property
    def letters(self) -> Path:
        return self.folder / "letters.db"

    @property
    def record(self) -> Path:
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        return self.folder / "agent.sock"

    @property
    def neighbours(self) -> list[int]:
        return sorted({*self.senders, *self.receivers})

    @classmethod
    def read(cls, folder: Path) -> "Home":
        said = content(folder / HOME, "it is no folder of a live agent; `shoal live init` makes some")
        if said.pop("format", None) != FORMAT:
            raise UserError(f"{folder} was made by another version of shoal; make it again with `shoal live renew`")
        addresses = {int(peer): address for peer, address in said.pop("addresses").items()}
        ends: dict[str, Any] = {name: tuple(said.pop(name)) for name in ("senders", "receivers")}
        return cls(folder=folder, addresses=addresses, **ends, **said)

    def write(self) -> None:
        said = {name: value for name, value in asdict(self).items() if name != "folder"}
        keep(self.folder / HOME, json.dumps({"format": FORMAT, **said}, indent=2))

    def settings(self) -> Settings:
        """Its settings; they must be those that its neighbours have."""
        file = self.folder / "settings.toml"
        raw = parsed(file)
        allow(raw, file, [], False)
        found = resolve(raw)
        if found.identity() != self.identity:
            raise UserError(
                f"{file} has other settings than the fleet was made with; restore it, or make the fleet again with "
                "`shoal live init`"
            )
        return found


def content(file: Path, otherwise: str) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{file} is not there: {otherwise}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}; restore it") from None
    if not isinstance(found, dict):
        raise UserError(f"cannot read {file}: it holds no JSON object; restore it")
    return found


def keep(file: Path, text: str) -> None:
    """Write a file whole, in the place of the one before."""
    settle(put(file, f"{text}\n".encode()), file)


def real(settings: Settings) -> tuple[Settings, list[str]]:
    """Settings without what only a simulation needs to be told, because on hosts it is as it is; and what was left
    out."""
    network, out = settings.network, []
    links = [network, *network.edges]
    for name, usual in CONDITIONS.items():
        if any(getattr(one, name) not in (usual, None) for one in links):
            out.append(f"network.{name}")
    bare = tuple(one.model_copy(update=dict.fromkeys(CONDITIONS)) for one in network.edges)
    network = network.model_copy(update={**CONDITIONS, "edges": bare})
    clock = settings.clock
    usual = {name: field.default for name, field in Clock.model_fields.items()}
    out += [f"clock.{name}" for name in ("starts", "arrivals") if getattr(clock, name) != usual[name]]
    timeless = {name: usual[name] for name in ("starts", "arrivals", "gap")}
    if clock.pace == "wait":
        timeless |= {name: usual[name] for name in ("speed", "step_joules", "byte_joules", "patience")}
    if settings.presence != Presence():
        out.append("presence")
    if settings.faulty:
        out.append("faulty")
    if settings.seeds > 1:
        out.append(f"seeds ({settings.seeds}: a live fleet is one)")
    machine = settings.machine.model_copy(update={"members": "here", "workers": 0, "address": ""})
    changed = {
        "network": network, "clock": clock.model_copy(update=timeless), "presence": Presence(), "faulty": (),
        "seeds": 1, "machine": machine,
    }  # fmt: skip
    return settings.model_copy(update=changed), out


def make(
    file: Path, out: Path, words: Sequence[str] = (), trust: bool = False, begin: Iterable[Path] = ()
) -> tuple[Plan, list[str]]:
    """Make the folder of a fleet, with one for each agent, from a settings file with a table `[live]`; agents begin
    from those that runs and files hold. Returns also what of the settings a live fleet does not
    need."""
    authority.needed()
    raw = override(parsed(file), words)
    table = raw.pop("live", None)
    allow(raw, file, list(words), trust)
    settings, left_out = real(resolve(raw))
    if settings.kinds and settings.tasks.common:
        raise SettingsError("agents of several kinds with a common start cannot be live; say tasks.common = false")
    said = said_by(table, settings.agents)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already; choose another folder as --out")
    bank = bank_of(settings)
    run = secrets.token_hex(4)
    source = source_for(bank, settings, said)
    names = tuple(called(source.sites, settings.agents, agent) for agent in range(settings.agents))
    plan = Plan(run, settings.identity(), said.addresses, names, data=said.data, watch=said.watch)
    trained = trained_in(begin, settings.agents)
    out.mkdir(parents=True, exist_ok=True)
    out.chmod(0o700)
    authority.found(out / "authority", run)
    save(out / FLEET, toml(settings), "give --out another place")
    remember(parsed(out / FLEET))  # whoever makes a fleet may run its agents here
    write_plan(out, plan)
    for agent in range(settings.agents):
        folder = install(out, plan, settings, bank, agent)
        if is_source(settings.dataset):
            keep(folder / "source.json", json.dumps(source.about()))
        if agent in trained:
            begun(trained[agent], world_of(settings, bank, agent))  # raises if it cannot
            trained[agent].save(folder / "begin.safetensors", memory=True)
    return plan, left_out


def source_for(bank: Bank, settings: Settings, said: Said) -> Source:
    """What the rows of a fleet are like. Where the data names no sites, and each agent has its own, they are agents."""
    if said.watch is not None and (bank.task is None or settings.tasks.scenario != NAMED):
        raise SettingsError(
            f'live.watch needs data that names the task of each row (task=...), and tasks.scenario = "{NAMED}", got '
            f"`{bank.name}` and {settings.tasks.scenario!r}"
        )
    source = Source.of(bank, settings.dataset)
    if said.data and len(source.sites) == 1:
        source = replace(source, sites=tuple(f"agent {agent}" for agent in range(settings.agents)))
    return source


def write_plan(out: Path, plan: Plan) -> None:
    keep(out / PLAN, json.dumps(asdict(plan), indent=2))


def install(out: Path, plan: Plan, settings: Settings, bank: Bank, agent: int, days: float = authority.DAYS) -> Path:
    """Make the folder of one agent, or renew what it has of keys and rules; its letters and its run stay."""
    folder = out / f"agent-{agent}"
    world = world_of(settings, bank, agent)
    authority.certify(out / "authority", folder, plan.run, agent, host_of(plan.addresses[agent]), days)
    keep(folder / "settings.toml", toml(settings).rstrip("\n"))
    home_of(folder, plan, world, agent).write()
    return folder


def home_of(folder: Path, plan: Plan, world: World, agent: int) -> Home:
    """Who an agent is among those who have not left."""
    pairs = {ends for task in range(world.settings.tasks.count) for ends in world.at(task, 0).edges}
    there = [(a.agent, b.agent) for a, b in pairs if not {a.agent, b.agent} & set(plan.dropped)]
    senders = tuple(sorted(a for a, b in there if b == agent))
    receivers = tuple(sorted(b for a, b in there if a == agent))
    addresses = {peer: plan.addresses[peer] for peer in sorted({*senders, *receivers})}
    return Home(
        *(folder, plan.run, plan.identity, agent, plan.names[agent], plan.addresses[agent]),
        *(senders, receivers, addresses, plan.data, plan.watch),
    )


def lines_of(home: Home, terms: Terms) -> over_zenoh.Zenoh:
    """The lines of an agent over Zenoh; what Zenoh is told is also written down, to be looked at."""
    said = over_zenoh.configuration(
        *(home.folder.resolve(), home.run, home.agent, home.address, home.senders, home.receivers, home.addresses),
        terms.longest,
    )
    keep(home.folder / "zenoh.json", json.dumps(said, indent=2))
    return over_zenoh.Zenoh(home.run, home.agent, home.senders, home.receivers, said)


def fleet_of(out: Path) -> tuple[Plan, Settings, Bank]:
    """A fleet as it was made."""
    plan = Plan.read(out)
    raw = parsed(out / FLEET)
    allow(raw, out / FLEET, [], False)
    settings = resolve(raw)
    return plan, settings, bank_of(settings)


def renew(out: Path, agents: Sequence[int], days: float = authority.DAYS) -> list[Path]:
    """New keys and certificates for some agents."""
    plan, settings, bank = fleet_of(out)
    checked(plan, agents)
    return [install(out, plan, settings, bank, agent, days) for agent in agents]


def drop(out: Path, agent: int) -> list[Path]:
    """Let an agent leave for good: nobody who is started after that speaks with it. Returns the folders that have
    changed, to be carried to their hosts."""
    plan, settings, bank = fleet_of(out)
    checked(plan, [agent])
    if agent in plan.dropped:
        raise UserError(f"agent {agent} has left already; `shoal live add {out} {agent}` takes it back")
    return again(out, replace(plan, dropped=tuple(sorted({*plan.dropped, agent}))), settings, bank, agent)


def add(out: Path, agent: int, address: str | None = None) -> list[Path]:
    """Take an agent back that had left, with a new certificate, at its address or another one."""
    plan, settings, bank = fleet_of(out)
    checked(plan, [agent])
    if agent not in plan.dropped:
        raise UserError(
            f"agent {agent} is in the fleet already; only one that has left can be added (left have: "
            f"{list(plan.dropped) or 'none'}), because the settings say how many agents there are"
        )
    places = list(plan.addresses)
    if address is not None:
        places[agent] = joined(*split(address, 'say an address such as "host:7500"'))
    plan = replace(plan, dropped=tuple(one for one in plan.dropped if one != agent), addresses=tuple(places))
    return again(out, plan, settings, bank, agent)


def again(out: Path, plan: Plan, settings: Settings, bank: Bank, agent: int) -> list[Path]:
    """Write anew who is linked with whom, where one agent comes or goes."""
    write_plan(out, plan)
    changed = []
    for other in range(settings.agents):
        folder, world = out / f"agent-{other}", world_of(settings, bank, other)
        if other == agent:
            if agent in plan.dropped:
                (folder / authority.KEY).unlink(missing_ok=True)
            else:
                changed.append(install(out, plan, settings, bank, other))
            continue
        home = home_of(folder, plan, world, other)
        if folder.is_dir() and home != Home.read(folder):
            home.write()
            changed.append(folder)
    return changed


def checked(plan: Plan, agents: Sequence[int]) -> None:
    """Raise unless there are such agents."""
    for agent in agents:
        if not 0 <= agent < len(plan.addresses):
            raise UserError(f"there is no agent {agent}; agents are numbered from 0 to {len(plan.addresses) - 1}")


def agents_of(out: Path) -> list[Home]:
    """The agents of a fleet whose folders are here."""
    plan = Plan.read(out)
    folders = [out / f"agent-{agent}" for agent in range(len(plan.addresses))]
    return [Home.read(folder) for folder in folders if (folder / HOME).exists()]


def remove(folder: Path) -> None:
    """Forget what an agent has learned and all its letters, so that it begins anew."""
    for name in ("letters.db", "letters.db-wal", "letters.db-shm", "base.safetensors", "agent.sock"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)
