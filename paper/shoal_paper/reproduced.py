"""Every cell of the paper's tables and figures beside ours, from the committed CSVs; `front` has it in short."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from shoal.errors import UserError
from shoal.files import save
from shoal.runs.paired import Gain, Scores
from shoal.study.cells import Row, read_csv
from shoal_paper import budget, claims, corrections, draws, gaps, given, overview, reduced, topology
from shoal_paper.best import by_cell, fullest, printed
from shoal_paper.claims import FIVE, METRICS, Key
from shoal_paper.overview import CLOSE, far, gain, off, signed
from shoal_paper.table1 import MLP, PAPER, SMALL, alike, former

NEEDED = (
    "table1",
    "seeds",
    "budget",
    "budget_seeds",
    "topology",
    "parts",
    "leak",
    "weights",
    "heads",
    "confounds",
    "grid",
    "memory",
    "compression",
)  # CSVs; all but the first may be missing
Tables = dict[str, list[Row]]
# What the authors' notebooks have of a row when it was run once more, under one code for all rows.
LATER = {("combined", "modular", "data"): {"final_accuracy": 90.172, "auc": 89.350}}


def write(folder: Path, figures: Path, file: Path, short: bool = False) -> Path:
    """Write the page from the CSVs in a folder and the list of differences in their home, if there; figures are linked
    to. In short, it is the one of `front`."""
    return save(file, written(folder, figures, file, short), "give --write another place")


def written(folder: Path, figures: Path, file: Path, short: bool = False) -> str:
    """The text of the page, for the place where it will be."""
    from shoal_paper import front

    tables = {name: read_csv(folder / f"{name}.csv") for name in NEEDED}
    if not tables["table1"]:
        raise UserError(
            f"no {folder / 'table1.csv'} to write from; `shoal reproduce table1 --tables {folder}` makes it"
        )
    notes = home(folder) / "differences.md"
    try:
        differs = notes.read_text(encoding="utf-8") if notes.exists() else ""
        here = Path(os.path.relpath(folder, file.parent)).as_posix()
        other = Path(os.path.relpath(notes, file.parent)).as_posix()
        if short:
            return front.page(tables)
        return page(tables, differs, links(figures, file), "" if here == "." else here, other)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"cannot make sense of the CSVs in {folder} ({error}); restore them") from None


def home(folder: Path) -> Path:
    """Where the pages and figures are that show the CSVs of a folder: there, or above a folder `results`."""
    return folder.parent if folder.name == "results" else folder


def links(figures: Path, file: Path) -> dict[str, str]:
    """The pictures that there are, and how to get to them from a page."""
    return {one.stem: Path(os.path.relpath(one, file.parent)).as_posix() for one in sorted(figures.glob("*.svg"))}


def page(
    tables: Tables,
    differs: str = "",
    pictures: Mapping[str, str] | None = None,
    place: str = "docs/results",
    notes: str = "docs/differences.md",
) -> str:
    """The whole page; `place` is where the CSVs are, if not beside it, and `notes` where the list of differences is."""
    pictures = pictures or {}
    where = f"in [{place}]({place})" if place else "beside it"
    best, fit = fullest(tables["table1"]), fullest(alike(tables["table1"]))
    each = by_cell(fit, tables["seeds"])
    lines = [
        "# What was reproduced",
        "",
        f"Written by `shoal reproduce report` from the CSVs {where}; not by hand. Every row "
        "is a run: its identity names all its settings, its commit the code. The first error is pooled over agents and "
        "seeds, as the paper's; the second, in brackets, is over seeds; trust that one, because agents of one seed are "
        'not independent. "In errors" is the difference from the paper in standard errors over seeds, as if the number '
        "in the paper had none; rows with the authors' draws meet the paper's own tasks, so that this error has the "
        "luck of tasks and the difference has not. All numbers are final accuracy in % or AUC, whose maximum is 101.",
        "",
        *earlier(best.values()),
    ]
    for protocol, title in (
        ("paper", "Protocol `paper`: what each row of the paper really did"),
        ("fair", "Protocol `fair`: one setting for all rows"),
    ):
        rows = best if protocol == "paper" else fit
        here = {key: row for key, row in rows.items() if key[0] == protocol and key[1] in FIVE}
        lines += [f"## {title}", ""]
        if not here:
            lines += ["Nothing has been run yet.", ""]
            continue
        if protocol == "paper":
            ring = "; ° is a row whose tasks were drawn as shoal 0.1 drew them" * any(map(former, here.values()))
            lines += [
                f"{draws.close(printed(here))} At a glance, *final accuracy / AUC*, the paper's in brackets, bold "
                f"where they are more than {CLOSE} apart{ring}. Below, the same with errors:",
                "",
                *overview.table(protocol, best, each),
                "",
                *against(here),
                "",
                *two_bases(here),
                "### What did not reproduce",
                "",
                *missed(here),
                "",
            ]
        else:
            lines += [
                "Gains are over vanilla of the same model, paired over seeds, ± standard error; floats are those sent "
                "per directed edge and task, with all that is on the wire. At a glance, *final accuracy / AUC "
                "(gains)*; then the same with errors:",
                "",
                *overview.table(protocol, fit, each),
                "",
                *gained(here, each),
                "",
            ]
        lines += ["### Which of the paper's claims survive" if protocol == "fair" else "### The paper's claims", ""]
        lines += [*claims.section(protocol, each), ""]
        lines += picture(f"curves-{protocol}", "Learning curves of these rows.", pictures)
    lines += reduced.section(fit, each)
    lines += budgets(tables, pictures)
    lines += topologies(tables["topology"], pictures)
    lines += spreads(tables["table1"])
    lines += given.costs([row for key, row in best.items() if key[1] in FIVE])
    lines += given.section()
    lines += cost(best)
    lines += corrections.section(tables, each)
    return "\n".join([*lines, *differences(differs, notes)]).rstrip() + "\n"


def earlier(rows: Iterable[Row]) -> list[str]:
    """What is to be said of rows whose tasks were drawn as shoal 0.1 drew them."""
    rows = list(rows)
    old = sum(former(row) for row in rows)
    if not old:
        return []
    return [
        f"**{old if old < len(rows) else 'All'} of these {len(rows)} rows have tasks that were drawn as shoal 0.1 drew "
        'them** (`tasks.draw = "agent"`): not the authors\' own draws, which protocol `paper` now repeats number by '
        "number, nor the fleet's, which `fair` now has. `shoal reproduce table1` trains them again. Differences and "
        "claims are only between rows of one draw: where a dataset and a model have fewer rows of the new draws than "
        "of the old ones, between the old ones.",
        "",
    ]


def errors(row: Row, name: str) -> str:
    """The difference in standard errors over seeds."""
    gap, error = off(row, name), row[f"{name}_se_seeds"]
    return "-" if gap is None or not error else f"{gap / error:+.1f}"


def measure(row: Row, name: str) -> str:
    """A number with both errors."""
    return f"{row[name]:.2f} ± {number(row[f'{name}_se'])} ({number(row[f'{name}_se_seeds'])})"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def against(rows: dict[Key, Row]) -> list[str]:
    """The table beside the paper's."""
    lines = [
        "| dataset | model | method | final: paper | ours | in errors | AUC: paper | ours | in errors "
        f"| within {CLOSE} | draws | seeds | run | commit |",
        "| --- " * 14 + "|",
    ]
    for (_, dataset, model, method), row in rows.items():
        both = [f"{number(row[f'paper_{name}'])} | {measure(row, name)} | {errors(row, name)}" for name in METRICS]
        distant = [words for name, words in METRICS.items() if far(row, name)]
        verdict = "" if row["paper_auc"] is None else "yes" if not distant else f"**no: {', '.join(distant)}**"
        lines.append(
            f"| {dataset} | {model} | {method} | {both[0]} | {both[1]} | {verdict} | {drawn(row)} | {row['seeds']} "
            f"| {row['identity']} | {row['commit'] or '-'} |"
        )
    return lines


def two_bases(rows: dict[Key, Row]) -> list[str]:
    """What rows gain over agents alone with the same start, and over vanilla as the paper has it."""
    known = {key[1:]: row for key, row in rows.items() if row.get("final_accuracy_gain") is not None}
    if not known:
        return []
    lines = [
        "### Gains over both bases",
        "",
        "Over agents alone that begin with the same tasks; over vanilla, the paper's base, where that begins with "
        "other tasks; and what the paper's numbers give. Paired over seeds, ± standard error. Sharing is not all that "
        "such rows differ in: those with images train without dropout after the first exchange, and on the MNISTs "
        "modular FedProx, FedCurv, FedFish and hybrids keep one Adam for life where agents alone begin a new one with "
        "every task; under `fair` they do not.",
        "",
        "| dataset | model | method | final: same start | over vanilla | the paper's "
        "| AUC: same start | over vanilla | the paper's |",
        "| --- " * 9 + "|",
    ]
    for (dataset, model, method), row in known.items():
        cells = [f"{dataset} | {model} | {method}"]
        for at, name in enumerate(METRICS):
            same, vanilla = (
                None
                if row[f"{name}_gain{end}"] is None
                else Gain(row[f"{name}_gain{end}"], row[f"{name}_gain{end}_se"], 0)
                for end in ("", "_vanilla")
            )
            theirs = PAPER[model, method][dataset][at] - PAPER[model, "vanilla"][dataset][at]
            cells += [signed(same), "the same" if same == vanilla else signed(vanilla) or "-", f"{theirs:+.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def drawn(row: Row) -> str:
    """Whose draws a row's tasks are, in a word."""
    return "shoal 0.1" if former(row) else str(row.get("draw", "-"))


def missed(rows: dict[Key, Row]) -> list[str]:
    """Numbers that are far from the paper's, and cells that have not been run."""
    lines = []
    for (_, dataset, model, method), row in rows.items():
        for name, words in METRICS.items():
            gap = off(row, name)
            if gap is not None and far(row, name):
                again = LATER.get((dataset, model, method))
                later = f"; a later run of this row in the authors' notebooks has {again[name]:.2f}" if again else ""
                spread = f"{errors(row, name)} standard errors, {row['seeds']} seeds"
                lines.append(
                    f"- {model} {method} on {dataset}: {words} {row[name]:.2f}, the paper has "
                    f"{row[f'paper_{name}']:.2f}; {gap:+.2f}, "
                    f"{spread if row['seeds'] > 1 else 'one seed, which is not counted above'}{later}"
                )
    ran = {key[1:] for key in rows}
    for dataset in FIVE:
        gone = [f"{model} {method}" for model, method in sorted(PAPER) if (dataset, model, method) not in ran]
        if gone:
            lines.append(f"- not run, {dataset}: {', '.join(gone) if len(gone) < len(PAPER) else 'all'}")
    return lines or ["Nothing: every number is near."]


def gained(rows: dict[Key, Row], each: dict[Key, Scores]) -> list[str]:
    """The table with gains over agents alone."""
    lines = [
        "| dataset | model | method | final | gain | AUC | gain | floats | seeds | run | commit |",
        "| --- " * 11 + "|",
    ]
    for key, row in rows.items():
        _, dataset, model, method = key
        cells = [f"{measure(row, name)} | {signed(gain(key, name, each))}" for name in METRICS]
        lines.append(
            f"| {dataset} | {model} | {method} | {cells[0]} | {cells[1]} | {row['floats_per_edge_task'] or 0:,.0f} "
            f"| {row['seeds']} | {row['identity']} | {row['commit'] or '-'} |"
        )
    return lines


def budgets(tables: Tables, pictures: Mapping[str, str]) -> list[str]:
    """What more communication brings."""
    found = budget.conclude({"budget": alike(tables["budget"]), "budget_seeds": tables.get("budget_seeds", [])})[
        "slopes"
    ]
    if not found:
        return []
    lines = [
        "## Budget",
        "",
        "Gain in % of what agents alone reach, against the natural log of B, in floats per directed edge and "
        "task: the slope of a least-squares line (marginal gain), and the mean of gain / B (value of budget), ± "
        f"standard error where there are {budget.ENOUGH} seeds: two say nothing of their own spread. B is "
        "what the settings allow, as in the paper, and, in the column so called, what was sent: neighbours often have "
        "fewer modules worth sending than they may send. The paper's slopes are over five datasets. "
        "CIFAR-100, with larger nets and images *and* larger gains, makes most of them: its points lie to the right "
        'of the others and above, whatever the budget does. "On the same data" is from the accuracies in the authors\' '
        "notebooks (one or two decimals), where they have all of our datasets: that is what ours should be near. "
        f"{based(alike(tables['budget']))}",
        "",
        "| protocol | model | mode | datasets | seeds | slope | on the same data | the paper's | slope, as sent "
        "| value of budget | over vanilla | the paper's |",
        "| --- " * 12 + "|",
    ]
    lines += [
        f"| {one['protocol']} | {one['model']} | {one['mode']} | {one['datasets']} | {one['seeds']} "
        f"| {both(plain, one, 'marginal_gain')} | {plain(one['paper_marginal_gain_here'])} "
        f"| {plain(one['paper_marginal_gain'])} | {plain(one['marginal_gain_floats'])} "
        f"| {both(tiny, one, 'value_of_budget')} | {tiny(one['value_of_budget_vanilla'])} "
        f"| {tiny(one['paper_value_of_budget'])} |"
        for one in found
    ]
    lines.append("")
    for protocol in ("paper", "fair"):
        lines += picture(f"budget-{protocol}", "Gain over agents alone against what may be sent.", pictures)
    return lines


def topologies(rows: list[Row], pictures: Mapping[str, str]) -> list[str]:
    """Who talks to whom."""
    rows = alike(rows)
    found = topology.conclude({"topology": rows})["topology_mean"]
    if not found:
        return []
    graphs = [topology.word(*graph) for graph in topology.GRAPHS]
    lines = [
        "## Topology",
        "",
        f"Gain in % of what agents alone reach, mean over datasets, ± standard error where there are {budget.ENOUGH} "
        f"seeds. {based(rows)}",
        "",
        f"| protocol | model | mode | datasets | seeds | {' | '.join(graphs)} |",
        "| --- " * (5 + len(graphs)) + "|",
    ]
    for head, same in budget.grouped(found, ("protocol", "model", "mode", "datasets", "seeds")).items():
        cells = {
            topology.word(one["graph"], one["p"]): f"{one['gain']:+.2f}"
            + (f" ± {number(one['gain_se'])}" if one["seeds"] >= budget.ENOUGH else "")
            for one in same
        }
        lines.append(
            f"| {' | '.join(str(one) for one in head)} | {' | '.join(cells.get(one, '-') for one in graphs)} |"
        )
    lines.append("")
    for protocol in ("paper", "fair"):
        lines += picture(f"topology-{protocol}", "Gain over agents alone on eight graphs.", pictures)
    return lines


def based(rows: list[Row]) -> str:
    """Whom the gains of runs are over, and whose draws their tasks are."""
    shared = [row for row in rows if row["mode"] != "alone"]
    done = [row for row in shared if row["gain"] is not None]
    old = sum(former(row) for row in done)
    said = "Every run is set against agents alone with the same start and the same draws"
    if len(done) < len(shared):
        said += f"; {len(shared) - len(done)} of {len(shared)} runs, whose agents alone have not been run, are left out"
    if old:
        said += (
            f". Tasks of {'all' if old == len(done) else old} of these {len(done)} runs are as shoal 0.1 drew them; "
            "without `--draw agent` the command trains them with the authors' draws"
        )
    return f"{said}."


def spreads(rows: list[Row]) -> list[str]:
    """How far apart the rows of Table 1 are, where all of one draw have been run."""
    paper = [row for row in rows if row["protocol"] == "paper"]
    draws = dict.fromkeys(row.get("draw") for row in paper)
    kept = [row for draw in draws for row in fullest(row for row in paper if row.get("draw") == draw).values()]
    complete = sum(gaps.counts(*name) for name in PAPER)
    every = gaps.conclude({"table1": [{**row, "seeds": None} for row in kept]})["gaps"]
    found = [one for one in every if one["rows"] == complete]
    if not found:
        return []
    lines = [
        "## Gaps",
        "",
        "From the lowest to the highest row of Table 1 (without FedFish and the monolithic hybrid, as in the paper), "
        "in % of the lowest: the paper's proxy for how hard a dataset is. Protocol `paper`.",
        "",
        "| dataset | draws | rows | final | the paper's | AUC | the paper's |",
        "| --- " * 7 + "|",
    ]
    return [
        *lines,
        *(
            f"| {one['dataset']} | {drawn(one)} | {one['rows']} | {one['final_gap']:.2f} "
            f"| {one['paper_final_gap']:.2f} | {one['auc_gap']:.2f} | {one['paper_auc_gap']:.2f} |"
            for one in found
        ),
        "",
    ]


def cost(best: dict[Key, Row]) -> list[str]:
    """What all this took."""
    lines = [
        "## What it took",
        "",
        "Hours that the rows of Table 1 took to train, the sum of their `seconds`. A common start that several rows "
        "begin with counts in the row that trained it.",
        "",
        f"| protocol | {' | '.join(MLP)} | all of these | {SMALL} |",
        "| --- " * (len(MLP) + 3) + "|",
    ]
    for protocol in ("paper", "fair"):
        here = {
            dataset: [row for key, row in best.items() if key[:2] == (protocol, dataset) and row["seconds"]]
            for dataset in (*MLP, SMALL)
        }
        if any(here.values()):
            cells = {dataset: hours(rows) for dataset, rows in here.items()}
            every = hours([row for dataset in MLP for row in here[dataset]])
            lines.append(f"| {protocol} | {' | '.join(cells[one] for one in MLP)} | {every} | {cells[SMALL]} |")
    return [*lines, ""]


def hours(rows: list[Row]) -> str:
    """The time of some rows, how many they are, and of how many seeds."""
    if not rows:
        return "-"
    seeds = " or ".join(str(one) for one in sorted({row["seeds"] for row in rows}))
    return f"{sum(row['seconds'] for row in rows) / 3600:.1f} ({len(rows)} rows, {seeds} seeds)"


def picture(name: str, words: str, pictures: Mapping[str, str]) -> list[str]:
    return [f"![{words}]({pictures[name]})", ""] if name in pictures else []


def both(shown: Callable[[float | None], str], row: Row, name: str) -> str:
    """A number with its standard error, if there is one."""
    error = row[f"{name}_se"] if row["seeds"] >= budget.ENOUGH else None
    return shown(row[name]) if error is None else f"{shown(row[name])} ± {shown(error)}"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def tiny(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def differences(text: str, file: str) -> list[str]:
    """What shoal does otherwise, from the table in docs/differences.md."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    if not rows:
        return []
    lines = ["## What differs", "", f"[{file}]({file}) has what the paper and its code did.", ""]
    return [*lines, *(f"- {row[0]}: {row[-1]}" for row in rows[2:] if len(row) == 4)]
