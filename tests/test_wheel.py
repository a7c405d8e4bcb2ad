"""What is installed is whole: the wheel works without the source tree."""

import hashlib
import importlib
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.command import ROOT, TINY, Done

pytest.importorskip("hatchling", reason="hatchling is not installed; it is in the group dev")

# Isolated (-I): neither the working folder nor PYTHONPATH counts. The source tree, which an editable installation puts
# on the path, is taken off; the unpacked wheel comes first.
PROGRAM = """
import sys
wheel, source, *words = sys.argv[1:]
sys.path[:] = [wheel, *(place for place in sys.path if place != source)]
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in getattr(one, "__module__", "")]
import shoal
assert shoal.__file__.startswith(wheel), shoal.__file__
from shoal.cli import main
sys.argv = ["shoal", *words]
main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, unpacked."""
    place = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = (place / "dist").glob("*.whl")
    with zipfile.ZipFile(file) as content:
        content.extractall(place / "site")
    return place / "site"


def installed(wheel: Path, place: Path, *words: str) -> Done:
    """A command of the unpacked wheel, somewhere else."""
    line = [sys.executable, "-I", "-c", PROGRAM, str(wheel), str(ROOT), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(place / "cache")}
    done = subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_wheel_has_all_that_is_not_python(wheel: Path) -> None:
    for name in ("py.typed", "data/digits.npz", "report/page.css", "report/page.js", "experiments/digits.toml"):
        assert (wheel / "shoal" / name).is_file(), name
    there = {file.name for file in (wheel / "shoal" / "experiments").iterdir()}
    assert there == {file.name for file in (ROOT / "shoal" / "experiments").iterdir()}


def test_an_installed_shoal_lists_and_runs_experiments(wheel: Path, tmp_path: Path) -> None:
    done = installed(wheel, tmp_path, "list", "experiments")
    assert done.code == 0, done.err
    assert "digits" in done.out
    done = installed(wheel, tmp_path, "run", "digits", *TINY, "--json")
    assert done.code == 0, done.err
    assert list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_an_installed_demo_runs(wheel: Path, tmp_path: Path) -> None:
    words = [word for word in TINY if not word.startswith(("seeds=", "learner.epochs="))] + ["learner.epochs=16"]
    done = installed(wheel, tmp_path, "demo", *words, "--seeds", "1")
    assert done.code == 0, done.err


def test_the_bill_of_materials_lists_what_the_wheel_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    sbom: Any = importlib.import_module("sbom")
    wheel = tmp_path / "shoal-0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    place = sbom.write(wheel)
    found = json.loads(place.read_text(encoding="utf-8"))
    assert place.name == "shoal-0-py3-none-any.cdx.json"
    names = {one["name"].lower() for one in found["components"]}
    assert names >= {"torch", "numpy", "pydantic", "pydantic_core", "polars", "altair"}
    assert names.isdisjoint({"pytest", "ruff", "mypy", "ray"})  # what is no part of it
    assert found["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(b"a wheel").hexdigest()
    for change in ({"specVersion": "9"}, {"serialNumber": "7"}, {"components": found["components"][1:]}):
        with pytest.raises(AssertionError):
            sbom.check(found | change)


def test_the_workflow_runs_the_same_checks_with_pinned_actions_and_reads_alone() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one) for one in used)
    assert re.search(r"^permissions:\n  contents: read\n\n", text, re.MULTILINE)
    assert text.count("permissions:") == 1
    assert re.findall(r"run: (.+)", text) == [".ci/run"]


def test_tests_use_the_hashes_where_they_apply() -> None:
    """Every package that the lock names has a hash, and `make` takes it by itself on the platform of these files."""
    lines = [line for line in (ROOT / ".ci" / "locked.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    environment = {name: value for name, value in os.environ.items() if name != "LOCK"}
    told = subprocess.run(
        ["make", "-n", "-B", f"PYTHON={sys.executable}", "test"], cwd=ROOT, env=environment, capture_output=True,
        text=True, check=True,
    ).stdout  # fmt: skip
    here = (*sys.version_info[:2], platform.python_implementation(), platform.system(), platform.machine())
    assert ("--require-hashes -r .ci/locked.txt" in told) == (here == (3, 11, "CPython", "Linux", "x86_64"))
