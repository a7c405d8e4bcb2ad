"""A run as a picture that moves."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from shoal.errors import UserError
from shoal.report import film
from shoal.runs import read
from tests.command import call

SVG = "{http://www.w3.org/2000/svg}"


def run_of(folder: Path) -> read.Run:
    (run,), _ = read.gather([folder])
    return run


def drawn(folder: Path) -> ElementTree.Element:
    return ElementTree.fromstring(film.drawn(run_of(folder)))


def named(picture: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in picture.iter() if one.get("class") == name]


def test_a_film_shows_every_agent_and_every_link_that_carries_letters(shown: Path) -> None:
    run, picture = run_of(shown / "recv"), drawn(shown / "recv")
    agents = {int(agent) for agent in run.agents[run.seeds == run.seeds.min()]}
    ledger = run.tables["ledger"].filter((pl.col("seed") == run.seeds.min()) & (pl.col("verdict") == "accepted"))
    assert len(named(picture, "full")) == len(named(picture, "rim")) == len(named(picture, "each")) == len(agents)
    assert len(named(picture, "letter")) == ledger.select("sender", "receiver").n_unique() > 0


def test_what_moves_keeps_its_time_and_ends_with_what_the_records_say(shown: Path) -> None:
    run, picture = run_of(shown / "recv"), drawn(shown / "recv")
    moving = [one for one in picture.iter() if one.tag in (f"{SVG}animate", f"{SVG}animateMotion")]
    assert moving
    for one in moving:
        times = [float(time) for time in one.get("keyTimes", "").split(";")]
        values = (one.get("values") or one.get("keyPoints") or "").split(";")
        assert (times[0], times[-1]) == (0, 1)
        assert times == sorted(times)
        assert len(times) == len(values)
    final = read.final(run)[run.seeds == run.seeds.min()]
    told = re.search(r"ends at (\d+)%", picture.findtext(f"{SVG}desc") or "")
    assert told is not None
    assert int(told[1]) == round(float(np.mean(final)))
    assert f"{SVG}script" not in {one.tag for one in picture.iter()}


def test_without_sharing_there_are_no_letters_and_no_links(shown: Path) -> None:
    picture = drawn(shown / "vanilla")
    assert named(picture, "letter") == named(picture, "edge") == []
    assert "shares nothing" in (picture.findtext(f"{SVG}title") or "")


def test_a_fleet_that_nobody_could_tell_apart_is_refused(shown: Path) -> None:
    run = run_of(shown / "recv")
    many = film.MOST + 1
    crowd = replace(
        run, accuracy=np.repeat(run.accuracy[:1], many, 0), seeds=np.zeros(many, int), agents=np.arange(many)
    )
    with pytest.raises(UserError, match=f"has {many} agents, and a film shows at most {film.MOST}"):
        film.drawn(crowd)


def test_the_command_draws_one_run(shown: Path, nowhere: None) -> None:
    done = call("report", str(shown / "recv"), "--film", "run.svg")
    assert done.code == 0, done.err
    assert Path("run.svg").read_text().startswith("<svg")
    done = call("report", str(shown), "--film", "both.svg")
    assert done.code == 2
    assert "--film draws one run, and here are 3" in done.err
    assert not Path("both.svg").exists()
