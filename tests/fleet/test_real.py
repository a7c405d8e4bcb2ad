"""Real data: learning works where it must, and ends where the paper ended."""

from pathlib import Path

import numpy as np
import pytest

from shoal.configure.reading import resolve
from shoal.fleet.run import simulate
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create
from shoal_paper import families, table1

pytestmark = pytest.mark.data


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_agents_learn_mnist_task_by_task(model: str, real_data: Path) -> None:
    raw = {"dataset": "mnist", "model": model, "agents": 2, "tasks": {"count": 6}}
    stack = simulate(prepare(resolve(raw), real_data)[0])
    own = stack.accuracy[:, 4:, :, 4:].diagonal(dim1=1, dim2=3)  # [lane, grid point, task]
    assert own[:, 0].mean() < 0.7, "a task nobody has trained is near chance"
    assert own[:, -1].mean() > 0.85
    assert stack.accuracy[:, -1, -1].mean() > 0.85, "and the earlier ones are not forgotten"


@pytest.mark.slow
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
    stack = simulate(prepare(resolve(raw), real_data)[0])
    assert stack.accuracy[:, -1, -1, :4].mean() > 0.3, "chance is 0.2"


def test_a_mixed_fleet_starts_together_and_goes_separate_ways(real_data: Path) -> None:
    raw = {"dataset": "combined", "model": "mlp", "agents": 4, "tasks": {"count": 6}, "learner": {"epochs": 2}}
    (fleet,) = prepare(resolve(raw), real_data)
    sources = np.array([[fleet.bank.source[task.train[0]] for task in stream] for stream in fleet.streams])
    assert sources[:, :4].tolist() == [[0, 1, 2, 0]] * 4
    assert sources[:, 4:].tolist() == [[0, 0], [1, 1], [2, 2], [0, 0]]
    assert len({c for stream in fleet.streams for task in stream for c in task.classes if c >= 20}) > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", ["monolithic", "modular"])
def test_one_seed_of_mnist_ends_where_the_paper_does(model: str, real_data: Path, tmp_path: Path) -> None:
    (cell,) = families.choose("table1", ["mnist"], [model], ["vanilla"], "paper", seeds=1)
    summary = carry_out(prepare(cell.settings, real_data), create(tmp_path / "run", cell.settings))
    final, auc = table1.PAPER[model, "vanilla"]["mnist"]
    # Means over 8 agents of one seed; the standard error over seeds is about 0.7.
    assert abs(summary["final_accuracy"] - final) < 2.5
    assert abs(summary["auc"] - auc) < 2.5


def test_agents_gain_from_each_others_images_on_mnist(real_data: Path) -> None:
    raw = {"dataset": "mnist", "model": "mlp", "agents": 6, "tasks": {"count": 6}}
    alone, shared = (simulate(prepare(resolve(raw | more), real_data)[0]) for more in ({}, {"sharing": "recv"}))
    assert len(shared.ledger)
    assert shared.accuracy[:, -1, -1].mean() > alone.accuracy[:, -1, -1].mean()


@pytest.mark.slow
def test_agents_learn_faster_with_each_others_modules_on_mnist(real_data: Path) -> None:
    raw = {"dataset": "mnist", "agents": 6, "tasks": {"count": 7}}
    alone, shared = (simulate(prepare(resolve(raw | more), real_data)[0]) for more in ({}, {"sharing": "modmod"}))
    received = shared.of("modular")["origin"][:, :, 0] >= 0
    assert received.sum() > 5
    # The current task after 21 epochs, where a module was received: 0.58 alone, 0.77 with it.
    own = [stack.accuracy[:, :, 3].diagonal(dim1=1, dim2=2)[received].mean() for stack in (alone, shared)]
    assert own[1] > own[0] + 0.08


def test_a_mixed_fleet_shares_what_its_neighbours_can_use(real_data: Path) -> None:
    raw = {
        "dataset": "combined",
        "model": "mlp",
        "agents": 6,
        "tasks": {"count": 6, "train": 16, "validation": 10},
        "learner": {"epochs": 4, "batch": 16, "memory": 8},
        "sharing": [{"mode": "recv", "every": 2, "queries": 5, "scope": "current"}],
    }
    (fleet,) = prepare(resolve(raw), real_data)
    stack = simulate(fleet)
    column = stack.ledger.column
    across = column("sender") % 3 != column("receiver") % 3
    answers = column("kind") == "answer"
    # Classes are unique over sources, so that others have little to give: the initial tasks, which all have met.
    assert column("items")[answers & ~across].mean() > column("items")[answers & across].mean()
