"""What should agents share for a budget? Candidates race over seeds, and the answer says no more than the seeds show.

What costs more than the budget has a smaller dose, or is left out if none fits. The others meet the same seeds, which
mean the same tasks and the same first weights for all: all candidates some seeds, the better half more, and so on
(successive halving), ranked by validation rows. What is best there is measured on the test rows of other seeds, and it
is shown to help if it beats no sharing there in a paired t-test: neither its figure nor its interval owes anything to
the choice. Runs are cells, blocks of seeds: those that are finished are found again.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from shoal.configure.reading import not_taken, said
from shoal.errors import SettingsError, UserError
from shoal.files import save
from shoal.letters.mail import UNSENT
from shoal.report import needs
from shoal.runs.checked import table_of
from shoal.runs.paired import Gain, Scores
from shoal.runs.record import reopen
from shoal.settings.groups import Settings
from shoal.study.answer import level, sentence
from shoal.study.candidates import Candidate, Field, Said, bank_of, field_of, with_seeds
from shoal.study.cells import Row, effort, finish, missing, scores, validations, write_csv
from shoal.study.fit import changed, fitted
from shoal.study.race import CHOICE, EFFECT, FIRST, NONE, SCORE, Measure, Race, answered
from shoal.study.winners import Winners, winners
from shoal.units import limit as limit_of

if TYPE_CHECKING:
    import altair as alt


class Fleet(Protocol):
    """Whatever has settings."""

    @property
    def settings(self) -> Settings: ...


Train = Callable[[Sequence["Block"], Path], None]


@dataclass(frozen=True)
class Block:
    """A cell: some seeds of a candidate."""

    candidate: str
    settings: Settings

    @property
    def name(self) -> str:
        first, count = self.settings.seed, self.settings.seeds
        return re.sub(r"[^\w.+]+", "-", f"{self.candidate}-seeds-{first}-{first + count - 1}")


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
    spent: int  # epochs of lanes that it took, counted as `shoal.study.cells.effort` does
    whole: int  # that all candidates would have taken with all seeds
    changes: tuple[str, ...] = ()  # of the settings, without which agents alone are not fitted
    sites: tuple[
        Row, ...
    ] = ()  # what the best brings to each site on test rows, the most first, where sites have names
    notes: tuple[str, ...] = ()  # what data of one's own means, and what looks wrong with it

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__

    @property
    def table(self) -> pl.DataFrame:
        """A row per candidate, the best first: what it costs, what it brings, and how sure that is."""
        return pl.DataFrame(list(self.rows), infer_schema_length=None)

    def chart(self) -> "alt.LayerChart":
        """A line for each candidate: its accuracy, its bytes per link and task, and what is over the budget."""
        from shoal.report.advice import chart

        return chart(self.rows)

    def content(self) -> dict[str, Any]:
        """All of it, as JSON can say it."""
        numbers: dict[str, Any] = {
            "pick": self.pick,
            "budget": self.budget,
            "lane_epochs": self.spent,
            "of_lane_epochs": self.whole,
        }
        numbers |= {"changes": list(self.changes), "notes": list(self.notes)}
        return {"sentence": self.sentence, **numbers, "candidates": list(self.rows), "sites": list(self.sites)}

    def write(self, folder: Path) -> list[Path]:
        """Put it into a folder: advise.txt, .json and .csv, and the chart, if what draws it is installed."""
        texts = {"txt": "\n".join([self.sentence, *self.notes]), "json": json.dumps(self.content(), indent=2)}
        written = [write_csv(folder / "advise.csv", self.rows)]
        for ending, text in texts.items():
            written.append(save(folder / f"advise.{ending}", f"{text}\n", "give --out another place"))
        try:
            needs()
        except UserError:  # it is an extra
            return written
        from shoal.report.advice import draw

        return written + draw(self.rows, self.sentence, folder)


def advise(
    fleet: Fleet | Settings | Path | str,
    budget: str | None = None,
    candidates: str | Iterable[Said] | None = None,
    seeds: int = 8,
    out: Path | str | None = None,
    words: Sequence[str] = (),
    data: Path | None = None,
    train: Train | None = None,
    yes: bool = False,
    effect: float = EFFECT,
    fit: bool = True,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Advice:
    """Say what the agents of a fleet should share, if a link may carry so much in a task.

    `fleet` is a fleet, its settings, a settings file or the name of an experiment (`words` like `agents=4` win over
    those); `budget` an amount such as `"20 kB/task"`, per link; `candidates` are modes, joined by `+` for hybrids: all
    that suit the fleet, if none are named; one with settings is a table, `{"mode": "simp", "images": 10}`. Of at most
    so many `seeds`, half choose by validation rows, and the others measure what was chosen on test rows; a gain below
    `effect` points is of no interest to you. First it looks whether agents alone are fitted, and if a plain change of
    their settings makes them better, compares sharing with that; without `fit` it takes them as they are. Runs are kept
    in `out` and found again, so that the same call goes on where it was stopped. A fleet that is too large for this
    machine is an error, unless `yes`. What data of one's own means, and what looks wrong with it, is told before
    anything runs (`tell`), and is among the `notes` of the advice.

    >>> advice = shoal.advise("digits", budget="20 kB/task", seeds=2)  # doctest: +SKIP
    >>> advice.table  # doctest: +SKIP
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < FIRST:
        raise SettingsError(f"seeds cannot be {seeds!r}; at least {FIRST} are needed to see how much seeds differ")
    limit = None if budget is None else allowance(budget)
    raw, name = described(fleet, words)
    folder = Path(out) if out is not None else Path("runs") / f"advise-{name}"
    field = field_of(raw, candidates, limit, data, yes)
    notes = (not_taken(fleet, words) if isinstance(fleet, str | Path) else "", *field.notes)
    notes = tuple(note for note in notes if note)
    for note in notes:
        tell(note)
    trains = train or partial(trained, data=data, yes=yes)
    found = None
    if fit and field.within and not field.base.settings.kinds:
        bank = bank_of(field.base.settings, data)

        def measure_of(racers: dict[str, Candidate]) -> Measure:
            return partial(measured, racers, folder, trains)

        found = fitted(field.base, bank, max(1, seeds // 2), effect, measure_of)
        if found.changes:
            better = changed(field.base.settings, found.changes)
            raw = {**raw, "net": better.net, "learner": better.learner}
            field = field_of(raw, candidates, limit, data, yes)
    racers = {one.name: one for one in [field.base, *field.within]}
    measure = partial(measured, racers, folder, trains)
    ended = answered([one.name for one in field.within], seeds, measure) if field.within else None
    crossed = sent(racers, folder) if ended else {}
    known = ended.scores if ended else {}
    who = gainers(ended, racers, folder, field.sites)
    said = sentence(field, ended, limit, crossed, effect, who.said())
    if found is not None and found.good and ended is not None and ended.pick is None:
        said = f"Learning alone is good here, so that sharing nothing is enough. {said}"
    advice = Advice(
        said if found is None else f"{found.said()} {said}",
        ended.pick if ended else None,
        tuple(rows_of(field, ended, crossed)),
        limit,
        sum(load(racers[name], len(own)) for name, own in known.items()),
        sum(load(one, seeds) for one in [field.base, *field.within, *field.over]),
        tuple(found.words.split()) if found is not None else (),
        tuple(one.row() for one in who.sites),
        notes,
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
        return said(Path(fleet), words), folder_name(Path(fleet).stem)
    settings = fleet if isinstance(fleet, Settings) else getattr(fleet, "settings", None)
    if not isinstance(settings, Settings):
        raise SettingsError(f"cannot advise {fleet!r}; give a fleet, its settings, or a settings file")
    if words:
        raise SettingsError(f"`{words[0]}` can be said of a settings file only; change the settings themselves")
    raw = {name: getattr(settings, name) for name in Settings.model_fields}
    return raw, folder_name(settings.dataset)


def folder_name(name: str) -> str:
    """A name that every system takes for a folder's: of `csv:rows` the colon would not do."""
    return re.sub(r"[^\w.+]+", "-", name)[-40:]


def load(one: Candidate, seeds: int) -> int:
    """How long so many seeds of a candidate take, in epochs of lanes."""
    return effort(Block(one.name, with_seeds(one.settings, 0, seeds)))


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
            chosen_by = validations(place)
            own |= {seed: one | {CHOICE: chosen_by[seed]} for seed, one in scores(place).items()}
        found[name] = {seed: own[seed] for seed in seeds if seed in own}  # agents of a seed may all have diverged
    return found


def runs_of(racers: Mapping[str, Candidate], folder: Path) -> dict[str, dict[int, Path]]:
    """Where each seed of each candidate is, if it is finished: a lane's numbers do not depend on who else is in its
    stack, so that seeds of several runs with the same settings are as good as one run."""
    names = {alike(one.settings): name for name, one in racers.items()}
    found: dict[str, dict[int, Path]] = {name: {} for name in racers}
    for place in sorted(one.parent for one in folder.glob("*/summary.json")):
        settings = reopen(place, own=next(iter(racers.values())).settings).settings
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


def gainers(ended: Race | None, racers: Mapping[str, Candidate], folder: Path, sites: Sequence[str]) -> Winners:
    """Who gains and who loses by the best, in the seeds that did not choose it."""
    if ended is None or ended.verdict.best is None:
        return Winners((), ())
    there = runs_of(racers, folder)
    return winners(there[ended.verdict.best], there[NONE], ended.fresh, sites)


def rows_of(field: Field, ended: Race | None, sent: Mapping[str, float]) -> list[Row]:
    """A row per candidate: those that raced and no sharing, the best first, then those over the budget. Gains, their
    intervals and p-values are those by which it was chosen, on validation rows, corrected for the number of candidates
    and of looks; what begins with `test_` was measured afterwards, of one."""
    known = ended.scores if ended else {}
    gains = ended.verdict.gains if ended else {}
    base = level(known)
    rows: list[Row] = []
    for one in [field.base, *field.within, *field.over]:
        gain = Gain(0.0, None, len(known.get(NONE, ()))) if one.name == NONE and ended else gains.get(one.name)
        inside, p = gain.among(ended.verdict.tests) if gain and ended else (None, None)
        test = ended.measured if ended and one.name == ended.verdict.best else None
        final = ended.level if ended and one.name == NONE else None
        rows.append(
            {
                "rank": None,
                "candidate": one.name,
                "over_budget": one in field.over,
                "price": one.price,
                "sent": 0.0 if one.name == NONE else sent.get(one.name),
                "seeds": len(known.get(one.name, ())),
                CHOICE: base + gain.mean if gain else None,
                "gain": gain.mean if gain else None,
                "gain_low": inside[0] if inside else None,
                "gain_high": inside[1] if inside else None,
                "p": p,
                "p_against_best": ended.verdict.doubts.get(one.name) if ended else None,
                SCORE: ended.level + test.mean if test and ended and ended.level is not None else final,
                "test_gain": test.mean if test else None,
                "test_low": test.interval[0] if test and test.interval else None,
                "test_high": test.interval[1] if test and test.interval else None,
                "test_p": test.p if test else None,
                "test_seeds": test.seeds if test else None,
            }
        )
    rows.sort(key=lambda row: (row["over_budget"], -(row["gain"] or 0.0) if row["gain"] is not None else row["price"]))
    for rank, row in enumerate(row for row in rows if row["gain"] is not None):
        row["rank"] = rank + 1
    return rows
