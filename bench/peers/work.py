"""The work that peers and shoal do, for the peers: plain torch, nothing of shoal, which their environments lack.

The net of the paper's monolithic MNIST row behind its frozen projection, 128 images of one task for every agent,
batches of 64, Adam, dropout. A round is five epochs of every agent, and an exchange. Images are noise: speed does not
mind.
"""

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

WIDTH, DEPTH, CLASSES, IMAGES, BATCH, EPOCHS, RATE, DROPOUT = 64, 4, 2, 128, 64, 5, 1e-3, 0.5
MEMORY, PAST = 32, 7  # replayed images of each earlier task, and how many there are of these
STEPS = EPOCHS * IMAGES // BATCH  # of one agent in a round

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Round = Callable[[], int]  # does a round, or as much as is natural, and says how many agent-steps it was


def layers() -> nn.Sequential:
    """The net of one agent."""
    body = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT))]
    return nn.Sequential(*body, nn.Linear(WIDTH, CLASSES))


def data(count: int = IMAGES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Projected images of one agent's task, and their labels."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, WIDTH, generator=random), torch.arange(count) % CLASSES


def serve(prepare: Callable[[int], Round]) -> None:
    """Answer lines `agents seconds clock` with a line of JSON: agent-steps per second, over at least so many seconds on
    the `wall` or of `cpu` time. What is made once, and the first round, are not timed."""
    torch.set_num_threads(1)
    made: dict[int, Round] = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        agents, seconds, clock = int(line.split()[0]), float(line.split()[1]), CLOCKS[line.split()[2]]
        if agents not in made:
            made[agents] = prepare(agents)
            made[agents]()
        done, started = 0, clock()
        while not done or clock() - started < seconds:
            done += made[agents]()
        print(json.dumps({"rate": done / (clock() - started)}), flush=True)


def declare_missing() -> None:
    """Let torchvision be imported beside a torch for CPUs, where its own compiled operators are not found. They are
    declared, and nobody calls them."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)  # what it declares ends with it


KEPT: list[torch.library.Library] = []
