"""Sums against nets on CIFAR-100: what the file says of graphs, and what chooses rates."""

from dataclasses import replace

import numpy as np
import pytest

from bench import closed
from bench.cases import noise
from bench.closed import CASES, kept_rows


def test_the_file_has_all_cases() -> None:
    assert {row["case"] for row in kept_rows()} == set(CASES)


@pytest.mark.parametrize("graph", ["ring", "tree", "G(8, 0.4)", "ring, a fifth lost"])
def test_on_every_graph_sums_reach_the_pooled_value_and_all_agents_do(graph: str) -> None:
    (row,) = [row for row in kept_rows() if row["case"] == f"statistics, {graph}"]
    assert abs(float(row["gap"])) < 0.05
    assert row["final"] == row["worst"]


def test_test_rows_choose_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With other labels on its test rows, a net's rates and epochs do as well as before, and the same are chosen."""
    monkeypatch.setattr(closed, "RATES", (1e-3, 1e-2))
    monkeypatch.setattr(closed, "EPOCHS", (1, 2))
    monkeypatch.setattr(closed, "RATE", 1e-3)
    monkeypatch.setattr(closed, "TIMES", 2)
    bank = noise("rows", (6,), 100, 2_400, 400)
    bank = replace(bank, images=bank.images + bank.labels[:, None].astype(np.uint8))  # something to learn
    scrambled = replace(bank, labels=np.where(bank.test, bank.labels[::-1], bank.labels))
    assert (scrambled.labels != bank.labels)[bank.test].all()
    case, said = CASES["replay, alone"]._replace(net={"depth": 1, "width": 8, "dropout": 0.0}), []
    for one in (bank, scrambled):
        chosen = closed.tuned(case, closed.dealt(one, 0), 0)
        said.append((chosen, capsys.readouterr().out))
    assert said[0] == said[1]
    assert said[0][1].count("of validation rows") == 3


def test_rates_are_tried_on_both_sides_till_they_are_worse() -> None:
    tried: list[float] = []

    def score(rate: float) -> float:
        tried.append(rate)
        return -abs(rate - 2)

    for first in (0.0, 2.0, 4.0):
        assert closed.climbed((0.0, 1.0, 2.0, 3.0, 4.0), first, score) == 2
        assert {1.0, 3.0} <= set(tried)
        tried.clear()


def test_what_was_chosen_is_among_what_was_tried() -> None:
    for row in kept_rows():
        if CASES[row["case"]].learner != "analytic":
            assert float(row["chosen"]) in closed.RATES
            assert int(row["epochs"]) in closed.EPOCHS
