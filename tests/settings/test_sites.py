"""Sites have names: in settings, in what is said before and after a run, in frames and in the page."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.errors import UserError
from tests.command import call

X = np.random.default_rng(0).normal(size=(180, 3))
SITES = ["north", "south", "east"] * 60  # agents have them in the order of their names: east, north, south
WEEK = ["1"] * 90 + ["2"] * 90
DATA = shoal.Data.from_arrays(X, np.where(X[:, 0] > 0, "up", "down"), agent=SITES, task=WEEK)
SMALL: dict[str, Any] = {"model": "mlp", "net": {"width": 8, "depth": 2}, "learner": {"epochs": 4}}


def fleet(**said: Any) -> shoal.Fleet:
    return shoal.Fleet(DATA, **{**SMALL, **said})


def test_a_site_can_be_named_wherever_an_agent_is() -> None:
    presence = {"leaves": [{"agents": ["south"], "epoch": 2}], "absent": [{"agents": "east", "epochs": [[0, 1]]}]}
    kinds = [{"name": "small", "agents": ["north", 2], "net": {"width": 4}}]
    edges = [{"sender": "east", "receiver": "north"}, {"sender": 2, "receiver": "east"}]
    found = fleet(
        presence=presence,
        kinds=kinds,
        network={"graph": "edges", "edges": edges},
        policy=[{"agents": ["north"], "to": ["east"], "forbid": ["images"]}],
        faulty=[{"agents": ["south"], "does": "random"}],
        sharing=[{"mode": "uniform", "every": 1}],
    ).settings
    assert found.presence.leaves[0].agents == (2,)
    assert found.presence.absent[0].agents == (0,)
    assert found.kinds[0].agents == (1, 2)
    assert [(one.sender, one.receiver) for one in found.network.edges] == [(0, 1), (2, 0)]
    assert (found.policy[0].agents, found.policy[0].to, found.faulty[0].agents) == ((1,), (0,), (2,))


def test_a_site_of_several_agents_is_all_of_them_and_no_end_of_a_link() -> None:
    leaves = {"leaves": [{"agents": ["east"], "epoch": 2}]}
    assert fleet(agents=6, presence=leaves).settings.presence.leaves[0].agents == (0, 3)
    link = {"graph": "edges", "edges": [{"sender": "east", "receiver": 1}]}
    with pytest.raises(UserError, match=r"`network.edges\[0\].sender` is 'east', and that site has the agents 0, 3"):
        fleet(agents=6, network=link)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"presence": {"leaves": [{"agents": ["nort"], "epoch": 2}]}}, "did you mean 'north'? allowed: east, north"),
        (
            {"kinds": [{"name": "k", "agents": ["west"]}]},
            "`kinds[0].agents` names 'west', which is no site of the data",
        ),
        ({"agents": 2, "faulty": [{"agents": ["south"], "does": "random"}]}, "nobody is there; say agents=3"),
    ],
)
def test_a_site_that_is_not_there_is_a_sentence(said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        fleet(**said)
    assert sentence in str(error.value)


def test_where_the_data_names_no_sites_a_name_is_a_sentence() -> None:
    with pytest.raises(UserError, match="but the data names no sites; name agents by their numbers"):
        shoal.Fleet("digits", presence={"leaves": [{"agents": ["north"], "epoch": 2}]})


def test_frames_and_the_page_have_names(tmp_path: Path) -> None:
    presence = {"leaves": [{"agents": ["south"], "epoch": 2}]}
    result = fleet(sharing=[{"mode": "uniform", "every": 1}], presence=presence).run(out=tmp_path / "run")
    assert result.accuracy.select("agent", "site").unique().sort("agent")["site"].to_list() == [
        "east",
        "north",
        "south",
    ]
    assert set(result.ledger["sender_site"]) <= {"east", "north", "south"}
    page = result.report(tmp_path / "page.html").read_text()
    assert "east and north" in page  # a pair
    assert '"site"' in page  # the axis of the timeline
    assert "agent 0" not in page


def test_check_has_names_and_rows(tmp_path: Path) -> None:
    frame = pl.DataFrame({f"c{at}": X[:, at] for at in range(3)})
    frame = frame.with_columns(site=pl.Series(SITES), week=pl.Series(WEEK), up=pl.Series(X[:, 0] > 0).cast(pl.String))
    frame.write_csv(tmp_path / "d.csv")
    words = ["sharing=uniform", "learner.epochs=20", 'presence.leaves=[{agents=["south"],epoch=2}]']
    done = call("check", f"csv:{tmp_path / 'd.csv'}?label=up&agent=site&task=week", *words)
    assert done.code == 0, done.err
    assert "south is absent in epochs 2 on" in done.out
    assert "east → north" in done.out
    assert "largest: rows, classes or modules" in done.out
    assert "images" not in done.out


def test_an_agent_that_diverges_is_called_by_its_site() -> None:
    from shoal.agents.ends import End, ended

    ends = [End(0, agent, 1, 3, "loss") for agent in (0, 2)]
    assert ended(ends, ["east", "north", "south"])[0].startswith("east and south of seed 0 diverged in task 1")
    assert ended(ends)[0].startswith("agents 0 and 2 of seed 0")


def test_a_site_with_one_row_is_named() -> None:
    data = shoal.Data.from_arrays(X[:61], X[:61, 0] > 0, agent=["a"] * 60 + ["b"])
    with pytest.raises(UserError, match=r"b \(agent 1\) of seed 0 has 1 training row of `arrays`"):
        shoal.Fleet(data, **SMALL).check()
