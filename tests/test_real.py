"""Real data: learning works where it must, and ends where the paper ended."""

from pathlib import Path

import numpy as np
import pytest

from shoal import reproduce
from shoal.config import resolve
from shoal.record import create
from shoal.run import simulate
from shoal.session import carry_out, prepare

pytestmark = pytest.mark.data


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_agents_learn_mnist_task_by_task(model: str, real_data: Path) -> None:
    raw = {"dataset": "mnist", "model": model, "agents": 2, "tasks": {"count": 6}}
    stack = simulate(prepare(resolve(raw), real_data))
    own = stack.accuracy[:, 4:, :, 4:].diagonal(dim1=1, dim2=3)  # [lane, grid point, task]
    assert own[:, 0].mean() < 0.7, "a task nobody has trained is near chance"
    assert own[:, -1].mean() > 0.85
    assert stack.accuracy[:, -1, -1].mean() > 0.85, "and the earlier ones are not forgotten"


@pytest.mark.parametrize("model", ["cnn", "modular-cnn"])
def test_agents_learn_cifar100(model: str, real_data: Path) -> None:
    raw = {
        "dataset": "cifar100",
        "model": model,
        "agents": 1,
        "tasks": {"count": 5, "classes": 5, "train": 64, "validation": 10, "replacement": False},
        "net": {"width": 16},
        "learner": {"epochs": 10, "rate": 3e-3},
    }
    stack = simulate(prepare(resolve(raw), real_data))
    assert stack.accuracy[:, -1, -1, :4].mean() > 0.3, "chance is 0.2"


def test_a_mixed_fleet_starts_together_and_goes_separate_ways(real_data: Path) -> None:
    raw = {"dataset": "combined", "model": "mlp", "agents": 4, "tasks": {"count": 6}, "learner": {"epochs": 2}}
    fleet = prepare(resolve(raw), real_data)
    sources = np.array([[fleet.bank.source[task.train[0]] for task in stream] for stream in fleet.streams])
    assert sources[:, :4].tolist() == [[0, 1, 2, 0]] * 4
    assert sources[:, 4:].tolist() == [[0, 0], [1, 1], [2, 2], [0, 0]]
    assert len({c for stream in fleet.streams for task in stream for c in task.classes if c >= 20}) > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["monolithic", "modular"])
def test_one_seed_of_mnist_ends_where_the_paper_does(model: str, real_data: Path, tmp_path: Path) -> None:
    (cell,) = reproduce.choose("table1", ["mnist"], [model], ["vanilla"], "paper", seeds=1)
    summary = carry_out(prepare(cell.settings, real_data), create(tmp_path / "run", cell.settings))
    final, auc = reproduce.PAPER[model, "vanilla"]["mnist"]
    # Means over 8 agents of one seed; the standard error over seeds is about 0.7.
    assert abs(summary["final_accuracy"] - final) < 2.5
    assert abs(summary["auc"] - auc) < 2.5
