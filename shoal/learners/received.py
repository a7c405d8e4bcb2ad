"""Received images: what others have sent for each task, which agents learn from as from their own."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.data.tasks import Lane

OWNER = "received"


class Arrived(NamedTuple):
    """A received image that its receiver has a use for."""

    image: Tensor
    label: int  # local
    task: int


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
    arrived: Sequence[Arrived],
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
    if not arrived or not room:
        return
    # Views of rows, written in place; numbers on the host are quickest in numpy.
    fill, seen, marks = (state[name][row].numpy() for name in ("fill", "seen", "marks"))
    luck = rng.random(len(arrived)).tolist()
    placed: dict[tuple[int, int], int] = {}
    names: dict[int, int] = {}  # an image may be for several tasks
    there: dict[int, list[int]] = {}  # the marks in the buffers of tasks: lists are quicker than rows of arrays
    for at, (image, _, task) in enumerate(arrived):
        if once and id(image) not in names:
            names[id(image)] = digest(image)
        mark = names[id(image)] if once else 0
        if task not in there:
            there[task] = marks[task, : fill[task]].tolist()
        held = there[task]
        if once and mark in held:
            continue
        seen[task] += 1
        place = slot(len(held), int(seen[task]), room, luck[at], rule)
        if place is None:
            continue
        held[place : place + 1] = [mark]
        placed[task, place] = at
    for task, held in there.items():
        fill[task] = len(held)
        marks[task, : len(held)] = held
    if not placed:
        return
    chosen = [arrived[at] for at in placed.values()]
    tasks, places = (torch.tensor(one, device=world.device) for one in zip(*placed, strict=True))
    state["x"][row, tasks, places] = world.encode(torch.stack([one.image for one in chosen]), lane)
    state["y"][row, tasks, places] = torch.tensor([one.label for one in chosen], device=world.device)


def put(
    world: "World",
    stack: "Stack",
    rows: np.ndarray,
    tasks: np.ndarray,
    labels: np.ndarray,
    rule: str,
    luck: np.ndarray,
    encode: Callable[[np.ndarray, np.ndarray], Tensor],
) -> None:
    """`store` of images for lanes in `rows`, which are in order, with tasks and labels as arrays, images that a buffer
    holds already too; `luck` is a number in [0, 1) for each. `encode` says what lanes in some rows read of which of
    these images."""
    state = stack.of(OWNER)
    room = state["y"].shape[2]
    if not len(rows) or not room:
        return
    fill, seen = (state[name].numpy().reshape(-1) for name in ("fill", "seen"))
    # The how manieth of its task each image is: until the buffer is full they come one behind the other.
    cell = rows * world.settings.tasks.count + tasks
    order = np.argsort(cell, kind="stable")
    number = np.empty(len(cell), np.int64)
    number[order] = np.arange(len(cell)) - np.searchsorted(cell[order], cell[order])
    behind = fill[cell] + number
    chance = (luck * (seen[cell] + number + 1 if rule == "reservoir" else room)).astype(np.int64)
    place = np.where(behind < room, behind, chance)
    came = np.bincount(cell, minlength=len(fill))
    seen += came
    fill[:] = np.minimum(room, fill + came)
    kept = np.flatnonzero(place < room)
    # Of images for one place the last stays.
    where = cell[kept] * room + place[kept]
    last = np.full(len(fill) * room, -1)
    last[where] = kept
    at = np.flatnonzero(last >= 0)
    chosen = last[at]
    state["marks"].view(-1)[torch.from_numpy(at)] = 0
    here = torch.from_numpy(at).to(world.device)
    state["x"].flatten(0, 2)[here] = encode(rows[chosen], chosen)
    state["y"].flatten(0, 2)[here] = torch.from_numpy(labels[chosen]).to(world.device)


def slot(fill: int, seen: int, room: int, luck: float, rule: str) -> int | None:
    """The place for the `seen`-th image in a buffer that holds `fill`, or None; `luck` is uniform in [0, 1)."""
    if fill < room:
        return fill
    place = int(luck * (seen if rule == "reservoir" else room))
    return place if place < room else None


def digest(image: Tensor) -> int:
    """Eight bytes that name an image."""
    return int.from_bytes(blake2b(image.numpy().tobytes(), digest_size=8).digest(), "little", signed=True)
