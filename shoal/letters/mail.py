"""Mail: what agents send each other, what it costs, and what its receiver expects of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import Parameter

from shoal.data.tasks import Lane
from shoal.settings.policies import CONTENTS

T = TypeVar("T")

# The types of numbers that mail can hold.
PACKED = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)

# What became of a message. A receiver may refuse one for a reason of its own, which is then the verdict.
ACCEPTED = "accepted"
LOST = "lost"
ABSENT = "receiver absent"  # it came when its receiver was not there, and is lost
UNDER_WAY = "under way"  # it has left, and its receiver has not seen it yet
# It never left its sender, and cost nothing.
AT_REST = "edge at rest"
OVER_BUDGET = "over budget"
FORGED = "forged"  # from somebody else than who speaks, or not dated and named by the post
NO_EDGE = "no edge"  # to nobody, to oneself, or to one that the sender has no edge to
NO_TENSORS = "no tensors"  # what it holds cannot be packed
TOO_MUCH = "too much"  # more than the mode ever sends over an edge
SENT_ALREADY = "sent already"  # over an edge goes one mail of a kind at an exchange
SILENT = "silent"  # the code of its sender has failed, and there is none
DOWN = "link down"
# A policy of the sender's site forbids it.
FORBIDDEN = {what: f"{what} forbidden" for what in CONTENTS}
UNDECLARED = "contents undeclared"  # its mode does not say what it holds
CLASS_FORBIDDEN = "class forbidden"
CLASS_USED_UP = "class used up"  # as many items of a class as may leave over the edge have left
CLASS_UNSAID = "class unsaid"  # classes matter, and it does not say of which its items are
NOT_CLIPPED = "not clipped"  # it holds more of a model than weights, which cannot be clipped
SPENT = "privacy spent"
POLICY = (*FORBIDDEN.values(), UNDECLARED, CLASS_FORBIDDEN, CLASS_USED_UP, CLASS_UNSAID, NOT_CLIPPED, SPENT)
UNSENT = (AT_REST, OVER_BUDGET, FORGED, NO_EDGE, NO_TENSORS, TOO_MUCH, SENT_ALREADY, SILENT, DOWN, *POLICY)
# It has arrived, and its receiver refuses it.
UNKNOWN_KIND = "unknown kind"  # the mode has no such mail, or not now
WRONG_SHAPE = "wrong shape"
NOT_FINITE = "not finite"
OUT_OF_RANGE = "out of range"
TOO_MANY = "too many"  # items, more than the mode ever sends
TOO_LARGE = "too large"  # numbers, far beyond the receiver's own
ONCE = "once"  # a sender counts once at an exchange
NO_TASK = "no task"  # the receiver has learned all its tasks, or has not begun
UNREADABLE = "unreadable"  # the receiver's code has failed on it
EXPIRED = "expired"  # it came too late to be of use
OVERTAKEN = "overtaken"  # a newer one of its sender has come before it, or with it
NOBODY = Lane(-1, -1)  # stands in the ledger for an address that is none


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
    due: float = 0  # when it can be absorbed, in epochs since the first task or in seconds; what is past is at once

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
    due: float


def envelope_of(mail: Mail) -> Envelope:
    """The address of a mail."""
    return Envelope(*(getattr(mail, name) for name in Envelope._fields))


def pack(mail: Mail) -> tuple[Envelope, bytes]:
    """A mail as it goes over a wire: the address, and the payload as a safetensors file, which is what it costs."""
    # Clones, because a safetensors file cannot hold two names of the same memory.
    return envelope_of(mail), save({name: tensor.cpu().contiguous().clone() for name, tensor in mail.payload.items()})


def unpack(envelope: Envelope, content: bytes) -> Mail:
    """The mail that was packed, bit for bit; the envelope may have been JSON in between."""
    ends = {"sender": Lane(*envelope.sender), "receiver": Lane(*envelope.receiver)}
    # Clones, because a tensor begins anywhere in the bytes, and how a product is summed depends on where it begins.
    payload = {name: tensor.clone() for name, tensor in load(content).items()}
    return Mail(**(envelope._asdict() | ends), payload=payload)


def identify(sender: Lane, receiver: Lane, mode: str, kind: str, task: int, epoch: int) -> str:
    """The id of the first mail of some kind on an edge at one moment."""
    return f"{sender.seed}/{sender.agent}-{receiver.agent}/{mode}/{kind}/{task}.{epoch}"


@cache
def wire(layout: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> int:
    """The length of a payload as a safetensors file, which depends on names, types and shapes alone."""
    return len(save({name: torch.zeros(shape, dtype=dtype) for name, dtype, shape in layout}))


class Expected(NamedTuple):
    """What a receiver expects of a tensor in a message."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]  # None: any length, the same for all tensors of the message
    below: int | None = None  # whole numbers must lie in 0..below-1
    least: float = -inf  # other numbers must lie in least..most
    most: float = inf

    @property
    def bounded(self) -> bool:
        """Are there numbers of this type that may not be sent?"""
        if self.below is not None:
            return self.dtype.is_signed or self.below <= torch.iinfo(self.dtype).max
        return (self.least, self.most) != (-inf, inf)

    def holds(self, tensor: Tensor) -> bool:
        """Are all numbers within bounds?"""
        if not self.bounded or not tensor.numel():
            return True
        least, most = (float(one) for one in tensor.aminmax())
        return self.least <= least and most <= self.most if self.below is None else least >= 0 and most < self.below


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
        if not plain(tensor) or tensor.requires_grad:
            return WRONG_SHAPE
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
        if tensor.is_floating_point() and not finite(tensor):
            return NOT_FINITE
        if not want.holds(tensor):
            return OUT_OF_RANGE
    return ACCEPTED


def finite(tensor: Tensor) -> bool:
    """Are all numbers finite? A sum is quick, and not finite if anything in it is not; if large ones have made it so,
    a second look tells."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def plain(tensor: object) -> bool:
    """Is it a tensor that holds all its numbers, of a type that can be packed?"""
    if not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, Parameter):
        return False
    whole = tensor.layout == torch.strided and not tensor.is_nested and tensor.device.type != "meta"
    return whole and tensor.dtype in PACKED


def packable(payload: object) -> bool:
    """Is it a payload, plain tensors by name?"""
    if type(payload) not in (dict, Frozen):  # another mapping could run code of its sender's whenever it is read
        return False
    return all(type(name) is str and plain(tensor) for name, tensor in payload.items())  # type: ignore[attr-defined]


class Frozen(dict[str, Tensor]):
    """A payload that nobody can write any more. What was found out of it stays true, and is kept with it."""

    def __init__(self, payload: Mapping[str, Tensor]) -> None:
        super().__init__(payload)
        self.found: dict[object, Any] = {}


def noted(payload: Mapping[str, Tensor], what: object, find: Callable[[], T]) -> T:
    """What is found out of a payload, but once if it is frozen; `what` says all else that it depends on."""
    if not isinstance(payload, Frozen):
        return find()
    if what not in payload.found:
        payload.found[what] = find()
    found: T = payload.found[what]
    return found


def frozen(payload: Mapping[str, Tensor]) -> Frozen:
    """A copy of a payload that nobody else can write, without gradients."""
    copied = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in payload.items()}
    return Frozen(copied)


def counted(payload: Mapping[str, Tensor], expected: Mapping[str, Expected]) -> int | None:
    """How many items a message has, by a length that is free in what is expected; None: none is."""
    for name, want in expected.items():
        if None in want.shape and name in payload and payload[name].ndim == len(want.shape):
            return payload[name].shape[want.shape.index(None)]
    return None


class Joined(Mapping[str, Tensor]):
    """Several contents one after the other; a tensor of all of it is made when somebody asks."""

    def __init__(self, parts: Sequence[Mapping[str, Tensor]]) -> None:
        self.parts = parts
        self.made: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.made:
            self.made[name] = torch.cat([one[name] for one in self.parts])
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0])

    def __len__(self) -> int:
        return len(self.parts[0])
