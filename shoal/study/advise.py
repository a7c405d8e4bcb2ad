"""What should agents share for a budget? Candidates race over seeds, and the answer says no more than the seeds show.

What costs more than the budget is left out before anything runs. The others meet the same seeds, which mean the same
tasks and the same first weights for all: all candidates some seeds, the better half more, and so on (successive
halving). A candidate is shown to help if it beats no sharing in a paired t-test whose p-value is corrected for the
number of candidates and of looks at the data. Runs are cells, blocks of seeds: those that are finished are found again.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import ceil, comb, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import polars as pl

from shoal import data as datasets
from shoal.errors import SettingsError, UserError
from shoal.files import save
from shoal.fleet.size import affordable
from shoal.fleet.world import worlds
from shoal.mail.mail import UNSENT
from shoal.report import needs
from shoal.report.read import table_of
from shoal.runs.cells import Row, effort, finish, missing, scores, write_csv
from shoal.runs.record import reopen
from shoal.settings.completing import listing, mode_of, name_of
from shoal.settings.groups import Settings
from shoal.settings.reading import override, parsed
from shoal.sharing.contract import Sharing
from shoal.sharing.federated import Federated
from shoal.sharing.modes import MODES
from shoal.sharing.plan import plan
from shoal.study.paired import SURE, Gain, Scores, holm, paired, problem
from shoal.study.power import MOST, needed
from shoal.units import limit as limit_of
from shoal.units import shown

if TYPE_CHECKING:
    import altair as alt

K = TypeVar("K")
NONE = "none"
SCORE = "final_accuracy"
FIRST = 2  # seeds of the first look: with one there is no spread
LAST = 2  # candidates that go on to the end, so that the best can be told from the second
NAMED = 4  # candidates that a sentence names before it counts the rest


class Fleet(Protocol):
    """Whatever has settings."""

    @property
    def settings(self) -> Settings: ...


Train = Callable[[Sequence["Block"], Path], None]
Measure = Callable[[Sequence[str], int], Mapping[str, Scores]]  # of some candidates, the first so many seeds


@dataclass(frozen=True)
class Candidate:
    """Something that agents could share, and what it costs."""

    name: str
    settings: Settings
    price: float = 0.0  # bytes per link and task, at most


@dataclass(frozen=True)
class Block:
    """A cell: some seeds of a candidate."""

    candidate: str
    settings: Settings

    @property
    def name(self) -> str:
        first, count = self.settings.seed, self.settings.seeds
        return re.sub(r"[^\w.+]+", "-", f"{self.candidate}-seeds-{first}-{first + count - 1}")


class Field(NamedTuple):
    """Who could race."""

    base: Candidate
    within: list[Candidate]
    over: list[Candidate]  # the budget
    unfit: dict[str, str]  # why this fleet cannot share so
    sooner: tuple[str, ...] = ()  # modes whose usual time between exchanges is longer than a task


class Verdict(NamedTuple):
    """What the seeds show."""

    pick: str | None  # the best of those that are shown to help
    best: str | None  # the pick, or else the best so far
    gains: dict[str, Gain]  # over no sharing, the best first
    chances: dict[str, float]  # their p-values, corrected
    leads: dict[str, Gain]  # of the best over each other one
    doubts: dict[str, float]  # the p-values of the leads, corrected for all pairs


class Race(NamedTuple):
    """A race that has ended."""

    scores: dict[str, Scores]
    verdict: Verdict
    looks: int  # at most
    racing: list[str]  # those that went on to the end


@dataclass(frozen=True, repr=False)
class Advice:
    """What to share: a sentence, a table and a chart.

    >>> advice = shoal.advise("digits", budget="20 kB/task")  # doctest: +SKIP
    >>> print(advice)  # doctest: +SKIP
    Within 20 kB per link and task: simp, 89.3 % (+5.2 ± 1.1 over no sharing, 5.0 kB). ...
    """

    sentence: str
    pick: str | None  # what to share; None: nothing
    rows: tuple[Row, ...]
    budget: int | None  # bytes per link and task
    spent: int  # epochs of lanes that it took, counted as `shoal.runs.cells.effort` does
    whole: int  # that all candidates would have taken with all seeds

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__

    @property
    def table(self) -> pl.DataFrame:
        """A row per candidate, the best first: what it costs, what it brings, and how sure that is."""
        return pl.DataFrame(list(self.rows), infer_schema_length=None)

    def chart(self) -> "alt.LayerChart":
        """Accuracy against bytes per link and task, with the budget and what is over it."""
        from shoal.report.advice import chart

        return chart(self.rows, self.budget)

    def content(self) -> dict[str, Any]:
        """All of it, as JSON can say it."""
        numbers = {"pick": self.pick, "budget": self.budget, "lane_epochs": self.spent, "of_lane_epochs": self.whole}
        return {"sentence": self.sentence, **numbers, "candidates": list(self.rows)}

    def write(self, folder: Path) -> list[Path]:
        """Put it into a folder: advise.txt, .json and .csv, and the chart, if what draws it is installed."""
        texts = {"txt": self.sentence, "json": json.dumps(self.content(), indent=2)}
        written = [write_csv(folder / "advise.csv", self.rows)]
        for ending, text in texts.items():
            written.append(save(folder / f"advise.{ending}", f"{text}\n", "give --out another place"))
        try:
            needs()
        except UserError:  # it is an extra
            return written
        from shoal.report.advice import draw

        return written + draw(self.rows, self.budget, self.sentence, folder)


def advise(
    fleet: Fleet | Settings | Path | str,
    budget: str | None = None,
    candidates: str | Iterable[str | Sharing] | None = None,
    seeds: int = 8,
    out: Path | str | None = None,
    words: Sequence[str] = (),
    data: Path | None = None,
    train: Train | None = None,
    yes: bool = False,
) -> Advice:
    """Say what the agents of a fleet should share, if a link may carry so much in a task.

    `fleet` is a fleet, its settings, a settings file or the name of an experiment (`words` like `agents=4` win over
    those); `budget` an amount such as `"20 kB/task"`, per link; `candidates` are modes, joined by `+` for hybrids: all
    that suit the fleet, if none are named. At most so many `seeds` are used, and fewer if the answer is sure before.
    Runs are kept in `out` and found again, so that the same call goes on where it was stopped. A fleet that is too
    large for this machine is an error, unless `yes`.

    >>> advice = shoal.advise("digits", budget="20 kB/task", seeds=2)  # doctest: +SKIP
    >>> advice.table  # doctest: +SKIP
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < FIRST:
        raise SettingsError(f"seeds cannot be {seeds!r}; at least {FIRST} are needed to see how much seeds differ")
    limit = None if budget is None else allowance(budget)
    raw, name = described(fleet, words)
    folder = Path(out) if out is not None else Path("runs") / f"advise-{name}"
    field = field_of(raw, candidates, limit, data, yes)
    racers = {one.name: one for one in [field.base, *field.within]}
    measure = partial(measured, racers, folder, train or partial(trained, data=data, yes=yes))
    ended = race([one.name for one in field.within], seeds, measure) if field.within else None
    crossed = sent(racers, folder) if ended else {}
    known = ended.scores if ended else {}
    advice = Advice(
        sentence(field, ended, limit, crossed),
        ended.verdict.pick if ended else None,
        tuple(rows_of(field, ended, crossed)),
        limit,
        sum(load(racers[name], len(own)) for name, own in known.items()),
        sum(load(one, seeds) for one in [field.base, *field.within, *field.over]),
    )
    advice.write(folder)
    return advice


def allowance(said: str) -> int:
    """The bytes of a budget per link and task, such as `20 kB/task`."""
    most = limit_of(said)
    if most is None or (most.unit, most.per) != ("bytes", "task"):
        raise SettingsError(
            f"the budget {said!r} does not say how many bytes a link may carry in a task; say it like 20 kB/task"
        )
    return most.amount


def described(fleet: Fleet | Settings | Path | str, words: Sequence[str]) -> tuple[dict[str, Any], str]:
    """What is said of a fleet, and a name for it."""
    if isinstance(fleet, (str, Path)):
        return override(parsed(Path(fleet)), words), Path(fleet).stem
    settings = fleet if isinstance(fleet, Settings) else getattr(fleet, "settings", None)
    if not isinstance(settings, Settings):
        raise SettingsError(f"cannot advise {fleet!r}; give a fleet, its settings, or a settings file")
    if words:
        raise SettingsError(f"`{words[0]}` can be said of a settings file only; change the settings themselves")
    raw = {name: getattr(settings, name) for name in Settings.model_fields}
    return raw, re.sub(r"[^\w.+]+", "-", settings.dataset)[-40:]


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


def load(one: Candidate, seeds: int) -> int:
    """How long so many seeds of a candidate take, in epochs of lanes."""
    return effort(Block(one.name, with_seeds(one.settings, 0, seeds)))


def race(names: Sequence[str], seeds: int, measure: Measure) -> Race:
    """Successive halving: all candidates have some seeds, the better half twice as many, and so on.

    It ends when all seeds are used, or one is shown to beat no sharing and all that are still in the race. Who was left
    behind comes back if the others fall behind it.
    """
    marks = [FIRST]
    while marks[-1] < seeds:
        marks.append(min(seeds, 2 * marks[-1]))
    known: dict[str, Scores] = {}
    for at, mark in enumerate(marks):
        places = min(len(names), max(LAST, ceil(len(names) / 2**at)))
        racing = list(judge(known, len(marks)).gains)[:places] if at else list(names)
        while behind := [name for name in [NONE, *racing] if len(known.get(name, ())) < mark]:
            known |= measure(behind, mark)
            if at:
                racing = list(judge(known, len(marks)).gains)[:places]
        verdict = judge(known, len(marks))
        if verdict.pick and all(verdict.doubts[name] < SURE for name in racing if name != verdict.pick):
            break
    return Race(known, verdict, len(marks), racing)


def judge(known: Mapping[str, Scores], looks: int) -> Verdict:
    """What scores show, if they are looked at so often: whatever stops the race, one in twenty races of candidates that
    bring nothing ends in a pick, at most."""
    found = {name: paired(own, known[NONE], SCORE) for name, own in known.items() if name != NONE}
    ordered = sorted(((name, gain) for name, gain in found.items() if gain), key=lambda one: -one[1].mean)
    gains = dict(ordered)
    chances = corrected(gains, looks)
    helps = [name for name, gain in gains.items() if gain.mean > 0 and chances[name] < SURE]
    best = helps[0] if helps else next(iter(gains), None)
    # The scores say who is best, so that any two could have been compared: all pairs are corrected for.
    couples = {frozenset(two): paired(known[two[0]], known[two[1]], SCORE) for two in combinations(gains, 2)}
    sure = corrected({two: gap for two, gap in couples.items() if gap}, looks)
    leads: dict[str, Gain] = {}
    doubts: dict[str, float] = {}
    for name in gains:
        if best is not None and name != best and (lead := paired(known[best], known[name], SCORE)):
            p = sure[frozenset((best, name))]
            # A lead below zero is none: the other one has not been shown to help, and may yet be.
            leads[name], doubts[name] = lead, p if lead.mean > 0 else max(p, SURE)
    return Verdict(helps[0] if helps else None, best, gains, chances, leads, doubts)


def corrected(gains: Mapping[K, Gain], looks: int) -> dict[K, float]:
    """p-values of paired t-tests, corrected for how many there are and how often one looks."""
    return dict(zip(gains, holm([1.0 if one.p is None else one.p for one in gains.values()], looks), strict=True))


def measured(
    racers: Mapping[str, Candidate], folder: Path, train: Train, names: Sequence[str], count: int
) -> dict[str, Scores]:
    """The scores of some candidates with their first seeds; what is not on disk is trained."""
    wanted = {name: [racers[name].settings.seed + at for at in range(count)] for name in names}
    there = runs_of(racers, folder)
    blocks = []
    for name, seeds in wanted.items():
        for first, length in spans([seed for seed in seeds if seed not in there[name]]):
            settings = racers[name].settings.model_copy(update={"seed": first, "seeds": length})
            blocks.append(Block(name, settings))
    if blocks:
        train(blocks, folder)
        there = runs_of(racers, folder)
    found: dict[str, Scores] = {}
    for name, seeds in wanted.items():
        own: Scores = {}
        for place in {there[name][seed] for seed in seeds}:
            own |= scores(place)
        found[name] = {seed: own[seed] for seed in seeds if seed in own}  # agents of a seed may all have diverged
    return found


def runs_of(racers: Mapping[str, Candidate], folder: Path) -> dict[str, dict[int, Path]]:
    """Where each seed of each candidate is, if it is finished: a lane's numbers do not depend on who else is in its
    stack, so that seeds of several runs with the same settings are as good as one run."""
    names = {alike(one.settings): name for name, one in racers.items()}
    found: dict[str, dict[int, Path]] = {name: {} for name in racers}
    for place in sorted(one.parent for one in folder.glob("*/summary.json")):
        settings = reopen(place).settings
        if name := names.get(alike(settings)):
            found[name] |= dict.fromkeys(range(settings.seed, settings.seed + settings.seeds), place)
    return found


def alike(settings: Settings) -> str:
    """What runs have in common that differ in their seeds alone."""
    return settings.model_copy(update={"seed": 0, "seeds": 1}).identity()


def spans(seeds: Sequence[int]) -> list[tuple[int, int]]:
    """Seeds that follow each other, as first and number."""
    found: list[tuple[int, int]] = []
    for seed in seeds:
        if found and seed == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((seed, 1))
    return found


def trained(blocks: Sequence[Block], folder: Path, data: Path | None = None, yes: bool = False) -> None:
    """Train blocks to their end, one after the other."""
    for block in missing(blocks, folder):
        finish(block, folder, data, yes=yes)


def sent(racers: Mapping[str, Candidate], folder: Path) -> dict[str, float]:
    """The bytes that a link really carried in a task, of the candidates that share."""
    found = {}
    for name, places in runs_of(racers, folder).items():
        if name == NONE or not places:
            continue
        ledgers = pl.concat([table_of(place, "ledger") for place in sorted(set(places.values()))])
        uses = ledgers.select("seed", "sender", "receiver", "task").n_unique()
        crossed = ledgers.filter(~pl.col("verdict").is_in(UNSENT))["bytes"].to_numpy().sum()
        found[name] = float(crossed) / uses if uses else 0.0
    return found


def rows_of(field: Field, ended: Race | None, sent: Mapping[str, float]) -> list[Row]:
    """A row per candidate: those that raced and no sharing, the best first, then those over the budget."""
    known = ended.scores if ended else {}
    gains = ended.verdict.gains if ended else {}
    base = level(known)
    rows: list[Row] = []
    for one in [field.base, *field.within, *field.over]:
        gain = Gain(0.0, None, len(known.get(NONE, ()))) if one.name == NONE and ended else gains.get(one.name)
        inside = gain.interval if gain else None
        rows.append(
            {
                "rank": None,
                "candidate": one.name,
                "over_budget": one in field.over,
                "price": one.price,
                "sent": 0.0 if one.name == NONE else sent.get(one.name),
                "seeds": len(known.get(one.name, ())),
                SCORE: base + gain.mean if gain else None,
                "gain": gain.mean if gain else None,
                "gain_low": inside[0] if inside else None,
                "gain_high": inside[1] if inside else None,
                "p": ended.verdict.chances.get(one.name) if ended else None,
                "p_against_best": ended.verdict.doubts.get(one.name) if ended else None,
            }
        )
    rows.sort(key=lambda row: (row["over_budget"], -(row["gain"] or 0.0) if row["gain"] is not None else row["price"]))
    for rank, row in enumerate(row for row in rows if row["gain"] is not None):
        row["rank"] = rank + 1
    return rows


def level(known: Mapping[str, Scores]) -> float:
    """The mean score of no sharing."""
    own = [one[SCORE] for one in known.get(NONE, {}).values()]
    return sum(own) / len(own) if own else 0.0


def sentence(field: Field, ended: Race | None, limit: int | None, sent: Mapping[str, float]) -> str:
    """The answer, and no more than the seeds show."""
    within = "without a limit" if limit is None else f"within {shown(limit)} per link and task"
    over = sorted(field.over, key=lambda one: one.price)
    priced = [f"{one.name} {shown(one.price)}" for one in over]
    if ended is None:
        why = [f"; {name} cannot, because {why.partition('; ')[0]}" for name, why in field.unfit.items()]
        cheapest = (
            f"; the cheapest is {priced[0]}, so raise the budget, or lower its price" if priced else "".join(why[:1])
        )
        return f"Nothing can be shared {within}; share nothing{cheapest}."
    verdict, best = ended.verdict, ended.verdict.best
    assert best is not None
    gain = verdict.gains[best]
    cost = shown(sent.get(best, 0.0))
    reach = "" if gain.interval is None else f" ± {gain.interval[1] - gain.mean:.1f}"
    won = f"{best}, {level(ended.scores) + gain.mean:.1f} % ({gain.mean:+.1f}{reach} over no sharing, {cost})"
    tests = ended.looks * len(verdict.gains)
    parts = []
    if verdict.pick:
        parts.append(f"{within[0].upper()}{within[1:]}: {won}.")
        parts += rivalry(ended)
    else:
        parts.append(f"Nothing is shown to help {within}; share nothing.")
        more = f": {seeds_more(gain, tests)} would decide" if gain.mean > 0 else ", no better than no sharing so far"
        parts.append(f"The best so far is {won[:-1]}, p = {verdict.chances[best]:.2g}){more}.")
    if priced:
        parts.append(f"Over budget: {some(priced)}.")
    if raced := [one for one in field.sooner if one in verdict.gains]:
        every = field.base.settings.learner.epochs
        parts.append(f"Once in a task (every = {every}, the epochs of a task), not as rarely as usual: {some(raced)}.")
    count = len(verdict.gains)
    looks = f" and {ended.looks} looks" * (ended.looks > 1)
    parts.append(
        f"(± is the 95 % interval over {gain.seeds} seeds; p of paired t-tests, corrected by Holm's rule for {count} "
        f"candidate{'s' * (count > 1)}{looks}.)"
    )
    return " ".join(parts)


def rivalry(ended: Race) -> list[str]:
    """How sure it is that the pick is better than the others."""
    verdict = ended.verdict
    doubtful = [name for name in verdict.gains if verdict.doubts.get(name, 0.0) >= SURE]
    beaten = len(verdict.leads) - len(doubtful)
    parts = []
    if doubtful:
        tests = ended.looks * comb(len(verdict.gains), 2)
        told = [
            f"{name} (p = {verdict.doubts[name]:.2g}): {seeds_more(verdict.leads[name], tests)} would decide"
            for name in doubtful
        ]
        parts.append(f"Not yet certain against {some(told, '; ')}.")
    if beaten:
        others = "other" if beaten > 1 or doubtful else "only other"
        parts.append(f"Better than {beaten} {others} candidate{'s' * (beaten > 1)}.")
    return parts


def seeds_more(gain: Gain, tests: int) -> str:
    """How many more seeds would show a gain of this size and spread, among so many tests."""
    if gain.error is None:
        return "more seeds"
    wanted = needed(abs(gain.mean), gain.error * sqrt(gain.seeds), SURE / tests)
    if wanted is None:
        return f"not even {MOST:,} seeds"
    more = max(1, wanted - gain.seeds)
    return f"{more:,} more seed{'s' * (more > 1)}"


def some(words: Sequence[str], mark: str = ", ") -> str:
    """Words in a row; of many, the first."""
    rest = len(words) - NAMED
    return mark.join(words) if rest <= 1 else f"{mark.join(words[:NAMED])} and {rest} others"
