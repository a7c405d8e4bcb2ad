"""The code as a house: its floors as import-linter holds them, a box for every room."""

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, FLOOR, GAP, TOP = 760.0, 46.0, 5.0, 92.0
FILL, LINE, INK = (
    "var(--color-background-secondary, #f4f6f8)",
    "var(--color-foreground-border, #889)",
    "var(--color-foreground-primary, #222)",
)
WORDS = {
    "shoal_paper": "the paper: protocol, tables, claims", "cli": "commands, demo", "python": "Fleet, Result",
    "contracts": "laws for all entries", "testing": "laws for yours", "short": "one-function modes",
    "live": "agents on hosts of their own", "study": "compare, sweep, advise", "report": "runs as one page",
    "keep": "agents to predict, save, export", "runs": "run directories, metrics",
    "fleet": "all agents of all seeds, and the one loop", "configure": "words become settings and objects",
    "sharing": "what agents send: ask, answer, absorb", "mail": "the post: what may leave, what is accepted",
    "agents": "state, clocks, what each sees", "learners": "how tasks are not forgotten", "letters": "mail as data",
    "compiled": "steps in C", "trust": "whose word a file is", "data": "datasets, streams",
    "models": "nets of one agent", "network": "graphs, links", "backbones": "frozen nets",
    "settings": "what a run is, as values", "errors": "in one sentence", "rng": "named numbers", "doors": "tables",
    "files": "whole or not", "units": "20 kB/task", "machine": "cores", "own_code": "yours that fails",
    "progress": "how far", "console": "the terminal",
}  # fmt: skip


def floors() -> list[list[str]]:
    """The rooms of each floor, from the roof down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    return [[room.removeprefix("shoal.") for room in layer.split(" : ")] for layer in layers]


def house() -> str:
    """The picture."""
    rows = floors()
    height = TOP + len(rows) * (FLOOR + GAP) + 10
    out = [
        f'<div class="drawing"><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label="The code as a house, a floor in each line: {"; ".join(", ".join(row) for row in rows)}. Each '
        f'floor stands on those below." font-family="sans-serif" font-size="14" fill="{INK}">',
        "<title>The rooms of the code</title>",
        f'<path d="M 20 {TOP - 6:g} L {WIDTH / 2:g} 10 L {WIDTH - 20:g} {TOP - 6:g} Z" fill="{FILL}" stroke="{LINE}"/>',
        f'<text x="{WIDTH / 2:g}" y="56" text-anchor="middle" font-weight="bold">you</text>',
        f'<text x="{WIDTH / 2:g}" y="74" text-anchor="middle" font-size="11.5">a file, a command, a program</text>',
    ]
    for at, row in enumerate(rows):
        y, width = TOP + at * (FLOOR + GAP), (WIDTH - 40 - GAP * (len(row) - 1)) / len(row)
        for place, room in enumerate(row):
            x = 20 + place * (width + GAP)
            out += [
                f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{FLOOR:g}" rx="4" fill="{FILL}" '
                f'stroke="{LINE}"/>',
                f'<text x="{x + width / 2:.1f}" y="{y + 19:g}" text-anchor="middle" font-weight="bold">{room}</text>',
                f'<text x="{x + width / 2:.1f}" y="{y + 36:g}" text-anchor="middle" font-size="11.5">'
                f"{escape(WORDS.get(room, ''))}</text>",
            ]
    return "\n".join([*out, "</svg></div>", ""])
