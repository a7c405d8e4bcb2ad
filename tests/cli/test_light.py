"""Commands that say what there is do not wait for torch: modules are counted, not seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.doors import line, told
from shoal.learners.table import LEARNERS
from shoal.sharing.modes import MODES

PROGRAM = """
import sys
from shoal.cli import main
try:
    main()
except SystemExit as end:
    print("torch" in sys.modules, end.code or 0)
"""


@pytest.mark.parametrize("words", ["--help", "list", "list sharing", "list learners", "list scenarios", "list models"])
def test_what_there_is_is_said_without_torch(words: str) -> None:
    line = [sys.executable, "-c", PROGRAM, *words.split()]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr


def test_a_mistake_in_what_is_to_be_checked_is_said_without_torch() -> None:
    line = [sys.executable, "-c", PROGRAM, "check", "digits", "sharing=fedavg", "sharing.ever=3"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True 2", done.stdout  # the mode itself is asked
    line = [sys.executable, "-c", PROGRAM, "check", "digits", "agnets=3"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False 2", done.stdout


def test_what_a_run_will_be_is_said_without_tables() -> None:
    program = PROGRAM.replace('"torch" in', '"polars" in')
    done = subprocess.run(
        [sys.executable, "-c", program, "check", "digits"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr


TOLD = """
import sys

sys.addaudithook(lambda event, found: event == "import" and found[0] == "torch" and print("torch comes"))
from shoal.cli import main
main()
"""


def test_what_data_means_is_said_before_torch_comes(tmp_path: Path) -> None:
    rows = [f"{at % 7},{at % 5},{('up', 'down')[at % 2]},{('north', 'south')[at // 2 % 2]}" for at in range(160)]
    (tmp_path / "table.csv").write_text("\n".join(["heat,load,state,site", *rows]))
    asked = f"{tmp_path}/table.csv?label=state&agent=site"
    line = [sys.executable, "-c", TOLD, "check", asked, "sharing=simp"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    said = [done.stdout.index(words) for words in ("to predict", "north", "torch comes", "of memory", "simp")]
    assert said == sorted(said), done.stdout  # and so whoever waits for torch reads in the meantime


def test_what_is_read_in_a_source_is_what_the_class_says() -> None:
    for table in (MODES, LEARNERS):
        for name in table.built_in:
            assert told(table, name) == line(table[name]), name


STOPPED = """
import signal, sys

class Now:
    def find_spec(self, name, *rest):
        if name == "torch":
            sys.meta_path.remove(now)
            signal.raise_signal(signal.SIGINT)

now = Now()
sys.meta_path.insert(0, now)
from shoal.cli import main
main()
"""


def test_ctrl_c_in_the_first_second_is_a_sentence(tmp_path: Path) -> None:
    line = [sys.executable, "-c", STOPPED, "run", "digits", "--out", str(tmp_path / "run")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip().startswith("stopped before it was done; the same command begins again")
    assert not (tmp_path / "run").exists()
