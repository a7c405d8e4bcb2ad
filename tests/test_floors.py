"""The floors of the house: a room imports only rooms below its own, late imports included."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ROOT

pytest.importorskip("importlinter", reason="import-linter is not installed; it is in the group dev")


def lint(config: Path) -> str:
    """What import-linter says of this tree."""
    words = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "paper"))), "COLUMNS": "200"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_rooms_import_only_rooms_below() -> None:
    assert "1 kept, 0 broken" in lint(ROOT / "pyproject.toml")
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text()


def test_an_import_that_goes_up_is_found(tmp_path: Path) -> None:
    """With settings on the top floor, all that imports them goes up."""
    text, line = (ROOT / "pyproject.toml").read_text(), '    "shoal.settings",\n'
    assert line in text
    file = tmp_path / "pyproject.toml"
    file.write_text(text.replace(line, "").replace("layers = [\n", f"layers = [\n{line}"))
    said = lint(file)
    assert "0 kept, 1 broken" in said, said
    assert re.search(r"shoal\.sharing is not allowed to import shoal\.settings", said), said
