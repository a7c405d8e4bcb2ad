"""What data modes have in common: the images a lane can send, and the buffers for those it receives."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.engine import THREADS, crew
from shoal.fleet.evaluate import Trained
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.learn import slots
from shoal.mail.mail import Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.rng import key


class Held(NamedTuple):
    """A lane's own images: the training set of its current task and the replay memories of those before."""

    x: Tensor  # [n, ...]: as its model reads them
    rows: np.ndarray  # [n]: where they are in the bank
    labels: np.ndarray  # [n]: global class ids
    task: np.ndarray  # [n]


def held(world: World, stack: Stack, row: int) -> Held:
    """All that a lane can send. What it has received is not its own to send on."""
    task, stream, size = stack.task, world.streams[row], stack.memory.shape[2]
    rows = np.concatenate([stack.memory_rows[row, :task].flatten().numpy(), stream[task].train])
    x = torch.cat([stack.memory[row, :task].flatten(0, 1), world.inputs[world.train.rows[row, task]]])
    origin = np.concatenate([np.repeat(np.arange(task), size), np.full(len(stream[task].train), task)])
    return Held(x, rows, world.bank.labels[rows], origin)


def nets(world: World, stack: Stack) -> Callable[[int], Trained]:
    """Every lane's net as it is now, by row."""
    used = slots(world, stack, stack.alive.shape[1]).get("slots")
    return lambda row: Trained(world, stack, row, used)


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


def replies(world: World, questions: Sequence[Mail], reply: Callable[[Lane, Sequence[Mail]], list[Mail]]) -> list[Mail]:
    """Every lane's `reply` to all that have asked it."""
    boxes = by_receiver(questions)
    found = per_lane(world, lambda lane: reply(lane, boxes[lane]) if lane in boxes else [])
    return [mail for lane in world.lanes for mail in found[lane]]


def images_of(world: World) -> Expected:
    """What images in a message look like."""
    return Expected(torch.uint8, (None, *world.bank.images.shape[1:]))


def classes_of(world: World) -> Expected:
    """What global class ids in a message look like."""
    return Expected(torch.int32, (None,), len(world.bank.classes))


def pixels(world: World) -> int:
    return int(np.prod(world.bank.images.shape[1:]))


def ids(values: Sequence[int] | np.ndarray) -> Tensor:
    """Whole numbers as they are sent."""
    return torch.from_numpy(np.asarray(values, np.int32))


class Arrived(NamedTuple):
    """A received image that its receiver has a use for."""

    image: Tensor
    label: int  # local
    task: int


def store(post: Post, lane: Lane, arrived: Sequence[Arrived], rule: str, once: bool) -> None:
    """Put received images into the buffers of their tasks.

    `reservoir` keeps each of all that ever came with equal chance (Vitter 1985); `replace` overwrites a random place
    when the buffer is full, so that late images win. `once` leaves out images that the buffer holds already.
    """
    stack, row = post.stack, post.world.row[lane]
    room = stack.shared.shape[2]
    if not arrived or not room:
        return
    fill, seen, marks = (tensor[row].numpy() for tensor in (stack.shared_fill, stack.shared_seen, stack.shared_marks))
    luck = key(*lane, "shared", post.mode.mode, stack.task, stack.epoch).random(len(arrived))
    placed: dict[tuple[int, int], int] = {}
    for at, (image, _, task) in enumerate(arrived):
        mark = digest(image) if once else 0
        if once and mark in marks[task, : fill[task]]:
            continue
        seen[task] += 1
        place = slot(int(fill[task]), int(seen[task]), room, float(luck[at]), rule)
        if place is None:
            continue
        fill[task] = max(fill[task], place + 1)
        marks[task, place] = mark
        placed[task, place] = at
    if not placed:
        return
    chosen = [arrived[at] for at in placed.values()]
    tasks, places = (torch.tensor(one, device=stack.shared.device) for one in zip(*placed, strict=True))
    stack.shared[row, tasks, places] = post.world.encode(torch.stack([one.image for one in chosen]), lane.seed)
    stack.shared_labels[row, tasks, places] = torch.tensor([one.label for one in chosen], device=stack.shared.device)


def slot(fill: int, seen: int, room: int, luck: float, rule: str) -> int | None:
    """The place for the `seen`-th image in a buffer that holds `fill`, or None; `luck` is uniform in [0, 1)."""
    if fill < room:
        return fill
    place = int(luck * (seen if rule == "reservoir" else room))
    return place if place < room else None


def digest(image: Tensor) -> int:
    """Eight bytes that name an image."""
    return int.from_bytes(blake2b(image.numpy().tobytes(), digest_size=8).digest(), "little", signed=True)
