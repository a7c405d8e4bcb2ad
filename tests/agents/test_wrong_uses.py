"""More wrong uses of agents that were taken out; with those beside the other tests of agents they are a hundred."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import shoal
from shoal.errors import UserError
from tests.agents import test_agents, test_going, test_taught
from tests.agents.test_agents import agent_of, numeric, result, table

NAN = np.full((3, 4), np.nan)


def file(folder: Path, content: bytes) -> Path:
    place = folder / "agent.safetensors"
    place.write_bytes(content)
    return place


def folder_as(place: Path) -> Path:
    place.mkdir()
    return place


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an empty frame": (lambda _: agent_of().predict(table().select([])), "no column `heat`"),
    "a column of dates": (
        lambda _: agent_of().predict(table().with_columns(heat=pl.lit("2020-01-01").str.to_date())), "no numbers",
    ),
    "a column of lists": (
        lambda _: agent_of().predict(table().with_columns(heat=pl.lit([1.0, 2.0]))), "no numbers are in `heat`",
    ),
    "a nested list": (lambda _: agent_of().predict([[[1.0, 2.0, 3.0, 4.0]]]), "rows of shape [4]"),
    "complex numbers": (lambda _: agent_of().predict(np.zeros((3, 4), complex)), "as two columns"),
    "objects": (lambda _: agent_of().predict(np.array([[object()] * 4])), "must be numbers"),
    "a set": (lambda _: agent_of().predict({1.0, 2.0}), "single value"),
    "a word": (lambda _: agent_of().predict("rows.csv"), "single value"),
    "a path": (lambda _: agent_of().predict(Path("rows.csv")), "single value"),
    "a tensor of NaN": (lambda _: agent_of().predict(torch.full((2, 4), float("nan"))), "not numbers"),
    "dates": (lambda _: agent_of().predict(np.array([["2020-01-01"] * 4], "datetime64[D]")), "must be numbers"),
    "a task that is a float": (lambda _: agent_of().predict(table(), task=1.0), "got 1.0"),  # type: ignore[arg-type]
    "a task that is true": (lambda _: agent_of().predict(table(), task=True), "got True"),
    "a negative task": (lambda _: agent_of().predict(table(), task=-1), "got -1"),
    "classes of no task": (lambda _: agent_of().classes(9), "2 tasks"),
    "probabilities of no task": (lambda _: agent_of().probabilities(table(), task=9), "2 tasks"),
    "probabilities of NaN": (lambda _: agent_of().probabilities(NAN), "not numbers"),
    "probabilities of a missing column": (lambda _: agent_of().probabilities(table().drop("heat")), "`heat`"),
    "a score of a missing column": (lambda _: agent_of().score(table().drop("heat"), ["hot"] * 80), "`heat`"),
    "a score of NaN": (lambda _: agent_of().score(NAN, ["hot"] * 3), "not numbers"),
    "a score without labels": (lambda _: agent_of().score(table(), None), "80 rows"),
    "a score of one label": (lambda _: agent_of().score(table(), "hot"), "80 rows"),
    "numbers for classes": (lambda _: agent_of().score(table(), [1] * 80), "never met"),
    "labels too many": (lambda _: agent_of().score(table(), ["hot"] * 99), "80 rows"),
    "numbers too few": (lambda _: numeric().score(table(), [1.0] * 3), "80 rows"),
    "no numbers at all": (lambda _: numeric().score(table(), None), "80 rows"),
    "numbers that are infinite": (lambda _: numeric().score(table(), [np.inf] * 80), "must be numbers"),
    "a module of no task": (lambda _: agent_of().module(9), "2 tasks"),
    "an export of no task": (lambda tmp: agent_of().export(tmp / "agent.pt2", task=9), "2 tasks"),
    "an export over a folder": (lambda tmp: agent_of().export(folder_as(tmp / "agent.pt2")), "it is a folder"),
    "a folder as a file": (lambda tmp: shoal.Agent.load(tmp), "is a folder, and an agent is one file"),
    "an empty file": (lambda tmp: shoal.Agent.load(file(tmp, b"")), "damaged"),
    "a file of text": (lambda tmp: shoal.Agent.load(file(tmp, b"an agent")), "damaged"),
    "no name of a file": (lambda _: shoal.Agent.load(""), "is a folder"),
    "an agent without a name": (lambda _: result().agent(""), "there are north, south"),
    "an agent that is nobody": (lambda _: result().agent(None), "called north, south"),  # type: ignore[arg-type]
    "an agent that is true": (lambda _: result().agent(True), "called north, south"),
    "a seed by name": (lambda _: result().agent(0, seed="first"), "no seed 'first'"),  # type: ignore[arg-type]
    "a number that nobody has": (lambda _: result().agent("agent 7"), "counted from 0 to 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_use_is_answered_by_one_sentence(what: str, tmp_path: Path) -> None:
    use, words = WRONG[what]
    with pytest.raises(UserError) as error:
        use(tmp_path)
    said = str(error.value)
    assert words in said
    assert "\n" not in said
    assert len(said) < 500


def test_wrong_uses_of_agents_are_a_hundred() -> None:
    assert len(WRONG) + sum(len(one.WRONG) for one in (test_agents, test_taught, test_going)) >= 100
