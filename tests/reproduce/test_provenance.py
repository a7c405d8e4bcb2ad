"""Which code made the committed CSVs: commits of the history, from a clean tree, or a line that says which rows do
not name one."""

import re
import shutil
import subprocess
from collections import Counter
from functools import cache

import pytest

from shoal.study.cells import Row, read_csv
from tests.command import ROOT

RESULTS = ROOT / "docs" / "results"
FILES = sorted(RESULTS.glob("*.csv"))
SAME = ("dataset", "model", "method", "protocol", "draw", "seeds")  # what rows of two files have in common
NONE, CHANGED, UNKNOWN = "no commit", "a commit with changes", "a commit that is not in the history"


def git(*words: str) -> str:
    """What git says of this repository."""
    said = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    return said.stdout.strip()


@cache
def history() -> frozenset[str]:
    """The commits that lead here, by the first twelve digits that CSVs have; skips where they are not all known."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no git history here")
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this clone has only a part of the history")
    return frozenset(one[:12] for one in git("rev-list", "HEAD").splitlines())


def fault(row: Row, known: frozenset[str]) -> str | None:
    """What is wrong with the commits of a row; None: nothing."""
    named = str(row.get("commit") or "").split()
    if not named or named == ["none"]:
        return NONE
    if any(one.endswith("-dirty") for one in named):
        return CHANGED
    return None if all(one in known for one in named) else UNKNOWN


def faults(rows: list[Row], known: frozenset[str]) -> str:
    """The rows of a file that do not name clean commits of the history, as the page says it; nothing, if all do."""
    found = Counter(wrong for row in rows if (wrong := fault(row, known)))
    return ", ".join(
        f"{found[wrong]} of {len(rows)} name {wrong}" for wrong in (NONE, CHANGED, UNKNOWN) if found[wrong]
    )


def told(heading: str) -> dict[str, str]:
    """The table below a heading of the page: what is said of each file."""
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    _, found, rest = page.partition(f"\n## {heading}\n")
    assert found, heading
    lines = re.findall(r"^\| `(\S+\.csv)` \| (.+?) \|$", rest.partition("\n## ")[0], re.MULTILINE)
    assert len(dict(lines)) == len(lines), "a file stands there twice"
    return dict(lines)


def test_a_row_names_clean_commits_of_the_history_or_is_found() -> None:
    known = frozenset({"a" * 12, "b" * 12})
    assert fault({"commit": "a" * 12}, known) is None
    assert fault({"commit": f"{'a' * 12} {'b' * 12}"}, known) is None, "two sessions, two commits"
    assert fault({"commit": f"{'a' * 12} {'c' * 12}"}, known) == UNKNOWN
    assert fault({"commit": f"{'a' * 12}-dirty"}, known) == CHANGED
    assert fault({"commit": None}, known) == fault({"commit": "none"}, known) == fault({}, known) == NONE


def test_every_csv_names_commits_of_the_history_or_is_listed_as_one_that_does_not() -> None:
    known, derived = history(), told("Files without a commit of their own")
    found = {file.name: faults(read_csv(file), known) for file in FILES if file.name not in derived}
    assert {name: wrong for name, wrong in found.items() if wrong} == told("Rows that cannot be traced")


def test_files_without_a_commit_of_their_own_are_made_of_rows_that_have_one() -> None:
    for name, cell in told("Files without a commit of their own").items():
        parent = re.findall(r"\S+\.csv", cell.replace("`", " "))
        assert len(parent) == 1, name
        rows, origin = read_csv(RESULTS / name), read_csv(RESULTS / parent[0])
        assert "commit" not in rows[0], f"{name} has commits of its own"
        assert "commit" in origin[0], name
        same = [column for column in SAME if column in rows[0] and column in origin[0]]
        there = {tuple(row[column] for column in same) for row in origin}
        lost = {tuple(row[column] for column in same) for row in rows} - there
        assert same, f"nothing tells which rows of {parent[0]} are in {name}"
        assert not lost, f"{name} has rows of which {parent[0]} does not know"


def test_no_file_is_listed_that_is_gone() -> None:
    assert len(FILES) > 30
    listed = {*told("Files without a commit of their own"), *told("Rows that cannot be traced")}
    assert listed <= {file.name for file in FILES}
