"""Recv and validation: does it matter that validation images can come back as answers?

Where every agent splits the training images for itself (`tasks.draw = "agent"`, as in shoal 0.1 and in the paper's
code), an image that one agent validates on may be in another's training set, and Recv asks for images like the hard
ones among those that an agent validates on. The control differs in nothing else: such images are left out where they
arrive (protocol `fair` with that draw, the same seeds, tasks and splits).
"""

from pathlib import Path
from statistics import fmean

import numpy as np

from shoal.runs.execute import prepare
from shoal.settings.groups import FAIR, Settings
from shoal.study.cells import Row
from shoal_paper.control import beside
from shoal_paper.table1 import FORMER, Cell, redrawn, settings

NAME = "leak"
METHODS = ("data",)
KEPT = ("drop", "keep")  # the control first


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Agents that ask for images on mnist, and learn their own validation images if these come, or not."""
    return [cell(dataset, model, kept, seeds) for kept in KEPT if dataset == "mnist"]


def cell(dataset: str, model: str, kept: str, seeds: int) -> Cell:
    own = settings(dataset, model, METHODS[0], FAIR, seeds, {"own_validation": kept})
    return Cell(NAME, dataset, model, METHODS[0], redrawn(own, FORMER), {"own_validation": kept})


def row(one: Cell, folder: Path) -> Row:
    """A finished cell, and what it has more than its control."""
    return beside(one, cell(one.dataset, one.model, KEPT[0], one.settings.seeds), folder)


def records(one: Cell, folder: Path) -> dict[str, list[Row]]:
    return {NAME: [row(one, folder) | {"shared": shared(one.settings)}]}


def shared(fleet: Settings) -> float:
    """How many of an agent's validation images are training images of another agent of its seed, in %: the mean over
    agents and seeds. What all agents have in common by a common start does not count."""
    streams = {
        lane: stream for world in prepare(fleet) for lane, stream in zip(world.lanes, world.streams, strict=True)
    }
    first = fleet.tasks.initial if fleet.tasks.common else 0
    trained = {lane: np.concatenate([task.train for task in stream[first:]]) for lane, stream in streams.items()}
    found = []
    for lane, stream in streams.items():
        others = np.concatenate([rows for other, rows in trained.items() if other.seed == lane.seed and other != lane])
        own = np.concatenate([task.validation for task in stream[first:]])
        found.append(100 * float(np.isin(own, others).mean()))
    return fmean(found)
