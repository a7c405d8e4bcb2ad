"""The guide from a study to hosts is followed as it stands, with three processes on this host."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.live.serving import Running
from tests.command import ROOT
from tests.live.houses import free_ports
from tests.live.test_hosts import FLEET

pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
PAGE = (ROOT / "docs" / "guides" / "live.md").read_text(encoding="utf-8")
LINES = [line.strip() for line in re.findall(r"^    (shoal .+)$", PAGE, re.M)]
MODES = '{ mode = "recv", every = 2, queries = 4, nearest = 2 }'


def call(line: str, folder: Path) -> str:
    """What a command says; it must end well."""
    words = [sys.executable, "-m", "shoal", *shlex.split(line)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_guide_leads_from_a_settings_file_to_a_fleet_and_back(tmp_path: Path) -> None:
    text = FLEET.format(modes=MODES, more="", port=free_ports(4))
    (tmp_path / "fleet.toml").write_text(text)
    (tmp_path / "rows.csv").write_text(",".join(f"pixel{at}" for at in range(64)) + "\n" + ",".join("0" * 64) + "\n")
    lines = [line for line in LINES if not line.startswith(("shoal advise", "shoal check")) and "--from" not in line]
    agents: list[subprocess.Popen[bytes]] = []
    assert [line.split()[1:3] for line in lines].count(["live", "run"]) == 1
    try:
        for line in lines:
            if line.startswith("shoal live run"):
                for number in range(3):
                    there = line.replace("agent-0", f"agent-{number}").split()[1:]
                    words = [sys.executable, "-m", "shoal", *there, "--slow", "0.3"]
                    with (tmp_path / "log.txt").open("ab") as log:
                        agents.append(subprocess.Popen(words, cwd=tmp_path, stderr=log))
                answers(tmp_path / "fleet" / "agent-0")
            elif line.startswith("shoal live predict"):
                assert Running(tmp_path / "fleet" / "agent-0").status()["tasks"] == 3
            elif line.startswith("shoal report"):
                until = time.monotonic() + 90
                while not all((tmp_path / f"fleet/agent-{at}/run/summary.json").exists() for at in range(3)):
                    assert time.monotonic() < until
                    time.sleep(0.3)
                assert "1 run in report.html" in call(line, tmp_path)
            else:
                said = call(line, tmp_path)
                assert "the same, bit for bit" in said or not line.startswith("shoal live replay")
                assert "agent 0" in said or line != "shoal live status fleet"
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(30)


def answers(folder: Path) -> None:
    """Wait until an agent answers."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            Running(folder).status()
        except UserError:
            time.sleep(0.3)
        else:
            return
    raise AssertionError("no agent answers")
