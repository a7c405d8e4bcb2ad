"""A package of somebody else that is installed: its mode and learner are there like ours."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.command import DIGITS, ROOT, TINY

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


def surroundings(installed: Path) -> dict[str, str]:
    """An environment in which the package is installed beside the shoal of this tree."""
    path = os.pathsep.join(map(str, (installed, ROOT, ROOT / "paper")))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}


def python(installed: Path, *words: object) -> str:
    """What Python says where the package is installed."""
    environment = surroundings(installed)
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Commands through their own door, one after the other, because torch takes seconds to start.
COMMANDS = """
import json, sys
from contextlib import redirect_stdout
from io import StringIO
from shoal.cli import main
said = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["shoal", *words]
    with redirect_stdout(StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
    said.append(out.getvalue())
print(json.dumps(said))
"""


def shoal(installed: Path, *lines: Sequence[object]) -> list[str]:
    """What commands say where the package is installed."""
    said = python(installed, "-c", COMMANDS, json.dumps([[*map(str, words)] for words in lines]))
    found: list[str] = json.loads(said.splitlines()[-1])
    return found


def test_an_installed_package_is_listed_runs_is_swept_and_reported(installed: Path, tmp_path: Path) -> None:
    few = (*TINY, "model=mlp", "learner=steady", "learner.strength=0.2")
    run, swept, page = tmp_path / "run", tmp_path / "swept", tmp_path / "page.html"
    modes, learners, mode, learner, *_ = shoal(
        installed,
        ("list", "sharing"),
        ("list", "learners"),
        ("list", "sharing", "gossip"),
        ("list", "learners", "steady"),
        ("run", DIGITS, *few, "sharing=gossip", "sharing.every=3", "--out", run),
        ("resume", run),
        ("sweep", DIGITS, *few, "sharing=none,gossip", "sharing.trust=0.1,0.9", "--no-page", "--out", swept),
        ("report", run, "--out", page),
    )
    (gossip,) = (line for line in modes.splitlines() if line.strip().startswith("gossip"))
    assert "Everybody tells its neighbours the biases of its heads" in gossip
    assert "[from shoal-gossip 1.2]" in gossip
    assert "how much of what is heard is believed" in mode
    (steady,) = (line for line in learners.splitlines() if line.strip().startswith("steady"))
    assert "[from shoal-gossip 1.2]" in steady
    assert "how hard they are held" in learner
    written = (run / "settings.toml").read_text()
    assert 'mode = "gossip"' in written
    assert 'method = "steady"' in written
    assert (swept / "sweep.csv").read_text().count("gossip") >= 2
    for word in ("gossip", "steady"):
        assert word in page.read_text()


def test_an_installed_command_and_protocol_are_there_and_a_broken_one_hinders_nobody(installed: Path) -> None:
    told, said, checked = shoal(
        installed, ("--help",), ("murmur", "fish"), ("check", DIGITS, *TINY, "protocol=quiet", "sharing=fedavg")
    )
    assert "murmur" in told
    assert "Say something softly" in told
    assert "silence" in told
    assert said == "psst, fish\n"
    assert "exchanges in a task" in checked
    words = [sys.executable, "-m", "shoal", "silence"]
    done = subprocess.run(words, capture_output=True, text=True, env=surroundings(installed), check=False)
    assert done.returncode == 2
    assert "the command `shoal_gossip.nowhere:silence` cannot be used, because importing" in done.stderr


def test_an_installed_package_keeps_the_laws(installed: Path) -> None:
    told = python(installed, "-c", LAWS)
    counts = re.findall(r"(\d+) of (\d+) laws hold", told)
    assert len(counts) == 2
    assert all(kept == laws and int(laws) > 5 for kept, laws in counts), told
