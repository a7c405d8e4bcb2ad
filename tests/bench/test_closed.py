"""Sums against nets on CIFAR-100: what the file says of graphs."""

import pytest

from bench.closed import CASES, kept_rows


def test_the_file_has_all_cases() -> None:
    assert {row["case"] for row in kept_rows()} == set(CASES)


@pytest.mark.parametrize("graph", ["ring", "tree", "G(8, 0.4)", "ring, a fifth lost"])
def test_on_every_graph_sums_reach_the_pooled_value_and_all_agents_do(graph: str) -> None:
    (row,) = [row for row in kept_rows() if row["case"] == f"statistics, {graph}"]
    assert abs(float(row["gap"])) < 0.05
    assert row["final"] == row["worst"]
