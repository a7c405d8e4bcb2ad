"""Groups of runs as one HTML page that needs nothing else, and as figures in files."""

import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import vl_convert

import shoal
from shoal import files
from shoal.report import charts, compare
from shoal.report.answer import first
from shoal.report.compare import Group, Row
from shoal.report.export import VERSION, export
from shoal.report.figure import Figure
from shoal.report.parts import section
from shoal.report.sentences import left_out, remarks
from shoal.report.style import DARK, FLAT, LIGHT, Style
from shoal.runs.read import Note
from shoal.units import plural

# Text has a contrast of 7 : 1 or more to the page, soft text and links of 4.5 : 1.
COLOURS = {
    "light": {
        "paper": "#ffffff", "card": "#fbfbfc", "ink": "#1b1f27", "soft": "#555d6b", "edge": "#dcdfe5",
        "link": "#0b5cad", "focus": "#d55e00", "good": "#0072b2", "given": "#c25200", "none": "#8a919d",
        **{f"s{at}": colour for at, colour in enumerate(LIGHT)},
    },
    "dark": {
        "paper": "#12151b", "card": "#191d25", "ink": "#e8eaef", "soft": "#a4adbb", "edge": "#333a46",
        "link": "#7db8f0", "focus": "#f0a35a", "good": "#4aa5e0", "given": "#f0772a", "none": "#7d8592",
        **{f"s{at}": colour for at, colour in enumerate(DARK)},
    },
}  # fmt: skip


# Nothing may be loaded from anywhere; Vega compiles its own expressions, which takes `unsafe-eval`.
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"

PAGE = files.begins("<title>shoal report")


def page(
    groups: Sequence[Group],
    notes: Sequence[Note],
    going: str = "",
    every: float = 0,
    advice: dict[str, Any] | None = None,
) -> str:
    """The whole page, under the advice that was made of its runs, if there is one; of runs that still train, with how
    far they are, and loaded again every so many seconds."""
    style = Style(True, tuple(compare.method_order(groups)))
    content: dict[str, Any] = {}
    parts = []
    for at, group in enumerate(groups):
        found = charts.figures(group, style)
        ids = [f"g{at}-{figure.name}" for figure in found]
        content |= {name: packed(figure) for name, figure in zip(ids, found, strict=True)}
        parts.append(section(group, f"g{at}", style, dict(zip(ids, found, strict=True)), advice is not None))
    runs = sum(len(group.entries) for group in groups)
    several = "of one" if len(groups) == 1 else f"in {len(groups)} groups, each with the same tasks and of one"
    title = groups[0].title if len(groups) == 1 else f"{runs} runs"
    css = "".join(
        [
            f":root {{ color-scheme: light dark; {variables('light')} }}\n",
            f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {variables('dark')} }} }}\n",
            f":root[data-theme=dark] {{ color-scheme: dark; {variables('dark')} }}\n",
            ":root[data-theme=light] { color-scheme: light; }\n",
            text("page.css"),
        ]
    )
    links = "".join(f'<li><a href="#g{at}">{escape(group.title)}</a></li>' for at, group in enumerate(groups))
    menu = f'<nav aria-label="Groups of runs"><ul>{links}</ul></nav>' if len(groups) > 1 else ""
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>shoal report: {escape(title)}</title>",
        '<link rel="icon" href="data:,">',
        f'<meta http-equiv="refresh" content="{every:.0f}">' if going else "",
        f"<style>{css}</style>",
        "</head>",
        "<body>",
        '<a class="skip" href="#main">Skip to the results</a>',
        "<header>",
        "<h1>shoal report</h1>",
        f"<p>{plural(runs, 'run')} {several} dataset, model and protocol. "
        "Tasks are counted from 1, agents from 0 (records count both from 0).</p>",
        '<button class="theme" type="button" hidden>Dark colours</button>',
        "</header>",
        f'<p class="going" role="status"><strong>Still learning:</strong> {escape(going)}. This page loads itself '
        f"again every {every:.0f} seconds.</p>" if going else "",
        menu,
        '<main id="main" tabindex="-1">',
        "" if advice is None else first(advice),
        left_out(notes),
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>",
        *parts,
        remarks(notes),
        "</main>",
        f"<footer><p>Made by <code>shoal report</code>, shoal {escape(shoal.__version__)}, from run directories alone. "
        "Standard errors: “over agents” counts every agent of every seed, as the paper does; “over seeds” averages "
        "within a seed first, because agents of a seed are not independent.</p></footer>",
        f'<script type="application/json" id="charts">{embedded(content)}</script>',
        f"<script>{vega()}</script>",
        f"<script>{text('page.js')}</script>",
        "</body>",
        "</html>",
        "",
    ])  # fmt: skip


def variables(theme: str) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in COLOURS[theme].items())


def text(name: str) -> str:
    """A file beside this one."""
    return resources.files("shoal.report").joinpath(name).read_text(encoding="utf-8")


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, shut off from the rest of the page."""
    code = vl_convert.javascript_bundle(vl_version=VERSION)  # type: ignore[call-arg] # the stub forgot a default
    return "(() => {" + code.replace("</script", "<\\/script").replace("<!--", "<\\!--") + "})();"


def embedded(content: Any) -> str:
    """JSON inside a script element: nothing in it can end the element."""
    said = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return said.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def packed(figure: Figure) -> dict[str, Any]:
    """A figure for the page's script; its tables as columns, with a list of words for columns that hold words."""
    return {
        "title": figure.title,
        "spec": figure.spec,
        "tables": {name: columns(rows) for name, rows in figure.tables.items()},
        "columns": figure.columns,
        "table": figure.table,
    }


def columns(rows: Sequence[Row]) -> dict[str, Any]:
    fields = list(rows[0]) if rows else []
    values: list[list[Any]] = [[row[name] for row in rows] for name in fields]
    words: dict[str, list[str]] = {}
    for at, name in enumerate(fields):
        if rows and isinstance(rows[0][name], str):
            words[name] = list(dict.fromkeys(values[at]))
            place = {word: number for number, word in enumerate(words[name])}
            values[at] = [place[word] for word in values[at]]
    return {"fields": fields, "words": words, "values": values, "size": len(rows)}


def save(file: Path, content: str) -> None:
    """Write the page whole or not at all, in the place of none but a page of ours."""
    files.save(file, content, "choose another place for it", PAGE)


def draw(groups: Sequence[Group], folder: Path) -> list[Path]:
    """All figures as PNG, SVG and PDF files; those of several groups in a folder each."""
    style = Style(False, tuple(compare.method_order(groups)))
    written: list[Path] = []
    for group in groups:
        place = folder / group.name if len(groups) > 1 else folder
        for figure in charts.figures(group, style):
            spec = {**figure.spec, "datasets": still(figure)}
            spec["title"] = {"text": figure.title, "subtitle": group.title, "subtitleColor": FLAT["ink"]}
            written += export(spec, place, figure.name)
    return written


def still(figure: Figure) -> dict[str, list[Row]]:
    """The rows that a page shows at first; of a choice of runs, all."""
    first = {switch.field: switch.first for switch in figure.switches if switch.field not in ("run", "seed")}
    return {
        name: [row for row in rows if all(row.get(key, value) == value for key, value in first.items())]
        if not name.startswith(("edges", "agents"))
        else rows
        for name, rows in figure.tables.items()
    }
