"""Numbers to predict: R² in the place of accuracy, and the mean squared error beside it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import shoal
from shoal.errors import SettingsError
from tests.command import call


def lines() -> tuple[np.ndarray, np.ndarray]:
    """Numbers that two columns say all of."""
    x = np.random.default_rng(0).normal(size=(240, 2))
    return x, x @ [1.0, -2.0] + 0.5


def test_the_mean_squared_error_stands_beside_r2(tmp_path: Path) -> None:
    x, y = lines()
    data = shoal.Data.from_arrays(x, y, agent=np.arange(240) % 2, task=np.arange(240) // 120)
    learner = {"epochs": 30, "batch": 16, "rate": 0.01}
    fleet = shoal.Fleet(data, model="mlp", learner=learner, net={"width": 16, "depth": 2, "dropout": 0.0})
    row = fleet.run(out=tmp_path / "run").summary.row(0, named=True)
    assert row["final_accuracy"] > 80
    assert row["mean_squared_error"] == pytest.approx(1 - row["final_accuracy"] / 100, abs=0.1)  # both are of variance
    np.savez(tmp_path / "lines.npz", x=x, y=y)
    (tmp_path / "lines.toml").write_text('dataset = "npz:lines.npz"\nmodel = "mlp"\n[learner]\nepochs = 2\n')
    done = call("run", tmp_path / "lines.toml", "--out", tmp_path / "command")
    assert done.code == 0, done.err
    assert "final R², %" in done.out
    assert "mean squared error" in done.out
    assert "accuracy" not in done.out + done.err
    assert " done, R² " in done.err


def test_a_batch_that_is_larger_than_the_data_costs_no_memory() -> None:
    x, y = lines()
    fleet = shoal.Fleet((x, y > 0), model="mlp", tasks={"train": "all"}, learner={"epochs": 1, "batch": 10**9})
    assert fleet.run().summary["final_accuracy"].item() > 0


class Half(nn.Module):
    """A block with a weight that does not train."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.layer.bias.requires_grad = False

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(h)
        return found


def test_a_block_with_a_frozen_weight_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"has the frozen weight `layer\.bias`"):
        shoal.Fleet("digits", model=shoal.modular(Half)).check()
