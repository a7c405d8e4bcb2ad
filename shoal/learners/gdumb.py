"""GDumb (Prabhu et al. 2020, doi:10.1007/978-3-030-58536-5_31)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import reservoir
from shoal.learners.anew import anew
from shoal.learners.batches import Images, Pool, generators, trained
from shoal.learners.contract import Learner
from shoal.learners.usual import usual_epoch
from shoal.models.table import REPLAY


class GDumb(Learner):
    """A memory with as many images of every class, and with every task a fresh net that learns from nothing else; for
    few epochs (20) it needs learner.rate=0.03.

    *Source:* Prabhu et al. 2020.

    It shows what a method is worth beyond its memory, which is as large as the replay memories of all tasks; the fresh
    net learns in the task's epochs, not when it is tested.

    *Costs:* the images of `memory`; nothing more in a step.
    """

    teaches: ClassVar[str] = REPLAY
    needs: ClassVar[tuple[str, ...]] = ("classes", "memory")
    example: ClassVar[Mapping[str, Any]] = {"memory": 20}
    fixed: ClassVar[str] = "its memory has room for just these tasks"
    method: Literal["gdumb"] = "gdumb"

    def init(self, world: World) -> dict[str, Tensor]:
        return reservoir.init(world)

    def begin(self, world: World, stack: Stack) -> None:
        anew(world, stack, self.method)

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        state = stack.of(self.owner)
        if epoch == 0:
            first = stack.task if stack.task >= world.settings.tasks.initial else 0
            self.collect(world, stack, trained(world, range(first, stack.task + 1)))
        room = state["y"].shape[1]
        held = Pool((Images(state["x"], state["y"], state["task"]),), state["seen"].tolist(), room)
        usual_epoch(world, stack, epoch, past=False, held=held)

    def collect(self, world: World, stack: Stack, new: Pool) -> None:
        """Let new images into the memory; where it is full, in the place of one of the class that has most."""
        state = stack.of(self.owner)
        room = state["y"].shape[1]
        for row, rng in enumerate(generators(stack, self.method, "collect", stack.task)):

            def named(held: Mapping[str, Tensor] | Pool, row: int = row) -> np.ndarray:
                y, task = (held.y, held.task) if isinstance(held, Pool) else (held["y"], held["task"])
                own = task[row] if not world.named else torch.zeros_like(task[row])
                found: np.ndarray = (own * world.open.shape[2] + y[row]).cpu().numpy()
                return found

            kept, comes = named(state), named(new)
            kept = kept[: int(state["seen"][row])]
            places = {int(name): np.flatnonzero(kept == name).tolist() for name in np.unique(kept)}
            came: dict[int, int] = {}
            for at in rng.permutation(new.sizes[row]):
                mine = places.setdefault(int(comes[at]), [])
                full = int(state["seen"][row]) == room
                most = max(places.values(), key=len)
                if full and len(mine) >= len(most) - 1:
                    continue
                spot = most.pop(int(rng.integers(len(most)))) if full else int(state["seen"][row])
                state["seen"][row] += not full
                mine.append(spot)
                came[spot] = int(at)
            spots, ones = (torch.tensor(list(part), dtype=torch.int64) for part in (came, came.values()))
            for name, tensor in (("x", new.x), ("y", new.y), ("task", new.task)):
                state[name][row, spots.to(tensor.device)] = tensor[row, ones.to(tensor.device)]
