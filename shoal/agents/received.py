"""Received images: what others have sent for each task, which agents learn from as from their own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.agents.worlds import reader

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.data.tasks import Lane

OWNER = "received"


@dataclass(frozen=True)
class Arrived:
    """Received images, an image for each of the tasks that its receiver has a use for it in."""

    images: Tensor  # [n, ...]
    which: np.ndarray  # int64 [k]: an image,
    labels: np.ndarray  # int64 [k]: its local label
    tasks: np.ndarray  # int64 [k]: in a task

    @classmethod
    def joined(cls, parts: "Sequence[Arrived]") -> "Arrived":
        """Several, one after the other."""
        first = np.cumsum([0, *(len(one.images) for one in parts)])
        which = [one.which + start for one, start in zip(parts, first, strict=False)]
        columns = ([one.labels for one in parts], [one.tasks for one in parts])
        return cls(torch.cat([one.images for one in parts]), *map(np.concatenate, (which, *columns)))

    def of(self, task: int) -> tuple[Tensor, np.ndarray]:
        """The images of a task, and their labels."""
        here = self.tasks == task
        return self.images[torch.from_numpy(self.which[here])], self.labels[here]

    def __len__(self) -> int:
        return len(self.which)


def init(world: "World") -> dict[str, Tensor]:
    """Received inputs for each task x[L, T, room, ...] and their labels y; a digest of each image; how many there are
    (`fill` [L, T]) and how many there have been (`seen`)."""
    settings, inputs = world.settings, world.inputs
    room = (len(world.lanes), settings.tasks.count, max((mode.room for mode in settings.sharing), default=0))
    return {
        "x": torch.zeros(*room, *inputs.shape[1:], dtype=inputs.dtype, device=world.device),
        "y": torch.zeros(room, dtype=torch.int64, device=world.device),
        "marks": torch.zeros(room, dtype=torch.int64),
        "fill": torch.zeros(room[:2], dtype=torch.int64),
        "seen": torch.zeros(room[:2], dtype=torch.int64),
    }


def store(
    world: "World",
    stack: "Stack",
    lane: "Lane",
    arrived: Arrived,
    rule: str,
    once: bool,
    rng: np.random.Generator,
) -> None:
    """Put received images into the buffers of their tasks.

    `reservoir` keeps each of all that ever came with equal chance (Vitter 1985); `replace` overwrites a random place
    when the buffer is full, so that late images win. `once` leaves out images that the buffer holds already.
    """
    state, row = stack.of(OWNER), world.row[lane]
    room = state["y"].shape[2]
    if not len(arrived) or not room:
        return
    # Views of rows, written in place; lists are quicker than arrays, number by number.
    fill, seen, marks = (state[name][row].numpy() for name in ("fill", "seen", "marks"))
    names = np.array(digests(arrived.images) if once else [0] * len(arrived.images), np.int64)[arrived.which].tolist()
    luck, placed = rng.random(len(arrived)).tolist(), dict[tuple[int, int], int]()
    there = {task: marks[task, : fill[task]].tolist() for task in np.unique(arrived.tasks).tolist()}
    known = {task: Counter(held) for task, held in there.items()}
    came = {task: int(seen[task]) for task in there}
    for at, (mark, task) in enumerate(zip(names, arrived.tasks.tolist(), strict=True)):
        held, count = there[task], known[task]
        if once and count[mark]:
            continue
        came[task] += 1
        place = slot(len(held), came[task], room, luck[at], rule)
        if place is None:
            continue
        if place < len(held):
            count[held[place]] -= 1
        held[place : place + 1] = [mark]
        count[mark] += 1
        placed[task, place] = at
    for task, held in there.items():
        fill[task], seen[task] = len(held), came[task]
        marks[task, : len(held)] = held
    if not placed:
        return
    chosen = np.array(list(placed.values()))
    tasks, places = (torch.tensor(one, device=world.device) for one in zip(*placed, strict=True))
    state["x"][row, tasks, places] = world.encode(arrived.images[torch.from_numpy(arrived.which[chosen])], lane)
    state["y"][row, tasks, places] = torch.from_numpy(arrived.labels[chosen]).to(world.device)


def put(
    world: "World",
    stack: "Stack",
    images: Tensor,
    at: np.ndarray,
    rows: np.ndarray,
    tasks: np.ndarray,
    labels: np.ndarray,
    rule: str,
    luck: np.ndarray,
) -> None:
    """`store` of images[at] for lanes in `rows`, which are in order, with tasks and local labels, images that a buffer
    holds already too; `luck` is a number in [0, 1) for each."""
    state = stack.of(OWNER)
    room = state["y"].shape[2]
    if not len(rows) or not room:
        return
    fill, seen = (state[name].numpy() for name in ("fill", "seen"))
    # The how manieth of its task each image is: until the buffer is full they come one behind the other.
    cell = rows * fill.shape[1] + tasks
    order = np.argsort(cell, kind="stable")
    number = np.empty(len(cell), np.int64)
    number[order] = np.arange(len(cell)) - np.searchsorted(cell[order], cell[order])
    behind = fill[rows, tasks] + number
    chance = (luck * (seen[rows, tasks] + number + 1 if rule == "reservoir" else room)).astype(np.int64)
    place = np.where(behind < room, behind, chance)
    came = np.bincount(cell, minlength=fill.size).reshape(fill.shape)
    seen += came
    fill[:] = np.minimum(room, fill + came)
    kept = np.flatnonzero(place < room)
    # Of images for one place the last stays.
    last = np.full(fill.size * room, -1)
    last[cell[kept] * room + place[kept]] = kept
    places = np.flatnonzero(last >= 0)
    chosen = last[places]
    where = tuple(torch.from_numpy(one).to(world.device) for one in np.unravel_index(places, (*fill.shape, room)))
    state["marks"][tuple(one.cpu() for one in where)] = 0
    x, place = read_once(world, images, rows[chosen], at[chosen])
    state["x"][where] = x[torch.from_numpy(place)]
    state["y"][where] = torch.from_numpy(labels[chosen]).to(world.device)


def read_once(world: "World", images: Tensor, lane: np.ndarray, which: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """What lanes in some rows read of images[which], each once for all that read alike, and which of these each is."""
    parts, at, first, groups = [world.inputs[:0]], np.zeros(len(lane), np.int64), 0, eyes(world, np.unique(lane))
    for rows in groups:
        mine = np.flatnonzero(np.isin(lane, rows)) if len(groups) > 1 else slice(None)
        some, place = np.unique(which[mine], return_inverse=True)
        parts.append(world.encode(images[torch.from_numpy(some)], world.lanes[rows[0]]))
        at[mine] = first + place
        first += len(some)
    return torch.cat(parts), at


def eyes(world: "World", rows: np.ndarray) -> list[np.ndarray]:
    """Rows of lanes that are here, in groups that read the same of an image."""
    found: dict[Lane, list[int]] = {}
    for row in rows.tolist():
        found.setdefault(reader(world.lanes[row], world.scales[row]), []).append(row)
    return [np.array(some) for some in found.values()]


def slot(fill: int, seen: int, room: int, luck: float, rule: str) -> int | None:
    """The place for the `seen`-th image in a buffer that holds `fill`, or None; `luck` is uniform in [0, 1)."""
    if fill < room:
        return fill
    place = int(luck * (seen if rule == "reservoir" else room))
    return place if place < room else None


def digest(image: Tensor) -> int:
    """Eight bytes that name an image."""
    return digests(image[None])[0]


def digests(images: Tensor) -> list[int]:
    """What names each of some images."""
    whole = memoryview(images.contiguous().numpy().tobytes())
    size = len(whole) // max(1, len(images))
    parts = (blake2b(whole[at * size : (at + 1) * size], digest_size=8).digest() for at in range(len(images)))
    return [int.from_bytes(part, "little", signed=True) for part in parts]
