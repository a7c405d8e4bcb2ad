"""What the paper claims of its methods, and what our runs say of it."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from shoal.reproduce.table1 import MLP
from shoal.study.paired import SURE, Gain, Scores, chance, paired

FEDERATED = ("fedavg", "fedprox", "fedcurv", "fedfish")
PARTS = ("data", "modmod", "fedavg")  # of the modular hybrid
FIVE = (*MLP, "cifar100")
METRICS = {"final_accuracy": "final accuracy", "auc": "AUC"}
Key = tuple[str, str, str, str]  # protocol, dataset, model, method


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
    verdict: str  # holds, fails, undecided
    gaps: dict[str, Gain]  # to each rival that has been run
    untried: tuple[str, ...]  # rivals that have not


def judge(
    claim: Claim, datasets: Sequence[str], protocol: str, each: Mapping[Key, Scores], name: str = ""
) -> Finding | None:
    """What our runs say of a claim on some datasets; None if they say nothing.

    Of several datasets it is their mean, seed by seed: a seed draws the same classes and first weights on several of
    them, so that a dataset more is no seed more. A rival counts as untried unless it ran on all that the method ran on.
    """
    ran = [one for one in datasets if (protocol, one, claim.model, claim.method) in each]

    def scores(method: str) -> Scores:
        every = [each.get((protocol, one, claim.model, method), {}) for one in ran]
        seeds = set.intersection(*(set(one) for one in every)) if every else set()
        return {seed: {claim.metric: fmean(one[seed][claim.metric] for one in every)} for seed in sorted(seeds)}

    here = scores(claim.method)
    gaps = {rival: gap for rival in claim.rivals if (gap := paired(here, scores(rival), claim.metric))}
    if not gaps:
        return None
    shown = [gap.sign for gap in gaps.values() if gap.sign]
    untried = tuple(rival for rival in claim.rivals if rival not in gaps)
    verdict = "fails" if -1 in shown else "holds" if len(shown) == len(claim.rivals) else "undecided"
    return Finding(claim, name or ", ".join(datasets), verdict, gaps, untried)


def section(protocol: str, each: Mapping[Key, Scores]) -> list[str]:
    """Every claim in words, then the numbers behind them."""
    lines = [
        "Each is a comparison with every rival, paired over seeds. *Holds*: above all of them, each with p < "
        f"{SURE} in a two-sided paired t-test; *fails*: some rival is above, just as surely; else *undecided*. "
        "With so few seeds and so many comparisons, a single verdict can be luck. *All together* is the mean over "
        "datasets, seed by seed: it asks whether the claim holds on average. A seed draws the same classes and first "
        "weights on several datasets, so that a dataset more is no seed more.",
        "",
    ]
    if protocol == "paper":
        lines[0] += " Rows with and without a common start do not meet the same tasks: pairs are loose here."
    found: list[Finding] = []
    for claim in CLAIMS:
        here = [judge(claim, [dataset], protocol, each) for dataset in claim.datasets]
        together = judge(claim, claim.datasets, protocol, each, "all together")
        found += [one for one in here if one]
        said = []
        for verdict in ("holds", "fails", "undecided"):
            names = [one.dataset for one in here if one and one.verdict == verdict]
            said += [f"{verdict} on {', '.join(names)}"] * bool(names)
        gone = [dataset for dataset, one in zip(claim.datasets, here, strict=True) if one is None]
        said += [f"not compared on {', '.join(gone)}"] * bool(gone)
        if together and len(claim.datasets) - len(gone) > 1:
            found.append(together)
            said.insert(0, f"all datasets together: **{together.verdict}**")
        lines.append(
            f"- **{claim.words}** ({claim.model}; {METRICS[claim.metric]} of {claim.method}): {'; '.join(said)}."
        )
    if not found:
        return lines
    lines += [
        "",
        "| claim | dataset | verdict | difference from each rival, ± standard error (p) |",
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
        said.append(f"{rival} {gap.mean:+.2f} ± {error} ({chance(gap.p) or '-'})")
    return ", ".join([*said, *(f"{rival} not run" for rival in finding.untried)])
