"""What modes that send images have in common: their settings, and which of a receiver's tasks an image is for."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from shoal.agents import received
from shoal.agents.received import Arrived
from shoal.settings.groups import Settings
from shoal.sharing.accept import NO_HELP, Accept, accepting
from shoal.sharing.images import classes_only
from shoal.sharing.mode import Mode, Present, Received


class ImageMode(Mode):
    """A mode that sends images, and keeps those that come in the buffers of the tasks that they are for."""

    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    writes_weights: ClassVar[bool] = False
    parallel: ClassVar[bool] = True
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    memory: PositiveInt = Field(32, description="received rows kept per task")
    buffer: Literal["reservoir", "replace"] = Field(
        "reservoir", description="a full buffer keeps all with equal chance, or always takes the new row"
    )
    accept: Accept = accepting("the images of a sender that help")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings)


class ByClass(ImageMode):
    """A mode whose images are for all tasks so far that have their class."""

    once: bool = Field(True, description="leave out rows that the buffer holds already")

    def judge(self, agent: Present, letter: Received) -> str:
        """Images may have to help."""
        if self.accept == "all" or agent.helped_by(sorted_in(agent, [letter])):
            return ""
        return NO_HELP

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Keep every image in the buffers of all tasks so far that have its class."""
        if letters:
            agent.receive(sorted_in(agent, letters), self.buffer, self.once)


def sorted_in(agent: Present, letters: Sequence[Received]) -> Arrived:
    """Received images with each of an agent's tasks so far that has their class."""
    images, labels = (torch.cat([one[name] for one in letters]) for name in ("images", "labels"))
    local = agent.outputs[:, labels.numpy()]  # [T, n], -1: the task does not have the class
    which, tasks = np.nonzero(local.T >= 0)
    return Arrived(images, which, local[tasks, which].astype(np.int64), tasks)


def marks(agent: Present) -> set[int]:
    """What names the images in an agent's buffers."""
    state = agent.state_of(received.OWNER)
    return {mark for at, count in enumerate(state["fill"].tolist()) for mark in state["marks"][at, :count].tolist()}


def histogram(agent: Present) -> np.ndarray:
    """How many images of every class an agent has, its own and received."""
    state, found = agent.state_of(received.OWNER), np.bincount(agent.held.labels, minlength=agent.every_class)
    for at, task in enumerate(agent.tasks):
        labels = state["y"][at, : int(state["fill"][at])].cpu().numpy()
        np.add.at(found, np.array(task.outputs, np.int64)[labels], 1)
    return found
