"""The page of an advice begins with the answer, and its rounds are one run each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.report import answer, compare, page
from shoal.runs import read
from tests.command import call

X = np.random.default_rng(0).normal(size=(360, 4))
SITES, WEEKS = ["north", "south", "east"] * 120, ["1"] * 180 + ["2"] * 180


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("race")
    data = shoal.Data.from_arrays(X, np.where(X[:, 0] > 0, "hot", "cold"), agent=SITES, task=WEEKS)
    fleet = shoal.Fleet(data, model="mlp", net={"width": 8, "depth": 2}, learner={"epochs": 6})
    shoal.advise(fleet, candidates=["simp"], seeds=4, out=place / "race", fit=False)
    return place / "race"


def test_the_page_begins_with_the_answer_its_cost_and_how_sure_it_is(race: Path, tmp_path: Path) -> None:
    assert call("report", race, "--out", tmp_path / "page.html").code == 0
    text = (tmp_path / "page.html").read_text()
    said = json.loads((race / "advise.json").read_text())
    main = text[text.index("<main") : text.index("</main>")]
    assert main.index("The answer") < main.index("Learning curves")
    assert f"<strong>Share:</strong> {said['pick'] or 'nothing'}" in main
    assert "<strong>Cost:</strong>" in main
    assert "data:image/svg+xml;base64," in main
    assert "Highest final accuracy" not in main  # which need not be the answer
    assert "memory:" not in main[: main.index("Settings and versions")]


def test_the_rounds_of_a_race_are_one_run_each(race: Path) -> None:
    runs, _ = read.gather([race])
    (group,) = compare.groups(answer.joined(runs))
    assert len(runs) > len(group.entries)
    labels = [entry.label for entry in group.entries]
    assert labels[0] == "shares nothing"
    assert not any("seed" in label for label in labels)
    assert len(set(group.entries[0].run.seeds.tolist())) == 4
    alone = [run for run in runs if not run.modes]
    mean = np.concatenate([read.final(run) for run in alone]).mean()
    assert group.entries[0].score("final").mean == pytest.approx(mean)


@pytest.mark.parametrize(
    "damage", [{"candidates": 3}, {"candidates": [{}]}, {"pick": "nobody"}, {"budget": "much"}, {"candidates": []}]
)
def test_an_advice_that_is_damaged_costs_what_it_held(race: Path, damage: dict[str, Any]) -> None:
    said = {**json.loads((race / "advise.json").read_text()), "pick": "simp", **damage}
    assert "The answer" in answer.first(said)


def test_a_folder_without_an_advice_has_none(race: Path, tmp_path: Path) -> None:
    assert answer.advice_of([tmp_path]) is None
    assert answer.advice_of([race, race]) is None
    (tmp_path / "advise.json").write_text("[]")
    assert answer.advice_of([tmp_path]) is None


@pytest.mark.parametrize(
    ("dataset", "name"),
    [("digits", "digits"), ("memory:12ab", "data in memory"), ("csv:/home/me/week.csv?label=a", "week.csv")],
)
def test_a_title_is_a_name_and_no_path(dataset: str, name: str) -> None:
    assert compare.Group(dataset, "mlp", "fair", []).title == f"{name}, mlp, fair"


def test_the_axis_of_learning_curves_ends_where_epochs_end(race: Path) -> None:
    from shoal.report.numbers import curves

    (group,) = compare.groups(answer.joined(read.gather([race])[0]))
    assert {row["epoch"] for row in curves(group)} == {0, 1, 6}


def test_the_page_without_an_advice_has_its_headline(race: Path) -> None:
    text = page.page(compare.groups(read.gather([race])[0]), [])
    assert "Highest final accuracy" in text
    assert "The answer" not in text
