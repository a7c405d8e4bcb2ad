"""The Python that the README shows runs as it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_python_block_of_the_readme_runs(at: int, tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    file.write_text(BLOCKS[at], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, file], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout
