"""The notebooks in examples run from top to bottom, and are stored without what they printed: the site runs them."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, program_in

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(file: Path, kind: str) -> list[Any]:
    return [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def program(file: Path) -> str:
    """The code of a notebook as a program, which prints what the notebook would show."""
    parts = []
    for cell in cells(file, "code"):
        tree = ast.parse("".join(cell["source"]))
        if isinstance(last := tree.body[-1], ast.Expr):
            tree.body[-1] = ast.Expr(ast.Call(ast.Name("print"), [last.value], []))
        parts.append(ast.unparse(ast.fix_missing_locations(tree)))
    return "\n".join(parts)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_from_top_to_bottom(file: Path, tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(program(file))
    done = program_in(tmp_path, tmp_path / "notebook.py")
    assert done.code == 0, done.out
    assert done.out.strip()


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_stored_without_results_and_its_links_lead_somewhere(file: Path) -> None:
    assert not [cell for cell in cells(file, "code") if cell["outputs"] or cell["execution_count"]]
    for cell in cells(file, "markdown"):
        for link in re.findall(r"\]\(([^)#:]+)\)", "".join(cell["source"])):
            assert (file.parent / link).exists() or "docs/reference/" in link, f"{file.name} links to {link}"


def test_there_are_three() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["first_fleet", "keep_and_go_on", "your_data"]
