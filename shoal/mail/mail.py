"""Mail: what agents send each other, what it costs, and what its receiver expects of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from shoal.data.tasks import Lane

# What became of a message. A receiver may refuse one for a reason of its own, which is then the verdict.
ACCEPTED = "accepted"
AT_REST = "edge at rest"
OVER_BUDGET = "over budget"
LOST = "lost"
NOT_FINITE = "not finite"
WRONG_SHAPE = "wrong shape"
OUT_OF_RANGE = "out of range"
UNSENT = (AT_REST, OVER_BUDGET)  # it never left its sender, and cost nothing


@dataclass(frozen=True, eq=False)
class Mail:
    """A message on a directed edge. What it says is in `payload` and nowhere else: all other fields are its address,
    which is not weighed."""

    sender: Lane
    receiver: Lane
    mode: str
    kind: str  # any word that the mode uses
    payload: Mapping[str, Tensor]
    items: int  # images, classes or modules
    id: str = ""  # its own in a run, the same whenever the run is made again
    reply: str = ""  # the id of the mail that it replies to
    task: int = 0  # the sender's clock
    epoch: int = 0
    due: int = 0  # when it can be absorbed, in epochs since the first task; what is past is at once

    @cached_property
    def floats(self) -> int:
        """How many numbers it carries, whatever they mean: a pixel, a weight, a label."""
        return sum(tensor.numel() for tensor in self.payload.values())

    @cached_property
    def bytes(self) -> int:
        """Its price: the length of its packed payload."""
        return wire(tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in sorted(self.payload.items())))


class Envelope(NamedTuple):
    """What a transport writes on a letter: all of a mail but its payload. JSON can hold it."""

    sender: Lane
    receiver: Lane
    mode: str
    kind: str
    items: int
    id: str
    reply: str
    task: int
    epoch: int
    due: int


def pack(mail: Mail) -> tuple[Envelope, bytes]:
    """A mail as it goes over a wire: the address, and the payload as a safetensors file, which is what it costs."""
    envelope = Envelope(*(getattr(mail, name) for name in Envelope._fields))
    # Clones, because a safetensors file cannot hold two names of the same memory.
    return envelope, save({name: tensor.cpu().contiguous().clone() for name, tensor in mail.payload.items()})


def unpack(envelope: Envelope, content: bytes) -> Mail:
    """The mail that was packed, bit for bit; the envelope may have been JSON in between."""
    ends = {"sender": Lane(*envelope.sender), "receiver": Lane(*envelope.receiver)}
    # Clones, because a tensor begins anywhere in the bytes, and how a product is summed depends on where it begins.
    payload = {name: tensor.clone() for name, tensor in load(content).items()}
    return Mail(**(envelope._asdict() | ends), payload=payload)


def identify(sender: Lane, receiver: Lane, mode: str, kind: str, task: int, epoch: int) -> str:
    """The id of the first mail of some kind on an edge at one moment."""
    return f"{sender.seed}/{sender.agent}-{receiver.agent}/{mode}/{kind}/{task}.{epoch}"


def by_receiver(mails: Iterable[Mail]) -> dict[Lane, list[Mail]]:
    """Everybody's mail, in the order of posting."""
    boxes: dict[Lane, list[Mail]] = {}
    for mail in mails:
        boxes.setdefault(mail.receiver, []).append(mail)
    return boxes


@cache
def wire(layout: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> int:
    """The length of a payload as a safetensors file, which depends on names, types and shapes alone."""
    return len(save({name: torch.zeros(shape, dtype=dtype) for name, dtype, shape in layout}))


class Expected(NamedTuple):
    """What a receiver expects of a tensor in a message."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]  # None: any length, the same for all tensors of the message
    below: int | None = None  # whole numbers must lie in 0..below-1


def weight(expected: Mapping[str, Expected], items: int) -> int:
    """The bytes of a message with so many items that looks as expected."""
    layout = ((name, one.dtype, tuple(items if n is None else n for n in one.shape)) for name, one in expected.items())
    return wire(tuple(sorted(layout, key=lambda part: part[0])))


def fault(payload: Mapping[str, Tensor], expected: Mapping[str, Expected]) -> str:
    """The verdict of a receiver on what has arrived."""
    if payload.keys() != expected.keys():
        return WRONG_SHAPE
    free = set()
    for name, want in expected.items():
        tensor = payload[name]
        if tensor.dtype != want.dtype or tensor.ndim != len(want.shape):
            return WRONG_SHAPE
        for size, length in zip(tensor.shape, want.shape, strict=True):
            if length is None:
                free.add(size)
            elif size != length:
                return WRONG_SHAPE
    if len(free) > 1:
        return WRONG_SHAPE
    for name, want in expected.items():
        tensor = payload[name]
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return NOT_FINITE
        if want.below is not None and tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < want.below:
            return OUT_OF_RANGE
    return ACCEPTED
