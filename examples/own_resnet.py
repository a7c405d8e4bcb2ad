"""ResNet-18 as the net of every agent. Weights are averaged; what BatchNorm has seen stays every agent's own."""

from torch import nn
from torch.nn import functional as F

import shoal

WIDTH = 4  # of the first layers; 64 is the ResNet-18 of the paper, with 11 million weights


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.one, self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.two, self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.around = nn.Sequential()
        if stride > 1 or inner != outer:
            self.around = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        h = F.relu(self.first(self.one(x)))
        return F.relu(self.second(self.two(h)) + self.around(x))


def resnet18(shape):
    """For small images; `shape` is that of one."""
    wide = [WIDTH * 2**stage for stage in range(4) for _ in range(2)]
    blocks = [Block(a, b, 1 + (b > a)) for a, b in zip([WIDTH, *wide], wide, strict=False)]
    first = nn.Conv2d(shape[0], WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


FLEET = {
    "model": resnet18,
    "learner": {"epochs": 6, "batch": 16, "rate": 0.003},
    "sharing": [{"mode": "fedavg", "every": 3}],
    "agents": 2,
    "tasks": {"count": 2, "classes": 2, "initial": 1, "train": 24, "validation": 8},
}

if __name__ == "__main__":
    print(shoal.Fleet("digits", **FLEET).run(seeds=1))
