"""What data modes have in common: the images a lane can send, and the buffers for those it receives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.agents import received
from shoal.agents.engine import THREADS, crew
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.letter import classes_of as classes_of
from shoal.letters.letter import images_of as images_of
from shoal.mail.post import Post
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.agent import Held as Held
from shoal.sharing.agent import held as held
from shoal.sharing.contract import Sharing


def per_lane(world: World, work: Callable[[Lane], Any]) -> dict[Lane, Any]:
    """`work` for every lane without gradients, some lanes in each of several threads."""

    def some(lanes: Sequence[Lane]) -> list[Any]:
        with torch.inference_mode():
            return [work(lane) for lane in lanes]

    count = min(world.settings.machine.threads or THREADS, len(world.lanes))
    chunks = [world.lanes[i::count] for i in range(count)]
    done = crew(chunks, some)
    return {
        lane: one for chunk, found in zip(chunks, done, strict=True) for lane, one in zip(chunk, found, strict=True)
    }


def classes_only(mode: Sharing, settings: Settings, what: str = "images") -> None:
    """Raise where there are no classes to ask for."""
    if settings.tasks.classes == 1:
        raise SettingsError(
            f"mode `{mode.mode}` shares {what} of classes, and with tasks.classes = 1 numbers are predicted; share "
            "models or modules instead"
        )


def pixels(world: World) -> int:
    return int(np.prod(world.bank.images.shape[1:]))


def ids(values: Sequence[int] | np.ndarray) -> Tensor:
    """Whole numbers as they are sent."""
    return torch.from_numpy(np.asarray(values, np.int32))


def store(post: Post, lane: Lane, arrived: received.Arrived, rule: str, once: bool) -> None:
    """Put received images into the buffers of their tasks, by a rule (`received.store`)."""
    luck = key(*lane, "shared", post.mode.mode, post.stack.task, post.stack.epoch)
    received.store(post.world, post.stack, lane, arrived, rule, once, luck)
