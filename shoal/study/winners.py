"""Who gains and who loses by what is shared: a mean over agents can hide that some pay for the others."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.data.sites import site_of
from shoal.runs.paired import SURE, Gain, Scores, paired
from shoal.study.cells import measured, values_of
from shoal.study.race import SCORE
from shoal.units import plural, some

NAMED = 6  # sites that a sentence names before it counts the rest


class Site(NamedTuple):
    """What sharing brings to a site over no sharing, in points on test rows."""

    name: str
    gain: Gain
    tests: int  # of sites, for which its interval and p are corrected

    @property
    def sign(self) -> int:
        """1 if it is shown to gain, -1 if to lose, else 0."""
        p = self.gain.among(self.tests)[1]
        return 0 if p is None or not p < SURE else 1 if self.gain.mean > 0 else -1

    def row(self) -> dict[str, float | str | None]:
        """It as a row of a table."""
        inside, p = self.gain.among(self.tests)
        low, high = inside or (None, None)
        return {"site": self.name, "gain": self.gain.mean, "gain_low": low, "gain_high": high, "p": p}

    def said(self) -> str:
        """How far its interval goes to either side."""
        inside = self.gain.among(self.tests)[0]
        return "" if inside is None else f" ± {inside[1] - self.gain.mean:.1f}"


class Winners(NamedTuple):
    """Who gains and who loses."""

    sites: tuple[Site, ...]  # the most first; none, where the data has no names of sites
    agents: tuple[float, ...]  # what each agent of each seed gains

    def said(self) -> str:
        """It in a sentence; nothing, if nobody was measured."""
        if not self.sites:
            up, down = sum(one > 0 for one in self.agents), sum(one < 0 for one in self.agents)
            return f"Of {plural(len(self.agents), 'agent')}, {up} gain and {down} lose." if self.agents else ""
        parts = []
        for sign, word in ((1, "gains"), (-1, "loses")):
            own = [one for one in self.sites if one.sign == sign]
            told = [f"{one.name} {word} {abs(one.gain.mean):.1f}{one.said()}" for one in own]
            parts += [some(told, NAMED)] if told else []
        if open_ := [f"{one.name} ({one.gain.mean:+.1f}{one.said()})" for one in self.sites if not one.sign]:
            parts.append(f"not shown to gain or to lose: {some(open_, NAMED)}")
        return f"By site, each ± corrected for all {len(self.sites)}: {'; '.join(parts)}."


def winners(
    here: Mapping[int, Path], there: Mapping[int, Path], seeds: Collection[int], sites: Sequence[str]
) -> Winners:
    """Who has more here than there, in some seeds, whose runs are in these places."""
    ours, theirs = ({lane: one for lane, one in lanes(places).items() if lane[0] in seeds} for places in (here, there))
    both = sorted(ours.keys() & theirs.keys())
    gains: dict[str, Gain] = {}
    for name in sites if len(sites) > 1 else ():
        own = [lane for lane in both if site_of(sites, lane[1]) == name]
        if found := paired(means(ours, own), means(theirs, own), SCORE):
            gains[name] = found
    told = [Site(name, gain, len(gains)) for name, gain in gains.items()]
    told.sort(key=lambda one: -one.gain.mean)
    return Winners(tuple(told), tuple(ours[lane] - theirs[lane] for lane in both))


def lanes(places: Mapping[int, Path]) -> dict[tuple[int, int], float]:
    """The final accuracy (%) of every seed and agent."""
    found: dict[tuple[int, int], float] = {}
    for place in sorted(set(places.values())):
        run = measured(place)
        numbers = values_of(run)[SCORE].tolist()
        found |= dict(zip(zip(run.seeds.tolist(), run.agents.tolist(), strict=True), numbers, strict=True))
    return found


def means(values: Mapping[tuple[int, int], float], own: Sequence[tuple[int, int]]) -> Scores:
    """The mean of some lanes in each seed."""
    seeds: dict[int, list[float]] = {}
    for lane in own:
        seeds.setdefault(lane[0], []).append(values[lane])
    return {seed: {SCORE: sum(one) / len(one)} for seed, one in seeds.items()}
