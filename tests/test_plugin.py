"""A package of somebody else that is installed: its mode and learner are there like ours."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import DIGITS, TINY

PLUGIN = Path(__file__).parent / "plugin"
LAWS = """
from shoal.testing import check
check("gossip", "mode")
check("steady", "learner")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package of tests/plugin was built and installed into."""
    place = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, place / "source")  # what building leaves behind stays there
    words = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        place / "site",
        source,
    ]
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "site"


def python(installed: Path, *words: object) -> str:
    """What Python says where the package is installed."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_package_is_listed_with_its_name_and_version(installed: Path) -> None:
    modes, learners = (python(installed, "-m", "shoal", "list", what) for what in ("sharing", "learners"))
    (gossip,) = (line for line in modes.splitlines() if line.strip().startswith("gossip"))
    assert "Everybody tells its neighbours the biases of its heads" in gossip
    assert "[from shoal-gossip 1.2]" in gossip
    assert "how much of what is heard is believed" in modes
    (steady,) = (line for line in learners.splitlines() if line.strip().startswith("steady"))
    assert "[from shoal-gossip 1.2]" in steady
    assert "how hard they are held" in learners


def test_an_installed_package_runs_is_swept_and_reported(installed: Path, tmp_path: Path) -> None:
    few = (*TINY, "model=mlp", "learner=steady", "learner.strength=0.2")
    python(
        installed, "-m", "shoal", "run", DIGITS, *few, "sharing=gossip", "sharing.every=3", "--out", tmp_path / "run"
    )
    written = (tmp_path / "run" / "settings.toml").read_text()
    assert 'mode = "gossip"' in written
    assert 'method = "steady"' in written
    python(installed, "-m", "shoal", "resume", tmp_path / "run")
    words = ("sharing=none,gossip", "sharing.trust=0.1,0.9", "--no-page", "--out", tmp_path / "swept")
    python(installed, "-m", "shoal", "sweep", DIGITS, *few, *words)
    rows = (tmp_path / "swept" / "sweep.csv").read_text()
    assert rows.count("gossip") >= 2
    python(installed, "-m", "shoal", "report", tmp_path / "run", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "gossip" in page
    assert "steady" in page


def test_an_installed_package_keeps_the_laws(installed: Path) -> None:
    told = python(installed, "-c", LAWS)
    counts = re.findall(r"(\d+) of (\d+) laws hold", told)
    assert len(counts) == 2
    assert all(kept == laws and int(laws) > 5 for kept, laws in counts), told
