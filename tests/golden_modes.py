"""Modes in the short form whose runs are held: what pages of the documentation show, and the rest of the form."""

from typing import Any

import torch
from torch import Tensor

import shoal
from shoal.learners.step import Frame
from shoal.short import Agent


@shoal.mode(sends="weights", every=2)
def halfway(agent: Agent, theirs: dict[str, Tensor], rate: float = 0.5) -> dict[str, Tensor]:
    """Everybody goes halfway to the mean of its neighbours."""
    return {name: own.lerp(theirs[name].mean(0), rate) for name, own in agent.weights.items()}


def middle(agent: Agent) -> dict[str, Tensor]:
    """The mean of what an agent's features are of its rows."""
    x, _ = agent.rows
    return {"mean": agent.features(x).mean(0), "count": torch.tensor([len(x)])}


def near(frame: Frame, strength: float = 0.05) -> Any:
    """Heads stay near the mean of features that others have sent."""
    return strength * sum((one.mean() - frame.state["mean"].mean()).square() for one in frame.free.values())


@shoal.mode(sends=middle, every=2, when="after", penalty=near, holds=["prototypes"])
def means(agent: Agent, theirs: dict[str, Tensor]) -> None:
    """Remember the mean of means, noise of one's own beside it."""
    noise = torch.from_numpy(agent.rng("noise").normal(size=theirs["mean"].shape[1])).float()
    before = agent.kept.get("mean", torch.zeros_like(noise))
    agent.keep(mean=0.5 * before + theirs["mean"].mean(0) + 0.01 * noise)


ALL = {"halfway": halfway, "means": means}
