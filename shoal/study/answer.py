"""The answer to what agents should share, in sentences that say no more than the seeds show."""

from collections.abc import Mapping
from math import sqrt

from shoal.runs.paired import SURE, Gain, Scores
from shoal.study.candidates import Field
from shoal.study.power import MOST, needed
from shoal.study.race import CHOICE, EFFECT, NONE, Race
from shoal.units import plural, shown, some

NAMED = 4  # candidates that a sentence names before it counts the rest


def level(known: Mapping[str, Scores], score: str = CHOICE) -> float:
    """The mean score of no sharing."""
    own = [one[score] for one in known.get(NONE, {}).values()]
    return sum(own) / len(own) if own else 0.0


def sentence(
    field: Field,
    ended: Race | None,
    limit: int | None,
    sent: Mapping[str, float],
    effect: float = EFFECT,
    who: str = "",
) -> str:
    """The answer, and no more than the seeds show; gains below `effect` are of no interest. `who` gains and loses is
    said where there is an answer."""
    within = "without a limit" if limit is None else f"within {shown(limit)} per link and task"
    over = sorted(field.over, key=lambda one: one.price)
    priced = [f"{one.name} {shown(one.price)}" for one in over]
    if ended is None:
        why = [f"; {name} cannot, because {why.partition('; ')[0]}" for name, why in field.unfit.items()]
        cheapest = (
            f"; the cheapest is {priced[0]}, so raise the budget, or lower its price" if priced else "".join(why[:1])
        )
        return f"Nothing can be shared {within}; share nothing{cheapest}."
    verdict, best, gain = ended.verdict, ended.verdict.best, ended.measured
    count = len(verdict.gains)
    if best is None or gain is None or ended.level is None:
        return f"Nothing is shown to help {within}; share nothing. No candidate could be measured; use more seeds."
    reach = "" if gain.interval is None else f" ± {gain.interval[1] - gain.mean:.1f}"
    sure = "" if gain.p is None else f", p = {gain.p:.2g}"
    cost = shown(sent.get(best, 0.0))
    won = f"{best}, {ended.level + gain.mean:.1f} % ({gain.mean:+.1f}{reach} over no sharing{sure}, {cost})"
    parts = []
    if ended.pick:
        parts.append(f"{within[0].upper()}{within[1:]}: {won}.")
        parts += rivalry(ended)
    else:
        parts.append(f"Nothing is shown to help {within}; share nothing.")
        parts.append(f"The best on validation rows is {won}{undecided(gain, effect)}.")
    if who:
        parts.append(who)
    if priced:
        parts.append(f"Over budget: {some(priced, NAMED)}.")
    if raced := [one for one in field.sooner if any(name.partition(" (")[0] == one for name in verdict.gains)]:
        every = field.base.settings.learner.epochs
        parts.append(
            f"Once in a task (every = {every}, the epochs of a task), not as rarely as usual: {some(raced, NAMED)}."
        )
    chose = len(ended.scores[NONE]) - gain.seeds
    parts.append(
        f"(Chosen as the highest of {plural(count, 'candidate')} on the validation rows of {plural(chose, 'seed')}, of "
        f"which the table's ± and p are, corrected for {plural(verdict.tests, 'look')}; the ± of this answer is the "
        f"95 % interval, and its p of a paired t-test, on the test rows of {plural(gain.seeds, 'other seed')}.)"
    )
    return " ".join(parts)


def rivalry(ended: Race) -> list[str]:
    """Which others validation rows tell from the pick."""
    verdict = ended.verdict
    alike = [name for name in verdict.gains if verdict.doubts.get(name, 0.0) >= SURE]
    beaten = len(verdict.leads) - len(alike)
    parts = [f"Validation rows do not tell it from {some(alike, NAMED)}."] if alike else []
    if beaten:
        others = "other" if beaten > 1 or alike else "only other"
        parts.append(f"Better than {beaten} {others} candidate{'s' * (beaten > 1)}.")
    return parts


def undecided(gain: Gain, effect: float) -> str:
    """What can be said of a gain that is not shown: that there is none of interest, or how many seeds would show the
    smallest one that is. It is not the gain that was seen, which would promise too much."""
    points = f"{effect:g} point{'s' * (effect != 1)}"
    if gain.interval is None or gain.error is None:
        return f", and more seeds are needed to show a gain of {points}"
    if gain.interval[1] < effect:
        return f": it gains less than {points}, the smallest gain of interest"
    wanted = needed(effect, gain.error * sqrt(gain.seeds))
    if wanted is None:
        return f": not even {MOST:,} seeds would show a gain of {points}, the smallest of interest"
    return f": --seeds {2 * max(wanted, gain.seeds + 1)} would show a gain of {points}, the smallest of interest"
