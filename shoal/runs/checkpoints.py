"""Checkpoints: stacks as a file, and stacks of a file, which says by its digest whether it is whole."""

import hashlib
import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from shoal.agents.stack import Stack
from shoal.configure.reading import is_there
from shoal.data.tasks import Lane
from shoal.letters.inbox import Inbox
from shoal.letters.ledger import Ledger
from shoal.letters.mail import Envelope, pack, unpack
from shoal.runs.about import FORMAT
from shoal.runs.files import reason

# What reading a checkpoint of somebody else can raise, wherever it is not what it should be.
STRANGE = (
    *(KeyError, IndexError, ValueError, TypeError, AttributeError, RuntimeError, OverflowError, ArithmeticError),
    *(RecursionError, SafetensorError),
)


class DamagedError(Exception):
    """A checkpoint that is not whole, and why."""


class Saved(NamedTuple):
    """What a checkpoint holds."""

    about: dict[str, str]
    tensors: dict[str, torch.Tensor]

    @property
    def identity(self) -> str:
        """The identity of the settings that it belongs to."""
        return self.about.get("identity", "")

    @property
    def seconds(self) -> float:
        """The time spent in the run until then."""
        try:
            found = float(self.about["seconds"])
        except (KeyError, ValueError):
            found = -1.0
        if not 0 <= found < inf:
            raise DamagedError("it does not say how long the run has taken")
        return found

    def stacks(self, epochs: int) -> tuple[Stack, ...]:
        """The stacks; a task has so many epochs. What is no checkpoint of such a run is damage."""
        try:
            return self.unpacked(epochs)
        except STRANGE as error:
            raise DamagedError(f"it does not hold what a checkpoint does: {reason(error)}") from None

    def unpacked(self, epochs: int) -> tuple[Stack, ...]:
        """The stacks, if all is as it was written."""
        about, flat = self.about, dict(self.tensors)
        flat |= {name: flat[name].cpu() for name in words_of(about["host"])}
        lanes = [[Lane(*lane) for lane in one] for one in json.loads(about["lanes"])]
        rows, words = flat.pop("ledger").cpu().numpy(), words_of(about["words"])
        if rows.ndim != 2 or rows.dtype != "int64":
            raise DamagedError(f"its ledger is {rows.dtype} of shape {list(rows.shape)}, and has rows of whole numbers")
        totals = flat.pop("totals").cpu().numpy() if "totals" in flat else None
        inboxes = [
            [
                unpack(Envelope(*envelope), flat.pop(letter(at, place)).cpu().numpy().tobytes())
                for place, envelope in enumerate(one)
            ]
            for at, one in enumerate(json.loads(about["inbox"]))
        ]
        waiting = [mail for inbox in inboxes for mail in inbox]
        ledger = Ledger.of(rows, words, epochs, totals, waiting)
        stacks = []
        for at, mine in enumerate(lanes):
            head = mark(at, len(lanes))
            own = {name.removeprefix(head): tensor for name, tensor in flat.items() if name.startswith(head)}
            stacks.append(Stack.made(mine, own, ledger))
            stacks[-1].inbox = Inbox(inboxes[at])
        return tuple(stacks)


def packed(stacks: Sequence[Stack], identity: str, seconds: float) -> bytes:
    """A checkpoint: one clock, one ledger, and the tensors and the inbox of every stack."""
    stack = stacks[0]
    about = {
        "format": str(FORMAT),
        "identity": identity,
        "lanes": json.dumps([one.lanes for one in stacks]),
        "seconds": repr(seconds),
    }
    tensors = {
        f"{mark(at, len(stacks))}{name}": tensor.contiguous()
        for at, one in enumerate(stacks)
        for name, tensor in one.tensors.items()
    }
    # Counters and results stay on the host, whatever the device.
    host = [name for name, tensor in tensors.items() if tensor.device.type == "cpu"]
    about["host"] = json.dumps(sorted(host) if len(host) < len(tensors) else [])
    tensors["ledger"] = torch.from_numpy(stack.ledger.rows)
    if stack.ledger.totals is not None:
        tensors["totals"] = torch.from_numpy(stack.ledger.totals)
    about["words"] = json.dumps(stack.ledger.words)
    letters = [[pack(mail) for mail in one.inbox] for one in stacks]
    about["inbox"] = json.dumps([[envelope for envelope, _ in one] for one in letters])
    for at, one in enumerate(letters):
        for place, (_, content) in enumerate(one):
            tensors[letter(at, place)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    about["digest"] = digest(about, tensors)
    return save(tensors, about)


def opened(place: Path, device: torch.device) -> Saved:
    """What a checkpoint holds, if it is whole."""
    try:
        if not is_there(place) or place.is_symlink():
            raise OSError("it is no regular file")
        with safe_open(place, "pt", device=str(device)) as file:
            about = file.metadata() or {}
            # Copies: a tensor begins anywhere in the file, and how a product is summed depends on where its factors
            # begin.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DamagedError(error) from None
    if about.pop("digest", "") != digest(about, tensors):
        raise DamagedError("its content does not match its digest")
    return Saved(about, tensors)


def words_of(text: str) -> list[str]:
    """A list of words in JSON."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise DamagedError("it has something else where a list of words should be")
    return found


def mark(at: int, count: int) -> str:
    """What the names of a stack's tensors begin with in a checkpoint of several stacks."""
    return "" if count == 1 else f"{at}:"


def letter(at: int, place: int) -> str:
    """The name of a mail in a checkpoint: its place in the inbox of a stack."""
    return f"inbox:{at}:{place}"


def digest(about: dict[str, str], tensors: dict[str, torch.Tensor]) -> str:
    """The SHA-256 of all that a checkpoint says: what a disk or a copy has changed must not become a result."""
    value = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].cpu().contiguous()
        value.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        value.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return value.hexdigest()
