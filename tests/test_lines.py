"""How many lines a user writes for something of one's own, counted in the examples: what docs/own.md says."""

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np

from shoal.runs.execute import prepare

ROOT = Path(__file__).parents[1]


def written(file: str, *names: str) -> int:
    """Lines of an example's imports and of what it defines or assigns under these names, without blank lines and
    docstrings."""
    text = (ROOT / "examples" / file).read_text()
    counted: set[int] = set()
    for node in ast.parse(text).body:
        here = isinstance(node, ast.Import | ast.ImportFrom) or name_of(node) in names
        if not here:
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        counted |= set(range(first, (node.end_lineno or first) + 1))
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner):
                said = inner.body[0]
                counted -= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    lines = text.splitlines()
    return sum(bool(lines[at - 1].strip()) for at in counted)


def name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def test_the_counts_in_the_docs_are_those_of_the_examples() -> None:
    said = dict(re.findall(r"^\| own ([a-z `.M]+?) \| (\d+) \|", (ROOT / "docs" / "own.md").read_text(), re.M))
    assert int(said["sharing mode"]) == written("own_mode.py", "kindred") <= 15
    assert int(said["learner or penalty"]) == written("own_learner.py", "slowly", "hold") <= 15
    assert int(said["data as streams of tasks"]) == len(DATA.splitlines())
    assert int(said["`nn.Module`"]) == (ROOT / "examples" / "own_net.py").read_text().count('"model": Tiny')


DATA = """import shoal
fleet = shoal.Fleet((x, y))"""


def test_arrays_become_a_fleet_in_two_lines() -> None:
    rng = np.random.default_rng(0)
    held: dict[str, Any] = {"x": rng.normal(size=(400, 5)), "y": rng.integers(0, 4, 400)}
    exec(DATA, held)
    assert len(prepare(held["fleet"].settings)[0].lanes) == held["fleet"].settings.agents
