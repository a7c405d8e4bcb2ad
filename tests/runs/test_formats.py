"""Run directories of earlier formats: their numbers are read, and nothing goes on from them."""

import json
from pathlib import Path
from shutil import copytree

import pytest

import shoal
from shoal.runs.files import FORMAT, RecordError
from shoal.runs.read import read
from shoal.runs.record import reopen
from shoal.settings.groups import Settings
from shoal.study.cells import place_of
from shoal_paper.table1 import Cell
from tests.command import call, refused

HERE = Path(__file__).parent
# A fleet alone and one that shares: images, as 0.1 was at first (format 3), and modules.
PAIRS = {3: ("mono", "recv"), 4: ("alone", "shared")}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path, Path]:
    """A format, and copies of two finished runs of it."""
    made: int = request.param
    alone, shared = (copytree(HERE / f"format{made}" / name, tmp_path / name) for name in PAIRS[made])
    return made, alone, shared


def test_compare_and_report_read_them(pair: tuple[int, Path, Path], tmp_path: Path) -> None:
    made, alone, shared = pair
    assert made < FORMAT
    for place in (alone, shared):
        run, lost = read(place)
        assert run.complete
        assert not [why for why in lost if "cannot" in why or "not there" in why]
    done = call("report", alone, shared, "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert shared.name in (tmp_path / "page.html").read_text()
    done = call("compare", alone, shared, "--out", tmp_path / "compared", "--json")
    assert done.code == 0, done.err
    kept = json.loads((shared / "summary.json").read_text())
    assert json.loads(done.out.splitlines()[-1])["final_accuracy"] == pytest.approx(kept["final_accuracy"])
    assert shoal.Result.read(shared).summary["final_accuracy"][0] == pytest.approx(kept["final_accuracy"])


def test_an_unfinished_one_says_what_to_do(pair: tuple[int, Path, Path]) -> None:
    made, _, shared = pair
    (shared / "summary.json").unlink()
    with pytest.raises(RecordError, match=rf"\(format {made}\).*continue it with that version, or start a new run"):
        reopen(shared)
    refused(call("resume", shared), f"(format {made})")


def test_no_agent_is_taken_out_of_one(tmp_path: Path) -> None:
    run = copytree(HERE / "format4" / "shared", tmp_path / "run")
    assert call("resume", run).code == 0  # it says what came out
    why = f"has format 4, this shoal reads the checkpoints of format {FORMAT}; make it again with `shoal run"
    refused(call("transfer", run), why)
    with pytest.raises(RecordError, match=why):
        shoal.Result.read(run).agent(0)


def test_settings_of_the_format_before_are_todays() -> None:
    for place in (HERE / "format4").iterdir():
        settings = reopen(place).settings
        assert Settings(**settings.model_dump()) == settings


def test_a_finished_run_of_the_format_before_is_found_by_its_settings(tmp_path: Path) -> None:
    settings = reopen(HERE / "format4" / "alone").settings
    cell = Cell("table1", "digits", "monolithic", "vanilla", settings)
    run = copytree(HERE / "format4" / "alone", tmp_path / f"{cell.name}-0ld0ld00")
    assert place_of(cell, tmp_path) == run
    other = Cell("table1", "digits", "monolithic", "vanilla", settings.model_copy(update={"seed": 1}))
    assert place_of(other, tmp_path) == tmp_path / f"{other.name}-{other.settings.identity()}"
    (run / "summary.json").unlink()  # what is not finished begins anew
    assert place_of(cell, tmp_path) != run
