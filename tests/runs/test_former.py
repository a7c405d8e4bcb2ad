"""Run directories of format 3, which shoal 0.1 wrote: what is finished can still be read, the rest says what to do."""

import json
from pathlib import Path
from shutil import copytree

import pytest

from shoal.runs.record import RecordError, reopen
from shoal.settings.groups import Settings
from tests.command import call, refused

KEPT = Path(__file__).with_name("format3")  # made by 0.1: a monolithic fleet alone, a modular one that shares images


@pytest.mark.parametrize("name", ["mono", "recv"])
def test_a_finished_run_is_read_with_the_name_that_it_had(name: str) -> None:
    record = reopen(KEPT / name)
    assert record.finished
    kept = json.loads((KEPT / name / "summary.json").read_text())
    assert record.settings.identity() == kept["identity"]
    assert record.settings.learner.method == {"mono": "replay", "recv": "modular"}[name]
    assert Settings(**record.settings.model_dump()) == record.settings


def test_compare_and_report_read_it(tmp_path: Path) -> None:
    runs = copytree(KEPT, tmp_path / "runs")
    done = call("report", runs / "mono", runs / "recv", "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert "recv" in (tmp_path / "page.html").read_text()
    done = call("compare", runs / "mono", runs / "recv", "--out", tmp_path / "compared", "--json")
    assert done.code == 0, done.err
    kept = json.loads((KEPT / "recv" / "summary.json").read_text())
    assert json.loads(done.out.splitlines()[-1])["final_accuracy"] == pytest.approx(kept["final_accuracy"])


def test_an_unfinished_one_says_what_to_do(tmp_path: Path) -> None:
    run = copytree(KEPT / "recv", tmp_path / "run")
    (run / "summary.json").unlink()
    with pytest.raises(RecordError, match=r"\(format 3\).*continue it with that version, or start a new run"):
        reopen(run)
    refused(call("resume", run), "(format 3)")


def test_its_nets_are_not_read(tmp_path: Path) -> None:
    run = copytree(KEPT / "recv", tmp_path / "run")
    refused(call("transfer", run), "has format 3, this shoal reads the checkpoints of format 4; make it again with")
