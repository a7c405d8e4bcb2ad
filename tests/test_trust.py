"""Nothing that somebody else's settings name is loaded before this user has allowed it."""

import http.server
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import shoal
from shoal.configure.reading import read
from shoal.errors import SettingsError
from shoal.models.table import declares
from shoal.runs.record import create, reopen
from shoal.trust import UntrustedError, loads
from tests.command import DIGITS, ROOT, TINY, call, refused

# Where a settings file can name code, and what is done to the settings of an honest run to have it there.
DOORS = {
    "model": ('model = "modular-mlp"', 'model = "{door}"'),
    "block": ('model = "modular-mlp"', 'model = "modular-{door}"'),
    "graph": ('graph = "ring"', 'graph = "{door}"'),
    "mode": ('mode = "recv"', 'mode = "{door}"'),
    "scenario": ('scenario = "drawn"', 'scenario = "{door}"'),
    "dataset": ('dataset = "digits"', 'dataset = "{door}"'),
}
COMMANDS = ("report", "compare", "resume", "transfer")


@pytest.fixture
def received(tmp_path: Path, shown: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory of somebody else, with a module in it; whoever looks at it stands in it."""
    place = tmp_path / "received"
    shutil.copytree(shown / "recv", place)
    (place / "manifest.json").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(place)
    return place


def poison(place: Path, door: str, module: str) -> Path:
    """Let the settings of a run directory name a module in it, which leaves a mark when it is imported."""
    mark = place.parent / "ran"
    (place / f"{module}.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef thing(*given): ...\n")
    file = place / "settings.toml"
    before, after = DOORS[door]
    text = file.read_text()
    assert before in text, door
    file.write_text(text.replace(before, after.format(door=f"{module}:thing")))
    return mark


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("door", DOORS)
def test_looking_at_a_received_run_imports_nothing(received: Path, door: str, command: str) -> None:
    mark = poison(received, door, f"evil_{door}_{command}")
    if command == "resume":
        (received / "summary.json").unlink()
    out = ["--out", str(received.parent / "out.html")] if command == "report" else []
    done = call(command, ".", *out)
    assert not mark.exists(), done
    assert done.code == (0 if command in ("report", "compare") else 2), done
    if command in ("resume", "transfer"):
        refused(done, "would import", f"evil_{door}_{command}:thing", "--trust")


def test_a_process_of_its_own_imports_nothing_of_its_folder(received: Path) -> None:
    mark = poison(received, "model", "evil_process")
    (received / "summary.json").unlink()
    program = "import sys; from shoal.cli import main; sys.argv[1:] = ['check', 'settings.toml']; main()"
    for words in (["-c", program], ["-m", "shoal", "check", "settings.toml"]):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert (done.returncode, mark.exists()) == (2, False), done
        assert "--trust" in done.stderr


def test_what_would_be_loaded_is_said_and_trusted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "kept_net.py").write_text(NET)
    file = tmp_path / "theirs.toml"
    file.write_text('dataset = "digits"\nmodel = "kept_net:net"\n')
    refused(call("check", file, *TINY), "would import `kept_net:net`", "--trust")
    assert call("check", file, *TINY, "--trust").code == 0
    assert call("check", file, *TINY).code == 0  # remembered
    file.write_text('dataset = "digits"\nmodel = "kept_net:other"\n')
    refused(call("check", file, *TINY), "would import `kept_net:other`")
    assert call("check", DIGITS, *TINY, "model=kept_net:net").code == 0  # one's own word
    refused(call("check", DIGITS, *TINY, "model=kept_net:other"), "is no model", "-> nn.Module")


NET = "import torch\ndef net() -> torch.nn.Module:\n    return torch.nn.Flatten()\ndef other():\n    raise SystemExit\n"


def test_a_run_of_ones_own_goes_on_and_a_copy_that_names_more_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "mine_net.py").write_text(NET)
    settings = read(DIGITS, [*TINY, "model=mine_net:net"])
    create(tmp_path / "run", settings)
    assert reopen(tmp_path / "run").settings == settings
    file = tmp_path / "run" / "settings.toml"
    file.write_text(file.read_text().replace('address = ""', 'address = "10.0.0.7:6379"'))
    with pytest.raises(UntrustedError, match=r"connect to `10\.0\.0\.7:6379`"):
        reopen(tmp_path / "run")
    assert reopen(tmp_path / "run", trust=True).settings.machine.address


def test_paths_inside_the_folder_are_its_own_and_others_are_not(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
        (place / "table.csv").write_text("a,b\n" + "1,x\n2,y\n" * 20)
    (here / "link.csv").symlink_to(there / "table.csv")
    inside = [f"csv:{here}/table.csv?label=b", f"csv:{here}/nothing.csv", "memory:0", "csv:~nobody/x", "csv:\0"]
    assert [name for name in inside if loads({"dataset": name}, here)] == []
    outside = [f"csv:{there}/table.csv?label=b", f"csv:{here}/../there/table.csv", f"csv:{here}/link.csv", "hf:/etc"]
    assert [name for name in outside if not loads({"dataset": name}, here)] == []
    assert loads({"machine": {"data": str(there)}, "network": {"changes": [{"graph": "/etc/hosts"}]}}, here)
    (here / "fleet.toml").write_text(f'dataset = "csv:{there}/table.csv?label=b"\n')
    with pytest.raises(SettingsError, match="would read"):
        shoal.Fleet(here / "fleet.toml")


def test_trust_ends_with_the_command_that_was_given_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "theirs.toml"
    file.write_text('dataset = "digits"\nmodel = "no_such_module:net"\n')
    refused(call("check", file, *TINY, "--trust"), "no_such_module")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with pytest.raises(UntrustedError, match="would import"):
        read(file)


def test_data_that_the_user_names_needs_no_other_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = tmp_path / "away" / "t.csv"
    away.parent.mkdir()
    rows = [f"{at % 7},{at % 5},{'ab'[at % 2]},{'xyz'[at % 3]}" for at in range(120)]
    away.write_text("\n".join(["one,two,label,site", *rows]) + "\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    words = ("label=label", "agent=site")
    for data in (f"csv:{away}?{'&'.join(words)}", f"csv:../away/t.csv?{'&'.join(words)}"):
        done = call("check", data)
        assert done.code == 0, done.err
        assert "trust" not in done.err
    done = call("run", data, "learner.epochs=1", "--out", "run")
    assert done.code == 0, done.err
    assert call("resume", "run").code == 0
    Path("theirs.toml").write_text(f'dataset = "{data}"\n')
    refused(call("check", "theirs.toml"), "nobody here has allowed that")


def test_only_what_says_that_it_is_a_net_is_one() -> None:
    def made() -> nn.Linear:
        raise AssertionError("nobody calls it")

    assert [
        declares(one) for one in (nn.Linear, made, vars(http.server)["test"], print, lambda: nn.Linear(1, 1), dict)
    ] == [*(True, True, False, False, False, False)]
