"""What agents could share, and what it costs: who may race for a budget."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from shoal import backbones
from shoal import data as datasets
from shoal.agents.worlds import worlds
from shoal.configure.completing import listing, mode_of
from shoal.data.sources import is_source, meaning
from shoal.errors import SettingsError
from shoal.fleet.size import affordable
from shoal.settings.groups import Settings
from shoal.settings.problem import problem
from shoal.sharing.contract import Sharing
from shoal.sharing.federated import Federated
from shoal.sharing.modes import MODES
from shoal.sharing.plan import plan
from shoal.study.doses import MOST, Table, filling
from shoal.study.race import NONE

Said = str | Mapping[str, Any] | Sharing  # a mode: its name, a table of its settings, or made in Python


@dataclass(frozen=True)
class Candidate:
    """Something that agents could share, and what it costs."""

    name: str
    settings: Settings
    price: float = 0.0  # bytes per link and task, at most


class Field(NamedTuple):
    """Who could race."""

    base: Candidate
    within: list[Candidate]
    over: list[Candidate]  # the budget
    unfit: dict[str, str]  # why this fleet cannot share so
    sooner: tuple[str, ...] = ()  # modes whose usual time between exchanges is longer than a task
    sites: tuple[str, ...] = ()  # where agents' rows come from, in their order
    notes: tuple[str, ...] = ()  # what data of one's own means, and what looks wrong with it


def field_of(
    raw: dict[str, Any],
    said: str | Iterable[Said] | None,
    limit: int | None,
    data: Path | None = None,
    yes: bool = False,
) -> Field:
    """All candidates with their prices, those within the limit and those over it; no sharing is the base.

    A mode that the settings describe races as they describe it, others with their defaults; one that would act less
    than once in a task then acts once. With a limit, the dose of a mode is chosen: one that is over it has less, as
    much as the limit has room for, or half of that; one that is far below it also more. What the user says of a dose
    stays. Hybrids are diluted only if they are named.
    """
    tables: dict[str, dict[str, Any] | Sharing] = {name_of(mode): mode for mode in listing(raw.get("sharing", ()))}
    base = Candidate(NONE, Settings(**{**raw, "sharing": ()}))
    bank = bank_of(base.settings, data)
    if not yes:
        affordable(with_seeds(base.settings, 0, 1), bank)
    fleet = worlds(with_seeds(base.settings, 0, 1), bank)  # says what is wrong with the fleet, whatever it shares
    notes = meaning.fleets(bank, base.settings.agents, fleet) if is_source(base.settings.dataset) else []
    wanted: Mapping[str, Sequence[Said]] = usual() if said is None else named(said)
    epochs = base.settings.learner.epochs
    plain = [one for modes in wanted.values() for one in modes if isinstance(one, str)]
    usual_ones = dict.fromkeys(one for one in plain if one not in tables)
    sooner = tuple(one for one in usual_ones if rhythm(one) > epochs)
    tables |= {one: {"mode": one, "every": epochs} for one in sooner}
    found = Field(base, [], [], {}, sooner, tuple(bank.sources), tuple(notes))

    def with_modes(modes: Sequence[Table]) -> Settings:
        return Settings(**{**raw, "sharing": list(modes)})

    for name, modes in wanted.items():
        own = [table_of(one, tables, epochs) for one in modes]
        try:
            settings = with_modes(own)
            price = priced(settings, bank)
        except SettingsError as error:
            if said is not None:
                raise
            found.unfit[name] = str(error)
            continue
        for key, value in common(settings).items():
            if value != common(base.settings)[key]:
                raise SettingsError(
                    f"`{name}` would change `{key}` too, because protocol = {settings.protocol!r} says so, and what it "
                    "brings could come from that; say protocol=fair"
                )
        fits = limit is None or price <= limit
        if fits:
            found.within.append(Candidate(name, settings, price))
        doses: list[list[Table]] = []
        if limit is not None and (len(modes) == 1 or (said is not None and not fits)):
            doses = filling(own, limit, epochs, lambda modes: priced(with_modes(modes), bank), MOST if fits else 1)
        for dose in doses[:1] if fits else doses:
            made = with_modes(dose)
            if made.sharing != settings.sharing:
                told = "+".join(dict.fromkeys(full(one, own[at]) for at, one in enumerate(dose)))
                found.within.append(Candidate(told, made, priced(made, bank)))
        if not fits and not doses:
            found.over.append(Candidate(name, settings, price))
    return found


def table_of(said: Said, tables: Mapping[str, dict[str, Any] | Sharing], epochs: int) -> Table:
    """What the settings say of a mode, or its defaults; a table of its own says all of it but when it acts."""
    if isinstance(said, Sharing):
        return said
    if isinstance(said, str):
        return tables.get(said, {"mode": said})
    return ({"every": epochs} if rhythm(said["mode"]) > epochs else {}) | dict(said)


def bank_of(settings: Settings, data: Path | None = None) -> datasets.Bank:
    """The data of a fleet, from a folder if one is said."""
    return backbones.bank_of(settings, data)


def rhythm(mode: str) -> int:
    """The usual epochs between exchanges of a mode."""
    try:
        every = mode_of({"mode": mode}, {}).every
    except SettingsError:  # it is said where the mode is asked for
        return 0
    return 1 if every == "task" else every


def common(settings: Settings) -> dict[str, Any]:
    """What candidates must have in common for their differences to come from what they share."""
    parts = settings.model_dump(mode="json", include={"tasks", "net", "learner", "kinds"})
    return parts | problem(settings.model_dump())


def named(said: str | Iterable[Said]) -> dict[str, list[Said]]:
    """The modes of the candidates that the user names, `recv,recv+modmod` or modes with settings, in
    Python. Where several have the same mode, their settings tell them apart."""
    if isinstance(said, Mapping | Sharing):
        said = [said]
    every: list[list[Said]] = []
    for one in said.split(",") if isinstance(said, str) else said:
        if isinstance(one, Sharing) or (isinstance(one, Mapping) and isinstance(one.get("mode"), str)):
            every.append([one])
        elif isinstance(one, str) and all(word.strip() for word in one.split("+")):
            every.append([word.strip() for word in one.split("+")])
        else:
            raise SettingsError(
                f"cannot read the candidate {one!r}; candidates look like recv,simp,recv+modmod, in Python also like "
                '[{"mode": "simp", "images": 10}]'
            )
    often = Counter(name_of(one) for (one, *rest) in every if not rest)
    found: dict[str, list[Said]] = {}
    for modes in every:
        first = modes[0]
        told = not isinstance(first, str) and often[name_of(first)] > 1
        name = full(first) if told else "+".join(map(name_of, modes))
        if name != NONE:
            found[name] = modes
    if not found:
        raise SettingsError("there is no candidate; name some, e.g. recv,simp,recv+modmod, or none for all that suit")
    return found


WORDS = {"images": "rows"}  # settings that mean any rows, as they are said


def full(mode: Said, known: Said = "") -> str:
    """A mode with the settings that were said of it, but for those that are known."""
    if isinstance(mode, str):
        return mode
    said = {name: getattr(mode, name) for name in mode.model_fields_set} if isinstance(mode, Sharing) else mode
    there = known if isinstance(known, Mapping) else {}
    own = [f"{WORDS.get(name, name)}={value}" for name, value in said.items() if name != "mode" and name not in there]
    return f"{name_of(mode)} ({', '.join(sorted(own))})" if own else name_of(mode)


def name_of(mode: Said) -> str:
    """What a candidate's mode is called."""
    return mode if isinstance(mode, str) else mode.door if isinstance(mode, Sharing) else str(mode["mode"])


def usual() -> dict[str, list[str]]:
    """All modes there are, and hybrids of those that share different things: images, modules, and models (of modes that
    average models, the first)."""
    made: dict[str, Sharing] = {}
    for name in MODES:
        try:
            made[name] = mode_of({"mode": name}, {})
        except SettingsError:  # it needs settings that only its user knows
            continue
    images = [name for name, mode in made.items() if mode.room]
    modules = [name for name, mode in made.items() if mode.offers]
    models = [name for name, mode in made.items() if isinstance(mode, Federated)][:1]
    joined = [*product(images, modules), *product(images, models), *product(modules, models)]
    return {"+".join(one): [*one] for one in [*((name,) for name in made), *joined, *product(images, modules, models)]}


def priced(settings: Settings, bank: datasets.Bank) -> float:
    """The bytes that a link carries in a task, at most, where it carries most; limits are those of the settings."""
    prices: Counter[Any] = Counter()
    for line in plan(worlds(with_seeds(settings, 0, 1), bank)):
        prices[line.edges] += line.total_bytes / line.tasks  # type: ignore[assignment]
    if not prices:
        raise SettingsError(f"no edge of network.graph = {settings.network.graph!r} carries it")
    return float(max(prices.values()))


def with_seeds(settings: Settings, first: int, count: int) -> Settings:
    """The same run with other seeds: `first` is counted from the settings' own."""
    return settings.model_copy(update={"seed": settings.seed + first, "seeds": count})
