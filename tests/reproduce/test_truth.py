"""Rows of two draws in one table, what we got wrong, and pages whose numbers are those of the CSVs."""

import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from shoal.errors import SettingsError
from shoal.runs.paired import SURE
from shoal.study.cells import Row, read_csv
from shoal.study.sweep import grid
from shoal_paper import (
    agreement,
    benchmarks,
    best,
    claims,
    corrections,
    draws,
    families,
    given,
    memory,
    results,
    tables,
)
from shoal_paper.overview import gain
from shoal_paper.table1 import MLP, MODELS, alike, cells, settings
from tests.command import ROOT

DOCS = ROOT / "docs"
# Modular nets alone and with modules on mnist, as Table 1 under `fair` has them.
FINISHED = {settings("mnist", "modular", method, "fair", 8).identity() for method in ("vanilla", "modmod")}
UNKEPT = "No CSV of these numbers was kept"


def row(method: str, draw: str, final: float, seeds: int = 8, **more: Any) -> Row:
    names = ("final_accuracy", "auc")
    errors = {f"{name}_se_seeds": 0.2 for name in names}
    head = {"protocol": "paper", "dataset": "mnist", "model": "modular", "method": method, "draw": draw, "seeds": seeds}
    paper = dict.fromkeys((f"paper_{name}" for name in names), 93.0)
    return {**head, "final_accuracy": final, "auc": final, **errors, **paper, **more}


def test_agreement_is_led_by_gains_and_stands_beside_a_guess() -> None:
    names, gains = ("vanilla", "data", "fedavg", "hybrid"), (0.0, 1.0, -0.5, 3.0)
    theirs: dict[str, Row] = {
        name: {f"paper_{metric}": 93.0 + more for metric in ("final_accuracy", "auc")}
        for name, more in zip(names, gains, strict=True)
    }
    same = [row(name, "authors", 90.0 + more, **theirs[name]) for name, more in zip(names, gains, strict=True)]
    found = agreement.agreement(same)
    assert found is not None
    assert found == pytest.approx((6, 1.0, 0.0, 1.5, 1.5, 1.0))  # levels do not matter
    turned = [row(name, "authors", 90.0 - more, **theirs[name]) for name, more in zip(names, gains, strict=True)]
    assert agreement.agreement(turned) == pytest.approx((6, -1.0, 3.0, 1.5, 1.5, -1.0))
    there: dict[str, Any] = {"dataset": "kmnist", "paper_final_accuracy": 94.0, "paper_auc": 94.0}
    more = [row("vanilla", "authors", 90.0, dataset="kmnist"), row("data", "authors", 92.0, **there)]
    two = agreement.agreement([*same, *more, row("fedavg", "authors", 89.0, dataset="kmnist")])
    # Of images the other dataset has what this one has; of averaging -0.5 and 0; of the hybrid nothing, and 3.
    assert two is not None
    assert two.elsewhere == pytest.approx((2 * 0.0 + 2 * 0.5 + 3.0) / 5)
    assert agreement.guessed(same) == 4  # of 93, 94, 92.5, 96, whose mean is 93.875: two, and in both metrics
    assert "numbers of" not in agreement.sentence(same)
    above = [row(name, "authors", 99.0 + more, **theirs[name]) for name, more in zip(names, gains, strict=True)]
    assert "All 8 numbers of modular mnist are above the paper's" in agreement.sentence(above)


def test_rows_of_two_draws_stand_side_by_side_and_are_never_compared() -> None:
    old = [row(name, "agent", 91.5) for name in ("vanilla", "data", "fedavg")]
    new = [row(name, "authors", 93.5) for name in ("vanilla", "data")]
    extra = row("alone", "authors", 93.0, paper_final_accuracy=None, paper_auc=None)
    every = [*old, *new, extra]
    assert alike(every) == old  # more rows that share; agents alone do not count
    assert alike([*every, row("fedavg", "authors", 93.0)])[-1]["draw"] == "authors"  # as many, and newer
    shown = best.fullest(every)
    assert {key[3]: one["draw"] for key, one in shown.items()} == {
        "vanilla": "authors",
        "alone": "authors",
        "data": "authors",
        "fedavg": "agent",
    }
    assert draws.close(best.printed(shown)) == (
        "With the authors' own draws of tasks 4 of 4 numbers are within 1.0 of the paper's (4 would be if every method "
        "had the paper's mean of its dataset and model); their mean difference is +0.50 (goal: all, and 0.1). "
        "The others have the draws of shoal 0.1: 0 of 2 are within 1.0."
    )
    assert draws.effect(every) == (
        "2 cells were trained with both draws: with those of shoal 0.1 0 of 4 numbers are within 1.0 of the paper's, "
        "with the authors' 4 of 4; the mean difference from the paper goes from -1.50 to +0.50, the mean distance from "
        "1.50 to 0.50. By model and dataset the mean difference is now modular mnist +0.50; for what is left no cause "
        "was found."
    )
    assert draws.effect(old) == ""
    lines = draws.section(every)
    assert "| mnist | modular | data | 93.00 / 93.00 | **91.50 ± 0.20** / **91.50 ± 0.20** |" in lines[-2]
    assert "| mnist | own | 2 | -1.50 | +0.50 | -2.00 | -0.20 |" in lines  # modular data begins alone there


def test_what_the_draws_explain_is_a_correlation() -> None:
    old = [row(name, "agent", 93.0 + off) for name, off in (("vanilla", -1.0), ("data", -0.5), ("fedavg", 0.5))]
    new = [row(name, "authors", 93.0) for name in ("vanilla", "data", "fedavg")]
    assert "are correlated with r = 1.00 over 6 numbers." in draws.effect([*old, *new])
    worse = [row(name, "authors", 93.0 + 2 * off) for name, off in (("vanilla", -1.0), ("data", -0.5), ("fedavg", 0.5))]
    assert "r = -1.00" in draws.effect([*old, *worse])
    same = [row(name, "authors", one["final_accuracy"]) for name, one in zip(("vanilla", "data"), old, strict=False)]
    assert "correlated" not in draws.effect([*old, *same])  # nothing has changed, so there is nothing to explain


def test_a_draw_can_be_asked_for_and_takes_its_base_along() -> None:
    cells = families.choose("topology", ["kmnist"], ["modular"], None, "paper", 2, "agent")
    assert {cell.settings.tasks.draw for cell in cells} == {"agent"}
    there = {cell.settings.identity() for cell in cells}
    assert all(cell.base.settings.identity() in there for cell in cells)
    usual = families.choose("topology", ["kmnist"], ["modular"], None, "paper", 2)
    assert not there & {cell.settings.identity() for cell in usual}
    with pytest.raises(SettingsError, match="drawn by `nobody`; allowed: agent, fleet, authors"):
        families.choose("table1", None, None, None, "paper", 2, "nobody")
    with pytest.raises(SettingsError, match="mixed has its own"):
        families.choose("mixed", None, None, None, "fair", 2, "agent")


def test_bytes_are_counted_over_the_tasks_in_which_a_link_was_used() -> None:
    links = 8 * 7 * 8
    assert results.per_link(row("data", "agent", 90, bytes_total=links * 6 * 100)) == 100
    assert results.per_link(row("modmod", "agent", 90, bytes_total=links * 5 * 100)) == 100  # one task less
    assert results.per_link(row("modmod", "authors", 90, bytes_total=1, bytes_per_link_task=7.5)) == 7.5
    assert results.per_link(row("vanilla", "authors", 90, bytes_total=0)) is None


def test_what_was_wrong_is_said_with_numbers_or_that_there_are_none() -> None:
    old = [row(name, "agent", 91.5, bytes_total=None) for name in ("vanilla", "modmod")]
    found: dict[str, list[Row]] = {"table1": old, "seeds": [], "budget": [], "topology": []}
    text = "\n".join(corrections.section(found, {}))
    assert len(re.findall(r"^\d\. \*\*", text, re.M)) == 9
    for words in ("No cell has been trained with both", "not run yet", "not there yet", "has not been measured yet"):
        assert words in text
    parts = [
        {"parts": name, "routes": "all", "pairs": 9, "seeds": 2, "epochs": 20, "gain": at + 0.04, "gain_se": 0.5}
        for at, name in enumerate(("module+structure+head", "module", "structure+head", "head"))
    ]
    alone = row("alone", "agent", 92.0, paper_final_accuracy=None, paper_auc=None)
    seen = {"dataset": "kmnist", "model": "modular", "mode": "federated", "base": "alone", "draw": "agent", "seeds": 2}
    graphs = [{**seen, "gain": gain, "gain_vanilla": -1.5} for gain in (0.5, -0.25, None)]
    points = [{**one, "every": 50, "floats_per_edge_task": 9.0} for one in graphs]
    leak = {"dataset": "mnist", "model": "modular", "own_validation": "keep", "seeds": 4, "shared": 5.07}
    leak |= {f"{name}_difference{end}": 0.25 for name in ("final_accuracy", "auc") for end in ("", "_se", "_p")}
    own = {"dataset": "mnist", "memory": 64, "final_accuracy": 91.0, "auc": 91.0}
    fair = {"protocol": "fair", "dataset": "mnist", "model": "monolithic", "auc": 90.0}
    each = [fair | {"method": name, "final_accuracy": at} for name, at in (("vanilla", 90.0), ("data", 93.0))]
    found |= {"memory": [own | {"seed": at} for at in (0, 1)]}
    found |= {"seeds": [one | {"seed": at} for one in each for at in (0, 1)]}
    found |= {"compression": [{"method": "vanilla", "to_fedavg": 0.25, "to_fedavg_se": 0.5}]}
    found |= {"table1": [*old, alone], "parts": parts, "topology": graphs, "budget": points, "leak": [leak]}
    text = "\n".join(corrections.section(found, {}))
    assert "mnist modular +0.50 / +0.50 (paper, 8 seeds)" in text
    assert "the mean over 2 graphs: before -1.50 %, now +0.12 %" in text
    assert "federated in modular nets before -4.5e-05, now 3.8e-06" in text  # two times 16,640 floats may be sent
    assert "1 of the 3 runs on other graphs have no gain until their agents alone are run" in text
    assert "5.1 % of an agent's validation images are training images of another" in text
    assert "modular nets +0.25 ± 0.25 (p 0.250) / +0.25 ± 0.25 (p 0.250)" in text
    assert "all three parts +0.0 ± 0.5, the weights alone +1.0 ± 0.5" in text
    assert "mnist, images of others +3.00 ± 0.00; mnist, of these beyond 64 own images +2.00 ± 0.00" in text
    assert "agents alone end +0.25 ± 0.50 from FedAvg" in text


def test_every_table_of_the_results_is_made_from_a_csv_or_says_that_there_is_none() -> None:
    text = tables.MARKED.sub("", (DOCS / "results.md").read_text())
    for block in re.split(r"\n\n", text):
        if block.startswith("|"):
            before = text[: text.index(block)].rstrip().splitlines()[-1]
            assert UNKEPT in before, f"no CSV for the table that begins {block.splitlines()[0]}"


def test_no_page_waits_for_its_numbers() -> None:
    for page in ("results.md", "../README.md", "../REPRODUCED.md"):
        text = (DOCS / page).read_text()
        assert not re.search(r"^[A-Z]{5,}$|being trained|Not measured yet", text, re.M), page


def test_sentences_around_the_tables_have_the_numbers_of_the_csvs() -> None:
    text = (DOCS / "results.md").read_text().replace("\u2212", "-")
    readme = (ROOT / "README.md").read_text()
    grid = {(row["dataset"], row["learner"], row["method"]): row for row in read_csv(DOCS / "results" / "grid.csv")}

    def more(dataset: str, learner: str, method: str, sign: str = "+") -> str:
        row = grid[dataset, learner, method]
        gain, error = row["final_accuracy_difference"], row["final_accuracy_difference_se"]
        return f"{abs(gain) if not sign else round(gain, 1) + 0.0:{sign}.1f} ± {error:.1f}"

    tuned, replayed = (
        [more(name, learner, "data") for name in ("mnist", "combined")] for learner in ("none", "replay")
    )
    assert f"{tuned[0]} points on mnist and {tuned[1]} on combined, agents with replay {replayed[0]} and" in text
    ended = [
        [grid[name, *key]["final_accuracy"] for name in ("mnist", "combined")]
        for key in (("none", "data"), ("replay", "none"))
    ]
    assert "ends at {:.1f} % on mnist and {:.1f} on combined, where replay of 32".format(*ended[0]) in text
    assert "alone at {:.1f} and {:.1f}.".format(*ended[1]) in text
    assert f"helps fine-tuning on mnist ({more('mnist', 'none', 'fedavg')}), where it changes nothing else" in text
    assert f"on combined that is not shown ({more('combined', 'none', 'fedavg')})" in text
    known = results.holmed(list(grid.values()), "final_accuracy_difference_p")
    averaged = [row for row in known if row["method"] == "fedavg"]
    decided = {(row["dataset"], row["learner"]): row for row in averaged if row["final_accuracy_difference_p"] < SURE}
    assert {learner for dataset, learner in decided if dataset == "mnist"} == {"none"}
    lost = [-row["final_accuracy_difference"] for (dataset, _), row in decided.items() if dataset == "combined"]
    assert len(lost) == 3
    assert f"the other learners lose {min(lost):.1f} to {max(lost):.1f} points" in text
    assert all(
        grid[d, n, "data"]["final_accuracy"] > row["final_accuracy"] for (d, n, m), row in grid.items() if m == "fedavg"
    )
    modules, masks = (
        [more(dataset, *kind) for dataset in ("mnist", "combined")]
        for kind in (("modular", "modules"), ("frozen", "masks"))
    )
    assert f"{modules[0]} points on mnist and {modules[1]} on combined" in text
    assert f"masked nets {masks[0]} and {masks[1]}." in text
    for kind, words in (("modular", "modular net alone ends at"), ("frozen", "masked net alone ends at")):
        assert f"{words} {grid['mnist', kind, 'none']['final_accuracy']:.1f} " in text
    table1 = {row["method"]: row for row in read_csv(DOCS / "results" / "table1.csv") if row["identity"] in FINISHED}
    end, added = table1["vanilla"]["final_accuracy"], table1["modmod"]["final_accuracy_gain"]
    error = table1["modmod"]["final_accuracy_gain_se"]
    assert f"where 100 epochs bring {end:.1f} and modules add {added:+.1f} ± {error:.1f};" in text
    assert f"{tuned[0].lstrip('+')} points to fine-tuning, {replayed[0].lstrip('+')} to replay" in readme
    assert abs(ended[0][0] - ended[1][0]) < 0.5, "then fine-tuning does not end where replay does alone"

    rows, seeds = (read_csv(DOCS / "results" / f"{name}.csv") for name in ("memory", "seeds"))
    found = memory.gains(rows, seeds)
    own, theirs, beyond = (
        f"{found['mnist', kind]['final_accuracy'].mean:+.1f} ± {found['mnist', kind]['final_accuracy'].error:.1f}"
        for kind in (64, "data", "data over 64")
    )
    assert f"64 of their own gain {own} of the {theirs} points on mnist, for no byte" in text
    assert f"beyond that is {beyond}, also shown" in text
    assert f"agents alone that remember 64 of their own images a task gain {own} of it" in readme

    sent = {row["method"]: row for row in read_csv(DOCS / "results" / "compression.csv")}
    for method, words in (("sign", "signs ({} of the bytes, {} above FedAvg)"), ("rank 4", "rank 4 ({}, {})")):
        row = sent[method]
        share, above = f"{100 * row['of_fedavg']:.1f} %", f"{row['to_fedavg']:.2f} ± {row['to_fedavg_se']:.2f}"
        assert words.format(share, above) in text

    three = benchmarks.latest(read_csv(DOCS / "results" / "three-scenarios.csv"))
    verdicts = [benchmarks.verdict(row) for row in three]
    assert f"**{verdicts.count('close')} of {len(three)} are close**" in text
    assert f"{verdicts.count('open')} are open" in text
    for scenario in benchmarks.HEADS:
        for row in three:
            if row["scenario"] == scenario and benchmarks.verdict(row) == "far":
                assert f"{row['method']} {row['accuracy']:.1f}" in text


def test_the_tables_of_the_readme_are_those_of_their_csvs() -> None:
    text = (ROOT / "README.md").read_text()
    assert tables.MARKED.search(text)
    assert tables.filled(text, DOCS / "results") == text, (
        "`shoal reproduce report --tables docs/results --write REPRODUCED.md` makes it anew"
    )


def test_what_the_readme_found_is_in_the_csvs() -> None:
    fit = best.fullest(alike(read_csv(DOCS / "results" / "table1.csv")))
    each = best.by_cell(fit, read_csv(DOCS / "results" / "seeds.csv"))
    text = (ROOT / "README.md").read_text().partition("## What we found")[2].partition("\n## ")[0]

    def gains(model: str, method: str, name: str) -> list[float]:
        found = [gain(("fair", dataset, model, method), name, each) for dataset in MLP]
        return [one.mean for one in found if one]

    def span(values: list[float]) -> tuple[str, str]:
        return f"{min(values):+.1f}", f"{max(values):+.1f}"

    low, high = span(gains("monolithic", "data", "final_accuracy"))
    assert f"{low} to {high} points of final accuracy (shown on each), for " in text
    low, high = span(gains("modular", "data", "final_accuracy"))
    assert f"modular nets {low} to {high} (shown on mnist)." in text
    low, high = span(gains("modular", "modmod", "auc"))
    assert f"AUC {low} to {high} (shown on each), for " in text
    low, high = span(gains("monolithic", "fedavg", "final_accuracy"))
    assert f"**Averaging models**: {low} to {high} in one piece (shown on " in text
    assert "**All at once ends above each part**: not shown." in text


def test_a_difference_is_decided_or_it_is_said_how_many_seeds_would_decide() -> None:
    def said(spread: float) -> str:
        rows, seeds = [], []
        for dataset in MLP[:2]:
            for at, method in enumerate(("vanilla", "data", *claims.FEDERATED, "modmod")):
                one = row(method, "fleet", 90.0, 4, protocol="fair", dataset=dataset, identity=f"{dataset}{method}")
                rows.append(one)
                wobble = [spread, -spread, 2 * spread, -2 * spread] if method == "modmod" else [0.0] * 4
                seeds += [
                    {**one, "seed": seed, "auc": 90.0 + at / 4 + off, "final_accuracy": 90.0}
                    for seed, off in enumerate(wobble)
                ]
        (words,) = results.decided(rows, seeds)
        return words

    assert "Decided: agents learn faster with modules." in said(0.01)
    assert re.search(r"Not decided: \d+ seeds would show a difference of this size with a chance of 80%", said(3.0))
    assert "it would take more than 1,000 seeds" in said(300.0)


def test_prices_and_speeds_of_the_readme_are_in_the_csvs() -> None:
    text = (ROOT / "README.md").read_text()
    fit = best.fullest(alike(read_csv(DOCS / "results" / "table1.csv")))
    sent = [
        fit["fair", dataset, "modular", "data"]["bytes_per_link_task"]
        / fit["fair", dataset, "modular", "modmod"]["bytes_per_link_task"]
        for dataset in MLP[:3]
    ]
    assert f"for 1/{max(sent):.0f} to 1/{min(sent):.0f} of the bytes that images take on the MNISTs" in text
    images = [results.per_link(fit["fair", dataset, "monolithic", "data"]) or 0.0 for dataset in MLP]
    assert f"for {min(images) / 1e6:.2f} to {max(images) / 1e6:.2f} MB per link and task" in text
    free = {given.given(settings(name, model, "data", "fair", 1)).total for name in MLP[:3] for model in MODELS}
    assert {f"({round(one, -3):,} floats on the MNISTs" in text for one in free} == {True}
    bench = read_csv(DOCS / "results" / "speed.csv")
    rates = [one["rate"] for one in bench if (one["cores"], one["lanes"], one["contender"]) == (1, 64, "shoal")]
    plain, modular = (f"{round(one, -2):,.0f}" for one in rates)
    assert f"learn {plain} (nets in one piece) or {modular} (modular) agent-steps per second" in text


def test_the_commands_for_a_gpu_train_the_cells_of_table_1() -> None:
    text = (DOCS / "results.md").read_text()
    commands = [line.split() for line in text.splitlines() if line.startswith("    shoal sweep cifar100 ")]
    found = {
        cell.settings.identity()
        for _, _, name, *words in commands
        for cell in grid(Path(name), [word for word in words if "=" in word], ["seeds=8"])
    }
    wanted = {cell.settings.identity() for model in MODELS for cell in cells("cifar100", model, "paper", 8)}
    assert found == wanted


@pytest.mark.parametrize("name", ["budget", "topology"])
def test_seeds_come_to_the_gains_beside_them(name: str) -> None:
    each: dict[tuple[Any, ...], list[float]] = {}
    keys = [one for one in families.KEYS if one != "seed"]
    for one in read_csv(DOCS / "results" / f"{name}_seeds.csv"):
        each.setdefault(tuple(one.get(key) for key in keys), []).append(one["gain"])
    rows = read_csv(DOCS / "results" / f"{name}.csv")
    assert len(rows) == len(each) > 80
    for one in rows:
        gains = each[tuple(one.get(key) for key in keys)]
        if one["gain"] is None:
            assert set(gains) == {None}  # the agents alone that it needs have not been run
            continue
        assert fmean(gains) == pytest.approx(one["gain"], abs=2e-3)
        assert stdev(gains) / len(gains) ** 0.5 == pytest.approx(one["gain_se"], abs=2e-3)


def test_scores_and_kinds_that_a_sentence_names_are_those_that_are_shown() -> None:
    """By the corrected p-values of their tables."""
    text = (DOCS / "results.md").read_text()
    head, _, *lines = tables.lines_named("scores", DOCS / "results")
    chances = [re.findall(r"\(p (\S+)\)", line) for line in lines]
    words = {"leep": "LEEP", "logme": "LogME", "otce": "OTCE", "a_distance": "the A-distance", "iou": "IoU", "kl": "KL"}
    shown: list[str] = []
    not_shown: list[str] = []
    for name, *both in zip(head.split(" | ")[1:], *chances, strict=True):
        own = [float(one.replace("<", "")) < SURE for one in both]
        (shown if all(own) else not_shown).append(words.get(name.strip(" |"), name.strip(" |")))
        assert all(own) or not any(own), f"{name} ranks offers in one of two ways; the sentence does not say so"
    said = re.search(r"([^\n.]+) rank offers better than chance, none well; of ([^\n.]+) it is not shown", text)
    assert said is not None
    assert all(name in said[1] for name in shown)
    assert all(name in said[2] for name in not_shown)

    kinds = {row["kind"]: row for row in read_csv(DOCS / "results" / "mixed.csv") if row["method"] == "hybrid"}
    whole = kinds[None]
    gain, error = whole["final_accuracy_difference"], whole["final_accuracy_difference_se"]
    assert f"all together gain {gain:+.1f} ± {error:.1f} points" in text
    table = {
        line.split(" | ")[0].strip("| "): line.split(" | ") for line in tables.lines_named("mixed", DOCS / "results")
    }
    decided = {
        kind
        for kind, cells in table.items()
        if re.fullmatch(r"[<.\d]+", cells[4]) and float(cells[4].strip("<")) < SURE
    }
    assert decided == {"rest", "all"}

    modes = read_csv(DOCS / "results" / "special.csv")
    known = results.holmed(modes, "final_accuracy_difference_p", "auc_normalised_difference_p")
    ends = [row for row in known if (row["final_accuracy_difference_p"] or 1.0) < SURE]
    helps, hurts = ({row["sharing"] for row in ends if sign * row["final_accuracy_difference"] > 0} for sign in (1, -1))
    assert helps == {"simp", "push"}
    assert hurts == {"prototypes"}
    assert "Rows help (`simp`, `push`), `prototypes` hurts by far, and of the others nothing is shown" in text
