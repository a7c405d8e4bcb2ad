"""Candidates race over seeds: successive halving by validation rows, then a measurement on test rows.

Half of the seeds choose: candidates are ranked and left behind by their accuracy on validation rows. The other half
measure: what the one that was chosen brings on test rows, in a single test, with an interval that owes nothing to the
choice because these seeds had no part in it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import ceil
from typing import NamedTuple, TypeVar

from shoal.runs.paired import SURE, Gain, Scores, holm, paired

K = TypeVar("K")
NONE = "none"
SCORE = "final_accuracy"  # on test rows, which choose nothing
CHOICE = "validation_accuracy"
EFFECT = 1.0  # points: the smallest gain that is of interest, where nobody says another
FIRST = 2  # seeds of the first look: with one there is no spread
LAST = 2  # candidates that go on to the end, so that the best can be told from the second

Measure = Callable[[Sequence[str], int], Mapping[str, Scores]]  # of some candidates, the first so many seeds


class Verdict(NamedTuple):
    """What the seeds show."""

    best: str | None  # the highest
    gains: dict[str, Gain]  # over no sharing, the best first
    tests: int  # for how many looks at a gain their intervals and p-values are corrected
    leads: dict[str, Gain]  # of the best over each other one
    doubts: dict[str, float]  # the p-values of the leads, corrected for all pairs

    @property
    def helps(self) -> bool:
        """Is the best shown to beat no sharing?"""
        gain = None if self.best is None else self.gains[self.best]
        p = None if gain is None else gain.among(self.tests)[1]
        return gain is not None and gain.mean > 0 and p is not None and p < SURE


class Race(NamedTuple):
    """A race that has ended."""

    scores: dict[str, Scores]
    verdict: Verdict  # by validation rows
    looks: int  # at most
    racing: list[str]  # those that went on to the end
    measured: Gain | None = None  # of the best over no sharing, on test rows of seeds that did not choose
    level: float | None = None  # of no sharing in these seeds, on test rows
    fresh: tuple[int, ...] = ()  # these seeds

    @property
    def pick(self) -> str | None:
        """The best, if it is shown to help by the seeds that did not choose it."""
        shown = self.measured is not None and self.measured.sign > 0
        return self.verdict.best if shown else None


def answered(names: Sequence[str], seeds: int, measure: Measure) -> Race:
    """A race in half of the seeds, and a measurement of its best in the others."""
    choosing = max(1, seeds // 2)
    ended = race(names, choosing, measure)
    best = ended.verdict.best
    if best is None:
        return ended
    chose = {seed for own in ended.scores.values() for seed in own}
    known = ended.scores | dict(measure([NONE, best], seeds))
    fresh = {name: {seed: one for seed, one in known[name].items() if seed not in chose} for name in (NONE, best)}
    base = [one[SCORE] for one in fresh[NONE].values()]
    level = sum(base) / len(base) if base else None
    seen = tuple(sorted(fresh[best].keys() & fresh[NONE].keys()))
    return ended._replace(scores=known, measured=paired(fresh[best], fresh[NONE], SCORE), level=level, fresh=seen)


def race(names: Sequence[str], seeds: int, measure: Measure) -> Race:
    """Successive halving: all candidates have some seeds, the better half twice as many, and so on.

    It ends when all seeds are used, or one is shown to beat no sharing and all that are still in the race. Who was left
    behind comes back if the others fall behind it.
    """
    marks = [min(FIRST, seeds)]
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
        if verdict.helps and all(verdict.doubts[name] < SURE for name in racing if name != verdict.best):
            break
    return Race(known, verdict, len(marks), racing)


def judge(known: Mapping[str, Scores], looks: int) -> Verdict:
    """What scores show, if they are looked at so often: whatever stops the race, one in twenty races of candidates that
    bring nothing ends in a pick, at most."""
    found = {name: paired(own, known[NONE], CHOICE) for name, own in known.items() if name != NONE}
    ordered = sorted(((name, gain) for name, gain in found.items() if gain), key=lambda one: -one[1].mean)
    gains = dict(ordered)
    best = next(iter(gains), None)
    # The scores say who is best, so that any two could have been compared: all pairs are corrected for.
    couples = {frozenset(two): paired(known[two[0]], known[two[1]], CHOICE) for two in combinations(gains, 2)}
    sure = corrected({two: gap for two, gap in couples.items() if gap}, looks)
    leads: dict[str, Gain] = {}
    doubts: dict[str, float] = {}
    for name in gains:
        if best is not None and name != best and (lead := paired(known[best], known[name], CHOICE)):
            p = sure[frozenset((best, name))]
            # Who was left behind has fewer seeds: where it is ahead in these, nothing tells the two apart.
            leads[name], doubts[name] = lead, p if lead.mean > 0 else max(p, SURE)
    return Verdict(best, gains, max(1, looks * len(gains)), leads, doubts)


def corrected(gains: Mapping[K, Gain], looks: int) -> dict[K, float]:
    """p-values of paired t-tests, corrected for how many there are and how often one looks."""
    return dict(zip(gains, holm([1.0 if one.p is None else one.p for one in gains.values()], looks), strict=True))
