"""Checking anything of one's own: what it is is found out, each law is told, and the examples keep theirs."""

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest

import shoal
from shoal.data.digits import DIGITS
from shoal.errors import UserError
from shoal.fleet.run import simulate
from shoal.models.table import named
from shoal.runs.metrics import METRICS
from shoal.testing import check, kind_of
from tests.command import ROOT


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def path(n: int, p: float, generator: np.random.Generator) -> Any:
    """A line of agents."""
    return nx.path_graph(n)


def stream(bank: Any, settings: Any, lanes: Any) -> Any:
    """Nothing."""
    return ()


def last(run: Any) -> Any:
    """The accuracy of the last task at its end."""
    return 100 * run.accuracy[:, -1, -1, -1]


def test_what_something_is_is_found_out() -> None:
    mode, learner = example("own_mode").kindred, example("own_learner").hold
    things = {
        "mode": mode, "learner": learner(), "model": example("own_net").Tiny, "graph": path, "scenario": stream,
        "metric": last, "dataset": DIGITS,
    }  # fmt: skip
    assert {kind: kind_of(thing) for kind, thing in things.items()} == {kind: kind for kind in things}
    with pytest.raises(UserError, match="is a name, and `kind` must say of what"):
        check("recv")
    with pytest.raises(UserError, match="looks like nothing that can be checked"):
        check(3)


def test_each_law_is_told_and_what_is_broken_is_raised() -> None:
    told: list[str] = []
    check(last, tell=told.append)
    assert told[-1] == "5 of 5 laws hold"
    assert "last" not in METRICS
    with pytest.raises(AssertionError, match="one number per lane"):
        check(lambda run: run.accuracy.mean(), "metric", tell=told.append)
    with pytest.raises(AssertionError, match="ends in ZeroDivisionError"):
        check(lambda n, p, generator: 1 / 0, "graph", tell=told.append)


@pytest.mark.parametrize("name", ["own_net", "own_block", "own_mode", "own_learner"])
def test_an_example_learns(name: str) -> None:
    fleet = dict(example(name).FLEET)
    fleet["model"] = named(fleet["model"])
    (world,) = shoal.prepare(shoal.resolve(fleet))
    stack = simulate(world)
    assert stack.accuracy[:, -1, -1].mean() > 0.5
    assert bool(len(stack.ledger)) == bool(fleet.get("sharing"))
