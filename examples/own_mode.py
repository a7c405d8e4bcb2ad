"""A sharing mode of your own: agents go towards neighbours, and more towards those that are near already."""

import torch

import shoal


@shoal.mode(sends="weights", every=2)
def kindred(agent, theirs, rate=0.5, sharpness=1.0):
    """Averaging that trusts neighbours whose weights are near.

    rate: how far to go
    sharpness: how much nearer neighbours count more
    """
    apart = sum((theirs[name] - own).flatten(1).square().sum(1) for name, own in agent.weights.items())
    trust = torch.softmax(-sharpness * apart, 0)
    means = {name: torch.einsum("n,n...->...", trust, theirs[name]) for name in theirs}
    return {name: own.lerp(means[name], rate) for name, own in agent.weights.items()}


FEW = {"count": 4, "classes": 2, "initial": 1, "train": 20, "validation": 8}
FLEET = {
    "model": "mlp",
    "learner": {"epochs": 20, "rate": 0.01},
    "sharing": [kindred(rate=0.3)],
    "agents": 4,
    "tasks": FEW,
}

if __name__ == "__main__":
    print(shoal.Fleet("digits", **FLEET).run(seeds=1))
