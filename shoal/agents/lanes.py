"""Lanes: which there are, when what is in them comes next, and what each learns from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import JOINT, Lane, Stream
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.agents.world import World

NAMES = ("train", "validation", "test")


class Place(NamedTuple):
    """Where the images of a seed, or of a lane that scales them for itself, are in World.inputs: bank row rows[i] is at
    first + i."""

    first: int
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Held:
    """What the model reads, made when somebody looks at it: who only plans does not wait for it."""

    make: Callable[[int | None], Tensor]  # of all rows, or of so many

    @cached_property
    def inputs(self) -> Tensor:
        with torch.inference_mode(False):  # whoever looks first may only test, and others learn from it
            return self.make(None)

    @cached_property
    def dtype(self) -> torch.dtype:
        return self.make(1).dtype


@dataclass(frozen=True, eq=False)
class Split:
    """The train, validation or test images of all tasks of all lanes."""

    rows: Tensor  # int64 [L, T, n] into World.inputs
    labels: Tensor  # int64 [L, T, n], local
    sizes: Tensor  # int64 [L, T], on the host: the first so many of the n are real, the rest is padding

    def piece(self, rows: Sequence[int]) -> "Split":
        at = torch.tensor(rows)
        return Split(self.rows[at.to(self.rows.device)], self.labels[at.to(self.rows.device)], self.sizes[at])


def moment(settings: Settings, task: int, epoch: int) -> int:
    """The epoch that comes next in a task or, at its end, that has just passed, since the first task: what links and
    agents are like then is what they are like when so many epochs of the task are done."""
    epochs = settings.learner.epochs
    return task * epochs + min(epoch, epochs - 1)


def joint_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """The joint agent of every seed, which learns a common start."""
    return tuple(Lane(seed, JOINT) for seed in sorted({lane.seed for lane in lanes}))


def missed(world: "World", task: int) -> list[int]:
    """The rows of lanes of a world that are absent for a whole task. Joint agents never are."""
    epochs = world.settings.learner.epochs
    first, last = task * epochs, (task + 1) * epochs
    away = {agent for agent, gaps in world.gaps.items() if any(one <= first and last <= other for one, other in gaps)}
    return [row for row, lane in enumerate(world.lanes) if lane.agent in away]


def streams_of(fleet: "Sequence[World]") -> dict[Lane, Stream]:
    """The stream of every lane of a fleet, in their order."""
    found = {lane: stream for world in fleet for lane, stream in zip(world.lanes, world.streams, strict=True)}
    return dict(sorted(found.items()))
