"""Every model learns digits in a few epochs, with its defaults or with what its line in `shoal list models` says."""

import re
from pathlib import Path

import pytest

from shoal.configure.reading import read
from shoal.models.table import MODELS
from shoal.study.advise import Block
from shoal.study.cells import Cell, finish, scores

SHORT = ("agents=2", "tasks.count=5", "tasks.classes=3", "tasks.initial=1", "learner.epochs=20")
LEARNED = 60  # % on test rows, where chance has 33


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in MODELS if not name.endswith("cnn")])
def test_a_model_learns_digits_or_says_what_it_needs(model: str, tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text('dataset = "digits"')
    needs = re.findall(r"needs ([a-z_.]+=[0-9.]+)", MODELS[model].about)
    settings = read(tmp_path / "plain.toml", [*SHORT, f"model={model}", *needs])
    cell: Cell = Block(model, settings)
    finish(cell, tmp_path, None)
    (place,) = [one.parent for one in tmp_path.glob("*/summary.json")]
    assert scores(place)[settings.seed]["final_accuracy"] > LEARNED
