"""Table 1 at a glance: a line per method, a column per dataset."""

from collections.abc import Mapping, Sequence

from shoal.runs.paired import Gain, Scores, paired
from shoal.study.cells import Row
from shoal_paper.claims import METRICS, Key
from shoal_paper.table1 import ALONE, METHODS, MLP, MODELS, PAPER, base_of, former

CLOSE = 1.0  # points of final accuracy or AUC within which a number counts as reproduced


def off(row: Row, name: str) -> float | None:
    """Ours minus the paper's; None where the paper has no such number."""
    theirs = row[f"paper_{name}"]
    return None if theirs is None else row[name] - theirs


def far(row: Row, name: str) -> bool:
    gap = off(row, name)
    return gap is not None and abs(gap) > CLOSE


def beside_the_paper(row: Row) -> str:
    """Final accuracy / AUC, bold where far from the paper's, which are in brackets; ° if tasks are as shoal 0.1 drew
    them."""
    ours = " / ".join(f"**{row[name]:.2f}**" if far(row, name) else f"{row[name]:.2f}" for name in METRICS)
    return f"{ours} ({row['paper_final_accuracy']:.2f} / {row['paper_auc']:.2f})" + "°" * former(row)


def with_gains(key: Key, row: Row, each: Mapping[Key, Scores]) -> str:
    """Final accuracy / AUC, and in brackets what they gain over agents alone, paired over seeds."""
    ours = " / ".join(f"{row[name]:.2f}" for name in METRICS)
    gains = [gain(key, name, each) for name in METRICS]
    return f"{ours} ({' / '.join(map(signed, gains))})" if all(gains) else ours


def gain(key: Key, name: str, each: Mapping[Key, Scores]) -> Gain | None:
    """What a cell has more than agents alone that begin with the same tasks; None for these themselves, and where they
    have not been run."""
    protocol, dataset, model, method = key
    if method in ("vanilla", ALONE):
        return None
    return paired(each.get(key, {}), each.get((protocol, dataset, model, base_of(*key)), {}), name)


def signed(gap: Gain | None) -> str:
    """A difference with its error, as far as there are any."""
    if gap is None:
        return ""
    return f"{gap.mean:+.2f} ± {'-' if gap.error is None else f'{gap.error:.2f}'}"


def table(
    protocol: str, best: Mapping[Key, Row], each: Mapping[Key, Scores], methods: Sequence[str] = METHODS
) -> list[str]:
    """Rows that have fewer seeds than the fullest say how many."""
    lines = [f"| | {' | '.join(MLP)} |", "| --- " * (len(MLP) + 1) + "|"]
    usual = max((row["seeds"] for key, row in best.items() if key[0] == protocol and key[1] in MLP), default=0)
    for model in MODELS:
        for method in methods:
            if (model, method) not in PAPER:
                continue
            cells = []
            for dataset in MLP:
                key = (protocol, dataset, model, method)
                row = best.get(key)
                if row is None:
                    cells.append("-")
                    continue
                fewer = f" [{row['seeds']} seeds]" * (row["seeds"] < usual)
                cells.append((beside_the_paper(row) if protocol == "paper" else with_gains(key, row, each)) + fewer)
            lines.append(f"| {model} {method} | {' | '.join(cells)} |")
    return lines
