"""What agents could share, and what it costs: who may race for a budget."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from shoal import data as datasets
from shoal.errors import SettingsError
from shoal.fleet.size import affordable
from shoal.fleet.world import worlds
from shoal.settings.completing import listing, mode_of, name_of
from shoal.settings.groups import Settings
from shoal.sharing.contract import Sharing
from shoal.sharing.federated import Federated
from shoal.sharing.modes import MODES
from shoal.sharing.plan import plan
from shoal.study.paired import problem
from shoal.study.race import NONE


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


def field_of(
    raw: dict[str, Any],
    said: str | Iterable[str | Sharing] | None,
    limit: int | None,
    data: Path | None = None,
    yes: bool = False,
) -> Field:
    """All candidates with their prices, those within the limit and those over it; no sharing is the base.

    A mode that the settings describe races as they describe it, others with their defaults; one that would act less
    than once in a task then acts once.
    """
    tables: dict[str, dict[str, Any] | Sharing] = {name_of(mode): mode for mode in listing(raw.get("sharing", ()))}
    base = Candidate(NONE, Settings(**{**raw, "sharing": ()}))
    where = data or (Path(base.settings.machine.data) if base.settings.machine.data else None)
    bank = datasets.load(base.settings.dataset, where)
    if not yes:
        affordable(with_seeds(base.settings, 0, 1), bank)
    worlds(with_seeds(base.settings, 0, 1), bank)  # says what is wrong with the fleet, whatever it shares
    wanted = usual() if said is None else named(said, tables)
    epochs = base.settings.learner.epochs
    usual_ones = dict.fromkeys(one for modes in wanted.values() for one in modes if one not in tables)
    sooner = tuple(one for one in usual_ones if rhythm(one) > epochs)
    tables |= {one: {"mode": one, "every": epochs} for one in sooner}
    found = Field(base, [], [], {}, sooner)
    for name, modes in wanted.items():
        try:
            settings = Settings(**{**raw, "sharing": [tables.get(one, {"mode": one}) for one in modes]})
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
        (found.within if limit is None or price <= limit else found.over).append(Candidate(name, settings, price))
    return found


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


def named(said: str | Iterable[str | Sharing], tables: dict[str, dict[str, Any] | Sharing]) -> dict[str, list[str]]:
    """The modes of the candidates that the user names, `recv,recv+modmod`; those made in Python go to the tables."""
    found: dict[str, list[str]] = {}
    for one in said.split(",") if isinstance(said, str) else said:
        if isinstance(one, Sharing):
            tables[one.door] = one
            modes = [one.door]
        elif isinstance(one, str) and all(word.strip() for word in one.split("+")):
            modes = [word.strip() for word in one.split("+")]
        else:
            raise SettingsError(f"cannot read the candidate {one!r}; candidates look like recv,simp,recv+modmod")
        if modes != [NONE]:
            found["+".join(modes)] = modes
    if not found:
        raise SettingsError("there is no candidate; name some, e.g. recv,simp,recv+modmod, or none for all that suit")
    return found


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
