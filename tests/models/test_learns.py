"""Every model and every learner learns digits in a few epochs, with its defaults or with what its line in `shoal list`
says that it needs."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from shoal.configure.reading import read
from shoal.doors import line
from shoal.learners.table import LEARNERS, usual
from shoal.models.table import MODELS
from shoal.study.advise import Block
from shoal.study.cells import Cell, finish, scores

SHORT = ("agents=2", "tasks.count=5", "tasks.classes=3", "tasks.initial=1", "learner.epochs=20")
LEARNED = 60  # % on test rows, where chance has 33


def needs(said: str) -> list[str]:
    """The settings that a line says something needs."""
    return re.findall(r"needs ([a-z_.]+=[a-z0-9.]*[a-z0-9])", said)


def learned(folder: Path, words: Iterable[str]) -> float:
    """The final accuracy of a short run on the digits."""
    (folder / "plain.toml").write_text('dataset = "digits"')
    settings = read(folder / "plain.toml", [*SHORT, *words])
    cell: Cell = Block("short", settings)
    finish(cell, folder, None)
    (place,) = [one.parent for one in folder.glob("*/summary.json")]
    return scores(place)[settings.seed]["final_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.built_in)
def test_a_model_learns_digits_or_says_what_it_needs(model: str, tmp_path: Path) -> None:
    assert learned(tmp_path, [f"model={model}", *needs(MODELS[model].about)]) > LEARNED


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNERS.built_in)
def test_a_learner_learns_digits_or_says_what_it_needs(method: str, tmp_path: Path) -> None:
    model = next((one for one in MODELS.built_in if usual(one) == method), "mlp")
    words = needs(line(LEARNERS[method])) + needs(MODELS[model].about)
    assert learned(tmp_path, [f"model={model}", f"learner.method={method}", *words]) > LEARNED


def test_what_a_line_says_is_needed_is_found() -> None:
    assert needs("for few epochs (20) it needs learner.rate=0.01.") == ["learner.rate=0.01"]
    assert needs("it needs tasks.heads=grow") == ["tasks.heads=grow"]
