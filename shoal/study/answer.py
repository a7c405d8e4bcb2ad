"""The answer to what agents should share, in sentences that say no more than the seeds show."""

from collections.abc import Mapping, Sequence
from math import comb, sqrt

from shoal.study.candidates import Field
from shoal.study.paired import SURE, Gain, Scores
from shoal.study.power import MOST, needed
from shoal.study.race import NONE, SCORE, Race
from shoal.units import shown

NAMED = 4  # candidates that a sentence names before it counts the rest


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
