"""Tables inside pages that people write: what stands between two marks is made from a CSV beside the page.

    <!-- table dropout -->
    ...
    <!-- end of table -->

`shoal reproduce report` makes all of them anew, so that no number in them is written by hand. Where a page has a line
`[table dropout](results/dropout.csv)` instead, the site shows the table in its place, and so does
`shoal reproduce report --pages FOLDER`.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.errors import UserError
from shoal.files import save
from shoal.runs.paired import Gain, chance, holm, interaction, paired
from shoal.sharing.combine import BUILT_IN as RULES
from shoal.study.cells import Row, read_csv
from shoal_paper import (
    adaptation,
    benchmarks,
    compression,
    confounds,
    dropout,
    grid,
    heads,
    links,
    memory,
    mixed,
    reduced,
    results,
)
from shoal_paper.best import fullest
from shoal_paper.overview import signed
from shoal_paper.results import lines_of as table
from shoal_paper.table1 import MLP

MARKED = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end of table -->)", re.S)
SHOWN = re.compile(r"^\[table ([\w-]+)\]\((?:\.\./)*results/[\w-]+\.csv\)$", re.M)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


def fill(page: Path, folder: Path) -> Path | None:
    """Make the tables of a page anew from the CSVs in a folder; None: it has none."""
    text = page.read_text(encoding="utf-8")
    if not MARKED.search(text):
        return None
    return save(page, filled(text, folder), "the page is as it was")


def filled(text: str, folder: Path) -> str:
    """A page with its tables as the CSVs in a folder have them."""

    return MARKED.sub(lambda found: "\n".join([found[1].rstrip(), *lines_named(found[2], folder), found[3]]), text)


def shown(text: str, folder: Path) -> str:
    """A page with its tables in the place of the links to their CSVs."""
    return SHOWN.sub(lambda found: "\n".join(lines_named(found[1], folder)), text)


def write_shown(pages: Path, folder: Path, out: Path) -> list[Path]:
    """Write the pages of a folder that link to tables into another one, with these tables in them."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in sorted(pages.glob("*.md"))}
    found = {name: shown(text, folder) for name, text in texts.items() if SHOWN.search(text)}
    out.mkdir(parents=True, exist_ok=True)
    here = os.path.relpath(pages, out)
    return [
        save(
            out / name,
            LINK.sub(lambda link: f"]({os.path.normpath(f'{here}/{link[1]}')})", text),
            "give --pages another place",
        )
        for name, text in found.items()
    ]


def lines_named(name: str, folder: Path) -> list[str]:
    """The lines of a table, made from the CSVs in a folder."""
    if name not in TABLES:
        raise UserError(f"there is no table `{name}`; allowed: {', '.join(TABLES)}")
    one = TABLES[name]
    rows = [read_csv(folder / f"{file}.csv") for file in (one.file, one.more) if file]
    return one.make(*rows) if rows[0] else [f"Not measured yet: there is no {one.file}.csv."]


def spread(row: Row, name: str, digits: int = 2, end: str = "_se_seeds") -> str:
    """A number, and its error over seeds if there is one."""
    error = row[f"{name}{end}"]
    return "-" if row[name] is None else f"{row[name]:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def gain(row: Row, name: str) -> str:
    more, error = row[f"{name}_difference"], row[f"{name}_difference_se"]
    return "" if more is None else f"{more:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def corrected(rows: Iterable[Row], name: str) -> list[str]:
    """The p-values of the differences in a table, corrected for their number by Holm's rule; nothing where there is
    none."""
    raw = [row[f"{name}_difference_p"] for row in rows]
    found = iter(holm([p for p in raw if p is not None]))
    return ["" if p is None else chance(next(found)) for p in raw]


def by_dropout(rows: list[Row]) -> list[str]:
    """Final accuracy / AUC of agents alone and of agents that get images, with dropout and without."""
    found = {(row["model"], row["dataset"], row["dropout"], row["method"]): row for row in rows}
    head = [
        f"{'Recv' if method == 'data' else 'alone'}, dropout {rate:g}"
        for rate in dropout.RATES
        for method in dropout.METHODS
    ]
    lines = []
    for model, dataset in dropout.ROWS:
        cells = [found.get((model, dataset, rate, method)) for rate in dropout.RATES for method in dropout.METHODS]
        both = (" / ".join(spread(row, name) for name in ("final_accuracy", "auc")) if row else "-" for row in cells)
        lines.append([f"{model} {dataset}", *both])
    return table(["", *head], lines)


def by_memory(rows: list[Row], seeds: list[Row]) -> list[str]:
    """What remembering more of one's own images brings, and what images of others do, final accuracy / AUC; p-values
    are corrected for all differences of the table."""
    found = memory.gains(rows, seeds)
    chances = iter(holm([1.0 if one.p is None else one.p for both in found.values() for one in both.values()]))
    cells = {
        key: " / ".join(f"{signed(one)} (p {chance(next(chances))})" for one in both.values())
        for key, both in found.items()
    }
    datasets, kinds = dict.fromkeys(name for name, _ in cells), dict.fromkeys(kind for _, kind in cells)
    words: dict[int | str, str] = {size: f"{size} own images" for size in memory.MEMORIES}
    words["data"] = "images of others"
    head = ["", *(words.get(kind, str(kind).replace("data", "images").replace("over", "less")) for kind in kinds)]
    return table(head, [[name, *(cells.get((name, kind), "-") for kind in kinds)] for name in datasets])


def by_head(rows: list[Row]) -> list[str]:
    """Agents alone and agents that share, whose heads begin at random or at zero: final accuracy / AUC; p-values are
    corrected for all differences of the table."""
    metrics = ("final_accuracy", "auc")
    lines = []
    for row in corrected_heads(rows):
        more = (" / ".join(results.difference(row, name, end) for name in metrics) for end in ("_vanilla", ""))
        level = " / ".join(spread(row, name) for name in metrics)
        lines.append([row["dataset"], row["method"], row["head"], level, *(one.strip(" /") for one in more)])
    return table(["", "", "heads", "final accuracy / AUC", "over vanilla, random", "over vanilla, zero"], lines)


def corrected_heads(rows: Sequence[Row]) -> list[Row]:
    """The rows of heads with p-values corrected for all of the table, in which each difference stands once."""
    metrics = ("final_accuracy", "auc")
    mirrored = {f"{name}_difference{part}": None for name in metrics for part in ("", "_se", "_p")}
    plain = [row | mirrored if (row["method"], row["head"]) == ("vanilla", "random") else row for row in rows]
    return results.differences_of(plain, *metrics)


def by_confound(rows: list[Row]) -> list[str]:
    """What modules have more than images, under every scope of the questions and every kind of heads; p-values are
    corrected for all differences of the table."""
    levels = {(row["dataset"], row["method"], row["scope"], row["head"]): row for row in rows}
    found = [
        (row, scope, {name: f"{name}_difference{{}}_{scope}" for name in ("final_accuracy", "auc")})
        for row in rows
        if row["method"] == "modmod"
        for scope in confounds.SCOPES
        if row[f"auc_difference_{scope}"] is not None
    ]
    keys = [(at, name) for at, (_, _, names) in enumerate(found) for name in names]
    chances = dict(zip(keys, holm([found[at][0][found[at][2][name].format("_p")] for at, name in keys]), strict=True))
    lines = []
    for at, (row, scope, names) in enumerate(found):
        data = levels[row["dataset"], "data", scope, row["head"]]
        more = [
            f"{row[end.format('')]:+.2f} ± {row[end.format('_se')]:.2f} (p {chance(chances[at, name])})"
            for name, end in names.items()
        ]
        both = (" / ".join(f"{one[name]:.2f}" for name in names) for one in (data, row))
        lines.append([row["dataset"], scope, row["head"], *both, " / ".join(more)])
    head = ["", "images asked for about", "heads begin", "images", "modules", "modules - images"]
    return table(head, lines)


def by_kind(rows: list[Row]) -> list[str]:
    """What each kind of agents in a mixed fleet has alone, and what it gains."""
    alone, shares = ({row["kind"]: row for row in rows if row["method"] == method} for method in mixed.METHODS)
    head = [
        "kind",
        *(word for name in ("final accuracy, %", "AUC") for word in (f"{name}: alone", "sharing", "gain", "p")),
    ]
    lines = []
    kinds = sorted(shares.keys() & alone.keys(), key=lambda kind: (kind is None, list(shares).index(kind)))
    metrics = ("final_accuracy", "auc")
    known = results.differences_of([shares[kind] for kind in kinds], *metrics)
    for kind, row in zip(kinds, known, strict=True):
        cells = [
            cell
            for name in metrics
            for cell in (
                f"{alone[kind][name]:.2f}",
                f"{row[name]:.2f}",
                gain(row, name),
                chance(row[f"{name}_difference_p"]),
            )
        ]
        lines.append([kind or "all", *cells])
    return table(head, lines)


def by_part(rows: list[Row]) -> list[str]:
    """What each part of a received module gains, over all routes and those with and without a class in common."""
    groups = list(dict.fromkeys(row["routes"] for row in rows))
    found = {(row["parts"], row["routes"]): row for row in rows}
    counts = {row["routes"]: row["pairs"] for row in rows}
    lines = [
        [
            parts.replace("+", " + "),
            *(gained(found[parts, group]) for group in groups),
            *(f"{found[parts, groups[0]][name]:,}" for name in ("floats", "bytes")),
        ]
        for parts in dict.fromkeys(row["parts"] for row in rows)
    ]
    return table(["received", *(f"{group} ({counts[group]:,} routes)" for group in groups), "floats", "bytes"], lines)


def gained(row: Row, name: str = "gain") -> str:
    error = row[f"{name}_se"]
    return f"{row[name]:+.2f}" + ("" if error is None else f" ± {error:.2f}")


def by_loss(what: str, without: dict[str, str]) -> Callable[[list[Row]], list[str]]:
    """What all three parts have more than some of them, or than the control, paired over seeds; p-values are corrected
    for all differences of the table."""

    def made(rows: list[Row]) -> list[str]:
        found = {(row["parts"], row["routes"]): row for row in rows}
        groups = list(dict.fromkeys(row["routes"] for row in rows))
        shown = [found[parts, group] for parts in without.values() for group in groups]
        raw = [None if row["lost_se"] is None else Gain(row["lost"], row["lost_se"], row["seeds"]).p for row in shown]
        known = results.holmed([{**row, "p": p} for row, p in zip(shown, raw, strict=True)], "p")
        cells = iter(f"{gained(row, 'lost')} (p {chance(row['p']) or '-'})" for row in known)
        return table([what, *groups], [[words, *(next(cells) for _ in groups)] for words in without])

    return made


OTHERS = {"module": "structure+head", "structure": "module+head", "head": "module+structure"}  # without each part


def by_score(rows: list[Row]) -> list[str]:
    """How well each score ranks what is received by what it gains, over all pairs and within a task; p-values are
    corrected for all correlations of the table."""
    names = {"rho": "all pairs", "within": "within a task"}
    tested = [{f"{name}_p": Gain(row[name], row[f"{name}_se"], row["seeds"]).p for name in names} for row in rows]
    raw = [row | chances for row, chances in zip(rows, tested, strict=True)]
    known = results.holmed(raw, *(f"{name}_p" for name in names))
    lines = [
        [words, *(f"{spread(row, name, end='_se')} (p {chance(row[f'{name}_p']) or '-'})" for row in known)]
        for name, words in names.items()
    ]
    return table(["", *(row["metric"] for row in rows)], lines)


def scored(rows: list[Row]) -> list[str]:
    """What is received gains, whatever the score, and how many pairs say so."""
    row = rows[0]
    return [
        f"{row['seeds']} seeds, {row['pairs']:,} pairs in all: what a neighbour with the same start sends for a task "
        f"(module, structure and head together) gains {gained(row)} points over a fresh start, whatever the pair."
    ]


def by_sharing(rows: list[Row]) -> list[str]:
    """Of every learner the final accuracy alone, and what each way of sharing adds to it."""
    keys = [(row["dataset"], row["learner"], row["method"]) for row in rows]
    found = dict(zip(keys, rows, strict=True))
    chances = dict(zip(keys, corrected(rows, "final_accuracy"), strict=True))
    lines = []
    for dataset, learner in dict.fromkeys((row["dataset"], row["learner"]) for row in rows):
        own = [(key, found[key]) for method in grid.METHODS for key in [(dataset, learner, method)] if key in found]
        shown = {
            key[2]: spread(row, "final_accuracy") if row["method"] == grid.ALONE
            else f"{gain(row, 'final_accuracy')} (p {chances[key]})"
            for key, row in own
        }  # fmt: skip
        cells = [shown.get(method, "") for method in grid.METHODS]
        lines.append([dataset, learner, *cells])
    return table(["dataset", "learner", "alone, %", *grid.METHODS[1:]], lines)


def by_order(rows: list[Row]) -> list[str]:
    """Of every learner what images have more than averaged models, seed by seed; of every dataset one test of whether
    what a way of sharing brings depends on the learner, corrected for the number of datasets."""
    wanted = (grid.ALONE, "data", "fedavg")
    found = {(row["dataset"], row["learner"], row["method"], row["seed"]): row["final_accuracy"] for row in rows}
    gains, depends = {}, {}
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        seeds = sorted({row["seed"] for row in rows if row["dataset"] == dataset})
        each = np.array(
            [[[found[dataset, learner, name, seed] for name in wanted] for learner in grid.LEARNERS] for seed in seeds]
        )
        depends[dataset] = interaction(each)
        for learner in grid.LEARNERS:
            images, averaging = (
                {seed: {"final_accuracy": found[dataset, learner, name, seed]} for seed in seeds} for name in wanted[1:]
            )
            if more := paired(images, averaging, "final_accuracy"):
                gains[dataset, learner] = more
    chances = dict(zip(gains, holm([1.0 if one.p is None else one.p for one in gains.values()]), strict=True))
    lines = []
    for dataset, p in zip(depends, holm(list(depends.values())), strict=True):
        each_gain = [(gains[dataset, learner], chances[dataset, learner]) for learner in grid.LEARNERS]
        cells = [f"{signed(one)} (p {chance(by)})" for one, by in each_gain]
        lines.append([dataset, *cells, f"p {chance(p)}"])
    return table(["images - averaging", *grid.LEARNERS, "learner x sharing"], lines)


def by_codec(rows: list[Row]) -> list[str]:
    """Final accuracy of FedAvg by how models are sent, how far that is from FedAvg, and what it costs."""
    lines = []
    for row in rows:
        gap = "" if row["method"] == compression.WHOLE else spread(row, "to_fedavg", end="_se")
        share = f"{100 * row['of_fedavg']:.1f} %" if row["of_fedavg"] else ""
        sent = f"{row['bytes_per_link_task']:,.0f}"
        name = "agents alone" if row["method"] == "vanilla" else row["method"]
        lines.append([name, spread(row, "final_accuracy", end="_se"), gap, sent, share])
    return table(["sent", "final accuracy, %", "less FedAvg, paired", "bytes per link and task", "of FedAvg's"], lines)


def by_network(rows: list[Row]) -> list[str]:
    """Final accuracy of dictionaries, and what that is more than single fits, by who agrees with whom."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    found = {(row["images"], row["tasks"], row["network"]): row for row in rows}
    lines = []
    for images, tasks in dict.fromkeys((row["images"], row["tasks"]) for row in rows):
        own = [found[images, tasks, network] for network in networks]
        cells = (f"{spread(row, 'final', end='_se')} ({row['gain']:+.2f} ± {row['gain_se']:.2f})" for row in own)
        lines.append([f"{images}, {tasks}", spread(own[0], "single", end="_sd"), *cells])
    return table(["images per class", "single fits", *networks], lines)


def by_backbone(rows: list[Row]) -> list[str]:
    """Nets on a frozen backbone: accuracy on one's own tasks, on those of others, and where no task is told."""
    lines = [
        [
            row["case"],
            spread(row, "own", end="_se"),
            number(row["while_learned"]),
            spread(row, "zero_shot", end="_se"),
            *("" if row[name] is None else number(row[name]) for name in ("mapped", "free")),
            f"{row['bytes_per_link']:,}",
        ]
        for row in rows
    ]
    head = ["", "own tasks, %", "while learned", "others' tasks", "task found", "right without a task told"]
    return table([*head, "bytes per link and task"], lines)


def by_sums(rows: list[Row]) -> list[str]:
    """What agents with one backbone share on CIFAR-100: accuracy, how far from that of all rows together, and bytes."""
    lines = [
        [
            row["case"],
            f"{row['chosen']:g}" + (f", {row['epochs']} epochs" if row["gap"] is None else ""),
            f"{row['final']:.2f}" + (f" ± {row['final_se']:.2f}" if row["seeds"] > 1 else ""),
            "" if row["gap"] is None else f"{row['gap'] + 0.0:+.2f}",
            f"{row['bytes_per_link'] / 1e6:.2f}",
        ]
        for row in rows
    ]
    return table(["case", "ridge, or rate", "final, %", "from the pooled value", "MB per link"], lines)


def by_adapter(rows: list[Row]) -> list[str]:
    """What trains of a frozen net, and what is shared of it: accuracy and bytes."""
    lines = [
        [
            row["net"],
            row["case"],
            f"{row['numbers']:,}",
            f"{row['rate']:g}",
            f"{row['final']:.2f} ± {row['final_se']:.2f}",
            f"{row['bytes_per_link_task'] / 1e3:,.1f}",
        ]
        for row in rows
    ]
    return table(["net", "trains, shares", "numbers that train", "rate", "final, %", "kB per link and task"], lines)


def by_anchor(rows: list[Row]) -> list[str]:
    """Scores of modules: what they gain over agents alone, and cost in bytes and time."""
    lines = [
        [
            row["score"],
            f"{row['final']:.1f} ± {row['final_se']:.1f}",
            f"{row['gain']:+.1f} ± {row['gain_se']:.1f}" if row["us_per_edge"] else "",
            f"{row['bytes_per_link_task'] / 1e3:.2f}",
            f"{row['us_per_edge']:,}" if row["us_per_edge"] else "",
        ]
        for row in rows
    ]
    head = ["score", "final, %", "over agents alone", "kB per link and task", "µs of CPU per edge and exchange"]
    return table(head, lines)


def by_detector(rows: list[Row]) -> list[str]:
    """Changes of agents' streams: how many of the true ones detectors find, how late, and how often there is none."""
    lines = [
        [
            row["stream"],
            row["detector"],
            {"rows": "how far rows lie", "errors": "errors of the nearest mean"}[row["watch"]],
            f"{row['found']} of {row['true']}",
            "" if row["delay"] is None else f"{row['delay']:.1f}",
            str(row["false"]),
        ]
        for row in rows
    ]
    return table(["stream", "detector", "watches", "true changes found", "rows late", "false alarms"], lines)


def by_learner(rows: list[Row]) -> list[str]:
    """Learners on sequential MNIST beside what was published; the spread is the standard deviation over seeds."""
    lines = [
        [
            row["method"],
            spread(row, "class_il", end="_sd"),
            number(row["published_class_il"]),
            spread(row, "task_il", end="_sd"),
            number(row["published_task_il"]),
            benchmarks.verdict(row),
        ]
        for row in rows
    ]
    return table(["learner", "class-incremental", "published", "task-incremental", "published", "verdict"], lines)


def by_scenario(rows: list[Row]) -> list[str]:
    """Learners in three scenarios beside what was published; of several runs of a row, that with most seeds."""
    last = benchmarks.latest(rows)
    found = {(row["method"], row["scenario"]): row for row in last}
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for scenario in benchmarks.HEADS:
            row = found.get((method, scenario))
            if row is None:
                cells += ["-", ""]
                continue
            published = " / ".join(number(row[f"published_{year}"]) for year in (2019, 2022))
            cells += [f"{spread(row, 'accuracy', end='_sd')} ({benchmarks.verdict(row)})", published]
        lines.append([method, *cells])
    head = [word for scenario in benchmarks.HEADS for word in (f"{scenario}-incremental", "published 2019 / 2022")]
    return [*table(["learner", *head], lines), "", benchmarks.hanging(last)]


def by_weather(rows: list[Row]) -> list[str]:
    """What each mode gains over agents alone, by how much mail is lost and by how many agents are gone."""
    found = {(row["method"], row["loss"], row["absent"]): row for row in rows}
    columns = [*((loss, 0) for loss in links.LOSSES), *((0.0, gone) for gone in links.ABSENT)]
    lines = [[method, *(gained(found[method, *place]) for place in columns)] for method in links.METHODS[1:]]
    head = [f"{loss:g} lost" if loss else "no loss" for loss in links.LOSSES]
    return table(["", *head, *(f"{gone} gone" for gone in links.ABSENT)], lines)


def by_mode(rows: list[Row]) -> list[str]:
    """Final accuracy, AUC and bytes of sharing modes on one small fleet, and what they have more than agents alone;
    p-values are corrected for all differences of the table."""
    names = ("final_accuracy", "auc_normalised")
    lines = []
    for row in results.holmed(rows, *(f"{name}_difference_p" for name in names)):
        more = (f"{gain(row, name)} (p {chance(row[f'{name}_difference_p'])})" for name in names)
        both = [cell for name, own in zip(names, more, strict=True) for cell in (spread(row, name, 1), own)]
        alone = row["final_accuracy_difference"] is None
        cells = ["" if alone and at % 2 else cell for at, cell in enumerate(both)]
        lines.append([row["sharing"], *cells, f"{row['bytes_per_link_task']:,.0f}"])
    head = ["final accuracy, %", "over agents alone", "AUC, % of its maximum", "over agents alone"]
    return table(["sharing", *head, "bytes per link and task"], lines)


def by_case(experiment: str) -> Callable[[list[Row]], list[str]]:
    """FedWeIT and what it is compared with, each with the drift that validation images chose."""

    def made(rows: list[Row]) -> list[str]:
        lines = [
            [
                row["case"] if row["drift"] is None else f"{row['case']} (drift {row['drift']:g})",
                spread(row, "final", end="_se"),
                number(row["forgetting"]),
                spread(row, "while_learned", end="_se"),
                *(f"{row[name]:,}" for name in ("bytes_per_link_task", "part_bytes")),
            ]
            for row in rows
            if row["experiment"] == experiment and row["chosen"] == "yes"
        ]
        head = ["final accuracy, %", "forgetting, points", "while learned, %"]
        return table([experiment, *head, "bytes per link and task", "of these, parts"], lines)

    return made


def by_gain(rows: list[Row]) -> list[str]:
    """What each of the paper's ways of sharing gains over agents alone with the same start, protocol `paper`."""
    best = {key[1:]: row for key, row in fullest(rows).items() if key[0] == "paper"}
    lines = []
    for model, method in dict.fromkeys(key[1:] for key in best):
        own = [best.get((dataset, model, method)) for dataset in MLP]
        if any(row is None or row["final_accuracy_gain"] is None for row in own):
            continue
        cells = [" / ".join(gained(row, f"{name}_gain") for name in ("final_accuracy", "auc")) for row in own if row]
        sent = best[MLP[0], model, method]["bytes_per_link_task"]
        lines.append([f"{model} {method}", *cells, "-" if sent is None else f"{sent:,.0f}"])
    return table(["", *MLP, f"bytes per link and task, {MLP[0]}"], lines)


def by_rule(rows: list[Row]) -> list[str]:
    """Final accuracy of honest agents under each rule of averaging, where averaging has a gain to keep."""
    found = {
        (row["defence"], row["lie"], row["liars"]): row["accuracy"]
        for row in rows
        if (row["protocol"], row["model"], row["mode"]) == ("alike", "mlp", "fedavg")
    }
    names = [name for name in RULES if (name, None, 0) in found]
    lines = []
    for lie, liars in [(None, 0), *((lie, liars) for lie in ("sign-flip", "random") for liars in (1, 2))]:
        cells = (found.get((name, lie, liars)) for name in names)
        lines.append([f"{liars}: {lie}" if lie else "nobody", *("-" if one is None else f"{one:.1f}" for one in cells)])
    return table(["liars of 8", *names], lines)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


class Table(NamedTuple):
    """How a table is made, and from which CSVs; without the first there is none."""

    make: Callable[..., list[str]]
    file: str
    more: str = ""


TABLES = {
    compression.COMPRESSION: Table(by_codec, compression.COMPRESSION),
    dropout.NAME: Table(by_dropout, dropout.NAME),
    memory.NAME: Table(by_memory, memory.NAME, "seeds"),
    grid.NAME: Table(by_sharing, grid.NAME),
    "grid-order": Table(by_order, grid.SEEDS),
    mixed.NAME: Table(by_kind, mixed.NAME),
    "scores": Table(by_score, "scores"),
    "scored": Table(scored, "scores"),
    "parts": Table(by_part, "parts"),
    "dictionaries": Table(by_network, "dictionaries"),
    "backbone": Table(by_backbone, "backbone"),
    "closed": Table(by_sums, "closed"),
    "adapters": Table(by_adapter, "adapters"),
    "anchors": Table(by_anchor, "anchors"),
    "drift": Table(by_detector, "drift"),
    "parts-lost": Table(by_loss("what it adds to the two others", OTHERS), "parts"),
    "parts-zero": Table(by_loss("received", {"all three parts, over a zero head": "zero head"}), "parts"),
    heads.NAME: Table(by_head, heads.NAME),
    confounds.NAME: Table(by_confound, confounds.NAME),
    links.NAME: Table(by_weather, links.NAME),
    "special": Table(by_mode, "special"),
    "fedweit-digits": Table(by_case("digits"), "fedweit"),
    "fedweit-mnist": Table(by_case("mnist"), "fedweit"),
    "rules": Table(by_rule, "liars"),
    "gains-paper": Table(by_gain, "table1"),
    benchmarks.SEQUENTIAL: Table(by_learner, benchmarks.SEQUENTIAL),
    benchmarks.SCENARIOS: Table(by_scenario, benchmarks.SCENARIOS),
    "table1-fair": Table(results.at_a_glance("fair"), "table1", "seeds"),
    "ran-fair": Table(results.ran("fair"), "table1"),
    "near": Table(results.near, "table1"),
    "found": Table(results.found, "table1", "seeds"),
    "modmod-data": Table(results.decided, "table1", "seeds"),
    "claims-fair": Table(results.judged("fair"), "table1", "seeds"),
    "costs": Table(results.costs, "table1"),
    "slopes": Table(results.slopes, "budget", "budget_seeds"),
    "base": Table(results.by_base, "topology"),
    "cifar-time": Table(reduced.took, "table1"),
    "reduction": Table(reduced.tried, "reduction"),
    adaptation.NAME: Table(reduced.adapted, adaptation.NAME),
}
