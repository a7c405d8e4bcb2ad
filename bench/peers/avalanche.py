"""Avalanche: one agent with its replay plugin and a head for each task, in the middle of a stream.

A step is one of its iterations, with 64 images: half of them new, half from the memory.
"""

import torch
from torch.utils.data import TensorDataset

from bench.peers import work

work.declare_missing()

from avalanche.benchmarks import (  # type: ignore[import-not-found] # noqa: E402
    benchmark_from_datasets,
    task_incremental_benchmark,
    with_classes_timeline,
)
from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute  # type: ignore[import-not-found] # noqa: E402
from avalanche.models import MultiHeadClassifier, MultiTaskModule  # type: ignore[import-not-found] # noqa: E402
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin  # type: ignore[import-not-found] # noqa: E402
from avalanche.training.supervised import Naive  # type: ignore[import-not-found] # noqa: E402


class Net(MultiTaskModule):  # type: ignore[misc]
    """The net of one agent."""

    def __init__(self) -> None:
        super().__init__()
        self.body = work.layers()[:-1]
        self.heads = MultiHeadClassifier(work.WIDTH, work.CLASSES, masking=False)

    def forward(self, x: torch.Tensor, task_labels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.heads(self.body(x), task_labels)
        return found


def task(number: int, agent: int) -> AvalancheDataset:
    """The images of one task."""
    x, y = work.data(seed=100 * agent + number)
    targets = DataAttribute(y.tolist(), "targets", use_in_getitem=False)
    return AvalancheDataset([TensorDataset(x, y)], data_attributes=[targets])


def strategy(agent: int) -> tuple[Naive, object]:
    """An agent that has met all earlier tasks, and its next one."""
    tasks = [task(number, agent) for number in range(work.PAST + 1)]
    stream = with_classes_timeline(task_incremental_benchmark(benchmark_from_datasets(train=tasks))).train_stream
    net = Net()
    naive = Naive(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=work.RATE),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=work.BATCH // 2,
        train_epochs=1,
        plugins=[ReplayPlugin(mem_size=work.MEMORY * work.PAST, batch_size_mem=work.BATCH // 2)],
        evaluator=EvaluationPlugin(),
        eval_every=-1,
    )
    for number in range(work.PAST):
        naive.train(stream[number])
    naive.train_epochs = work.EPOCHS
    return naive, stream[work.PAST]


def prepare(agents: int) -> work.Round:
    naive, experience = strategy(0)  # more agents change nothing: they would take turns

    def one() -> int:
        before = naive.clock.train_iterations
        naive.train(experience, num_workers=0)
        return int(naive.clock.train_iterations - before)

    return one


if __name__ == "__main__":
    work.serve(prepare)
