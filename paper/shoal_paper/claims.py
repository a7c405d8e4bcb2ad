"""What the paper claims of its methods, and what our runs say of it."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from shoal.runs.paired import SURE, Gain, Scores, chance, holm, paired
from shoal.study.power import MOST, POWER, needed
from shoal_paper.table1 import MLP, base_of

FEDERATED = ("fedavg", "fedprox", "fedcurv", "fedfish")
PARTS = ("data", "modmod", "fedavg")  # of the modular hybrid
FIVE = (*MLP, "cifar100")
METRICS = {"final_accuracy": "final accuracy", "auc": "AUC"}
Key = tuple[str, str, str, str]  # protocol, dataset, model, method
TOGETHER = "all together"


class Claim(NamedTuple):
    """What the paper says of a method: that it has more than each of its rivals."""

    words: str
    model: str
    metric: str
    method: str
    rivals: tuple[str, ...]
    datasets: tuple[str, ...]


CLAIMS = (
    Claim("modmod learns fastest", "modular", "auc", "modmod", ("data", *FEDERATED), FIVE),
    Claim("data ends highest on easier data", "modular", "final_accuracy", "data", (*FEDERATED, "modmod"), MLP),
    Claim("data ends highest on easier data", "monolithic", "final_accuracy", "data", FEDERATED, MLP),
    Claim("the hybrid ends above its parts", "modular", "final_accuracy", "hybrid", PARTS, FIVE),
    Claim("the hybrid learns faster than its parts", "modular", "auc", "hybrid", PARTS, FIVE),
    Claim("the hybrid ends above its parts", "monolithic", "final_accuracy", "hybrid", ("data", "fedavg"), FIVE),
    Claim("the hybrid learns faster than its parts", "monolithic", "auc", "hybrid", ("data", "fedavg"), FIVE),
    Claim("alone is better than averaging when data differ", "monolithic", "auc", "vanilla", FEDERATED, ("combined",)),
)  # fmt: skip


class Finding(NamedTuple):
    """What our runs say of a claim on one dataset, or on all together."""

    claim: Claim
    dataset: str
    gaps: dict[str, Gain]  # to each rival that has been run
    untried: tuple[str, ...]  # rivals that have not
    corrected: dict[str, float]  # p-values of the gaps, by Holm's rule for the number of rivals

    @property
    def verdict(self) -> str:
        """holds, fails or undecided: by corrected p-values."""
        shown = [gap.mean for rival, gap in self.gaps.items() if self.shows(rival)]
        if any(mean < 0 for mean in shown):
            return "fails"
        return "holds" if len(shown) == len(self.claim.rivals) else "undecided"

    def shows(self, rival: str) -> bool:
        """Is the difference from a rival shown?"""
        return self.corrected.get(rival, 1.0) < SURE


def compared(
    claim: Claim, datasets: Sequence[str], protocol: str, each: Mapping[Key, Scores], name: str = ""
) -> Finding | None:
    """What our runs say of a claim on some datasets; None if they say nothing.

    Of several datasets it is their mean, seed by seed: under `paper` a seed means the same luck on several of them, so
    that a dataset more is no seed more. A rival counts as untried unless it ran on all that the method ran on. Agents
    alone are those that begin with the same tasks as the rival. Where a method and its rival begin with different
    tasks, what each gains over agents alone that begin as it does is compared: accuracies on other tasks are not.
    """
    ran = [one for one in datasets if (protocol, one, claim.model, claim.method) in each]

    def base(dataset: str, method: str) -> str:
        return base_of(protocol, dataset, claim.model, method)

    def of(dataset: str, method: str, other: str) -> dict[int, float]:
        """What a method has on a dataset, seed by seed, as it can be compared with another method."""
        own = each.get((protocol, dataset, claim.model, method), {})
        if base(dataset, method) == base(dataset, other):
            return {seed: values[claim.metric] for seed, values in own.items()}
        alone = each.get((protocol, dataset, claim.model, base(dataset, method)), {})
        return {seed: own[seed][claim.metric] - alone[seed][claim.metric] for seed in own.keys() & alone.keys()}

    def mean(every: Sequence[Mapping[int, float]]) -> Scores:
        seeds = set.intersection(*map(set, every)) if every else set()
        return {seed: {claim.metric: fmean(one[seed] for one in every)} for seed in sorted(seeds)}

    gaps = {}
    for rival in claim.rivals:
        own = {one: base(one, rival) if claim.method == "vanilla" else claim.method for one in ran}
        here = mean([of(one, own[one], rival) for one in ran])
        there = mean([of(one, rival, own[one]) for one in ran])
        if gap := paired(here, there, claim.metric):
            gaps[rival] = gap
    if not gaps:
        return None
    untried = tuple(rival for rival in claim.rivals if rival not in gaps)
    raw = {rival: gap.p for rival, gap in gaps.items() if gap.p is not None}
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    return Finding(claim, name or ", ".join(datasets), gaps, untried, corrected)


def judged(protocol: str, each: Mapping[Key, Scores]) -> list[Finding]:
    """All that our runs say of the claims: on each dataset, and on all together where there are several."""
    found = []
    for claim in CLAIMS:
        found += [compared(claim, [dataset], protocol, each) for dataset in claim.datasets]
        if sum((protocol, one, claim.model, claim.method) in each for one in claim.datasets) > 1:
            found.append(compared(claim, claim.datasets, protocol, each, TOGETHER))
    return [one for one in found if one]


def section(protocol: str, each: Mapping[Key, Scores]) -> list[str]:
    """Every claim in words, then the numbers behind them."""
    lines = [
        "Each is a comparison with every rival, paired over seeds. *Holds*: above all of them, each with p < "
        f"{SURE} in a two-sided paired t-test, corrected by Holm's rule for the number of rivals; *fails*: some rival "
        f"is above, just as surely; else *undecided*. {len(CLAIMS)} claims on several datasets are that many chances "
        "of a wrong verdict: *all together*, the mean over datasets, seed by seed, is the one to go by. Beside an "
        "undecided difference stands how many seeds would show one of that size with a chance of "
        f"{POWER:.0%}, uncorrected.",
        "",
    ]
    if protocol == "paper":
        lines[0] += (
            " Rows with and without a common start do not meet the same tasks: there, what each gains over agents "
            "alone that begin as it does is compared."
        )
    found = judged(protocol, each)
    for claim in CLAIMS:
        here = [one for one in found if one.claim is claim]
        said = [f"all datasets together: **{one.verdict}**" for one in here if one.dataset == TOGETHER]
        for verdict in ("holds", "fails", "undecided"):
            names = [one.dataset for one in here if one.dataset != TOGETHER and one.verdict == verdict]
            said += [f"{verdict} on {', '.join(names)}"] * bool(names)
        gone = [dataset for dataset in claim.datasets if dataset not in [one.dataset for one in here]]
        said += [f"not compared on {', '.join(gone)}"] * bool(gone)
        lines.append(
            f"- **{claim.words}** ({claim.model}; {METRICS[claim.metric]} of {claim.method}): {'; '.join(said)}."
        )
    if not found:
        return lines
    lines += [
        "",
        "| claim | dataset | verdict | difference from each rival, ± standard error (p; corrected) |",
        "| --- " * 4 + "|",
    ]
    return lines + [
        f"| {one.claim.words}, {one.claim.model} | {one.dataset} | {one.verdict} | {differences(one)} |"
        for one in found
    ]


def differences(finding: Finding) -> str:
    """The difference from each rival, the closest or farthest ahead first, and rivals that have not been run."""
    said = []
    for rival, gap in sorted(finding.gaps.items(), key=lambda one: one[1].mean):
        error = "-" if gap.error is None else f"{gap.error:.2f}"
        more = "" if gap.error is None or finding.shows(rival) else f"; {enough(gap)}"
        both = f"{chance(gap.p) or '-'}; {chance(finding.corrected.get(rival)) or '-'}{more}"
        said.append(f"{rival} {gap.mean:+.2f} ± {error} ({both})")
    return ", ".join([*said, *(f"{rival} not run" for rival in finding.untried)])


def enough(gap: Gain) -> str:
    """How many seeds would decide."""
    seeds = needed(gap.mean, (gap.error or 0.0) * math.sqrt(gap.seeds))
    return f"more than {MOST:,} seeds" if seeds is None else f"{seeds} seeds"
