"""What pages for people show of Table 1, the budget and the graphs: short tables from the CSVs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from shoal.runs.paired import SURE, Gain, chance, holm
from shoal.study.cells import Row
from shoal.study.power import POWER
from shoal_paper import agreement, budget, claims, draws, overview, topology
from shoal_paper.best import by_cell, fullest, printed
from shoal_paper.claims import METRICS, TOGETHER
from shoal_paper.table1 import FORMER, MLP, alike, former, settings

MODES = ("data", "federated", "modmod")
NAMED = {"data": "images", "modmod": "modules"}
VERDICTS = {"holds": "yes", "fails": "no", "undecided": "not shown"}
DREW = {"agent": "shoal 0.1", "authors": "the paper's authors", "fleet": "the fleet"}
MAIN = ("vanilla", "data", "fedavg", "modmod", "hybrid")
Made = Callable[..., list[str]]


def lines_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def holmed(rows: Sequence[Row], *columns: str) -> list[Row]:
    """The rows of a table with the p-values of these columns corrected for all that it shows, by Holm's rule."""
    there = [(at, name) for at, row in enumerate(rows) for name in columns if row.get(name) is not None]
    corrected = dict(zip(there, holm([rows[at][name] for at, name in there]), strict=True))
    return [
        {**row, **{name: corrected[at, name] for name in columns if (at, name) in corrected}}
        for at, row in enumerate(rows)
    ]


def differences_of(rows: Sequence[Row], *names: str) -> list[Row]:
    """Rows whose differences from agents alone, of both kinds, have p-values corrected for all of the table."""
    return holmed(rows, *(f"{name}_difference_p{end}" for name in names for end in ("", "_vanilla")))


def difference(row: Row, name: str, end: str = "", scale: float = 1.0) -> str:
    """A difference with its error and the p-value of a paired t-test; nothing, if there is none."""
    value, error, p = (row[f"{name}_difference{part}{end}"] for part in ("", "_se", "_p"))
    if value is None or error is None:
        return "" if value is None else f"{scale * value:+.2f}"
    return f"{scale * value:+.2f} ± {scale * error:.2f} (p {chance(p)})"


def at_a_glance(protocol: str) -> Made:
    """The main rows of Table 1: beside the paper's whatever their draw; with gains only rows of one draw."""

    def made(rows: list[Row], seeds: list[Row]) -> list[str]:
        best = fullest(rows if protocol == "paper" else alike(rows))
        return overview.table(protocol, best, by_cell(fullest(alike(rows)), seeds), MAIN)

    return made


def near(rows: list[Row]) -> list[str]:
    """How near the paper's numbers ours are, in a line."""
    found = printed({key: row for key, row in fullest(rows).items() if key[0] == "paper"})
    said = agreement.brief(found)
    return [f"{said[:1].upper()}{said[1:]}; {draws.near(found)} numbers are within {overview.CLOSE} of the paper's."]


def ran(protocol: str) -> Made:
    """What the rows of Table 1 are: seeds, draws, the command, and how long they took."""

    def made(rows: list[Row]) -> list[str]:
        best = fullest(rows if protocol == "paper" else alike(rows))
        here = [row for key, row in best.items() if key[0] == protocol and key[1] in MLP]
        seeds, drew = (sorted({row[name] for row in here}) for name in ("seeds", "draw"))
        words = [f"{DREW[draw]} ({sum(row['draw'] == draw for row in here)} rows)" for draw in drew]
        commands = [
            f"`shoal reproduce table1 --protocol {protocol}{' --draw agent' if draw == FORMER else ''} --seeds {count}`"
            for draw, count in sorted({(row["draw"], row["seeds"]) for row in here})
        ]
        hours = sum(row["seconds"] for row in here if row["seconds"]) / 3600
        return [
            f"Seeds 0 to {' or 0 to '.join(str(count - 1) for count in seeds)}; tasks as {' and '.join(words)} drew "
            f"them. Made by {' and '.join(commands)}: {hours:.1f} hours of processes with one thread each "
            "([what it took](reference/reproduced.md#what-it-took))."
        ]

    return made


def decided(rows: list[Row], seeds: list[Row]) -> list[str]:
    """Does modmod learn faster than data, or how many seeds would tell?"""
    claim = claims.CLAIMS[0]
    (found,) = (
        one
        for one in claims.judged("fair", by_cell(fullest(alike(rows)), seeds))
        if one.claim is claim and one.dataset == TOGETHER
    )
    gap, p = found.gaps["data"], found.corrected.get("data")
    said = (
        f"**modmod against data** ({METRICS[claim.metric]}, modular, the mean over datasets, {gap.seeds} seeds): "
        f"{overview.signed(gap)}, p {chance(gap.p)}, {chance(p)} corrected for {len(found.gaps)} rivals. "
    )
    if found.shows("data"):
        counts = {row["seeds"] for key, row in fullest(alike(rows)).items() if key[0] == "fair" and key[1] in MLP}
        so_far = "So far, with the seeds that all datasets have in common: " if len(counts) > 1 else "Decided: "
        return [f"{said}{so_far}agents learn faster with {'modules' if gap.mean > 0 else 'images'}."]
    many = claims.enough(gap)
    if many.startswith("more"):
        return [f"{said}Undecidable at an effect of this size: it would take {many}."]
    return [
        f"{said}Not decided: {many} would show a difference of this size with a chance of {POWER:.0%}, uncorrected."
    ]


def found(rows: list[Row], seeds: list[Row]) -> list[str]:
    """What README says that we found under `fair`: every number and every verdict from the CSVs."""
    fit = fullest(alike(rows))
    each = by_cell(fit, seeds)
    here = [row for key, row in fit.items() if key[0] == "fair" and key[1] in MLP]
    counts = sorted({row["seeds"] for row in here})
    judgements = claims.judged("fair", each)
    findings = {(one.claim.words, one.claim.model): one for one in judgements if one.dataset == TOGETHER}

    def also(finding: claims.Finding, shown: Callable[[claims.Finding], bool]) -> str:
        """On which datasets the same is shown."""
        own = [one for one in judgements if one.claim is finding.claim and one.dataset != TOGETHER]
        names = [one.dataset for one in own if shown(one)]
        return "on each" if len(names) == len(own) else f"singly on {', '.join(names)}" if names else "singly on none"

    def gains(model: str, method: str, name: str) -> dict[str, Gain]:
        every = {dataset: overview.gain(("fair", dataset, model, method), name, each) for dataset in MLP}
        return {dataset: gap for dataset, gap in every.items() if gap}

    plain, modular = (gains(model, "data", "final_accuracy") for model in ("monolithic", "modular"))
    by_images = shown(plain, modular)
    size = [results for results in (per_link(fit["fair", name, "monolithic", "data"]) for name in MLP) if results]
    most = " most" if mean_of(plain) > mean_of(modular) else ""
    old = [name for name in MLP if any(former(row) for row in here if row["dataset"] == name)]
    drawn = "" if not old else "; tasks as shoal 0.1 drew them" + f" on {', '.join(old)}" * (len(old) < len(MLP))
    lines = [
        "Four datasets, seeds 0 to "
        f"{' or 0 to '.join(str(count - 1) for count in counts)}, over agents that share nothing, ± standard error "
        f"over seeds{drawn} (`shoal reproduce table1 --protocol fair --seeds {max(counts)}`, "
        "[tables](docs/results.md)):",
        "",
        f"- **Images help nets in one piece{most}**: {span(plain)} points of final accuracy ({by_images[0]}), for "
        f"{min(size) / 1e6:.2f} to {max(size) / 1e6:.2f} MB per link and task; modular nets {span(modular)} "
        f"({by_images[1]}).",
    ]
    ratio = [
        images / modules
        for images, modules in ([per_link(fit["fair", name, "modular", one]) for one in NAMED] for name in MLP[:3])
        if images and modules
    ]
    modules = gains("modular", "modmod", "auc")
    lines.append(
        f"- **Modules help for the fewest bytes**: AUC {span(modules)} ({shown(modules)[0]}), for "
        f"1/{max(ratio):.0f} to 1/{min(ratio):.0f} of the bytes that images take on the MNISTs."
    )
    both = [findings["the hybrid ends above its parts", model] for model in ("modular", "monolithic")]
    said = []
    for one, words in zip(both, ("modular nets", "one piece"), strict=True):
        parts = [
            f"{tenths(one.gaps[name])} over {NAMED[name]} alone" for name in ("data", "modmod") if name in one.gaps
        ]
        single = f"; {also(one, lambda it: it.verdict == 'holds')}" * (one.verdict == "holds")
        said.append(f"in {words}: {VERDICTS[one.verdict]} ({', '.join(parts)}{single})")
    undecided = all(one.verdict == "undecided" for one in both)
    lines.append(f"- **All at once ends above each part**: {'not shown' if undecided else '; '.join(said)}.")
    average = [gains(model, "fedavg", "final_accuracy") for model in ("monolithic", "modular")]
    spans = [f"{span(own)} in {words}" for own, words in zip(average, ("one piece", "modular nets"), strict=True)]
    said = [f"{words} ({by})" for words, by in zip(spans, shown(*average), strict=True)]
    lines.append(f"- **Averaging models**: {', '.join(said)}.")
    return lines


def span(gains: Mapping[str, Gain]) -> str:
    """From the least to the most of some gains."""
    every = [one.mean for one in gains.values()]
    return f"{min(every):+.1f} to {max(every):+.1f}"


def mean_of(gains: Mapping[str, Gain]) -> float:
    return fmean(one.mean for one in gains.values())


def shown(*groups: Mapping[str, Gain]) -> list[str]:
    """Of each group on which datasets its gains are shown, with p corrected by Holm's rule for all groups together."""
    chances = iter(holm([1.0 if one.p is None else one.p for own in groups for one in own.values()]))
    said = []
    for own in groups:
        signs = {name: (one.mean > 0) - (one.mean < 0) for name, one in own.items() if next(chances) < SURE}
        every = len(signs) == len(own) and len({*signs.values()}) == 1
        said.append("shown on each" if every else f"shown on {', '.join(signs)}" if signs else "shown on none")
    return said


def tenths(gap: Gain) -> str:
    """A difference with its error, as a sentence has it."""
    return f"{round(gap.mean, 1) + 0.0:+.1f}" + ("" if gap.error is None else f" ± {gap.error:.1f}")


def judged(protocol: str) -> Made:
    """Claims over all datasets together, with the difference from each rival."""

    def made(rows: list[Row], seeds: list[Row]) -> list[str]:
        found = claims.judged(protocol, by_cell(fullest(alike(rows)), seeds))
        return lines_of(
            [
                "claim",
                "verdict",
                "difference from each rival, ± standard error (p; corrected; seeds that would decide, uncorrected)",
            ],
            [
                [f"{one.claim.words}, {one.claim.model}", one.verdict, claims.differences(one)]
                for one in found
                if one.dataset == TOGETHER
            ],
        )

    return made


def per_link(row: Row) -> float | None:
    """Bytes per directed link and task in which it was used, as floats are counted. Rows of shoal 0.1 have the total
    alone: modmod acts from the second task after the start on, all others from the first."""
    if row.get("bytes_per_link_task"):
        return float(row["bytes_per_link_task"])
    if not row.get("bytes_total"):
        return None
    fleet = settings(row["dataset"], row["model"], row["method"], row["protocol"], row["seeds"])
    used = fleet.tasks.count - fleet.tasks.initial - (row["method"] == "modmod")
    links: int = fleet.agents * (fleet.agents - 1) * fleet.seeds
    return float(row["bytes_total"]) / (links * int(used))


def costs(rows: list[Row]) -> list[str]:
    """What each way of sharing costs on mnist, modular nets, protocol `paper`, in one denominator."""
    here = {row["method"]: row for row in alike(rows) if key(row) == ("paper", "mnist", "modular")}
    methods = [name for name in ("data", "fedavg", "fedcurv", "modmod", "hybrid") if name in here]
    floats = {"floats by the paper's rule": "paper_floats_per_edge_task", "floats as sent": "floats_per_edge_task"}
    lines = [[words, *(f"{here[name][column]:,.0f}" for name in methods)] for words, column in floats.items()]
    sizes = [per_link(here[name]) for name in methods]
    return lines_of(
        ["", *methods], [*lines, ["in bytes", *("-" if size is None else f"{size:,.0f}" for size in sizes)]]
    )


def key(row: Row) -> tuple[str, str, str]:
    return row["protocol"], row["dataset"], row["model"]


def slopes(rows: list[Row], each: list[Row]) -> list[str]:
    """Marginal gain of every mode: the mean over datasets and each of them, with errors over seeds where these are
    enough to have one."""
    found = budget.conclude({"budget": alike(rows), "budget_seeds": each})["slopes"]
    modes = [(model, mode) for model in ("monolithic", "modular") for mode in MODES if (model, mode) in budget.PAPER]
    kept = {(one["datasets"], one["model"], one["mode"]): one for one in found if one["protocol"] == "paper"}
    lines = []
    for datasets in dict.fromkeys(name for name, *_ in kept):
        cells = [kept.get((datasets, *mode)) for mode in modes]
        lines.append([f"ours, {datasets.replace(' ', ', ')}", *(slope(one) for one in cells)])
    first = next(iter(dict.fromkeys(name for name, *_ in kept)), "")
    noted = [kept.get((first, *mode)) for mode in modes]
    theirs = [one["paper_marginal_gain_here"] if one else None for one in noted]
    lines.append(["from the authors' notebooks, same data", *("" if one is None else f"{one:.3f}" for one in theirs)])
    lines.append(["the paper's, five datasets", *(f"{budget.PAPER[mode][0]:.3f}" for mode in modes)])
    return lines_of(["slope, % per unit of ln B", *(" ".join(mode) for mode in modes)], lines)


def slope(row: Row | None) -> str:
    if row is None or row["marginal_gain"] is None:
        return "-"
    error = row["marginal_gain_se"] if row["seeds"] >= budget.ENOUGH else None
    return f"{row['marginal_gain']:.3f}" + ("" if error is None else f" ± {error:.3f}")


def by_base(rows: list[Row]) -> list[str]:
    """What sharing seems to gain on the mean of all graphs, over agents alone that begin as it does, and over the
    paper's base."""
    shared = [row for row in alike(rows) if row["mode"] != "alone" and row["gain"] is not None]
    lines = []
    for (dataset, model, mode), same in budget.grouped(shared, ("dataset", "model", "mode")).items():
        if all(row["gain_vanilla"] is not None for row in same) and len(same) == len(topology.GRAPHS):
            sparse = [row for row in same if row["p"] == min(graph[1] for graph in topology.GRAPHS if graph[1])]
            cells = [
                f"{sum(row[name] for row in some) / len(some):+.2f}"
                for some in (same, sparse)
                for name in ("gain_vanilla", "gain")
            ]
            lines.append([dataset, model, mode, *cells])
    head = ["dataset", "model", "mode"]
    words = ("over agents with own starts", "over agents alone with the same start")
    return lines_of([*head, *(f"{which}: {word}" for which in ("all graphs", "p = 0.1") for word in words)], lines)
