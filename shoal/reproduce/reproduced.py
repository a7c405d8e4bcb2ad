"""REPRODUCED.md: every cell of Table 1 beside the paper's, and which of its claims survive, from the committed CSVs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.cells import Row, Scores, read_csv
from shoal.compare import Paired, paired
from shoal.errors import UserError
from shoal.reproduce.table1 import DATASETS, METHODS, MODELS, PAPER

CLOSE = 1.0  # points of final accuracy or AUC within which a number counts as reproduced
SURE = 0.05  # p-value below which a difference counts as shown
FEDERATED = ("fedavg", "fedprox", "fedcurv", "fedfish")
EASY = DATASETS[:-1]
PARTS = ("data", "modmod", "fedavg")  # of the modular hybrid
WORDS = {"final_accuracy": "final accuracy", "auc": "AUC"}
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
    Claim("modmod learns fastest", "modular", "auc", "modmod", ("data", *FEDERATED), DATASETS),
    Claim("data ends highest on easier data", "modular", "final_accuracy", "data", (*FEDERATED, "modmod"), EASY),
    Claim("data ends highest on easier data", "monolithic", "final_accuracy", "data", FEDERATED, EASY),
    Claim("the hybrid ends above its parts", "modular", "final_accuracy", "hybrid", PARTS, DATASETS),
    Claim("the hybrid learns faster than its parts", "modular", "auc", "hybrid", PARTS, DATASETS),
    Claim("the hybrid ends above its parts", "monolithic", "final_accuracy", "hybrid", ("data", "fedavg"), DATASETS),
    Claim("the hybrid learns faster than its parts", "monolithic", "auc", "hybrid", ("data", "fedavg"), DATASETS),
    Claim("alone is better than averaging when data differ", "monolithic", "auc", "vanilla", FEDERATED, ("combined",)),
)  # fmt: skip


class Finding(NamedTuple):
    """What our runs say of a claim on one dataset."""

    claim: Claim
    dataset: str
    verdict: str  # holds, fails, undecided
    rival: str  # the one that comes closest, or is farthest ahead
    gap: Paired
    untried: tuple[str, ...]  # rivals that have not been run


def write(folder: Path, file: Path) -> Path:
    """Write the page from the CSVs in a folder, and the list of differences if it is beside them."""
    rows = read_csv(folder / "table1.csv")
    if not rows:
        raise UserError(
            f"no {folder / 'table1.csv'} to write from; `shoal reproduce table1 --tables {folder}` makes it"
        )
    notes, seeds = folder / "differences.md", read_csv(folder / "seeds.csv")
    try:
        text = page(rows, seeds, notes.read_text(encoding="utf-8") if notes.exists() else "")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"cannot make sense of the CSVs in {folder} ({error}); restore them") from None
    aside = file.with_name(f"{file.name}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(file)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; give --write another place") from None
    return file


def page(rows: Sequence[Row], seeds: Sequence[Row], differs: str = "") -> str:
    """The whole page."""
    best = newest(rows)
    each = by_cell(best, seeds)
    lines = [
        "# What was reproduced",
        "",
        "Written by `shoal reproduce report` from `table1.csv` and `seeds.csv` in [docs](docs); not by hand. Every row "
        "is a run: its identity names all its settings, its commit the code. The first error is pooled over agents and "
        "seeds, as the paper's; the second, in brackets, is over seeds, as one should: agents of one seed are not "
        'independent. "In errors" is the difference from the paper in standard errors over seeds, as if the number '
        "in the paper had none. All numbers are final accuracy in % or AUC, whose maximum is 101.",
        "",
    ]
    for protocol, title in (
        ("paper", "Protocol `paper`: what each row of the paper really did"),
        ("fair", "Protocol `fair`: one setting for all rows"),
    ):
        here = {key: row for key, row in best.items() if key[0] == protocol}
        lines += [f"## {title}", ""]
        if not here:
            lines += ["Nothing has been run yet.", ""]
            continue
        if protocol == "paper":
            lines += [close(here), "", *against(here), "", "### What did not reproduce", "", *missed(here), ""]
        else:
            lines += ["Gains are over vanilla of the same model, paired over seeds, ± standard error.", ""]
            lines += [*gained(here, each), ""]
        lines += ["### Which of the paper's claims survive" if protocol == "fair" else "### The paper's claims", ""]
        lines += [*claims(protocol, each), ""]
    return "\n".join([*lines, *differences(differs)]).rstrip() + "\n"


def newest(rows: Iterable[Row]) -> dict[Key, Row]:
    """The row of every cell, the one with most seeds, in the order of the table."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = (row["protocol"], row["dataset"], row["model"], row["method"])
        if key not in found or row["seeds"] > found[key]["seeds"]:
            found[key] = row
    order = (("paper", "fair"), DATASETS, MODELS, METHODS)
    known = [key for key in found if all(one in ranks for one, ranks in zip(key, order, strict=True))]
    return {
        key: found[key] for key in sorted(known, key=lambda key: [r.index(k) for k, r in zip(key, order, strict=True)])
    }


def by_cell(best: dict[Key, Row], seeds: Iterable[Row]) -> dict[Key, Scores]:
    """The seeds of every cell, of the run that the table has."""
    found: dict[Key, Scores] = {}
    for row in seeds:
        key = (row["protocol"], row["dataset"], row["model"], row["method"])
        if key in best and row["identity"] == best[key]["identity"]:
            found.setdefault(key, {})[row["seed"]] = {name: row[name] for name in WORDS}
    return found


def close(rows: dict[Key, Row]) -> str:
    """How many numbers are near the paper's."""
    gaps = [abs(gap) for row in rows.values() for gap in (off(row, name) for name in WORDS) if gap is not None]
    near = sum(gap <= CLOSE for gap in gaps)
    return f"{near} of {len(gaps)} numbers are within {CLOSE} of the paper's."


def off(row: Row, name: str) -> float | None:
    """Ours minus the paper's; None where the paper has no such number."""
    theirs = row[f"paper_{name}"]
    return None if theirs is None else row[name] - theirs


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
        f"| within {CLOSE} | seeds | run | commit |",
        "| --- " * 13 + "|",
    ]
    for (_, dataset, model, method), row in rows.items():
        both = [f"{number(row[f'paper_{name}'])} | {measure(row, name)} | {errors(row, name)}" for name in WORDS]
        gaps = {words: off(row, name) for name, words in WORDS.items()}
        far = [words for words, gap in gaps.items() if gap is not None and abs(gap) > CLOSE]
        verdict = "yes" if not far else f"**no: {', '.join(far)}**"
        lines.append(
            f"| {dataset} | {model} | {method} | {both[0]} | {both[1]} | {verdict} | {row['seeds']} "
            f"| {row['identity']} | {row['commit'] or '-'} |"
        )
    return lines


def missed(rows: dict[Key, Row]) -> list[str]:
    """Numbers that are far from the paper's, and cells that have not been run."""
    lines = []
    for (_, dataset, model, method), row in rows.items():
        for name, words in WORDS.items():
            gap = off(row, name)
            if gap is not None and abs(gap) > CLOSE:
                lines.append(
                    f"- {model} {method} on {dataset}: {words} {row[name]:.2f}, the paper has "
                    f"{row[f'paper_{name}']:.2f}; {gap:+.2f}, {errors(row, name)} standard errors, {row['seeds']} seeds"
                )
    ran = {key[1:] for key in rows}
    for dataset in DATASETS:
        gone = [f"{model} {method}" for model, method in sorted(PAPER) if (dataset, model, method) not in ran]
        if gone:
            lines.append(f"- not run, {dataset}: {', '.join(gone) if len(gone) < len(PAPER) else 'all'}")
    return lines or ["Nothing: every number is near."]


def gained(rows: dict[Key, Row], each: dict[Key, Scores]) -> list[str]:
    """The table with gains over agents alone."""
    lines = [
        "| dataset | model | method | final | gain | AUC | gain | seeds | run | commit |",
        "| --- " * 10 + "|",
    ]
    for key, row in rows.items():
        protocol, dataset, model, method = key
        base = each.get((protocol, dataset, model, "vanilla"), {})
        cells = []
        for name in WORDS:
            gap = None if method == "vanilla" else paired(each.get(key, {}), base, name)
            said = "" if gap is None else f"{gap.mean:+.2f} ± {number(gap.error)}"
            cells.append(f"{measure(row, name)} | {said}")
        lines.append(
            f"| {dataset} | {model} | {method} | {cells[0]} | {cells[1]} | {row['seeds']} | {row['identity']} "
            f"| {row['commit'] or '-'} |"
        )
    return lines


def judge(claim: Claim, dataset: str, protocol: str, each: dict[Key, Scores]) -> Finding | None:
    """What our runs say of a claim on a dataset; None if they do not say anything."""
    here = each.get((protocol, dataset, claim.model, claim.method), {})
    gaps: dict[str, Paired] = {}
    for rival in claim.rivals:
        gap = paired(here, each.get((protocol, dataset, claim.model, rival), {}), claim.metric)
        if gap:
            gaps[rival] = gap
    if not gaps:
        return None
    shown = {rival: gap for rival, gap in gaps.items() if gap.p is not None and gap.p < SURE}
    untried = tuple(rival for rival in claim.rivals if rival not in gaps)
    if any(gap.mean < 0 for gap in shown.values()):
        verdict = "fails"
    else:
        verdict = "holds" if len(shown) == len(claim.rivals) else "undecided"
    rival = min(gaps, key=lambda rival: gaps[rival].mean)
    return Finding(claim, dataset, verdict, rival, gaps[rival], untried)


def claims(protocol: str, each: dict[Key, Scores]) -> list[str]:
    """Every claim in words, then the numbers behind them."""
    lines = [
        "Each is a comparison with every rival, paired over seeds. *Holds*: above all of them, each with p < "
        f"{SURE} in a two-sided paired t-test; *fails*: some rival is above, just as surely; else *undecided*. "
        "With so few seeds and so many comparisons, a single verdict can be luck.",
        "",
    ]
    if protocol == "paper":
        lines[0] += " Rows with and without a common start do not meet the same tasks: pairs are loose here."
    found: list[Finding] = []
    for claim in CLAIMS:
        here = [judge(claim, dataset, protocol, each) for dataset in claim.datasets]
        found += [one for one in here if one]
        said = []
        for verdict in ("holds", "fails", "undecided"):
            names = [one.dataset for one in here if one and one.verdict == verdict]
            said += [f"{verdict} on {', '.join(names)}"] * bool(names)
        gone = [dataset for dataset, one in zip(claim.datasets, here, strict=True) if one is None]
        said += [f"not compared yet on {', '.join(gone)}"] * bool(gone)
        lines.append(
            f"- **{claim.words}** ({claim.model}; {WORDS[claim.metric]} of {claim.method}): {'; '.join(said)}."
        )
    if not found:
        return lines
    lines += ["", "| claim | dataset | closest rival | difference | seeds | p | verdict | rivals not run |"]
    lines.append("| --- " * 8 + "|")
    for one in found:
        p = "-" if one.gap.p is None else f"{one.gap.p:.3f}"
        lines.append(
            f"| {one.claim.words}, {one.claim.model} | {one.dataset} | {one.rival} | {one.gap.mean:+.2f} ± "
            f"{number(one.gap.error)} | {one.gap.seeds} | {p} | {one.verdict} | {', '.join(one.untried)} |"
        )
    return lines


def differences(text: str) -> list[str]:
    """What shoal does otherwise, from the table in docs/differences.md."""
    lines = ["## What differs", "", "[docs/differences.md](docs/differences.md) has what the paper and its code did."]
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return [*lines, *([""] if rows else []), *(f"- {row[0]}: {row[-1]}" for row in rows[2:] if len(row) == 4)]
