"""Golden records hold: no change of code changes what a run comes to, unless its commit says so."""

import json
from math import isclose

import pytest

from tests import golden

KEPT = json.loads(golden.FILE.read_text(encoding="utf-8"))
CASES = golden.cases()


def test_every_run_that_is_held_is_run() -> None:
    assert CASES.keys() == KEPT["runs"].keys()


@pytest.mark.parametrize("name", CASES)
def test_a_run_comes_to_what_it_came_to(name: str) -> None:
    found, want = golden.measured(CASES[name]), KEPT["runs"][name]
    digest, kept = found.pop("digest"), KEPT["orders"].get(golden.arithmetic(), {}).get(name)
    if kept is not None:
        assert digest == kept
        return
    assert found.keys() == want.keys()
    assert isclose(found["accuracy"], want["accuracy"], abs_tol=0.02)
    assert isclose(found["weights"], want["weights"], rel_tol=0.01)
    if "messages" in want:
        assert found["messages"] == want["messages"]
        assert isclose(found["bytes"], want["bytes"], rel_tol=0.05)
