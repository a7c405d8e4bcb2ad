"""REPRODUCED.md: how near shoal comes to the paper, on two screens. The page that `reproduced` writes has every row."""

from collections.abc import Mapping, Sequence

from shoal.runs.paired import Scores
from shoal.study.cells import Row
from shoal_paper import claims, draws, overview
from shoal_paper.best import by_cell, fullest, printed
from shoal_paper.claims import FIVE, TOGETHER, Key
from shoal_paper.overview import CLOSE
from shoal_paper.reproduced import missed
from shoal_paper.table1 import MLP, alike

WHOLE = "docs/reference/reproduced.md"  # of the site: written when it is built, and not kept
MORE = {
    "every row with errors, run and commit": "protocol-paper-what-each-row-of-the-paper-really-did",
    "the same under one setting for all": "protocol-fair-one-setting-for-all-rows",
    "numbers behind the claims": "which-of-the-papers-claims-survive",
    "CIFAR-100, reduced": "cifar-100-reduced",
    "budgets": "budget",
    "graphs": "topology",
    "what sharing costs": "what-sharing-costs",
    "what agents are given": "what-agents-are-given",
    "what we got wrong before": "what-we-got-wrong-before-and-how-we-found-out",
    "both draws of tasks": "table-1-with-both-draws",
    "what it took": "what-it-took",
}


def page(tables: Mapping[str, Sequence[Row]]) -> str:
    """The whole page."""
    best, fit = fullest(tables["table1"]), fullest(alike(tables["table1"]))
    each = by_cell(fit, tables["seeds"])
    here = {key: row for key, row in best.items() if key[0] == "paper" and key[1] in FIVE}
    took = sum(row["seconds"] or 0 for row in here.values() if row["dataset"] in MLP) / 3600
    lines = [
        "# What was reproduced",
        "",
        f"How near does shoal come to the paper's Table 1, and where does it not? {draws.close(printed(here))}",
        "",
        "Written by `shoal reproduce report --short` from the CSVs in [docs/results](docs/results); not by hand.",
        "",
        "## Table 1 beside the paper's",
        "",
        "Protocol `paper`: what each row of the paper really did. *Final accuracy in % / AUC*, whose maximum is 101; "
        f"the paper's in brackets, bold where they are more than {CLOSE} apart.",
        "",
        *overview.table("paper", best, each),
        "",
        "## What does not agree",
        "",
        *missed(here),
        "",
        "Of the paper's claims, each compared with every rival over all datasets together, paired over seeds, p "
        "corrected by Holm's rule for the number of rivals:",
        "",
        *survived(each),
        "",
        "What a claim depends on, and which finding of ours fell to a control: [results](docs/results.md). "
        "What shoal does otherwise than the paper or its code: [differences](docs/differences.md).",
        "",
        "## Run it again",
        "",
        "    shoal reproduce table1 --protocol paper --seeds 8 --tables docs/results",
        "    shoal reproduce table1 --protocol fair --seeds 8 --tables docs/results",
        "    shoal reproduce report --short --tables docs/results --write REPRODUCED.md",
        "",
        f"The first took {took:.1f} hours of processes with one thread each. CIFAR-100 at full size has not been run "
        "whole ([how it would be](docs/results.md#cifar-100-reduced-how-much-of-the-gap-is-sharing)).",
        "",
        "## All the rest",
        "",
        f"`make docs` builds it from the same CSVs: {more()}.",
    ]
    return "\n".join(lines) + "\n"


def survived(each: Mapping[Key, Scores]) -> list[str]:
    """What becomes of each claim under both protocols, a word each."""
    found = {
        protocol: {
            one.claim: one.verdict
            for one in claims.judged(protocol, each)
            if one.dataset == TOGETHER or len(one.claim.datasets) == 1
        }
        for protocol in ("paper", "fair")
    }
    lines = ["| claim | under `paper` | under `fair` |", "| --- | --- | --- |"]
    for claim in claims.CLAIMS:
        words = (found[protocol].get(claim, "not compared") for protocol in found)
        lines.append(f"| {claim.words}, {claim.model} | {' | '.join(words)} |")
    return lines


def more() -> str:
    """Where the rest stands."""
    return ", ".join(f"[{words}]({WHOLE}#{anchor})" for words, anchor in MORE.items())
