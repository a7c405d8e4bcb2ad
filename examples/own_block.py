"""A block of your own as the module of a modular net: agents learn, grow and share copies of it by modmod."""

import torch
from torch import nn

import shoal


class Gate(nn.Module):
    """A gated layer: its output has the shape of its input, which is all that a block needs."""

    def __init__(self, width):
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        return torch.relu(self.value(h)) * torch.sigmoid(self.gate(h))


FEW = {"count": 4, "classes": 3, "initial": 1, "train": 20, "validation": 8}
FLEET = {
    "model": shoal.modular(Gate),
    "net": {"width": 32, "depth": 2, "dropout": 0.1},
    "learner": {"epochs": 20, "rate": 0.02, "accept": 0.0},
    "sharing": ["modmod"],
    "agents": 4,
    "tasks": FEW,
}

if __name__ == "__main__":
    print(shoal.Fleet("digits", **FLEET).run(seeds=1))
