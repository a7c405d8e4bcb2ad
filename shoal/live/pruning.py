"""Pruning: letters whose effect a checkpoint has are forgotten, and replay begins from that checkpoint.

What was learned from whom stays in the journal; only what the letters held goes.
"""

from pathlib import Path
from typing import NamedTuple

import torch

from shoal.errors import UserError
from shoal.files import save
from shoal.live.fleets import Home
from shoal.live.store import Store
from shoal.runs import checkpoints


class Pruned(NamedTuple):
    """From which point of its stream an agent can be replayed now, how many letters are empty, and their bytes."""

    task: int
    epoch: int
    letters: int
    bytes: int


def prune(folder: Path) -> Pruned:
    """Forget what letters held that came before the checkpoint, or the one before it while there are two. The agent may
    be at work meanwhile."""
    home = Home.read(folder)
    place = next((one for one in (home.record / "earlier.safetensors", checkpoint_of(home)) if one.exists()), None)
    if place is None or not home.letters.exists():
        raise UserError(
            f"{home.record} has no checkpoint yet, from which the agent could go on; let it run for a while"
        )
    content = place.read_bytes()
    save(home.base, content, "make room; nothing is pruned")
    task, epoch = point_of(home.base)
    store = Store(home.letters)
    try:
        state = store.marked(task, epoch)
        if state is None:
            raise UserError(f"{home.letters} knows nothing of {place}; nothing is pruned")
        return Pruned(task, epoch, *store.empty(int(state["n"])))
    finally:
        store.close()


def checkpoint_of(home: Home) -> Path:
    return home.record / "checkpoint.safetensors"


def point_of(file: Path) -> tuple[int, int]:
    """The task and epoch of a checkpoint of one agent."""
    try:
        (stack,) = checkpoints.opened(file, torch.device("cpu")).stacks(1)
    except checkpoints.DamagedError as error:
        raise UserError(f"{file} is damaged ({error}); restore it") from None
    return stack.task, stack.epoch
