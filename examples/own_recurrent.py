"""A GRU over time series [channels, steps]: which of four waves does a sensor see? Five sites, each with noise."""

import numpy as np
from torch import nn

import shoal


class Recurrent(nn.Module):
    """The last state of a GRU."""

    def __init__(self, shape):
        super().__init__()
        self.gru = nn.GRU(shape[0], 24, batch_first=True)

    def forward(self, x):
        return self.gru(x.transpose(1, 2))[1][0]


def waves(sites=5, each=160, steps=20):
    """Series [N, 2, steps], which wave each is of, and where it was seen."""
    rng = np.random.default_rng(0)
    site, wave = np.repeat(np.arange(sites), each), np.tile(np.arange(4), sites * each // 4)
    time = np.arange(steps) + rng.uniform(0, steps, (len(site), 1))
    angle = time * np.array([0.3, 0.5, 0.8, 1.2])[wave][:, None]
    noise = rng.normal(0, 0.05 + 0.05 * site[:, None, None], (len(site), 2, steps))
    return (np.stack([np.sin(angle), np.sign(np.cos(angle))], 1) + noise).astype(np.float32), wave, site


if __name__ == "__main__":
    x, y, site = waves()
    data = shoal.Data.from_arrays(x, y, agent=site)
    tasks = {"count": 2, "classes": 2, "initial": 1, "train": 24, "validation": 8, "replacement": False}
    learner = {"epochs": 20, "batch": 16, "rate": 0.01}
    fleet = shoal.Fleet(data, model=Recurrent, learner=learner, sharing="fedavg", tasks=tasks, network=shoal.ring(5))
    print(fleet.run(seeds=1))
