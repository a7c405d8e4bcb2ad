"""What several test files need."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.data import DATASETS, store

# Tests train tiny nets: threads would spend their time waiting for each other, and far more of it on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What commands print is compared to the letter, whatever terminal the tests run in.
os.environ["COLUMNS"] = "80"
# What commands remember is theirs.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="shoal-state-")
for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "PYTHONIOENCODING"):
    os.environ.pop(name, None)

UNPACK = Path(__file__).parents[1] / ".." / "shared" / "data" / "unpack.py"

# The runs that reports are made of: without sharing; with images over a ring; with mail that is refused on every edge.
SHOWN = {
    "vanilla": (),
    "recv": ("sharing=recv", "sharing.every=2", "sharing.queries=4", "network=ring"),
    "fedavg": ("sharing=fedavg", "sharing.every=2", "network.every=4"),
}


def pytest_configure(config: pytest.Config) -> None:
    """The kernel of a source tree may be of an older source, or not be built: tests must not pass by skipping it."""
    from shoal.compiled import build

    if not hasattr(config, "workerinput") and build.compiler() and not build.fresh():
        try:
            build.build()
        except RuntimeError as error:
            raise pytest.UsageError(f"the kernel is not built: {error}") from None


def holds_all(folder: Path) -> bool:
    return not any(store.absent(dataset, folder) for dataset in DATASETS.values())


@pytest.fixture(scope="session", autouse=True)
def quick_workers() -> Iterator[None]:
    """Workers in processes need no seconds to import torch. Those of commands that tests start do, as everywhere."""
    from shoal.fleet import processes
    from tests.command import server

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "get_context", lambda method: server())
        yield


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with finished runs, by name; a test that changes one works on a copy."""
    from shoal.configure.reading import read
    from shoal.runs.execute import carry_out, prepare
    from shoal.runs.record import create  # brings torch, which must find the number of threads set
    from tests.command import DIGITS, TINY

    folder = tmp_path_factory.mktemp("shown")
    for name, words in SHOWN.items():
        settings = read(DIGITS, [*TINY, *words])
        carry_out(prepare(settings), create(folder / name, settings))
    return folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    """A folder with the real files of all datasets; tests that use it are marked `data`.

    It is $SHOAL_DATA if that has everything, else unpacked once per machine and kept in the temporary folder.
    """
    own = os.environ.get("SHOAL_DATA")
    if own and holds_all(Path(own)):
        return Path(own)
    if not UNPACK.is_file():
        pytest.skip("the real datasets are not here: set SHOAL_DATA to a folder that `shoal data get` has filled")
    # The name changes with the packed data, so a new pack is never mistaken for an old one.
    version = hashlib.md5(UNPACK.with_name("manifest.json").read_bytes(), usedforsecurity=False).hexdigest()[:8]
    kept = Path(tempfile.gettempdir()) / f"shoal-test-data-{version}"
    if holds_all(kept):
        return kept
    # Unpacked aside and moved in one step: a broken run leaves nothing behind that looks whole, and test
    # processes side by side cannot disturb each other.
    with tempfile.TemporaryDirectory(dir=kept.parent) as aside:
        fresh = Path(aside) / "data"
        subprocess.run([sys.executable, str(UNPACK), str(fresh)], check=True, stdout=subprocess.DEVNULL)
        try:
            fresh.rename(kept)
        except OSError:
            if not holds_all(kept):
                raise
    return kept


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with no data but the digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
