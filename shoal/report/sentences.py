"""What the page says in words: what came out, what is not there, and remarks."""

import re
from collections.abc import Sequence
from html import escape
from math import isnan
from typing import Any

from shoal.report.compare import Group, Score, called
from shoal.runs.read import Note
from shoal.units import plural, shown

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"

BEHIND = (
    "The runs behind the answer, all seeds of a candidate together. It was chosen by validation rows; accuracy here is "
    "that of test rows, which chose nothing, so that the highest need not be the answer."
)
PREDICTED = (
    "Agents predict numbers: what is called accuracy here is R², the share of the variance that is predicted; 100 % is "
    "all of it, and below 0 % a guess of the mean would be better."
)


def headline(group: Group) -> str:
    """The result in words."""
    done = group.complete
    if not done:
        return "No run of this group is finished yet."
    best = max(done, key=lambda entry: entry.score("final").mean)
    score = best.score("final")
    said = f"Highest final accuracy: <strong>{escape(best.label)}</strong>, {plus_minus(score)} %"
    said += f" ({plural(len(set(best.run.seeds.tolist())), 'seed')})"
    if best.base and (more := best.gain("final")):
        said += f", {number(more.mean, True)} points over {called(best.base.label)}"
    said += f", for {shown(best.paid)} per link and task." if best.run.modes and best.paid > 0 else "."
    signs = {entry.label: gain.sign for entry in done if (gain := entry.gain("final"))}
    if tested := len(signs):
        bases = list(dict.fromkeys(entry.base.label for entry in done if entry.base))
        said += f" Compared with {called(bases[0]) if len(bases) == 1 else 'its baseline'} over the same seeds: "
        up, down = ([name for name, sign in signs.items() if sign == way] for way in (1, -1))
        parts = [f"{some(names, tested)} clearly {word}" for names, word in ((up, "higher"), (down, "lower")) if names]
        said += (" and ".join(parts) or "no run is clearly higher or lower") + ", by the 95 % intervals below."
    return said


def some(names: Sequence[str], of: int) -> str:
    """A few runs by name, many by number."""
    if len(names) > 4:
        return f"{len(names)} of {of} runs are"
    said = [escape(name) for name in names]
    if any("," in name for name in names):
        return f"{'; '.join(said)} {be(said)}"
    return f"{', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]} {be(said)}"


def plus_minus(score: Score) -> str:
    return f"{number(score.mean)} ± {number(score.seeds)}" if not isnan(score.seeds) else number(score.mean)


def number(value: Any, signed: bool = False) -> str:
    """Two decimals, a real minus, a dash for what there is not."""
    if not isinstance(value, int | float) or isnan(value):
        return DASH
    return (f"{value:+.2f}" if signed else f"{value:.2f}").replace("-", MINUS)


def left_out(notes: Sequence[Note]) -> str:
    """What a reader must know first: which runs are not here; and that there are remarks on the others."""
    gone, more = [note for note in notes if note.out], [note for note in notes if not note.out]
    see = f'<p class="see"><a href="#remarks">{plural(len(more), "remark")} on these runs</a></p>' if more else ""
    return listed("notes", f"{plural(len(gone), 'folder')} left out", gone) + see


def remarks(notes: Sequence[Note]) -> str:
    """What there is to say of runs that are here, below what came out."""
    return listed("remarks", "Please note", [note for note in notes if not note.out])


def listed(name: str, head: str, notes: Sequence[Note]) -> str:
    """Notes as a section of the page; folders of which the same is said stand together."""
    if not notes:
        return ""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.why, []).append(note.folder)
    items = "".join(
        f"<li>{', '.join(f'<code>{escape(folder)}</code>' for folder in folders)}"
        f"{f' {be(folders)} left out' if notes[0].out else ''}: {coded(why)}.</li>"
        for why, folders in alike.items()
    )
    return f'<section class="notes" aria-labelledby="{name}"><h2 id="{name}">{head}</h2><ul>{items}</ul></section>'


def coded(said: str) -> str:
    """A sentence in HTML, with what is between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(said))


def be(things: Sequence[Any]) -> str:
    return "is" if len(things) == 1 else "are"
