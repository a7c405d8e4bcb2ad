"""A net of your own: any nn.Module; heads are added, one per task."""

import torch
from torch import nn

import shoal


class Tiny(nn.Module):
    """A layer behind the rows as they are; `shape` is that of one row."""

    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(torch.Size(shape).numel(), 32)

    def forward(self, x):
        return torch.relu(self.layer(x.flatten(1)))


FEW = {"count": 4, "classes": 2, "initial": 1, "train": 20, "validation": 8}
FLEET = {
    "model": Tiny,
    "learner": {"epochs": 10, "rate": 0.005},
    "sharing": [{"mode": "recv", "every": 5}],
    "agents": 4,
    "tasks": FEW,
}

if __name__ == "__main__":
    print(shoal.Fleet("digits", **FLEET).run(seeds=1))
